"""Local objectives: how a client turns its per-example losses into the scalar it differentiates.

An objective is ``(losses f32[B], mask bool[B], params, anchor) -> f32[]``; ``anchor`` is the model that the
client received. A user's own is any function of that form.
"""

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.checks import check_range
from fedjax_fair.solvers import masked_mean
from fedjax_fair.types import Objective, Params


def erm(losses: Array, mask: Array, params: Params, anchor: Params) -> Array:
    """Empirical risk: the mean loss over the batch's examples."""
    del params, anchor
    return masked_mean(losses, mask)


def proximal(mu: Array | float = 0.1, base: Objective = erm) -> Objective:
    r"""FedProx's local objective: :math:`\text{base} + \tfrac{\mu}{2} \|v - w_t\|^2`.

    Its gradient adds :math:`\mu (v - w_t)` to every step. ``mu = 0`` is ``base``.

    Args:
      mu: strength of the pull towards the received model, >= 0.
      base: the objective that the term is added to.

    Raises:
      ValueError: ``mu`` is negative.

    Source: Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020.
    """
    check_range("mu", mu, 0)

    def objective(losses: Array, mask: Array, params: Params, anchor: Params) -> Array:
        squares = jax.tree.map(lambda v, w: jnp.square(v - w).sum(), params, anchor)
        return base(losses, mask, params, anchor) + mu / 2 * jax.tree.reduce(jnp.add, squares)

    return objective

"""FedMGDA+: the shortest mixture of the normalised updates (Hu et al., 2022)."""

from typing import Literal

import jax.numpy as jnp
from jax import Array

from fedjax_fair.aggregators.stateless import init
from fedjax_fair.checks import check_choice, check_count, check_range
from fedjax_fair.numerics.simplex_qp import qp_box_simplex
from fedjax_fair.numerics.solvers import normalize, uniform_over
from fedjax_fair.types import Aggregator, Key, Report, State

STILL = 1e-8  # an update shorter than this has no direction


def fedmgda_plus(
    epsilon: Array | float = 0.1, prior: Literal["uniform", "size"] = "uniform", iterations: int = 300
) -> Aggregator:
    r"""Move along a direction that lowers every client's loss, as far as weights near the plain average allow.

    With unit updates :math:`u_k = (w_k - w) / \|w_k - w\|`,

    .. math:: \lambda^* = \arg\min_{\lambda \in \Delta,\ |\lambda - \lambda_0| \le \epsilon}
              \Big\| \sum_k \lambda_k u_k \Big\|^2, \qquad c_k = \lambda^*_k / \|w_k - w\|

    a box-constrained quadratic program on the normalised Gram matrix. The step is never longer than the
    server's learning rate, however small the updates have become: let the server's rate decay.

    Reads ``gram``, and ``n`` for the size prior. ``epsilon = 0`` averages unit updates; 1 is MGDA, whose direction
    lowers every loss if any does. That of a smaller box may raise some.

    Optimises: all clients' losses at once: it looks for a point where no direction lowers every one of them.

    Args:
      epsilon: half-width of the box around the prior, in [0, 1]; FedMABA tries {.1, 1}, AAggFF {.1, .5, 1}.
      prior: lambda_0, "uniform" or "size".
      iterations: of the solver at most, which ends where it has arrived. With updates like those of 100 clients of
        two classes each, 300 leave a duality gap below 1e-4 of the squared length.

    Raises:
      ValueError: ``epsilon`` outside [0, 1], another prior.

    Differs from the authors' code in: a client that did not move gets coefficient 0, instead of the largest
    share that its box allows.

    Source: Hu, Shaloudegi, Zhang, Yu, Federated Learning Meets Multi-Objective Optimization, IEEE TNSE 2022.
    """
    check_range("epsilon", epsilon, 0, 1)
    check_choice("prior", prior, ("uniform", "size"))
    check_count("iterations", iterations)

    def weigh(state: State, report: Report, key: Key) -> tuple[Array, State]:
        del key
        norm = jnp.sqrt(jnp.maximum(jnp.diagonal(report.gram), 0))
        moved = report.active & (norm > STILL)
        scale = jnp.where(moved, 1 / jnp.where(moved, norm, 1), 0)
        unit_gram = report.gram * scale[:, None] * scale[None, :]
        centre = normalize(report.n, moved) if prior == "size" else uniform_over(moved, norm.dtype)
        low, high = jnp.maximum(centre - epsilon, 0), jnp.minimum(centre + epsilon, 1)
        mixture = qp_box_simplex(2 * unit_gram, jnp.zeros_like(norm), centre, low, high, moved, iterations)
        return mixture * scale, state

    return Aggregator(init, weigh)

"""Any increasing transform of the client loss, by automatic differentiation."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.aggregators.stateless import init
from fedjax_fair.checks import check_choice, said
from fedjax_fair.numerics.by_numpy import UNKNOWN, evaluate
from fedjax_fair.numerics.solvers import normalize
from fedjax_fair.types import Aggregator, Key, Report, State, marked

TRIED = (-1.0, 0.01, 0.1, 1.0, 10.0, 100.0)
"""Losses at which phi's slope is looked at: below 0 it tells whether the rule can read losses that are."""
STEEPEST = 1e30  # slope that counts; its inverse is a float32 too


def reweighted(
    phi: Callable[[Array], Array] = jnp.square, weighting: Literal["uniform", "size"] = "uniform"
) -> Aggregator:
    r"""Minimise the sum of a transform of the clients' losses, to first order.

    .. math:: \min_w \sum_k \pi_k\, \varphi(F_k(w)), \qquad c_k \propto \pi_k\, \varphi'(F_k)

    since :math:`\nabla \varphi(F_k) = \varphi'(F_k) \nabla F_k`. Any increasing phi will do, which is q-FFL's
    idea without its choice of a power (and without its step size):

    * ``lambda F: F``: FedAvg;  * ``jnp.square`` (default): :func:`loss_proportional`;
    * ``lambda F: jnp.exp(t * F)``: :func:`term` (where exp(t F) stays below 1e30);
    * ``lambda F: -jnp.log(M - F)``: PropFair's first-order form, as long as every F is below M.

    Reads ``loss`` (received model, before training), and ``n`` for weighting by size.

    Optimises: sum_k pi_k phi(F_k).

    Args:
      phi: differentiable, increasing where the losses are: a scalar to a scalar. A slope below 0 counts as 0, one
        above 1e30 as 1e30; where all are 0 the prior alone weighs. A client whose slope is no number is left out.
      weighting: "uniform" or "size", the prior pi.

    Raises:
      ValueError: ``phi`` is not a function of one loss, another weighting.

    Warns: in ``simulation``, of a phi that increases nowhere.

    Source: Li et al., Fair Resource Allocation in Federated Learning, ICLR 2020, section 3, generalised.
    """
    if not callable(phi):
        raise ValueError(f"phi must be a function of the loss, such as lambda F: F**2, got {phi!r}")
    check_choice("weighting", weighting, ("uniform", "size"))
    below, *slopes = _slopes(phi)
    falling = not any(slope is UNKNOWN or slope > 0 for slope in slopes)

    def weigh(state: State, report: Report, key: Key) -> tuple[Array, State]:
        del key
        slope = jax.vmap(jax.grad(phi))(report.loss)
        known = report.active & ~jnp.isnan(slope)
        slope = jnp.clip(jnp.where(known, slope, 0), 0, STEEPEST)
        slope = jnp.where(slope.max() > 0, slope, 1)
        prior = report.n if weighting == "size" else jnp.ones_like(slope)
        coef = normalize(prior * (slope / slope.max()), known)  # so divided, no sum of slopes overflows
        return jnp.where(report.active & ~known, jnp.nan, coef), state

    marked(
        weigh,
        positive_losses=below is not UNKNOWN and not below > 0,
        remark="phi must increase with the loss, such as lambda F: F**2: got one whose slope is above 0 at none of "
        f"{', '.join(f'{F:g}' for F in TRIED[1:])}, which weighs by the prior alone"
        if falling
        else "",
    )
    return Aggregator(init, weigh)


def _slopes(phi: Callable[[Array], Array]) -> list[Any]:
    """The slope of ``phi`` at each of TRIED; UNKNOWN where a tracer decides."""
    try:
        program = jax.make_jaxpr(jax.vmap(jax.grad(phi)))(np.array(TRIED, np.float32))
    except Exception as error:  # whatever a user's function raises
        raise ValueError(
            f"phi must be a differentiable function of one loss, a traced scalar, got {said(error)}"
        ) from error
    (made,) = evaluate(program, np.array(TRIED, np.float32))
    return [UNKNOWN] * len(TRIED) if made is UNKNOWN else [float(slope) for slope in made]

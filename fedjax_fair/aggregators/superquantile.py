"""Superquantile aggregation, or Delta-FL: train for the clients in the tail of the losses (Laguel et al., 2021)."""

import jax.numpy as jnp
from jax import Array

from fedjax_fair.aggregators.stateless import init
from fedjax_fair.checks import check_range
from fedjax_fair.numerics.solvers import normalize
from fedjax_fair.types import Aggregator, Key, Report, State


def superquantile(theta: Array | float = 0.2) -> Aggregator:
    r"""Average the clients whose losses lie in the worst share theta of the cohort's examples, by size.

    With q the left (1 - theta)-quantile of the cohort's losses, each counted :math:`n_k` times,

    .. math:: c_k \propto n_k\, [F_k \ge q]

    Reads ``loss`` (received model, before training) and ``n``. ``theta = 1`` is FedAvg by size, ``theta = 0`` the
    client of the largest loss alone.

    Optimises: the superquantile (conditional value at risk) of the clients' losses: their mean over the worst
    share theta of all examples.

    Args:
      theta: the tail's share of the cohort's examples, in [0, 1]; the authors try {.1, .3, .5, .8}.

    Raises:
      ValueError: ``theta`` outside [0, 1].

    Differs from the paper in: a client on the boundary keeps its whole weight, as in the authors' code, where the
    maximiser of the superquantile cuts it.

    Source: Laguel, Pillutla, Malick, Harchaoui, A Superquantile Approach to Federated Learning with Heterogeneous
    Devices, CISS 2021; Pillutla et al., Federated Learning with Superquantile Aggregation for Heterogeneous Data,
    Machine Learning 2023.
    """
    check_range("theta", theta, 0, 1)

    def weigh(state: State, report: Report, key: Key) -> tuple[Array, State]:
        del key
        seen = report.active
        n = jnp.where(seen, report.n, 0)
        order = jnp.argsort(jnp.where(seen, report.loss, jnp.inf))
        # From the worst down: a few examples of a small client are exact there, however many all have.
        above = jnp.append(jnp.cumsum(n[order][:0:-1])[::-1], 0)
        # The products of floats need not be whole numbers where the examples' are: a little more is enough.
        tail = jnp.asarray(theta, n.dtype) * n.sum() * (1 + 4 * jnp.finfo(n.dtype).eps)
        first = jnp.argmax(above <= tail)
        kept = seen & (report.loss >= report.loss[order[first]])
        return normalize(report.n, kept), state

    return Aggregator(init, weigh)

"""Coefficients in proportion to the clients' losses."""

import jax.numpy as jnp
from jax import Array

from fedjax_fair.aggregators.stateless import init
from fedjax_fair.numerics.solvers import normalize
from fedjax_fair.types import Aggregator, Key, Report, State, marked

LARGEST = 1e30  # loss that counts: the sum of a cohort's, and its inverse, are float32 too


def loss_proportional() -> Aggregator:
    r"""Weigh each client in proportion to its loss.

    .. math:: c_k = F_k / \sum_{j \in S} F_j

    The first-order form of minimising :math:`\sum_k F_k^2 / 2`: :func:`reweighted` with phi = F^2 / 2. Losses that
    sum to 0 give the uniform average. Reads ``loss`` (received model, before training).

    Optimises: sum_k F_k^2 / 2.

    Source: the notes on q-FFL that ask for "any increasing function of the loss" (Fair Resource Allocation in
    Federated Learning, seminar notes); easyFL.
    """

    def weigh(state: State, report: Report, key: Key) -> tuple[Array, State]:
        del key
        return normalize(jnp.clip(report.loss, 0, LARGEST), report.active), state

    return Aggregator(init, marked(weigh, positive_losses=True))

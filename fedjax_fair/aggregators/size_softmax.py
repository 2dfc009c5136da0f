"""Coefficients by a softmax of minus the clients' sizes: small clients count more."""

import jax.numpy as jnp
from jax import Array

from fedjax_fair.aggregators.stateless import init
from fedjax_fair.checks import check_range
from fedjax_fair.numerics.solvers import masked_mean, softmax
from fedjax_fair.types import Aggregator, Key, Report, State


def size_softmax(temperature: Array | float = 1.0) -> Aggregator:
    r"""Weigh the clients with little data more.

    .. math:: c_k \propto e^{-\bar n_k / T}, \qquad \bar n_k = n_k / \operatorname{mean}_{j \in S} n_j

    Reads ``n``. Clients of one size give the uniform average.

    Optimises: sum_k c_k F_k, a mean loss of the clients in which the small ones count more.

    Args:
      temperature: T, above 0; 1 in the notes.

    Raises:
      ValueError: ``temperature`` is not above 0.

    Differs from the source in: sizes are relative to the cohort's mean; raw sizes saturate the softmax.

    Source: the notes on q-FFL (Fair Resource Allocation in Federated Learning, seminar notes).
    """
    check_range("temperature", temperature, 0, open_low=True)

    def weigh(state: State, report: Report, key: Key) -> tuple[Array, State]:
        del key
        mean = masked_mean(report.n, report.active)
        relative = report.n / jnp.where(mean > 0, mean, 1)
        return softmax(-relative / temperature, report.active), state

    return Aggregator(init, weigh)

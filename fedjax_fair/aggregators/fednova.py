"""FedNova: as much of every client's direction, however many steps it made (Wang et al., 2020)."""

import jax.numpy as jnp
from jax import Array

from fedjax_fair.aggregators.stateless import init
from fedjax_fair.checks import check_range
from fedjax_fair.numerics.solvers import normalize
from fedjax_fair.types import Aggregator, Key, Report, State


def fednova(momentum: Array | float = 0.0) -> Aggregator:
    r"""Divide every client's update by its number of steps, then give them all the mean number.

    With :math:`p_k = n_k / \sum_{j \in S} n_j` and :math:`\tau_k` local steps

    .. math:: c_k = p_k\,\tau / a_k, \qquad \tau = \sum_{j \in S} p_j a_j, \qquad
              a_k = \sum_{i=1}^{\tau_k} \frac{1 - \rho^i}{1 - \rho}

    For plain SGD (:math:`\rho = 0`) :math:`a_k = \tau_k`. The coefficients sum to at least 1. Reads ``n`` and
    ``steps``. Where all make the same number of steps, it is FedAvg.

    Optimises: sum_k n_k F_k / n, the mean loss of all examples, also where the numbers of local steps differ.

    Args:
      momentum: :math:`\rho` of the trainer's optimiser, in [0, 1), Nesterov's or not; .9 in the authors' runs.

    Raises:
      ValueError: ``momentum`` outside [0, 1); in ``simulation``, a trainer that does not count its steps.

    Differs from the authors' code in:
      1. under partial participation p is normalised over the cohort, where they have everybody;
      2. no proximal term: with FedProx's the authors' a_k is another one.

    Source: Wang, Liu, Liang, Joshi, Poor, Tackling the Objective Inconsistency Problem in Heterogeneous Federated
    Optimization, NeurIPS 2020.
    """
    check_range("momentum", momentum, 0, 1, open_high=True)

    def weigh(state: State, report: Report, key: Key) -> tuple[Array, State]:
        del key
        made = report.active & (report.steps > 0)
        rho = jnp.asarray(momentum, report.n.dtype)
        tau = jnp.where(made, report.steps, 1).astype(report.n.dtype)
        a = (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
        p = normalize(report.n, made)
        mean = jnp.where(made, p * a, 0).sum()
        return jnp.where(made, p * mean / a, 0), state

    return Aggregator(init, weigh)

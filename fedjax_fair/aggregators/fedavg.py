"""FedAvg: average the clients' models (McMahan et al., 2017)."""

from typing import Any, Literal

from jax import Array

from fedjax_fair.aggregators.stateless import init
from fedjax_fair.checks import check_choice
from fedjax_fair.numerics.solvers import normalize, uniform_over
from fedjax_fair.types import Aggregator, Key, Report, State


def fedavg(weighting: Literal["size", "uniform"] = "size") -> Aggregator:
    r"""Average the clients' models by their training-set sizes.

    .. math:: c_k = n_k / \sum_{j \in S} n_j \quad\text{or}\quad c_k = 1 / |S|

    The global objective is :math:`\sum_k n_k F_k / n` for uniform selection with size weights, or for
    size-proportional selection with uniform weights.

    Reads ``n``.

    Optimises: sum_k n_k F_k / n, the mean loss of all examples; with uniform weights sum_k F_k / N, of all
    clients.

    Args:
      weighting: "size" or "uniform".

    Raises:
      ValueError: another weighting.

    Source: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data,
    AISTATS 2017.
    """
    check_choice("weighting", weighting, ("size", "uniform"))

    def weigh(state: State, report: Report, key: Key) -> tuple[Array, Any]:
        del key
        if weighting == "uniform":
            return uniform_over(report.active, report.n.dtype), state
        return normalize(report.n, report.active), state

    return Aggregator(init, weigh)

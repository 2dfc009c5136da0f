"""FedProx: FedAvg with a pull towards the received model (Li et al., 2020)."""

from typing import Literal

from jax import Array

from fedjax_fair.aggregators.fedavg import fedavg
from fedjax_fair.checks import check_range
from fedjax_fair.local.objectives import proximal
from fedjax_fair.types import Method


def fedprox(mu: Array | float = 0.1, weighting: Literal["size", "uniform"] = "size") -> Method:
    r"""Pull every client's local training towards the received model; then FedAvg's average.

    .. math:: \min_v F_k(v) + \tfrac{\mu}{2} \|v - w_t\|^2 \text{ locally}, \qquad c_k = n_k / \sum_{j \in S} n_j

    Reads ``n``. ``mu = 0`` is FedAvg.

    Optimises: as :func:`fedavg`: the mean loss; the pull only limits how far a round may drift.

    Args:
      mu: strength of the pull, >= 0; the authors tune it in {.001, .01, .1, .5, 1}.
      weighting: "size" or "uniform", as in :func:`fedavg`.

    Raises:
      ValueError: ``mu`` is negative, or another weighting.

    Differs from the authors' code in: no random stragglers (a limit on local work is the engine's business).

    Source: Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020.
    """
    check_range("mu", mu, 0)
    return Method(fedavg(weighting), objective=lambda base: proximal(mu, base))

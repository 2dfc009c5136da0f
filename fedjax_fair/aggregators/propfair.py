"""PropFair: proportional fairness by a logarithm of the local loss (Zhang et al., 2023)."""

from typing import Literal

from jax import Array

from fedjax_fair.aggregators.fedavg import fedavg
from fedjax_fair.local.objectives import check_propfair, propfair_objective
from fedjax_fair.types import Method


def propfair(
    M: Array | float = 5.0,
    epsilon: Array | float = 0.2,
    huber: bool = False,
    weighting: Literal["size", "uniform"] = "size",
) -> Method:
    r"""Clients train on the logarithm of their distance from a loss M; then FedAvg's average.

    .. math:: \min_w -\sum_k n_k \log(M - F_k(w))

    The local objective is :func:`fedjax_fair.propfair_objective` on every minibatch, around the trainer's own with
    all of its terms; to have FedProx's outside take ``ff.fedprox()`` and a trainer with this objective. Reads ``n``
    or nothing.

    Optimises: -sum_k n_k log(M - F_k), proportional fairness of the clients' utilities M - F_k.

    Args:
      M: the loss that counts as worthless, above 0; the authors tune {2, 3, 5}.
      epsilon: where the logarithm is replaced by a line: losses above M - epsilon; .2 throughout the paper.
      huber: continue the logarithm smoothly (the published objective), or drop to the slope 1 / M.
      weighting: "size" or "uniform", as in :func:`fedavg`.

    Raises:
      ValueError: ``M`` or ``epsilon`` is not above 0, another weighting.

    Differs from the paper in: the logarithm ends in a line of slope 1 / M, as in the authors' code, on which most
    tables rest; ``huber=True`` is the published objective.

    Source: Zhang, Malekmohammadi, Chen, Yu, Proportional Fairness in Federated Learning, TMLR 2023.
    """
    check_propfair(M, epsilon)
    return Method(fedavg(weighting), objective=lambda base: propfair_objective(M, epsilon, huber, base))

"""DRFL: weights in proportion to the losses (Zhao and Joshi, 2022)."""

from fedjax_fair.aggregators.loss_proportional import loss_proportional
from fedjax_fair.types import Aggregator


def drfl() -> Aggregator:
    r"""Weigh each client in proportion to its loss: :func:`loss_proportional` by the name of a paper.

    .. math:: c_k = F_k / \sum_{j \in S} F_j

    Reads ``loss`` (received model, before training).

    Optimises: sum_k F_k^2 / 2.

    Differs from the paper in: the weights alone. The paper pairs them with a selection of clients that is biased
    towards large losses, such as ``ff.pow_d(m)``.

    Source: Zhao, Joshi, A Dynamic Reweighting Strategy for Fair Federated Learning, ICASSP 2022.
    """
    return loss_proportional()

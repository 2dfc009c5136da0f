"""FedSGD: one full-batch gradient step per client and round (McMahan et al., 2017)."""

from typing import Literal

from fedjax_fair.aggregators.fedavg import fedavg
from fedjax_fair.local.sgd import full_batch_step
from fedjax_fair.types import Method


def fedsgd(weighting: Literal["size", "uniform"] = "size") -> Method:
    r"""One full-batch gradient step per client and round, then FedAvg's average.

    .. math:: w_{t+1} = w_t - \eta \sum_k c_k \nabla F_k(w_t)

    The learning rate :math:`\eta`, its schedule and the objective are those of the simulation's
    ``local_sgd``; its epochs, steps and batch size are overridden. Reads ``n``.

    Optimises: as :func:`fedavg`: the mean loss of all examples, or of all clients.

    Args:
      weighting: "size" or "uniform", as in :func:`fedavg`.

    Raises:
      ValueError: another weighting; in ``simulation``, a trainer that is not ``local_sgd``'s.

    Source: McMahan et al., AISTATS 2017 (FedAvg with E = 1 and B = infinity).
    """
    return Method(fedavg(weighting), local=full_batch_step)

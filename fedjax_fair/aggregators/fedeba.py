"""FedEBA: the weights of greatest entropy that favour large losses (Wang et al.)."""

from typing import Literal

import jax.numpy as jnp
from jax import Array

from fedjax_fair.aggregators.stateless import init
from fedjax_fair.checks import check_choice, check_range
from fedjax_fair.numerics.solvers import centre, softmax
from fedjax_fair.types import Aggregator, Key, Report, State


def fedeba(tau: Array | float = 1.0, prior: Literal["uniform", "size"] = "uniform") -> Aggregator:
    r"""Maximise the entropy of the weights under a constraint on the weighted loss.

    .. math:: c_k \propto \pi_k\, e^{F_k / \tau}

    with :math:`\pi` uniform or :math:`\propto n_k`. Reads ``loss`` (received model, before training), and ``n``
    for the size prior. ``tau`` to infinity is FedAvg of the same weighting.

    Optimises: tau log(sum_k pi_k exp(F_k / tau)), a soft maximum of the clients' losses.

    Args:
      tau: temperature, above 0; try {.05, .1, .5, 1}.
      prior: "uniform" or "size".

    Raises:
      ValueError: ``tau`` is not above 0, another prior.

    Differs from the paper in: these are FedEBA's aggregation weights alone. ``fedeba_plus`` has the alignment of
    FedEBA+ besides: local steps towards a fair gradient that the server sends where losses lie far apart.

    Source: Wang et al., FedEBA+: Towards Fair and Effective Federated Learning via Entropy-Based Model, 2023.
    """
    check_range("tau", tau, 0, open_low=True)
    check_choice("prior", prior, ("uniform", "size"))

    def weigh(state: State, report: Report, key: Key) -> tuple[Array, State]:
        del key
        log_prior = jnp.log(jnp.where(report.active, report.n, 1)) if prior == "size" else 0
        return softmax(centre(report.loss, report.active) / tau + log_prior, report.active), state

    return Aggregator(init, weigh)

"""Coefficients by a softmax of the clients' losses."""

from jax import Array

from fedjax_fair.aggregators.fedeba import fedeba
from fedjax_fair.checks import check_range
from fedjax_fair.types import Aggregator


def loss_softmax(temperature: Array | float = 1.0) -> Aggregator:
    r"""Weigh each client by the softmax of its loss.

    .. math:: c_k \propto e^{F_k / T}

    The same as :func:`term` with t = 1 / T and uniform weighting, and as :func:`fedeba` with tau = T. Reads
    ``loss`` (received model, before training).

    Optimises: T log(sum_k exp(F_k / T)), a soft maximum of the clients' losses.

    Args:
      temperature: T, above 0; 1 in the notes; the larger, the nearer to the uniform average.

    Raises:
      ValueError: ``temperature`` is not above 0.

    Source: the notes on q-FFL (Fair Resource Allocation in Federated Learning, seminar notes), T = 1.
    """
    check_range("temperature", temperature, 0, open_low=True)

    return fedeba(temperature)

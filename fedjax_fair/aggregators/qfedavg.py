"""q-FedAvg: minimise the sum of the clients' losses to the power q + 1 (Li et al., 2020)."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.checks import check_range, said
from fedjax_fair.types import Aggregator, Key, Report, marked

STEEPEST = 1e30
"""L that counts."""


class QFedAvgState(NamedTuple):
    """What q-FedAvg carries."""

    round: Array  # i32[], rounds played; only a schedule of the Lipschitz constant reads it


def qfedavg(q: Array | float = 1.0, *, lipschitz: Array | float | Callable[[Array], Array]) -> Aggregator:
    r"""Minimise the sum of the clients' losses to the power q + 1: the larger the loss, the larger the weight.

    With :math:`v_k = L (w_t - w_k)` (L is ``lipschitz``), the server makes the step

    .. math:: w_{t+1} = w_t - \frac{\sum_k F_k^q v_k}{\sum_k h_k}, \qquad
              h_k = q F_k^{q-1} \|v_k\|^2 + L F_k^q

    which in coefficients of the updates is :math:`c_k = L F_k^q / \sum_j h_j`. They sum to at most 1, and to
    less as soon as q > 0: the rule carries a step size of its own.

    Reads ``loss`` (received model, before training) and the diagonal of ``gram``. ``q = 0`` is uniform FedAvg.

    Optimises: sum_k p_k F_k^(q + 1) / (q + 1), with p_k = n_k / n under size_proportional selection, as in the
    paper, and p_k = 1 / N under uniform.

    Args:
      q: fairness; the paper tries 0 to 15.
      lipschitz: L, one over the local learning rate (which the command line sets it to): a number, or a
        function of the round (i32, from 0) for a rate that decays. It is the rule's own argument because a rule
        never sees the learning rate.

    Raises:
      ValueError: ``q`` is negative, ``lipschitz`` is not above 0, or a function that gives no number.

    Differs from the authors' code in: :math:`F_k^q` is computed from logarithms relative to the largest loss
    (the factor cancels), so that no power overflows; 1e-10 is added to every loss as there.

    Source: Li, Sanjabi, Beirami, Smith, Fair Resource Allocation in Federated Learning, ICLR 2020, Algorithm 2.
    """
    return q_ffl("loss", q, lipschitz)


def q_ffl(
    signal: Literal["loss", "train_loss"], q: Array | float, lipschitz: Array | float | Callable[[Array], Array]
) -> Aggregator:
    """The step of :func:`qfedavg` and :func:`qfedsgd`, which differ in the loss that they read."""
    check_range("q", q, 0)
    if callable(lipschitz):
        check_of_round("lipschitz", lipschitz)
    else:
        check_range("lipschitz", lipschitz, 0, open_low=True)

    def init(sizes: Array, key: Key | None = None) -> QFedAvgState:
        del sizes, key
        return QFedAvgState(jnp.zeros((), jnp.int32))

    def weigh(state: QFedAvgState, report: Report, key: Key) -> tuple[Array, QFedAvgState]:
        del key
        seen, loss = report.active, getattr(report, signal)
        L = jnp.asarray(lipschitz(state.round) if callable(lipschitz) else lipschitz, loss.dtype)
        L = jnp.minimum(L, STEEPEST)  # one over a rate that has decayed to 0, which moves nobody: inf * 0 is nan
        log_loss = jnp.log(jnp.where(seen, jnp.maximum(loss, 0), 0) + 1e-10)
        top = jnp.max(log_loss, where=seen, initial=-jnp.inf)
        top = jnp.where(seen.any(), top, 0)
        F_q = jnp.where(seen, jnp.exp(q * (log_loss - top)), 0)  # F_k^q, the largest being 1
        # h_k / L = F_q + h_1. A vanishing loss makes F_k^(q-1) huge (1e10 at most, by the lift above):
        # the step then vanishes.
        F_q1 = jnp.exp((q - 1) * log_loss - q * top)
        h_1 = q * L * jnp.where(seen, jnp.diagonal(report.gram), 0) * F_q1
        h = (h_1 + F_q).sum()
        return F_q / jnp.where(h > 0, h, 1), QFedAvgState(state.round + 1)

    return Aggregator(init, marked(weigh, positive_losses=True))


def check_of_round(name: str, function: Callable[[Array], Array]) -> None:
    """Raise ValueError unless a function of the round gives one number; traced, nothing computed."""
    try:
        shape = jax.eval_shape(lambda r: jnp.asarray(function(r), float), jnp.zeros((), jnp.int32)).shape
    except Exception as error:  # whatever a user's function raises
        reason = said(error)
        raise ValueError(
            f"{name} must be a number or a function of the round (i32, traced), got {reason}"
        ) from error
    if shape:
        raise ValueError(f"{name} must give one number for a round, got shape {list(shape)}")

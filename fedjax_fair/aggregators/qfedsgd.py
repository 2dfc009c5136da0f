"""q-FedSGD: q-FFL with one gradient per client and round (Li et al., 2020)."""

from collections.abc import Callable

from jax import Array

from fedjax_fair.aggregators.qfedavg import q_ffl
from fedjax_fair.local.sgd import one_step
from fedjax_fair.types import Method


def qfedsgd(q: Array | float = 1.0, *, lipschitz: Array | float | Callable[[Array], Array]) -> Method:
    r"""One minibatch gradient per client, weighed by that batch's loss to the power q.

    .. math:: w_{t+1} = w_t - \frac{\sum_k F_k^q g_k}{\sum_k h_k}, \qquad
              h_k = q F_k^{q-1} \|g_k\|^2 + L F_k^q

    where :math:`g_k` is the gradient of the batch, and :math:`F_k` the loss of the batch that made it. The gradient
    is ``L`` times the local step, with ``L`` one over the learning rate of the simulation's SGD. The trainer's
    epochs and steps are overridden by one step of its batch size.

    Reads ``train_loss`` and the diagonal of ``gram``. ``q = 0`` is FedSGD of uniform weights.

    Optimises: sum_k p_k F_k^(q + 1) / (q + 1), with p_k = n_k / n under size_proportional selection, as in the
    paper, and p_k = 1 / N under uniform.

    Args:
      q: fairness; the paper uses 1 on Synthetic(1, 1), up to 15 elsewhere.
      lipschitz: L, one over the local learning rate (which the command line sets it to): a number, or a
        function of the round (i32, from 0).

    Raises:
      ValueError: ``q`` is negative, ``lipschitz`` is not above 0; in ``simulation``, a trainer that is not
        ``local_sgd``'s.

    Differs from the paper in: loss and gradient are those of one batch, drawn with replacement, not of all the
    client's data (``batch_size=None``); as in the authors' code 1e-10 is added to the loss.

    Source: Li, Sanjabi, Beirami, Smith, Fair Resource Allocation in Federated Learning, ICLR 2020, Algorithm 1.
    """
    return Method(q_ffl("train_loss", q, lipschitz), local=one_step)

"""FedDyn: a regulariser that moves with the client (Acar et al., 2021)."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fedjax_fair.aggregators.fedavg import fedavg
from fedjax_fair.checks import check_range
from fedjax_fair.local.remembering import Around, Finish, plus, squared_distance
from fedjax_fair.methods.base import around, of_all, zeros
from fedjax_fair.numerics.batch_sum import over_clients
from fedjax_fair.types import (
    Aggregator,
    Client,
    LossFn,
    Memory,
    Method,
    Params,
    Report,
    Trace,
    Transform,
)


def feddyn(alpha: Array | float = 0.01, aggregator: Aggregator | Method | None = None) -> Method:
    r"""Every client bends its loss so that at the end its minimum and the federation's are one.

    With the client's sum of its own moves :math:`m_k` and the server's mean h of them, 0 at first, from the
    received w:

    .. math:: w_k \approx \arg\min_v F_k(v) + \tfrac{\alpha}{2} \|v - w + m_k\|^2, \qquad
              m_k \leftarrow m_k + (w_k - w)

    .. math:: h \leftarrow h + \tfrac1N \sum_{k \in S} (w_k - w), \qquad
              w \leftarrow w + \textstyle\sum_{k \in S} c_k (w_k - w) + h

    with the aggregator's coefficients c, by default those of the mean. In the paper's letters
    :math:`g_k = -\alpha m_k` and its h is :math:`-\alpha h`. Reads ``updates``, and what ``aggregator`` reads. With
    :math:`\alpha = 0` clients train as FedAvg's, but the server still adds h to their mean. Keeps a model's size
    for every client.

    Optimises: as its aggregator: by default sum_k F_k / N, the mean of all clients.

    Args:
      alpha: strength of the pull, >= 0; the authors search {.1, .01, .001}. Below 2 over the local rate, or local
        training diverges.
      aggregator: the server's rule, without a transform of its own; by default ``fedavg("uniform")``.

    Raises:
      ValueError: ``alpha`` is negative, or an aggregator whose clients remember or that has a server transform; in
        ``simulation``, ``ff.excluding``: N are all clients.

    Differs from the paper in: local training is what the trainer does, a number of steps, not the minimum, as in
    the authors' code.
    Differs from the authors' code in: clients weigh alike whatever their size, and no gradient is clipped.

    Source: Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021.
    """
    check_range("alpha", alpha, 0)

    def local(trainer: Any) -> Around:
        def plan(loss: LossFn, params: Params, client: Client) -> tuple[LossFn, Params, Finish]:
            centre = jax.tree.map(jnp.subtract, params, client.memory)

            def finish(trained: Params, trace: Trace) -> tuple:
                moved = jax.tree.map(lambda m, new, old: m + (new - old), client.memory, trained, params)
                return trained, trace, moved

            return plus(loss, lambda v: alpha / 2 * squared_distance(v, centre)), params, finish

        return Around(trainer, plan)

    def transform(n_clients: int, cohort: int) -> Transform:
        def update(updates: Params, h: Params, params: Params = None, *, report: Report, **_: Any) -> Any:
            del params
            h = jax.tree.map(lambda h, moves: h + over_clients(moves) / n_clients, h, report.updates)
            return jax.tree.map(jnp.subtract, updates, h), h  # of gradients: the server goes against them

        return optax.GradientTransformationExtraArgs(zeros, update)

    base = fedavg("uniform") if aggregator is None else aggregator
    made = around("feddyn", base, Memory(init=zeros), local, own_server=True)
    everybody = of_all("feddyn divides by all clients, also those who never train", made)
    return made._replace(transform=transform, selector=everybody)

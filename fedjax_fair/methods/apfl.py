"""APFL: a mixture of a personal model and the global one (Deng et al., 2020)."""

from typing import Any

import jax
import optax
from jax import Array

from fedjax_fair.aggregators.fedavg import fedavg
from fedjax_fair.checks import check_range
from fedjax_fair.local.remembering import Several, need_local_sgd
from fedjax_fair.methods.base import around
from fedjax_fair.types import Aggregator, Batch, Client, Key, LossFn, Memory, Method, Params


def apfl(alpha: Array | float = 0.5, aggregator: Aggregator | Method | None = None) -> Method:
    r"""Every client uses a mixture of its own model and the global one, and trains its own for the mixture's sake.

    With the client's v_k, and w_k from the received w, in every local step on the same batch

    .. math:: w_k \leftarrow w_k - \eta \nabla F_k(w_k), \qquad
              v_k \leftarrow v_k - \eta \nabla_v F_k(\alpha v_k + (1 - \alpha) w_k)

    whose last gradient is :math:`\alpha` times that at the mixture. The global model is trained as without it.
    ``evaluate=("test@personal",)`` scores :math:`\alpha v_k + (1 - \alpha) w`. Reads what ``aggregator`` reads.
    ``alpha = 0`` is its aggregator's model for everybody, 1 every client alone. F_k is the aggregator's local
    objective: FedProx's term holds the mixture, too. Keeps a model for every client; a
    round costs about two of its aggregator's.

    Optimises: for every client F_k of its mixture.

    Args:
      alpha: share of the client's own model, in [0, 1], the same for all; the paper tries .25, .5 and .75.
      aggregator: how the global model is made; by default ``fedavg()``.

    Raises:
      ValueError: ``alpha`` outside [0, 1], an aggregator whose clients remember; in ``simulation``, a trainer that
        is not ``local_sgd``'s.

    Differs from the paper in:
      1. alpha is the same for all, and not learned;
      2. w is weighed by the clients' sizes; ``aggregator=ff.fedavg("uniform")`` is the paper's;
      3. a client that is not selected keeps v_k, and its mixture is with the server's newest model.

    Source: Deng, Kamani, Mahdavi, Adaptive Personalized Federated Learning, 2020.
    """
    check_range("alpha", alpha, 0, 1)

    def mixed(params: Params, own: Params) -> Params:
        return jax.tree.map(lambda w, v: (alpha * v + (1 - alpha) * w).astype(w.dtype), params, own)

    def local(trainer: Any) -> Several:
        sgd = need_local_sgd(trainer, "apfl")
        both = sgd._replace(optimizer=_each(sgd.optimizer))

        def work(loss: LossFn, params: Params, client: Client, key: Key, round: Array) -> tuple:
            def joint(pair: Params, batch: Batch, start: Params) -> tuple[Array, Array]:
                (w, v), (received, _) = pair, start
                value, plain = loss(w, batch, received)
                return value + loss(mixed(jax.lax.stop_gradient(w), v), batch, received)[0], plain

            (trained, own), trace = both(joint, (params, client.memory), client, key, round)
            return trained, trace, own

        return Several(trainer, work)

    memory = Memory(init=lambda params: params, personal=mixed)
    return around("apfl", fedavg() if aggregator is None else aggregator, memory, local)


def _each(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """The optimiser for two models, each by itself: a norm that it clips by is that of one."""

    def init(pair: Params) -> Any:
        return tuple(optimizer.init(model) for model in pair)

    def update(gradients: Params, states: Any, pair: Params = None) -> Any:
        done = [optimizer.update(*each) for each in zip(gradients, states, pair)]
        return tuple(move for move, _ in done), tuple(state for _, state in done)

    return optax.GradientTransformation(init, update)

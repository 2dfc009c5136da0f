"""SCAFFOLD: control variates against the drift of local training (Karimireddy et al., 2020)."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fedjax_fair.aggregators.fedavg import fedavg
from fedjax_fair.local.remembering import Around, Finish, full_gradient, inner, need_local_sgd, plus
from fedjax_fair.methods.base import around, of_all, zeros
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
    as_method,
    server_transform,
)


def scaffold(option: Literal[1, 2] = 2, aggregator: Aggregator | Method | None = None) -> Method:
    r"""Correct every local step by the difference between the server's and the client's mean gradient.

    With the client's control :math:`c_k` and the server's c, all 0 at first, K local steps from the received w:

    .. math:: v \leftarrow v - \eta\,(\nabla F_k(v) - c_k + c), \qquad
              c_k^+ = \begin{cases} \nabla F_k(w) & \text{option 1} \\
              \frac1K \sum_{j < K} \nabla F_k(v_j) & \text{option 2} \end{cases}

    The server moves as ``aggregator`` says, uniform FedAvg in the paper, and

    .. math:: c \leftarrow c + \tfrac1N \sum_{k \in S} (c_k^+ - c_k)

    Its step :math:`\eta_g` is the simulation's ``server_optimizer=optax.sgd(eta_g)``. Reads ``message``, the change
    of :math:`c_k`, and what ``aggregator`` reads. With another rule the models are weighed as it says and the
    controls as here: q-FedAvg's step of its own does not touch them. Everybody in every round and one full-batch
    step make it FedAvg's step. Keeps a model's size for every client, and sends one twice, each way.

    Optimises: as its aggregator: by default sum_k F_k / N, the mean of all clients.

    Args:
      option: 1 (one gradient on all of a client's data besides its training) or 2 (nothing besides).
      aggregator: the server's rule; by default ``fedavg("uniform")``.

    Raises:
      ValueError: another option, an aggregator whose clients remember; in ``simulation``, a trainer that is not
        ``local_sgd``'s under option 2, or ``ff.excluding``: N are all clients.

    Differs from the paper in: option 2 takes the mean of the local gradients. For plain SGD that is the printed
    :math:`c_k - c + (w - v) / (K \eta)`, a weight decay included. It needs no rate: a schedule, momentum or Adam
    change nothing in it.
    Differs from the FedDyn authors' code, which most tables use, in: clients weigh alike whatever their size.

    Source: Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020.
    """
    if option not in (1, 2) or isinstance(option, bool):
        raise ValueError(f"option must be 1 or 2, got {option!r}")
    base = fedavg("uniform") if aggregator is None else aggregator

    def local(trainer: Any) -> Around:
        if option == 2:
            trainer = need_local_sgd(trainer, "scaffold(option=2)")._replace(gradient=True)

        def plan(loss: LossFn, params: Params, client: Client) -> tuple[LossFn, Params, Finish]:
            drift = jax.tree.map(jnp.subtract, client.broadcast, client.memory)  # c - c_k

            def finish(trained: Params, trace: Trace) -> tuple:
                if option == 1:
                    control = full_gradient(loss, params, client)
                    change = jax.tree.map(jnp.subtract, control, client.memory)
                else:
                    moved = jnp.asarray(trace.steps) > 0  # without a step nothing is learnt of the gradient

                    def learnt(mean: Array, own: Array, before: Array) -> Array:
                        return jnp.where(moved, mean - own, before)

                    control = jax.tree.map(learnt, trace.gradient, drift, client.memory)
                    # c_k^+ - c_k, without reading c_k again
                    change = jax.tree.map(learnt, trace.gradient, client.broadcast, zeros(params))
                return trained, trace, control, change

            return plus(loss, lambda v: inner(drift, v)), params, finish

        return Around(trainer, plan)

    def transform(n_clients: int, cohort: int) -> Transform:
        def update(updates: Params, c: Params, params: Params = None, *, report: Report, **_: Any) -> Any:
            del params
            return updates, jax.tree.map(lambda c, change: c + change / n_clients, c, report.message)

        keeps = optax.GradientTransformationExtraArgs(zeros, update)
        return optax.chain(keeps, server_transform(as_method(base), n_clients, cohort))

    memory = Memory(init=zeros, message=zeros, broadcast=lambda state: state[0], summed=True)
    made = around("scaffold", base, memory, local)
    everybody = of_all("scaffold divides by all clients, also those who never train", made)
    return made._replace(transform=transform, selector=everybody)

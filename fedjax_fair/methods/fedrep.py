"""FedRep: the personal layers first, then the shared ones (Collins et al., 2021)."""

from typing import Any

import jax
from jax import Array

from fedjax_fair.aggregators.fedavg import fedavg
from fedjax_fair.checks import check_count
from fedjax_fair.local.remembering import Several, as_late, need_local_sgd
from fedjax_fair.local.sgd import LocalSGD
from fedjax_fair.methods.base import around
from fedjax_fair.methods.fedper import own_layers
from fedjax_fair.methods.layers import Personal, check_personal, named, paths_of, with_named
from fedjax_fair.types import Aggregator, Batch, Client, Key, LossFn, Method, Params


def fedrep(
    personal: Personal = "last", head_times: int = 10, aggregator: Aggregator | Method | None = None
) -> Method:
    r"""Layers of the client's own are trained on the received base, then the base under them.

    .. math:: v_k \approx \arg\min_v F_k(w, v), \qquad w_k = w - \eta \textstyle\sum \nabla_w F_k(\cdot, v_k)

    As :func:`fedper`, but one after the other: ``head_times`` the trainer's local work for v_k with the base held,
    then that work once for the base with v_k held. A ``limit`` on steps is the base's; the head's is ``head_times``
    that. Reads what ``aggregator`` reads; losses that it reads are those of the personal model. Keeps the personal
    layers of every client.

    Optimises: sum_k n_k F_k / n over the shared layers and everybody's own.

    Args:
      personal: the layers that stay, as in :func:`fedper`.
      head_times: how often the head's training is the base's; 10 epochs to 1 in the paper's experiments.
      aggregator: the server's rule for the shared layers; by default ``fedavg()``.

    Raises:
      ValueError: ``personal`` is neither, ``head_times`` below 1, an aggregator whose clients remember; in
        ``simulation``, a trainer that is not ``local_sgd``'s, or a pattern that matches nothing.

    Source: Collins, Hassani, Mokhtari, Shakkottai, Exploiting Shared Representations for Personalized Federated
    Learning, ICML 2021.
    """
    check_personal(personal)
    check_count("head_times", head_times)

    def local(trainer: Any) -> Several:
        sgd = need_local_sgd(trainer, "fedrep")
        longer = _times(sgd, head_times)

        def work(loss: LossFn, params: Params, client: Client, key: Key, round: Array) -> tuple:
            body = [path for path in paths_of(params) if path not in client.memory]
            again = jax.random.fold_in(key, 3)  # other batches than the head's
            first, second = (as_late(one, sgd, client, key) for one in (longer, sgd))
            begun = with_named(params, client.memory)
            own = named(first(_holding(loss, named(begun, body)), begun, client, key, round)[0], client.memory)
            begun = with_named(params, own)
            trained, trace = second(_holding(loss, own), begun, client, again, round)
            return with_named(trained, named(params, own)), trace, own

        return Several(trainer, work)

    return around("fedrep", fedavg() if aggregator is None else aggregator, own_layers(personal), local)


def _times(sgd: LocalSGD, times: int) -> LocalSGD:
    epochs, steps = (None if count is None else times * count for count in (sgd.epochs, sgd.steps))
    return sgd._replace(epochs=epochs, steps=steps)


def _holding(loss: LossFn, held: dict[str, Array]) -> LossFn:
    """The loss as a function of the leaves that are not held. These stay as they are, whatever an optimiser makes
    of no gradient, such as a decay of the weights; the caller puts them back."""

    def of_others(params: Params, batch: Batch, anchor: Params) -> tuple[Array, Array]:
        return loss(with_named(params, held), batch, anchor)

    return of_others

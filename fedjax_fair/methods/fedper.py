"""FedPer: personal layers on a shared base (Arivazhagan et al., 2019)."""

from typing import Any

from fedjax_fair.aggregators.fedavg import fedavg
from fedjax_fair.local.remembering import Around, Finish
from fedjax_fair.methods.base import around
from fedjax_fair.methods.layers import Personal, check_personal, kept, named, paths_of, with_named
from fedjax_fair.types import Aggregator, Client, LossFn, Memory, Method, Params, Trace


def fedper(personal: Personal = "last", aggregator: Aggregator | Method | None = None) -> Method:
    r"""Some layers stay at the client, the others are shared: both are trained at once.

    .. math:: \min_{w,\,v_1, \dots, v_N} \sum_k n_k F_k(w, v_k) / n

    A client puts its own layers v_k on the received base w, trains all of them, sends the change of the base and
    keeps v_k. Layers begin as in the first model, which is also what the global model's stay
    (unless the server's optimiser decays weights, or noise is added to them):
    ``evaluate=("test@personal",)`` scores (w, v_k). Reads what ``aggregator`` reads; losses that it reads are those
    of the personal model. With nothing personal it is its aggregator. Keeps the personal layers of every client.

    Optimises: sum_k n_k F_k / n over the shared layers and everybody's own.

    Args:
      personal: the layers that stay: "last", on every way to the model's outputs the last matrix and what comes
        after it, of a model of one layer its biases; a regular expression that is looked for in a parameter's path,
        such as "Dense_1/"; or a function of it.
      aggregator: the server's rule for the shared layers; by default ``fedavg()``.

    Raises:
      ValueError: ``personal`` is neither; an aggregator whose clients remember; in ``simulation``, a pattern that
        matches nothing.

    Source: Arivazhagan et al., Federated Learning with Personalization Layers, 2019.
    """
    check_personal(personal)

    def local(trainer: Any) -> Around:
        def plan(loss: LossFn, params: Params, client: Client) -> tuple[LossFn, Params, Finish]:
            def finish(trained: Params, trace: Trace) -> tuple:
                return with_named(trained, named(params, client.memory)), trace, named(trained, client.memory)

            return loss, with_named(params, client.memory), finish

        return Around(trainer, plan)

    return around("fedper", fedavg() if aggregator is None else aggregator, own_layers(personal), local)


def own_layers(personal: Personal) -> Memory:
    """A memory of the layers that stay, by their paths; on the model with these a client reports."""

    def init(params: Params) -> dict[str, Any]:
        return named(params, [path for path, flag in zip(paths_of(params), kept(personal, params)) if flag])

    found = own_layers if isinstance(personal, str) and personal == "last" else None
    return Memory(init, personal=with_named, received=with_named, of_head=found)

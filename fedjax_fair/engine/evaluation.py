"""Every client's results on the splits that a simulation evaluates."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jax import Array
from jax.sharding import Mesh

from fedjax_fair.data import FederatedData
from fedjax_fair.engine.failures import unless_dead
from fedjax_fair.engine.signals import every_client
from fedjax_fair.models.client_metrics import Whole
from fedjax_fair.types import Evaluation, Params, SimState


def evaluator(
    scores: Any,
    names: Sequence[str],
    eval_batch: int,
    mesh: Mesh | None,
    alone: Callable[[str, Params, FederatedData, Any], Evaluation],
    wholes: Sequence[Whole],
    named: Callable[[Sequence[Array]], Evaluation],
    capacity: Mapping[str, int],
) -> Callable[..., dict[str, Evaluation]]:
    """``(params, data, memory, who) -> every client's metrics and loss on each of the splits``, ``named``.

    ``who``, bool[N], says who judges a model that all share; others have NaN, and None is everybody. ``alone``
    judges where every client has a model of its own, as in "test@personal", and there all do; without a memory, as
    of a model that was trained elsewhere, that is the one given. ``capacity`` of a split is its largest client's
    size, for metrics of ``wholes``.
    """

    def evaluation(
        params: Params, data: FederatedData, memory: Any = None, who: Array | None = None
    ) -> dict[str, Evaluation]:
        n = data.n_clients
        if who is not None and (who.dtype != bool or who.shape != (n,)):
            raise ValueError(f"who must be bool[{n}], one for each client, got {who.dtype}{list(who.shape)}")

        def judge(name: str) -> Evaluation:
            split, _, kind = name.partition("@")
            if kind == "tuned" or (kind and memory is not None):
                return alone(name, params, data, memory)
            most = capacity.get(split, 0)
            found = every_client(scores, params, data, getattr(data, split), eval_batch, mesh, wholes, most, who)
            return unless_dead(named(found), params)

        # JAX sorts the keys of a plain dict, and the history leads with the first split.
        return OrderedDict((name, judge(name)) for name in names)

    return evaluation


def scored(evaluate: Callable, deploy: Callable, state: SimState, data: Any) -> dict[str, Evaluation]:
    """Every client's results after so many rounds: the model's, and those of what clients remember."""
    return evaluate(deploy(state), data, *(() if state.memory is None else (state.memory,)))

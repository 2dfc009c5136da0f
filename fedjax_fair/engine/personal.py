"""Every client judged by a model of its own: the one that it remembers, or the global one tuned on its data.

Clients do not share weights here, so every client's examples go through its own model: some clients side by side,
vmapped, and on an accelerator as many as their models leave room for.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh

from fedjax_fair.checks import check_choice
from fedjax_fair.data import FederatedData, Split
from fedjax_fair.engine.devices import shared_out
from fedjax_fair.engine.failures import all_finite, judged_by, numbers
from fedjax_fair.engine.signals import Score, examples
from fedjax_fair.engine.training import client_of
from fedjax_fair.engine.whole_clients import kept_of, of_client
from fedjax_fair.models.client_metrics import Whole
from fedjax_fair.numerics.model_size import bytes_of
from fedjax_fair.types import Evaluation, Key, LossFn, Memory, Params, Train

KINDS = ("personal", "tuned")
SIDE_BY_SIDE = 2**18, 2**28
"""Bytes of models that are judged side by side: on a CPU, whose cores a larger model keeps busy, and elsewhere."""
IN_TURN = 64  # examples at most in a pass of a model that is judged alone: half of the last is nobody's
ModelOf = Callable[[Array], Params]
"""``id i32[] -> the client's model``."""
Own = Callable[[Params, FederatedData, Any], ModelOf]
"""``(global model, data, memory of all) -> whose model is which``."""


class FineTune(NamedTuple):
    """An evaluation of the global model after every client has tuned it; made by :func:`fine_tune`."""

    trainer: Any
    split: str = "test"

    @property
    def name(self) -> str:
        """What the history calls it."""
        return f"{self.split}@tuned"


def fine_tune(trainer: Train, split: str = "test") -> FineTune:
    """An evaluation for ``simulation(evaluate=["test", fine_tune(trainer)])``: every client first tunes the model.

    Each of the N clients trains the deployed model on its own training examples and is scored with what it gets,
    under the name ``"test@tuned"``. Nothing of it is kept. Every evaluation, of every seed, tunes on the same
    batches, as in round 0: intervals over seeds hold nothing of their chance. It costs the local work of N clients.

    Args:
      trainer: the tuning, such as ``ff.local_sgd(optax.sgd(.01), steps=5, batch_size=10)``, with its own objective.
      split: what is scored: "test", "validation" or "train".

    Raises:
      ValueError: in ``simulation``, another split or something that is no trainer.
    """
    return FineTune(trainer, split)


def names_of(evaluate: Any, memory: Memory | None) -> Any:
    """What ``evaluate`` asks for by name, such as "test", "test@personal" or "test@tuned".

    Raises:
      ValueError: a kind that there is not or that the method has no models for, or a name twice.
    """
    if isinstance(evaluate, FineTune):
        raise ValueError("evaluate must be a non-empty list of splits, such as ('test',), got one fine_tune")
    if not isinstance(evaluate, (list, tuple)) or not evaluate:
        return evaluate  # refused where splits are
    names = [entry.name if isinstance(entry, FineTune) else entry for entry in evaluate]
    for entry, name in zip(evaluate, names):
        split, at, kind = name.partition("@") if isinstance(name, str) else (name, "", "")
        if isinstance(entry, FineTune):
            if names.count(name) > 1:
                raise ValueError(
                    f"evaluate must name each of its results once, got {name} {names.count(name)} times"
                )
        elif at and check_choice("kind in evaluate", kind, KINDS) == "tuned":
            raise ValueError(f"evaluate takes ff.fine_tune(trainer, {split!r}) for tuned models, got {name!r}")
        elif at and (memory is None or memory.personal is None):
            raise ValueError(
                f"evaluate asks for {name}, but the aggregator has no personal models, as ff.ditto() has"
            )
    return names


def remembered(memory: Memory) -> Own:
    """The personal models of a method."""

    def of(params: Params, data: FederatedData, kept: Any) -> ModelOf:
        del data
        return own_model(memory.personal, params, kept)

    return of


def own_model(make: Callable[[Params, Any], Params] | None, params: Params, kept: Any) -> ModelOf:
    """``id -> make(params, its memory)``."""
    assert make is not None  # names_of has seen to that
    return lambda id: make(params, jax.tree.map(lambda leaf: leaf[id], kept))


def tuned(train: Train, loss: LossFn, sizes: np.ndarray) -> Own:
    """The models that clients of these sizes make of the global one."""
    largest = int(sizes.max())
    equal = largest if bool((sizes == largest).all()) else None

    def of(params: Params, data: FederatedData, kept: Any) -> ModelOf:
        del kept
        key, round = jax.random.key(0), jnp.zeros((), jnp.int32)

        def model(id: Array) -> Params:
            return train(loss, params, client_of(data, id, largest, equal), jax.random.fold_in(key, id), round)[0]

        return model

    return of


def owners(
    evaluate: Sequence[Any], memory: Memory | None, work: Callable[[Any], tuple[Train, LossFn]], sizes: np.ndarray
) -> dict[str, Own]:
    """Whose model each name of ``evaluate`` that is not the global one's is scored with."""
    found: dict[str, Own] = {}
    for entry in evaluate:
        if isinstance(entry, FineTune):
            found[entry.name] = tuned(*work(entry.trainer), sizes)
        elif "@" in entry:
            assert memory is not None
            found[entry] = remembered(memory)
    return found


def judged_alone(
    scores: Score,
    own: Mapping[str, Own],
    eval_batch: int,
    mesh: Mesh | None,
    wholes: Sequence[Whole],
    named: Callable[[Sequence[Array]], Evaluation],
    capacity: Mapping[str, int],
    uneven: bool = False,
) -> Callable[[str, Params, FederatedData, Any], Evaluation]:
    """``(name, global model, data, memory) -> every client's result with its own model``.

    NaN for a client whose own model is not finite, or whose loss is NaN: its accuracy would say nothing.
    """

    def judge(name: str, params: Params, data: FederatedData, kept: Any) -> Evaluation:
        place = name.partition("@")[0]
        split, model, most = getattr(data, place), own[name](params, data, kept), capacity.get(place, 0)
        ids = jnp.arange(split.size.shape[0], dtype=jnp.int32)
        *means, sound = own_means(scores, model, data, split, ids, eval_batch, params, mesh, wholes, most, uneven)
        found = named(means)
        loss = jnp.where(sound > 0, found.loss, jnp.nan)
        return judged_by(found, loss, jnp.isnan(loss))

    return judge


def own_means(
    score: Score,
    model: ModelOf,
    data: FederatedData,
    split: Split,
    ids: Array,
    batch: int,
    params: Params,
    mesh: Mesh | None = None,
    wholes: Sequence[Whole] = (),
    capacity: int = 0,
    uneven: bool = False,
) -> tuple[Array, ...]:
    """The mean of each score over the ``split`` of the clients ``ids``, each with its own model: several f[K].

    After them f[K], 1 where a model is finite. NaN where the split is empty. ``params`` is a model of their form;
    ``wholes`` and ``capacity`` as in ``every_client``; ``uneven``: clients side by side would wait for the largest.
    """
    total = split.rows.shape[0]
    width = width_of(params, uneven)
    alone = width == 1 and jax.default_backend() == "cpu"
    each = max(1, min(batch // width, IN_TURN if alone else batch, total))
    shapes = jax.eval_shape(lambda: score(params, *data.take(jnp.zeros((1,), jnp.int32))))
    first = len(kept_of(wholes))
    room = -(-capacity // each) * each  # of a client's outputs, whole batches of them

    def one(id: Array) -> tuple[Array, ...]:
        mine, start, size = model(id), split.start[id], split.size[id]

        def rows(positions: Array) -> Array:
            return split.rows[jnp.minimum(start + positions, total - 1)]

        def add(step: Array, sums: tuple[Array, ...]) -> tuple[Array, ...]:
            positions = step * each + jnp.arange(each)
            values = score(mine, *examples(data, rows(positions)))
            stored = [
                jax.lax.dynamic_update_slice_in_dim(before, now, step * each, 0)
                for before, now in zip(sums[:first], values[:first])
            ]
            added = (s + jnp.where(positions < size, v, 0).sum() for s, v in zip(sums[first:], values[first:]))
            return *stored, *added

        outputs = [jnp.zeros((room, *v.shape[1:]), v.dtype) for v in shapes[:first]]
        zeros = (*outputs, *(jnp.zeros((), v.dtype) for v in shapes[first:]))
        sums = jax.lax.fori_loop(0, -(-size // each), add, zeros)
        means = [s / jnp.where(size > 0, size.astype(s.dtype), jnp.nan) for s in sums[first:]]
        if wholes:
            y = data.take(rows(jnp.arange(room)))[1]
            means = [*of_client(wholes, sums[:first], y, size), *means]
        return *means, all_finite([jnp.ones((), bool), *numbers(mine)]).astype(jnp.float32)

    if not total:
        nothing = [jnp.full(ids.shape, jnp.nan)] * (len(wholes) + len(shapes) - first)
        return *nothing, jnp.ones(ids.shape, jnp.float32)
    return shared_out(lambda some: jax.lax.map(one, some, batch_size=width), ids, mesh)


def own_minibatch(
    score: Score,
    model: ModelOf,
    data: FederatedData,
    ids: Array,
    key: Key,
    batch: int,
    params: Params,
    mesh: Mesh | None = None,
) -> tuple[Array, ...]:
    """The same over ``batch`` random training examples of each client: several f[K]."""

    def one(id: Array) -> tuple[Array, ...]:
        drawn = jax.random.randint(jax.random.fold_in(key, id), (batch,), 0, data.train.size[id], jnp.int32)
        values = score(model(id), *examples(data, data.train.rows[data.train.start[id] + drawn]))
        return tuple(v.mean() for v in values)

    width = width_of(params)
    return shared_out(lambda some: jax.lax.map(one, some, batch_size=width), ids, mesh)


def width_of(params: Params, uneven: bool = False) -> int:
    """How many models are judged side by side."""
    cpu = jax.default_backend() == "cpu"
    if cpu and (uneven or any(leaf.ndim >= 4 for leaf in jax.tree.leaves(params))):
        return 1
    return max(1, SIDE_BY_SIDE[0 if cpu else 1] // max(1, bytes_of(params)))

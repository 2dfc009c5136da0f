"""A round's local training: every client of the cohort, side by side or one after another.

It leaves the stacked updates, or their weighted sum alone, added up as they come: then the models of no more than
one block of clients exist at a time, however large the cohort.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.data import FederatedData
from fedjax_fair.engine.checks import check_trained
from fedjax_fair.engine.failures import all_finite, numbers
from fedjax_fair.engine.signals import PerExample
from fedjax_fair.local.objectives import LocalLoss, erm
from fedjax_fair.local.remembering import within
from fedjax_fair.local.sgd import LocalSGD, local_sgd
from fedjax_fair.models import Model
from fedjax_fair.models.rewriting import fast
from fedjax_fair.numerics.sum_type import sum_type
from fedjax_fair.numerics.table_rows import entries_from
from fedjax_fair.types import Batch, Client, Key, LossFn, Memory, Method, Params, Trace, Train, message_of


class Sent(NamedTuple):
    """What a client sends back; of several, every leaf has a leading axis."""

    update: Params
    """``w_k - w``, in the types of the model."""
    trace: Trace
    arrived: Array
    """bool: whether the update, message and memory are finite. Where not, the update is zeros, for ``0 * nan`` is
    ``nan`` in any sum."""
    memory: Any
    """What the client keeps for its next round; it stays there."""
    message: Any
    """What it sends besides the update."""


class Carried(NamedTuple):
    """What the clients of a round find besides the model; None for nothing."""

    memory: Any = None
    """Of all clients, leaves [N, ...]."""
    broadcast: Any = None


NOTHING = Carried()


class Sums(NamedTuple):
    """What the clients of a cohort send, added up as it comes; and what stays with them."""

    update: Params
    """``sum_k coef_k update_k``."""
    message: Any
    """``sum_k heard_k message_k``; None where nobody sends any, or where nobody adds them up."""
    arrived: Array
    """bool[S]"""
    memory: Any
    """[S, ...]"""


class Training(NamedTuple):
    """How cohorts of a federation train; built by :func:`cohort_training`."""

    stacked: Callable[..., Sent]
    """``(params, data, ids i32[S], key, round, carried=NOTHING) -> Sent``, of arrays [S, ...]."""
    summed: Callable[..., Sums] | None
    """``(params, data, ids i32[S], key, round, coef f[S], heard bool[S], carried=NOTHING) -> Sums``. None where the
    whole cohort trains side by side, for its updates are all there anyway, and where it is faulty."""


def cohort_training(
    train: Train,
    loss: LossFn,
    sizes: np.ndarray,
    block: int | None,
    interleaved: Any,
    faulty: bool = False,
    memory: Memory | None = None,
) -> Training:
    """The training of clients with these sizes.

    Two at a time train in one loop, where ``interleaved`` is the trainer that can; else ``block`` at a time are
    vmapped (None: all). ``faulty``: what is sent may change on its way, so an update that is not finite is left as
    it is. ``memory``: what the clients remember.
    """
    largest = int(sizes.max())
    equal = bool((sizes == largest).all())  # then the number of local steps is static
    width = block if interleaved is None else 2

    def sending(
        params: Params, data: FederatedData, key: Key, round: Array, carried: Carried
    ) -> Callable[[Array], list[Sent]]:
        """``ids of one block -> what they send``, in one part or in several."""
        silent = message_of(memory, params)

        def client(id: Array) -> Client:
            mine = jax.tree.map(lambda leaf: leaf[id], carried.memory)
            view = client_of(data, id, largest, largest if equal else None)
            return view._replace(memory=mine, broadcast=carried.broadcast)

        def sent(who: Client, result: Any) -> Sent:
            trained, trace, kept, message = check_trained(result, params, who.memory, silent)
            update = jax.tree.map(lambda new, old: (new - old).astype(old.dtype), trained, params)
            arrived = all_finite([*jax.tree.leaves(update), *numbers((kept, message))])
            if not faulty:
                update, message = jax.tree.map(lambda leaf: jnp.where(arrived, leaf, 0), (update, message))
            return Sent(update, trace._replace(gradient=None, snapshot=None), arrived, kept, message)

        def one(id: Array) -> Sent:
            who = client(id)
            return sent(who, train(loss, params, who, jax.random.fold_in(key, id), round))

        def some(ids: Array) -> list[Sent]:
            if interleaved is not None:
                keys = [jax.random.fold_in(key, id) for id in ids]
                pair = [client(id) for id in ids]
                done = interleaved.interleaved(loss, params, pair, keys, round)
                return [_alone(sent(*each)) for each in zip(pair, done)]
            return [_alone(one(ids[0]))] if block == 1 else [jax.vmap(one)(ids)]  # vmapping one costs a fifth

        return some

    def stacked(
        params: Params, data: FederatedData, ids: Array, key: Key, round: Array, carried: Carried = NOTHING
    ) -> Sent:
        some = sending(params, data, key, round, carried)

        def stack(nothing: None, ids: Array) -> tuple[None, Sent]:
            return None, jax.tree.map(lambda *parts: jnp.concatenate(parts), *some(ids))

        return by_blocks(stack, None, ids, width)[1]

    def summed(
        params: Params,
        data: FederatedData,
        ids: Array,
        key: Key,
        round: Array,
        coef: Array,
        heard: Array,
        carried: Carried = NOTHING,
    ) -> Sums:
        some = sending(params, data, key, round, carried)
        adds = memory is not None and memory.summed

        def plus(total: Any, weights: Array, sent: Any) -> Any:
            return jax.tree.map(lambda sum, own: sum + weighted_sum(weights, own), total, sent)

        def add(totals: tuple[Any, Any], now: tuple[Array, Array, Array]) -> tuple[tuple[Any, Any], Any]:
            parts, (update, message) = some(now[0]), totals
            for part, own, on in zip(parts, *(weights.reshape(len(parts), -1) for weights in now[1:])):
                update = plus(update, own, part.update)
                message = plus(message, on, part.message) if adds else None
            kept = [(part.arrived, part.memory) for part in parts]
            return (update, message), jax.tree.map(lambda *of: jnp.concatenate(of), *kept)

        nothing = no_sum(params), no_sum(message_of(memory, params)) if adds else None
        (update, message), (arrived, kept) = by_blocks(add, nothing, (ids, coef, heard), width)
        return Sums(update, message, arrived, kept)

    return Training(stacked, None if width is None or faulty else summed)


def client_of(data: FederatedData, id: Array, largest: int, size: int | None = None) -> Client:
    """One client's training examples, padded to the ``largest`` client's; ``size`` where all have the same."""
    place = data.places(id)
    rows = entries_from(data.train.rows, data.train.start[place], largest, uneven=size is None)
    return Client(id, rows, data.train.size[place] if size is None else size, data.take)


def by_blocks(step: Callable[[Any, Any], tuple[Any, Any]], carry: Any, items: Any, width: int | None) -> Any:
    """``jax.lax.scan`` over blocks of ``width`` items, arrays [n, ...], and the rest; None: all of them at once."""
    count = len(jax.tree.leaves(items)[0])
    if width is None or width >= count:
        return step(carry, items)
    even = count // width * width
    blocks = jax.tree.map(lambda leaf: leaf[:even].reshape(-1, width, *leaf.shape[1:]), items)
    carry, done = jax.lax.scan(step, carry, blocks)
    done = jax.tree.map(lambda leaf: leaf.reshape(even, *leaf.shape[2:]), done)
    if even < count:
        carry, rest = step(carry, jax.tree.map(lambda leaf: leaf[even:], items))
        done = jax.tree.map(lambda *parts: jnp.concatenate(parts), done, rest)
    return carry, done


def weighted_sum(coef: Array, stacked: Array) -> Array:
    """``sum_k coef_k stacked_k``, in full precision on every device: an average must not round to TF32."""
    dtype = adding(stacked.dtype)
    return jnp.tensordot(coef.astype(dtype), stacked.astype(dtype), 1, precision="highest")


def adding(dtype: Any) -> Any:
    """What sums of such updates are made in: at least float32, for sums in bfloat16 stick. Integers do not move."""
    return sum_type(dtype) if jnp.issubdtype(dtype, jnp.inexact) else dtype


def no_sum(one: Any) -> Any:
    """The sum of no updates, or messages, of this form."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, adding(leaf.dtype)), one)


def _alone(sent: Sent) -> Sent:
    return jax.tree.map(lambda leaf: leaf[None], sent)


def local_work(net: Model, method: Method, trainer: Any, loss: PerExample) -> tuple[Train, LossFn]:
    """The trainer after the method's override, and the loss that it differentiates."""
    if trainer is local_sgd:
        raise ValueError("trainer must be ff.local_sgd(...) or a function, got the factory local_sgd: call it")
    train = trainer if method.local is None else method.local(trainer)
    if not callable(train):
        raise ValueError(f"trainer must be ff.local_sgd(...) or a function, got {type(train).__name__}")
    inside = [one.objective for one in (within(train), within(trainer)) if isinstance(one, LocalSGD)]
    around = {} if method.objective is None else {"around": method.objective}

    apply = fast(net).apply

    def of_examples(params: Params, batch: Batch) -> Array:
        return loss(apply(params, batch.x, batch.key), batch.y)

    return train, LocalLoss(of_examples, inside[0] if inside else erm, **around)

"""One model on many clients' data: the received model's losses, and what evaluations read.

All clients share the weights here, so no client needs a pass of its own: examples of all clients go through the
model in flat batches, and sums by owner do the rest. Nothing is padded but the last batches. Of
a ``mesh`` every device does its share; for use inside :func:`fedjax_fair.engine.devices.everywhere`.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from fedjax_fair.data import FederatedData, Split
from fedjax_fair.data.host_store import Handed, HostStore
from fedjax_fair.engine.devices import JOINED, added, gather, share, shared_out, turns
from fedjax_fair.engine.whole_clients import by_client, kept_of
from fedjax_fair.models import Model
from fedjax_fair.models.client_metrics import Whole
from fedjax_fair.models.rewriting import fast
from fedjax_fair.numerics.client_sums import client_sums
from fedjax_fair.numerics.table_rows import rows_of
from fedjax_fair.types import Key, Params

FLAT = 384
"""Examples of a cohort's forward pass at most: half of the last pass is nobody's, on average. On a CPU also of
everybody's, where sizes differ much. Of ten classes XLA takes another way to the softmax's sums from some 450 on:
FedMABA's rounds on a Zen 4 take 1.1 to 1.2 of the time so; with passes of 256 examples 1.01 to 1.16."""
PerExample = Callable[[Array, Array], Array]
"""``(outputs [B, ...], y [B, ...]) -> f[B]``: a loss or a metric."""

Score = Callable[[Params, Any, Array], tuple[Array, ...]]
"""``(params, x [B, ...], y [B, ...]) -> several f[B]``: per-example values, such as loss and accuracy."""


def every_client(
    score: Score,
    params: Params,
    data: FederatedData,
    split: Split,
    batch: int,
    mesh: Mesh | None = None,
    wholes: Sequence[Whole] = (),
    capacity: int = 0,
    who: Array | None = None,
) -> tuple[Array, ...]:
    """Mean of each score over each client's ``split``: several f[N]. NaN where the split is empty.

    ``who``, bool[N] or longer, says whom to judge, and the others' are NaN, too; None for all. Where there are
    metrics of ``wholes``, the first scores are what they keep of every example, and the first of the results are
    theirs of each client, of whom none has more than ``capacity`` examples.
    """
    n, kept = split.size.shape[0], len(kept_of(wholes))
    if split.rows.shape[0] == 0:
        nothing = jax.eval_shape(lambda: score(params, *data.take(jnp.zeros((1,), jnp.int32))))[kept:]
        of_wholes = [jnp.full((n,), jnp.nan)] * len(wholes)
        return *of_wholes, *(jnp.full((n,), jnp.nan, v.dtype) for v in nothing)
    if who is not None:
        split = split._replace(size=jnp.where(who[:n], split.size, 0))
    values = every_example(score, params, data, split, batch, mesh, skips=who is not None)
    found = by_client(wholes, values[:kept], data, split, capacity) if wholes else ()
    means = (
        client_sums(v, split.owner, split.start, split.size)
        / jnp.where(split.size > 0, split.size.astype(v.dtype), jnp.nan)
        for v in values[kept:]
    )
    return *found, *means


def every_example(
    score: Score,
    params: Params,
    data: FederatedData,
    split: Split,
    batch: int,
    mesh: Mesh | None = None,
    skips: bool = False,
) -> tuple[Array, ...]:
    """Each score of every example of a split that is not empty, in its order: several [R, ...].

    ``skips``: passes in which no client of a size above 0 has an example are left out; zeros stand for them.
    """
    total = split.rows.shape[0]
    count = 1 if mesh is None else mesh.size
    steps = -(-total // min(batch, total) // count) * count  # as many for every device
    batch = -(-total // steps)  # even batches: the last is hardly padded

    def flat(own: tuple[Array, Array | None]) -> tuple[Array, ...]:
        rows, labels = own
        x, y = examples(data, rows)
        return score(params, x, y if labels is None else labels)

    def nothing(own: tuple[Array, Array | None]) -> tuple[Array, ...]:
        return tuple(jnp.zeros(v.shape, v.dtype) for v in jax.eval_shape(flat, own))

    def wanted(own: tuple[Array, Array | None]) -> tuple[Array, ...]:
        return jax.lax.cond(own[0][0] >= 0, flat, nothing, own)  # rows of -1 mark a pass that is left out

    def played(passes: Array) -> tuple[Array, ...]:
        labels = rows_of(data.y, passes) if data.y.ndim == 1 else None  # before the loop: once for all rounds
        return jax.lax.map(wanted if skips else flat, (passes, labels))

    passes = jnp.pad(split.rows, (0, steps * batch - total), mode="edge").reshape(steps, batch)
    if skips:
        somebodys = split.size[split.owner] > 0  # rows of nobody go with the last client's
        somebodys = jnp.pad(somebodys, (0, steps * batch - total)).reshape(steps, batch)
        passes = jnp.where(somebodys.any(1)[:, None], passes, -1)
    values = shared_out(played, passes, mesh)
    return tuple(v.reshape(-1, *v.shape[2:])[:total] for v in values)


def cohort(
    score: Score,
    params: Params,
    data: FederatedData,
    split: Split,
    ids: Array,
    batch: int,
    capacity: int,
    mesh: Mesh | None = None,
) -> tuple[Array, ...]:
    """The same for the clients ``ids`` alone: several f[S]. ``capacity`` is the largest size of any client.

    The clients' examples go through the model one after another, in flat batches that do not stop at a client's
    end: it costs what the cohort's examples cost, however much their numbers differ.
    """
    if (data.ids is None and ids.shape[0] == split.size.shape[0]) or not split.rows.shape[0]:
        uneven = capacity * ids.shape[0] > 2 * split.rows.shape[0]
        if uneven and _in_short_passes(data, mesh):
            batch = min(batch, FLAT)
        return tuple(v[ids] for v in every_client(score, params, data, split, batch, mesh))
    first, stride = turns(mesh)
    batch = min(batch, FLAT, -(-ids.shape[0] * capacity // stride))

    ids = data.places(ids)
    size, slots = split.size[ids], ids.shape[0]
    ends = jnp.cumsum(size)
    shift = split.start[ids] - (ends - size)  # from a place among the cohort's examples to one in the split

    def add(step: Array, sums: tuple[Array, ...]) -> tuple[Array, ...]:
        places = (first + step * stride) * batch + jnp.arange(batch, dtype=jnp.int32)
        owner = jnp.searchsorted(ends, places, side="right", method="compare_all").astype(jnp.int32)
        rows = split.rows[jnp.clip(places + shift[jnp.minimum(owner, slots - 1)], 0, split.rows.shape[0] - 1)]
        mine = owner[None, :] == jnp.arange(slots)[:, None]  # nobody's behind the last example
        values = score(params, *examples(data, rows))
        return tuple(s + jnp.where(mine, v, 0).sum(1) for s, v in zip(sums, values))

    shapes = jax.eval_shape(lambda: score(params, *data.take(jnp.zeros((1,), jnp.int32))))
    zeros = tuple(jnp.zeros((slots,), v.dtype) for v in shapes)
    sums = jax.lax.fori_loop(0, -(-ends[-1] // (batch * stride)), add, zeros)
    return tuple(s / jnp.where(size > 0, size.astype(s.dtype), jnp.nan) for s in added(sums, mesh))


def _in_short_passes(data: FederatedData, mesh: Mesh | None) -> bool:
    """Whether uneven clients' losses are read in short passes: on a CPU, where such clients train one by one: a
    second core sleeps meanwhile, and what it gains with long passes is less than what they cost.

    Not from a store on the host, which costs by the pass.
    """
    near = not isinstance(data.x, HostStore | Handed)
    return near and mesh is None and jax.default_backend() == "cpu"


def minibatch(
    score: Score,
    params: Params,
    data: FederatedData,
    ids: Array,
    key: Key,
    batch: int,
    mesh: Mesh | None = None,
) -> tuple[Array, ...]:
    """The mean of each score over ``batch`` random training examples of each client ``ids``: several f[S]."""

    def some(ids: Array) -> tuple[Array, ...]:
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(ids)
        size = data.train.size[ids]
        drawn = jax.vmap(lambda k, n: jax.random.randint(k, (batch,), 0, n, jnp.int32))(keys, size)
        rows = data.train.rows[data.train.start[ids][:, None] + drawn]
        values = score(params, *examples(data, rows.reshape(-1)))
        return tuple(v.reshape(rows.shape).mean(1) for v in values)

    return shared_out(some, ids, mesh)


def examples(data: FederatedData, rows: Array) -> tuple[Any, Array]:
    """The rows' inputs and labels, made before any use: fused into a product of matrices, the conversion from
    bytes is made again and again, and an MLP's losses on a CPU take twice as long."""
    x, y = data.take(rows)
    return jax.lax.optimization_barrier(x), y


def gram(updates: Params, mesh: Mesh | None = None) -> Array:
    """Inner products f[S, S] of stacked updates, summed over the leaves; of half precision in float32."""
    everybodys = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(updates)]
    mesh = None if sum(leaf.size for leaf in everybodys) <= JOINED else mesh  # a message would take longer
    mine = share(everybodys, mesh)
    kind = jnp.result_type(jnp.float32, *everybodys)
    product = functools.partial(jnp.matmul, precision="highest", preferred_element_type=kind)
    products = (product(rows, cols.T) for rows, cols in zip(mine, everybodys))
    return gather(functools.reduce(jnp.add, products), everybodys[0].shape[0], mesh)


def scoring(net: Model, *measures: PerExample | Whole) -> Score:
    """The score that applies each of these to the model's outputs; values in JAX's default float.

    First what metrics of whole clients keep, then the values of the others.
    """

    apply = fast(net).apply
    kept = kept_of([of for of in measures if isinstance(of, Whole)])
    means = [of for of in measures if not isinstance(of, Whole)]

    def score(params: Params, x: Any, y: Array) -> tuple[Array, ...]:
        outputs = apply(params, x, None)
        found = (*(outputs if of is None else of(outputs, y) for of in kept), *(of(outputs, y) for of in means))
        return tuple(value.astype(jnp.result_type(float)) for value in found)  # bfloat16 sums stick at 256

    return score

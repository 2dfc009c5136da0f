"""A round's training examples, brought to the device where the store is elsewhere: a federation of the cohort."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.data import FederatedData, Split
from fedjax_fair.data.host_store import Handed, HostStore
from fedjax_fair.engine.room import in_words, room


class Places(NamedTuple):
    """Where a cohort's training examples are, one client's after another's."""

    rows: Array
    """i32[C]: of the store; behind the last example that one again."""
    owner: Array
    """i32[C]: the slot of each, 0, ..., S - 1."""
    start: Array
    """i32[S]: where each client's begin in ``rows``."""
    size: Array
    """i32[S]"""


def packed(train: Split, ids: Any, capacity: int) -> Places:
    """The examples of the clients ``ids`` i32[S], at most ``capacity`` C of them."""
    size = train.size[ids]
    ends = jnp.cumsum(size)
    places = jnp.minimum(jnp.arange(capacity, dtype=jnp.int32), ends[-1] - 1)
    owner = jnp.searchsorted(ends, places, side="right", method="compare_all").astype(jnp.int32)
    start = ends - size
    return Places(train.rows[places - start[owner] + train.start[ids][owner]], owner, start, size)


def largest_cohort(sizes: np.ndarray, slots: int) -> int:
    """Training examples of the largest cohort that there can be."""
    return int(np.sort(sizes)[::-1][:slots].sum())


def nearby(data: FederatedData, ids: Array, capacity: int) -> FederatedData:
    """A federation of the cohort alone, its training examples on the device; ``data`` where all are there."""
    if not isinstance(data.x, HostStore | Handed):
        return data
    there = packed(data.train, ids, capacity)
    store = data.x if isinstance(data.x, HostStore) else data.x.store
    if isinstance(data.x, Handed):
        handed = data.x
        # Drawn ahead by another program, in which two numbers may round to a tie.
        x = jax.lax.cond((handed.ids == ids).all(), lambda: handed.examples, lambda: store.take(there.rows))
    else:
        x = store.take(there.rows)
    y = jnp.take(data.y, there.rows, axis=0)
    rows = jnp.arange(capacity, dtype=jnp.int32)
    train = Split(rows, there.start, there.size, there.owner)
    return FederatedData(x, y, train, data.validation, data.test, data.normalizer, ids=ids)


def check_store(data: FederatedData, mesh: Any, cohort: int) -> None:
    """Examples off the device are read for one device, and a cohort's fit into it."""
    if not isinstance(data.x, HostStore):
        return
    if mesh is not None:
        raise ValueError(f"devices must be 1 for data with store='host', got {mesh.size}: give it store='device'")
    each = sum(math.prod(leaf.shape[1:]) * leaf.dtype.itemsize for leaf in jax.tree.leaves(data.x.forms()))
    asked, there = largest_cohort(data.sizes, cohort) * each, room()
    if there and asked > there:
        raise ValueError(
            f"selector must leave room for a cohort's examples: the {cohort} largest clients' take "
            f"{in_words(asked)}, but the device has {in_words(there)}; take fewer clients a round"
        )

"""A round's local training: every client of the cohort, side by side or one after another."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.data import FederatedData
from fedjax_fair.local import LocalSGD
from fedjax_fair.types import Client, Key, LossFn, Params, Trace, Train


def cohort_training(
    train: Train, loss: LossFn, sizes: np.ndarray, block: int | None, abreast: LocalSGD | None
) -> Callable[[Params, FederatedData, Array, Key, Array], tuple[Params, Trace]]:
    """``(params, data, ids i32[S], key, round) -> (updates [S, ...], trace f[S])``, of clients with these sizes.

    Two at a time train in one loop, where ``abreast`` is the trainer that can; else ``block`` at a time are vmapped
    (None: all).
    """
    largest = int(sizes.max())
    equal = bool((sizes == largest).all())  # then the number of local steps is static

    def train_cohort(
        params: Params, data: FederatedData, ids: Array, key: Key, round: Array
    ) -> tuple[Params, Trace]:
        def client(id: Array) -> Client:
            size = largest if equal else data.train.size[id]
            slots = data.train.start[id] + jnp.arange(largest)
            rows = data.train.rows[jnp.minimum(slots, data.train.rows.shape[0] - 1)]
            return Client(id, rows, size, data.take)

        def update(trained: Params, trace: Trace) -> tuple[Params, Trace]:
            return jax.tree.map(jnp.subtract, trained, params), trace

        def one(id: Array) -> tuple[Params, Trace]:
            return update(*train(loss, params, client(id), jax.random.fold_in(key, id), round))

        if abreast is not None:

            def some(ids: Array) -> tuple[Params, Trace]:
                keys = [jax.random.fold_in(key, id) for id in ids]
                trained = abreast.abreast(loss, params, [client(id) for id in ids], keys, round)
                return jax.tree.map(lambda *leaves: jnp.stack(leaves), *(update(*each) for each in trained))

            return by_twos(some, ids)
        if block is None:
            return jax.vmap(one)(ids)
        return jax.lax.map(one, ids, batch_size=None if block == 1 else block)  # vmapping one costs a fifth

    return train_cohort


def by_twos(some: Callable[[Array], Any], ids: Array) -> Any:
    """``some(ids i32[n])``, arrays [n, ...], for two ids at a time; for the last alone where they are odd."""
    even = len(ids) // 2 * 2
    pairs = jax.lax.map(some, ids[:even].reshape(-1, 2))
    done = jax.tree.map(lambda leaf: leaf.reshape(even, *leaf.shape[2:]), pairs)
    if even == len(ids):
        return done
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), done, some(ids[even:]))

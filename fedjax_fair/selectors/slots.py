"""Slots of a cohort that a selector leaves empty."""

import jax.numpy as jnp
from jax import Array


def filled(ids: Array, known: Array, n_clients: int) -> Array:
    """i32[S]: the known ids, and in the other slots clients that are in none: rules keep states by their ids."""
    slots = ids.shape[0]
    few = min(n_clients, 2 * slots)  # as many as have a client for every slot beside the known
    taken = jnp.zeros(few, bool).at[jnp.where(known, ids, few)].set(True, mode="drop")
    free = jnp.argsort(taken, stable=True)[:slots].astype(ids.dtype)
    return jnp.where(known, ids, free[jnp.maximum(jnp.cumsum(~known) - 1, 0)])

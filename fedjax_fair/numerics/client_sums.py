"""The sum of each client's values, which lie one client after another."""

import jax
import jax.numpy as jnp
from jax import Array

WIDEST = 256
"""Values of a window at most: wider ones round more. Those at a client's ends are read whole for a part of them."""


def client_sums(values: Array, start: Array, size: Array) -> Array:
    """Sums f[N] of values f[R]: of each client ``size`` i32[N] from ``start`` i32[N] on, which never falls. Other
    values are nobody's.

    They go by pieces, each what one client has in one window of a power of two values. Masked windows are added
    up many at a time, where a scatter on a CPU takes one value after another. And half a million equal values,
    added one by one in float32, are half a per cent off.
    """
    total, n = values.shape[0], start.shape[0]
    width = min(1 << (total // n).bit_length(), WIDEST)  # somewhat wider than a client, on average
    windows = jnp.pad(values, (0, -total % width)).reshape(-1, width)
    count = n + windows.shape[0]  # of pieces: each client begins one
    first = jnp.arange(n, dtype=jnp.int32) + start // width
    owner = jnp.cumsum(jnp.zeros(count, jnp.int32).at[first].set(1, mode="drop")) - 1
    window = jnp.arange(count, dtype=jnp.int32) - owner
    place = window[:, None] * width + jnp.arange(width, dtype=jnp.int32)[None, :]
    own = (place >= start[owner][:, None]) & (place < (start + size)[owner][:, None])
    read = windows.at[jnp.minimum(window, windows.shape[0] - 1)].get(mode="promise_in_bounds")
    pieces = jnp.where(own, read, 0).sum(axis=1)
    return jax.ops.segment_sum(pieces, owner, n, indices_are_sorted=True)

"""The sum of each client's values, which lie one client after another."""

import jax
import jax.numpy as jnp
from jax import Array

PIECE = 256
"""Values that are added up by themselves, at most: half a million equal ones, one by one in float32, are half a per
cent off."""
WIDE = 16
"""Values of a client on average from which windows are worth it: they take half to an eighth of the time."""


def client_sums(values: Array, owner: Array, start: Array, size: Array) -> Array:
    """Sums f[N] of values f[R], of which each client has ``size`` i32[N] from ``start`` i32[N] on; it never falls.

    ``owner`` i32[R] are the values' clients, ascending; nobody's have N, and are the last.
    """
    total, n = values.shape[0], start.shape[0]
    if total >= WIDE * n:
        values, owner, start = _by_windows(values, start, size, min(1 << (total // n).bit_length(), PIECE))
        total = values.shape[0]
    if total <= PIECE:
        return jax.ops.segment_sum(values, owner, n, indices_are_sorted=True)
    piece = owner + jnp.arange(total, dtype=jnp.int32) // PIECE  # both only rise: no two clients share one
    values = jnp.where(owner < n, values, 0)  # rows of nobody, behind the last client's, come to his pieces
    _, owner = _pieces(start, total, PIECE)
    pieces = jax.ops.segment_sum(values, piece, owner.shape[0], indices_are_sorted=True)
    return jax.ops.segment_sum(pieces, owner, n, indices_are_sorted=True)


def _by_windows(values: Array, start: Array, size: Array, width: int) -> tuple[Array, Array, Array]:
    """What each client has in every window of ``width`` values: sums, their owners, and where each one's begin.

    Masked windows are added up many at a time, where a scatter on a CPU takes one value after another.
    """
    windows = jnp.pad(values, (0, -values.shape[0] % width)).reshape(-1, width)
    first, owner = _pieces(start, values.shape[0], width)
    window = jnp.arange(owner.shape[0], dtype=jnp.int32) - owner
    place = window[:, None] * width + jnp.arange(width, dtype=jnp.int32)[None, :]
    own = (place >= start[owner][:, None]) & (place < (start + size)[owner][:, None])
    read = windows.at[jnp.minimum(window, windows.shape[0] - 1)].get(mode="promise_in_bounds")
    return jnp.where(own, read, 0).sum(axis=1), owner, first


def _pieces(start: Array, total: int, width: int) -> tuple[Array, Array]:
    """Where each client's pieces begin, i32[N], and the owners of all: one more begins with every client, and with
    every window of ``width`` values."""
    n = start.shape[0]
    first = jnp.arange(n, dtype=jnp.int32) + start // width
    begins = jnp.zeros(n + -(-total // width), jnp.int32).at[first].set(1, mode="drop")
    return first, jnp.cumsum(begins) - 1

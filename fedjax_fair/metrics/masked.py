"""Which clients a metric counts, their ratios to the mean, and their order; clients are the last axis."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


def counted(x: ArrayLike, where: ArrayLike | None) -> tuple[Array, Array, Array]:
    """``x`` with 0 for who does not count, the mask, both [..., N], and how many count, [..., 1]."""
    x = jnp.asarray(x)
    if x.ndim == 0:
        raise ValueError("a metric needs an array whose last axis is the clients, got a scalar")
    if not jnp.issubdtype(x.dtype, jnp.floating):
        x = x.astype(float)
    where = ~jnp.isnan(x) if where is None else spread("where", jnp.asarray(where, bool), x)
    return jnp.where(where, x, 0), where, jnp.sum(where, -1, keepdims=True).astype(x.dtype)


def spread(name: str, value: Array, x: Array) -> Array:
    """Broadcast ``value`` to the shape of ``x``."""
    try:
        return jnp.broadcast_to(value, x.shape)
    except ValueError:
        raise ValueError(f"{name} must broadcast to the values' shape {x.shape}, got {value.shape}") from None


def ratios(x: ArrayLike, where: ArrayLike | None) -> tuple[Array, Array, Array]:
    """``x`` over its mean, 1 for who does not count and where every x is 0; the mask; how many count."""
    x, where, n = counted(x, where)
    average = jnp.sum(x, -1, keepdims=True) / n
    return jnp.where(where & (average != 0), x / average, 1), where, n


def sort(where: Array, x: Array, *others: Array) -> Sequence[Array]:
    """Sort by ``x``, ascending, those who do not count last; the ``others`` follow. Without the mask."""
    return jax.lax.sort((~where, x, *others), dimension=-1, num_keys=2)[1:]


def places(x: Array) -> Array:
    """0, 1, ... N - 1 along the last axis, [..., N]."""
    return jax.lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)

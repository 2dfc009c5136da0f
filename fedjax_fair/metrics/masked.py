"""Which clients a metric counts, their ratios to the mean, and their order; clients are the last axis."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fedjax_fair.checks import check_complete
from fedjax_fair.numerics.xla_options import is_concrete

NOBODY = "fill it, by .filled(np.nan) for who has none"
"""What to do about a mask, which JAX's arrays have not."""
UNWEIGHED = "fill it, by .filled(0) for who has no example"


def counted(x: ArrayLike, where: ArrayLike | None) -> tuple[Array, Array, Array]:
    """``x`` with 0 for who does not count, the mask, both [..., N], and how many count, [..., 1]."""
    check_complete("a metric's array", x, NOBODY)
    try:
        x = jnp.asarray(x)
    except (TypeError, ValueError):  # words, None, rows of several lengths
        raise ValueError("a metric needs an array of real numbers, with nan for who has none") from None
    if jnp.iscomplexobj(x):
        raise ValueError("a metric needs an array of real numbers, got complex ones")
    if x.ndim == 0:
        raise ValueError("a metric needs an array whose last axis is the clients, got a scalar")
    if not jnp.issubdtype(x.dtype, jnp.floating) or jnp.finfo(x.dtype).bits < 32:
        x = x.astype(jnp.float32 if jnp.issubdtype(x.dtype, jnp.floating) else float)
    where = ~jnp.isnan(x) if where is None else spread("where", mask_of(where), x)
    return jnp.where(where, x, 0), where, jnp.sum(where, -1, keepdims=True).astype(x.dtype)


def as_array(name: str, x: ArrayLike, remedy: str = NOBODY) -> Array | np.ndarray:
    """JAX's own, or NumPy's where there is none of JAX's in it: jnp.asarray would compile for every shape."""
    check_complete(name, x, remedy)
    return jnp.asarray(x) if any(isinstance(leaf, Array) for leaf in jax.tree.leaves(x)) else np.asarray(x)


def mask_of(where: ArrayLike) -> Array | np.ndarray:
    """Who counts, as bool: whole numbers may be meant as the clients' ids."""
    mask = as_array("where", where, "fill it, by .filled(False) for who does not count")
    if mask.dtype != bool:
        got = f"{mask.dtype}{list(mask.shape)}"
        raise ValueError(f"where must be bool, True for who counts, such as np.isin(np.arange(n), ids), got {got}")
    return mask


def check_sizes(sizes: ArrayLike) -> None:
    """Raise ValueError for masked or negative sizes; under a trace nothing is known."""
    check_complete("sizes", sizes, UNWEIGHED)
    if is_concrete(sizes) and (least := np.min(np.asarray(sizes, float), initial=0)) < 0:
        raise ValueError(f"sizes must be at least 0, the clients' numbers of examples, got {least:g}")


def weights_of(sizes: ArrayLike, acc: Array) -> Array:
    """The clients' numbers of examples, in the type and the shape of ``acc``."""
    check_sizes(sizes)
    return spread("sizes", jnp.asarray(sizes, acc.dtype), acc)


def spread(name: str, value: Array | np.ndarray, x: Array | np.ndarray) -> Array:
    """Broadcast ``value`` to the shape of ``x``; NumPy's stays NumPy's."""
    try:
        return (np if isinstance(value, np.ndarray) else jnp).broadcast_to(value, x.shape)
    except ValueError:
        raise ValueError(f"{name} must broadcast to the values' shape {x.shape}, got {value.shape}") from None


def scaled(x: Array) -> tuple[Array, Array]:
    """``x`` times a power of two, and that power, [..., 1]: 1, but where sums or squares would over- or underflow.

    Ordinary numbers keep every bit.
    """
    largest = jax.lax.stop_gradient(jnp.max(jnp.abs(x), -1, keepdims=True, initial=0))
    limit = jnp.finfo(x.dtype).maxexp
    ordinary = 2.0 ** (limit // 4)
    extreme = jnp.isfinite(largest) & ((largest > ordinary) | ((largest < 1 / ordinary) & (largest > 0)))
    power = jnp.clip(jnp.frexp(jnp.where(extreme, largest, 1))[1], 4 - limit, limit - 4)
    scale = jnp.where(extreme, jnp.ldexp(jnp.ones_like(largest), -power), 1)
    return x * scale, scale


def ratios(x: ArrayLike, where: ArrayLike | None) -> tuple[Array, Array, Array]:
    """``x`` over its mean, 1 for who does not count and where every x is 0; the mask; how many count.

    NaN count where some x that counts is negative: shares of a total mean nothing then.
    """
    x, where, n = counted(x, where)
    x, _ = scaled(x)
    average = jnp.sum(x, -1, keepdims=True) / n
    ratio = jnp.where(where & (average != 0), x / average, 1)
    # In the count, which every measure divides by: in the ratios it would cost the others' last bit.
    return ratio, where, jnp.where(jnp.any(x < 0, -1, keepdims=True), jnp.nan, n)


def sort(where: Array, x: Array, *others: Array) -> Sequence[Array]:
    """Sort by ``x``, ascending, and equal ones by the ``others``; those who do not count last. Without the mask."""
    return jax.lax.sort((~where, x, *others), dimension=-1, num_keys=2 + len(others))[1:]


def places(x: Array) -> Array:
    """0, 1, ... N - 1 along the last axis, [..., N]."""
    return jax.lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)

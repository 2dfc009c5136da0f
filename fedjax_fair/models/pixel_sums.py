"""Sums over an image's pixels, and entries repeated at all of them: two linear operations of their own.

A processor adds up rows of 8 to 32 channels slowly: its vectors are longer. Here several pixels make one row of up
to 64 entries, whose sum falls into few such rows in the end. As operations of their own they serve derivatives,
too: the transpose of an entry that is repeated at all pixels is such a sum.
"""

import math
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.interpreters import ad

from fedjax_fair.models.linear_operation import linear
from fedjax_fair.numerics.sum_type import sum_type

ROW = 64
"""Entries of a row: with 8 channels sums of this length took half as long, and those of 128 to 1,024 1.4 of it."""


def sum_pixels(x: Array, axes: tuple[int, ...]) -> Array:
    """``x.sum(axes, keepdims=True)``, of half precision in float32.

    Args:
      x: [..., pixels, channels], of real numbers.
      axes: negative, rising.
    """
    return _sum.bind(x, axes=axes, sizes=tuple(x.shape[axis] for axis in axes))


def repeat_pixels(x: Array, axes: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
    """The transpose of :func:`sum_pixels`: ``axes``, of length 1, become of length ``sizes``."""
    return _repeat.bind(x, axes=axes, sizes=sizes)


def _summed(x: Array, *, axes: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
    (*others, channels), first = x.shape, x.ndim + min(axes)
    pixels = x.size // max(1, channels) // max(1, math.prod(others[:first]))
    wide = next((many for many in range(ROW // max(1, channels), 1, -1) if pixels % many == 0), 1)
    if axes != tuple(range(axes[0], -1)) or wide == 1:
        return jnp.sum(x, axes, keepdims=True)
    kind = sum_type(x.dtype)
    rows = x.reshape(*others[:first], pixels // wide, wide * channels).sum(first, dtype=kind)
    # A reshape between the two, without which XLA makes them one.
    ends = rows.reshape(*others[:first], wide, channels).sum(first)
    return ends.reshape(_form(x.shape, axes, (1,) * len(axes))).astype(x.dtype)


def _repeated(x: Array, *, axes: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
    return jnp.broadcast_to(x, _form(x.shape, axes, sizes))


def _form(shape: Any, axes: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    new = dict(zip(axes, sizes))
    return tuple(new.get(axis - len(shape), size) for axis, size in enumerate(shape))


_sum = linear("sum_pixels", _summed, lambda shape, axes, sizes: _form(shape, axes, (1,) * len(axes)))
_repeat = linear("repeat_pixels", _repeated, _form)
ad.deflinear2(_sum, lambda towards, _, **settings: [_repeat.bind(towards, **settings)])
ad.deflinear2(_repeat, lambda towards, _, **settings: [_sum.bind(towards, **settings)])

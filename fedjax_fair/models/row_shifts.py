"""Rows of an image added to their neighbours, and the transpose of that: two linear operations of their own.

As JAX derives it, the transpose of a sum of shifted slices is a sum of padded arrays, and XLA fuses all that comes
before into each of them: the gradient that reaches a convolution was computed three times, with all of the group
normalisation around it. Padded once and then read at every shift, it is computed once.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.interpreters import ad

from fedjax_fair.models.linear_operation import linear


def add_rows(z: Array, rows: int) -> Array:
    """``y[..., h, w, f] = sum_i z[..., h + i, w, i F + f]``.

    Args:
      z: [..., H, W, rows F].
      rows: how many rows meet in one.

    Returns:
      [..., H - rows + 1, W, F].
    """
    return _add.bind(z, rows=rows)


def spread_rows(y: Array, rows: int) -> Array:
    """The transpose of :func:`add_rows`: [..., H, W, F] -> [..., H + rows - 1, W, rows F]."""
    return _spread.bind(y, rows=rows)


def _added(z: Array, *, rows: int) -> Array:
    height = z.shape[-3] - rows + 1
    parts = jnp.split(z, rows, axis=-1)
    return sum(part[..., i : i + height, :, :] for i, part in enumerate(parts))  # type: ignore[return-value]


def _spreaded(y: Array, *, rows: int) -> Array:
    height = y.shape[-3] + rows - 1
    wide = jnp.pad(y, [(0, 0)] * (y.ndim - 3) + [(rows - 1, rows - 1), (0, 0), (0, 0)])
    return jnp.concatenate([wide[..., first : first + height, :, :] for first in reversed(range(rows))], axis=-1)


def _fewer(shape: Any, rows: int) -> tuple[int, ...]:
    *others, height, width, features = shape
    return (*others, height - rows + 1, width, features // rows)


def _more(shape: Any, rows: int) -> tuple[int, ...]:
    *others, height, width, features = shape
    return (*others, height + rows - 1, width, features * rows)


_add = linear("add_rows", _added, _fewer)
_spread = linear("spread_rows", _spreaded, _more)
ad.deflinear2(_add, lambda towards, _, *, rows: [spread_rows(towards, rows)])
ad.deflinear2(_spread, lambda towards, _, *, rows: [add_rows(towards, rows)])

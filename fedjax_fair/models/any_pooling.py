"""Maxima and sums of windows side by side, as operations on a reshaped image.

For the gradient XLA looks for each window's largest entry once more (``select_and_scatter``), which a CPU does one
window after another.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

MOST = 16
"""Entries of a window up to which its places are compared one by one."""


def pools(step: Any) -> bool:
    """Whether an operation of a traced program takes the maximum or the sum of windows that tile the image."""
    if step.primitive.name not in ("reduce_window_max", "reduce_window_sum"):
        return False
    settings, window = step.params, step.params["window_dimensions"]
    return (
        tuple(window) == tuple(settings["window_strides"])
        and 1 < math.prod(window) <= MOST
        and not any(map(any, settings["padding"]))
        and max(*settings["base_dilation"], *settings["window_dilation"]) == 1
        and jnp.issubdtype(step.invars[0].aval.dtype, jnp.floating)
    )


def pool_any(step: Any, x: Array) -> Array:
    """What the operation makes of ``x``."""
    window = step.params["window_dimensions"]
    whole = [size // side * side for size, side in zip(x.shape, window)]
    parts = [part for size, side in zip(whole, window) for part in (size // side, side)]
    axes = tuple(range(1, 2 * x.ndim, 2))
    laid = lax.slice(x, [0] * x.ndim, whole).reshape(parts)
    return first_largest(laid, axes) if step.primitive.name == "reduce_window_max" else laid.sum(axes)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def first_largest(x: Array, axes: tuple[int, ...]) -> Array:
    """The maximum over some axes; of entries that are equal the first has the gradient, as in XLA's pooling."""
    return functools.reduce(jnp.maximum, _places(x, axes))


@first_largest.defjvp
def _(axes: tuple[int, ...], primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    largest = first_largest(primals[0], axes)
    taken, moved = jnp.zeros(largest.shape, bool), jnp.zeros_like(largest)
    for part, along in zip(_places(primals[0], axes), _places(tangents[0], axes)):
        mine = (part == largest) & ~taken
        taken, moved = taken | mine, moved + jnp.where(mine, along, 0)
    return largest, moved


def _places(x: Array, axes: tuple[int, ...]) -> list[Array]:
    """The entries of every window, place by place, in order."""
    if not axes:
        return [x]
    *others, last = axes  # from behind, so that the axes before keep their numbers
    parts = [_places(lax.index_in_dim(x, i, last, keepdims=False), tuple(others)) for i in range(x.shape[last])]
    return [part for same in zip(*parts) for part in same]

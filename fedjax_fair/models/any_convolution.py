"""``lax.conv_general_dilated`` as products of matrices, whose gradients are products of matrices, too.

On a CPU XLA computes a convolution by Eigen, but not inside a loop, nor where every client has a kernel of its own:
there it takes some twenty times as long (https://github.com/jax-ml/jax/issues/12868). A kernel's gradient, a
convolution with a window as large as the image, is slow everywhere. Products of matrices are not.
"""

import itertools
import math
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from fedjax_fair.models.convolution import convolve
from fedjax_fair.models.pooling import convolve_and_pool, max_pool_2x2
from fedjax_fair.numerics.sum_type import sum_type


def why_not(step: Any) -> str:
    """Why this convolution of a traced program is none for :func:`convolve_any`; empty if it is."""
    kinds = {var.aval.dtype for var in (*step.invars, *step.outvars)}
    if step.params["batch_group_count"] > 1:
        return "batch_group_count above 1"
    if len(kinds) > 1 or not jnp.issubdtype(kinds.pop(), jnp.floating):
        return "inputs, kernel and outputs that are not of one type of real numbers"
    return ""


def convolve_any(x: Array, kernel: Array, pool: bool = False, **settings: Any) -> Array:
    """``lax.conv_general_dilated_p.bind(x, kernel, **settings)``, to rounding.

    Args:
      x: images, laid out as ``settings`` say.
      kernel: likewise.
      pool: take the largest of each 2 x 2 window of two dimensions.
      settings: those of JAX's operation.
    """
    form = settings["dimension_numbers"]
    x = jnp.transpose(x, (form.lhs_spec[0], *form.lhs_spec[2:], form.lhs_spec[1]))
    kernel = jnp.transpose(kernel, (*form.rhs_spec[2:], form.rhs_spec[1], form.rhs_spec[0]))
    around = zip(settings["padding"], settings["lhs_dilation"])
    edges = [(0, 0, 0), *((low, high, gap - 1) for (low, high), gap in around), (0, 0, 0)]
    x = lax.pad(x, jnp.zeros((), x.dtype), edges) if any(map(any, edges)) else x
    strides, gaps, groups = (settings[name] for name in ("window_strides", "rhs_dilation", "feature_group_count"))
    window = kernel.shape[:-2]
    if len(window) == 2 and groups == max(*strides, *gaps) == 1 < math.prod(window) and _fits(x, window):
        y = convolve_and_pool(x, kernel, first=True) if pool else convolve(x, kernel)
    else:
        y = _products(x, kernel, strides, gaps, groups)
        y = max_pool_2x2(y, first=True) if pool else y
    order = (form.out_spec[0], *form.out_spec[2:], form.out_spec[1])
    return jnp.transpose(y, [order.index(axis) for axis in range(y.ndim)])


def _fits(x: Array, window: tuple[int, ...]) -> bool:
    return all(size >= side for size, side in zip(x.shape[1:], window))


def _products(x: Array, kernel: Array, strides: Any, gaps: Any, groups: int) -> Array:
    """Images [B, ..., C], padded, and a kernel [..., C / groups, F]: [B, ..., F], as one product of patches."""
    *window, channels, features = kernel.shape
    reach = [(side - 1) * gap + 1 for side, gap in zip(window, gaps)]
    sizes = [max(0, (full - wide) // stride + 1) for full, wide, stride in zip(x.shape[1:], reach, strides)]
    if not all(sizes) or not x.size or not kernel.size:
        return jnp.zeros((x.shape[0], *sizes, features), x.dtype)

    apart = groups == max(gaps, default=1) == 1 < math.prod(window) and tuple(window) == tuple(strides)
    if apart:  # as a ViT's patches are: no slice a pixel
        ends = [size * side for size, side in zip(sizes, window)]
        cut = lax.slice(x, (0,) * x.ndim, (x.shape[0], *ends, channels))
        split = cut.reshape(x.shape[0], *itertools.chain(*zip(sizes, window)), channels)
        blocks, inside = range(1, split.ndim - 1, 2), range(2, split.ndim, 2)
        laid = jnp.transpose(split, (0, *blocks, *inside, split.ndim - 1))
        y = laid.reshape(-1, math.prod(window) * channels) @ kernel.reshape(-1, features)
        return y.reshape(x.shape[0], *sizes, features)

    def read(place: tuple[int, ...]) -> Array:
        start = [at * gap for at, gap in zip(place, gaps)]
        stop = [first + (size - 1) * stride + 1 for first, size, stride in zip(start, sizes, strides)]
        return lax.slice(x, (0, *start, 0), (x.shape[0], *stop, x.shape[-1]), (1, *strides, 1))

    places = [read(place) for place in itertools.product(*map(range, window))]
    if groups == 1:
        laid = places[0] if len(places) == 1 else jnp.concatenate(places, axis=-1)
        # Two matrices, not an array and a matrix: else the kernel's gradient waits for a transposed copy.
        y = laid.reshape(-1, laid.shape[-1]) @ kernel.reshape(-1, features)
    elif channels == 1 and features == groups:  # a kernel for every channel: multiplied and added
        weights = kernel.reshape(-1, *[1] * (x.ndim - 1), features)
        wide = sum_type(x.dtype)  # half precision's sums as XLA has them
        y = sum(part.astype(wide) * each.astype(wide) for part, each in zip(places, weights)).astype(x.dtype)
    else:
        laid = jnp.stack([part.reshape(-1, groups, channels) for part in places], axis=2)
        y = jnp.einsum("pgic,icgf->pgf", laid, kernel.reshape(-1, channels, groups, features // groups))
    return y.reshape(x.shape[0], *sizes, features)

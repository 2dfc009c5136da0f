"""The largest of each 2 x 2 window, also straight from a convolution."""

import functools

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.models.convolution import DEEP, convolve, fits, shifted

IMAGE = 3
"""Channels up to which windows pay for kernels of 3 x 3, too: .85 to 1.05 of the time, with 8 channels 1.15."""
HALVES = 2**18
"""Entries of all patches from which their product is two of half the rows: its gradient, whose sums are as long as
the patches and whose results are few, took .9 of the time on two cores, and the same on one."""


def max_pool_2x2(x: Array, first: bool = False) -> Array:
    """Largest of each 2 x 2 window of [B, H, W, C]; an odd last row or column is dropped.

    A tie shares its gradient half and half, first between the rows of a column, then between the columns; with
    ``first``, the first entry, row by row, has all of it, as in ``flax.linen.max_pool``.
    """
    batch, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2].reshape(batch, height // 2, 2, width // 2, 2, channels)
    return _largest(x, (2, 4), first)


def convolve_and_pool(x: Array, kernel: Array, first: bool = False) -> Array:
    """``max_pool_2x2(convolve(x, kernel))``, to rounding.

    On a CPU kernels with few entries in a row, such as those of a first layer, go the way of :func:`windows`.

    Args:
      x: [B, H, W, C].
      kernel: [rows, columns, C, F].
      first: whether the first of equal entries has the gradient; see :func:`max_pool_2x2`.

    Returns:
      [B, (H - rows + 1) // 2, (W - columns + 1) // 2, F].

    Raises:
      ValueError: a kernel that does not fit into the image.
    """
    fits(x, kernel)
    rows, columns, channels, _ = kernel.shape
    more = (rows + 1) * (columns + 1) / (rows * columns)  # times the multiplications
    pays = columns * channels < DEEP and more <= (1.8 if channels <= IMAGE else 1.5)
    if pays and jax.default_backend() == "cpu":
        return windows(x, kernel, first)
    return max_pool_2x2(convolve(x, kernel), first)


def windows(x: Array, kernel: Array, first: bool = False) -> Array:
    """:func:`convolve_and_pool` as one product that makes the four outputs of a window side by side.

    Of the patch that all four read, [(rows + 1) (columns + 1) C], and the kernel at its four places in it:
    for 5 x 5 a third of the patches' entries and four times as many outputs in a row of the product, for 1.44 times
    the multiplications. Of the time of a first layer and its kernel's gradient this took .8 on two cores of a Xeon,
    .7 on one.
    """
    rows, columns, _, features = kernel.shape
    height, width = (x.shape[1] - rows + 1) // 2, (x.shape[2] - columns + 1) // 2
    laid = jnp.concatenate(shifted(x, (rows + 1, columns + 1), (height, width), stride=2), axis=-1)
    places = [((down, 1 - down), (right, 1 - right), (0, 0), (0, 0)) for down in (0, 1) for right in (0, 1)]
    wide = jnp.stack([jnp.pad(kernel, place) for place in places], axis=3).reshape(-1, 4 * features)
    halves = 2 if laid.size >= HALVES and x.shape[0] % 2 == 0 else 1
    if halves == 1:  # a plain product: JAX 0.10.0 would keep an axis of one in it
        y = laid.reshape(-1, len(wide)) @ wide
    else:
        y = laid.reshape(halves, -1, len(wide)) @ jnp.broadcast_to(wide, (halves, *wide.shape))
    return _largest(y.reshape(x.shape[0], height, width, 2, 2, features), (3, 4), first)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _largest(x: Array, axes: tuple[int, int], first: bool) -> Array:
    """The maximum over two axes of length 2, rows and columns."""
    one, other = axes[::-1] if first else axes
    return jnp.squeeze(_larger(_larger(x, one), other), axes)


@_largest.defjvp
def _(axes: tuple[int, int], first: bool, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """With the shares as one array the gradient is one product; that of three maxima is a sum of padded slices."""
    (x,), (along,) = primals, tangents
    one, other = axes[::-1] if first else axes  # the first, row by row: of each row, then of the two rows'
    shares = _shares(x, one, first) * _shares(_larger(x, one), other, first)
    return _largest(x, axes, first), jnp.sum(shares * along, axes)


def _larger(x: Array, axis: int) -> Array:
    return jnp.maximum(*jnp.split(x, 2, axis))


def _shares(x: Array, axis: int, first: bool) -> Array:
    """1 where an entry is the larger of the two along an axis, else 0 (beside a NaN anything); in a tie 1/2, or 1
    and 0 if the first has all."""
    one, other = jnp.split(x, 2, axis)
    most = (one >= other).astype(x.dtype)
    share = most if first else ((one > other).astype(x.dtype) + most) / 2
    return jnp.concatenate([share, 1 - share], axis)

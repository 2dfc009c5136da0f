"""Convolutions as matrix products, also where every client has a kernel of its own; on a GPU large windows by XLA.

Under ``vmap`` over clients with weights of their own, ``lax.conv`` becomes a grouped convolution, which is some
twenty times slower on a CPU; a matrix product becomes a batched matrix product.
"""

import functools
import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.models.row_shifts import add_rows

TILE = 4
"""Output rows that are made together; 2 was slower for kernels of 5 rows, 6 for those of 3."""
POINTS = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0)
"""Where Toom and Cook evaluate polynomials, beside infinity: exact in binary and near 1, for small errors."""
MOST_ROWS = len(POINTS) + 2 - TILE
DEEP = 64
"""Entries in one row of a kernel, over columns and input channels, from which fewer products are faster: with 96
and 160 they are, with 15 (5 x 5 on RGB images) they are not."""
NARROW = 64
"""Outputs times rows of a kernel up to which :func:`by_rows` is faster than :func:`patches`: with 3 x 3 kernels of
8 channels it took .55 of the time with both gradients, with 16 channels .85, with 32 as long."""

LARGE = 25
"""Pixels of a window from which a GPU takes XLA's convolution for products in full float32. On an H100 a network of
nn.Conv and nn.max_pool with windows of 5 x 5, whose patches have 25 times the image's entries, took .72 of the time
of the stock CNN by :func:`patches`. In TF32 the latter took .75 of the time of the same network by XLA's."""


def convolve(x: Array, kernel: Array) -> Array:
    """``y[b, h, w, f] = sum_ijc x[b, h + i, w + j, c] kernel[i, j, c, f]``, stride 1, without padding.

    On a CPU, kernels of 2 to 5 rows on many channels go the way of :func:`fewer_products`, those with few entries
    and few outputs that of :func:`by_rows`, all others that of :func:`patches`. On a GPU windows of 25 pixels and
    more go the way of :func:`by_xla` where products are in full float32; there and on a TPU all others go that of
    :func:`patches`.

    Args:
      x: [B, H, W, C].
      kernel: [rows, columns, C, F].

    Returns:
      [B, H - rows + 1, W - columns + 1, F].

    Raises:
      ValueError: a kernel that does not fit into the image.
    """
    fits(x, kernel)
    rows, columns, channels, features = kernel.shape
    if (backend := jax.default_backend()) != "cpu":
        in_full = getattr(jax.config, "jax_default_matmul_precision") == "highest"  # noqa: B009
        return by_xla(x, kernel) if backend == "gpu" and in_full and rows * columns >= LARGE else patches(x, kernel)
    height = x.shape[1] - rows + 1
    made = (rows + TILE - 1) * -(-height // TILE)  # rows of products, instead of rows * height
    pays = rows <= MOST_ROWS and columns * channels >= DEEP and 5 * made <= 4 * rows * height
    full = jnp.result_type(x, kernel) in (jnp.float32, jnp.float64)  # in half precision the errors would show
    if pays and full:
        return fewer_products(x, kernel)
    narrow = 1 < rows <= height and columns * channels < DEEP and rows * features <= NARROW
    return by_rows(x, kernel) if narrow else patches(x, kernel)


def fits(x: Array, kernel: Array) -> None:
    """Raises ValueError for a kernel that does not fit into the image."""
    (rows, columns), (height, width) = kernel.shape[:2], x.shape[1:3]
    if height < rows or width < columns:
        raise ValueError(f"kernel must fit into the image, got {rows} x {columns} for {height} x {width}")


def shifted(x: Array, window: tuple[int, int], size: tuple[int, int], stride: int = 1) -> list[Array]:
    """What each place of a window reads of images [B, H, W, C] where ``size`` windows lie on them."""
    down, right = (stride * many for many in size)
    places = itertools.product(*map(range, window))
    return [x[:, i : i + down : stride, j : j + right : stride] for i, j in places]


def by_xla(x: Array, kernel: Array) -> Array:
    """:func:`convolve` as XLA has it; under ``vmap`` over kernels a grouped convolution."""
    kind = jnp.result_type(x, kernel)
    sides = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x.astype(kind), kernel.astype(kind), (1, 1), "VALID", dimension_numbers=sides
    )


def patches(x: Array, kernel: Array) -> Array:
    """:func:`convolve` as one product of all shifted patches with the kernel."""
    rows, columns, channels, features = kernel.shape
    height, width = x.shape[1] - rows + 1, x.shape[2] - columns + 1
    laid = jnp.concatenate(shifted(x, (rows, columns), (height, width)), axis=-1)
    # Two matrices, not an array and a matrix: else the kernel's gradient waits for a transposed copy.
    y = laid.reshape(-1, rows * columns * channels) @ kernel.reshape(-1, features)
    return y.reshape(x.shape[0], height, width, features)


def by_rows(x: Array, kernel: Array) -> Array:
    """:func:`convolve` as one product of patches along the width with all rows of the kernel side by side.

    For kernels of 3 rows a third of the entries of :func:`patches`, and three times as many outputs in a row of the
    product, where few are slow; the rows' outputs are then added up.
    """
    rows, columns, channels, features = kernel.shape
    batch, height, across, _ = x.shape
    width = across - columns + 1
    laid = jnp.concatenate([x[:, :, j : j + width] for j in range(columns)], axis=-1)
    side = kernel.reshape(rows, columns * channels, features).swapaxes(0, 1)
    y = laid.reshape(-1, columns * channels) @ side.reshape(columns * channels, rows * features)
    return add_rows(y.reshape(batch, height, width, rows * features), rows)


def fewer_products(x: Array, kernel: Array) -> Array:
    """:func:`convolve` by Toom and Cook's rule along the height (Winograd's convolution in one dimension).

    From n = rows + 3 rows of the image, x, and the kernel's rows k, a tile of four output rows is

        Y = A^T [(G k) * (B^T x)],

    n products of rows instead of 4 * rows: half of the multiplications for kernels of 3 rows, two fifths for 5, in
    the gradients, too. Columns and channels go through patches as in :func:`patches`. In float32 the error is two
    to three times that of :func:`patches`, some 1e-6 of the result by norm.

    Raises:
      ValueError: a kernel of more than 5 rows.

    Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.
    """
    rows, columns, channels, features = kernel.shape
    if rows > MOST_ROWS:
        raise ValueError(f"kernel must have at most {MOST_ROWS} rows here, got {rows}")
    x = x.astype(jnp.result_type(x, kernel))
    batch, _, across, _ = x.shape
    height, width = x.shape[1] - rows + 1, across - columns + 1
    read, spread, back = (matrix.astype(x.dtype) for matrix in toom_cook(rows))
    tiles = -(-height // TILE)
    deep = tiles + (rows + TILE - 2) // TILE
    x = jnp.pad(x, ((0, 0), (0, deep * TILE - x.shape[1]), (0, 0), (0, 0)))
    lines = x.reshape(batch, deep, TILE, across, channels)
    mine = [lines[:, i // TILE : i // TILE + tiles, i % TILE] for i in range(len(read))]  # i-th row of each tile

    out = []
    for line, weights in zip(read, spread):
        # The barrier: read by every shift below, the sum would be made anew in each.
        rowwise = jax.lax.optimization_barrier(_combine(line, mine))
        laid = jnp.concatenate([rowwise[:, :, j : j + width] for j in range(columns)], axis=-1)
        turned = _combine(weights, list(kernel)).reshape(-1, features)
        out.append(laid.reshape(-1, columns * channels) @ turned)
    y = jnp.stack([_combine(line, out).reshape(batch, tiles, width, features) for line in back], axis=2)
    return y.reshape(batch, tiles * TILE, width, features)[:, :height]


@functools.cache
def toom_cook(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """B^T f64[n, n], G f64[n, rows] and A^T f64[4, n], n = rows + 3.

    The transpose of multiplying polynomials, of which G and A take the values at n - 1 points and infinity; a row
    of B^T is the polynomial that vanishes at all of them but one, whose value there G divides out.
    """
    points = POINTS[: rows + TILE - 2]
    others = [[b for b in points if b != a] for a in points]
    read = [[*np.poly(rest)[::-1], 0.0] for rest in others] + [np.poly(points)[::-1]]
    scale = [math.prod(a - b for b in rest) for a, rest in zip(points, others)]
    spread = [[a**j / s for j in range(rows)] for a, s in zip(points, scale)] + [[0.0] * (rows - 1) + [1.0]]
    back = [[a**q for a in points] + [float(q == TILE - 1)] for q in range(TILE)]
    return np.array(read), np.array(spread), np.array(back)


def _combine(weights: np.ndarray, arrays: Sequence[Array]) -> Array:
    """The sum of weighted arrays, without those of weight 0."""
    terms = [array if weight == 1 else weight * array for weight, array in zip(weights, arrays) if weight]
    return functools.reduce(jnp.add, terms)

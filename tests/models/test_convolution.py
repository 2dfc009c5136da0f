"""Convolutions as matrix products: the sums of ``lax.conv``, by fewer products where that is faster."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_fair.models.convolution import DEEP, POINTS, TILE, by_xla, convolve, fewer_products, patches, toom_cook


def reference(x, kernel):
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def draw(*shape, seed=0):
    return jnp.array(np.random.default_rng(seed).normal(size=shape))


def with_gradients(function, x, kernel, towards):
    out, pull = jax.vjp(function, x, kernel)
    return out, *pull(towards)


@settings(max_examples=12, deadline=None)
@given(st.integers(2, 5), st.integers(1, 4), st.integers(1, 13), st.integers(1, 3), st.integers(1, 3))
def test_fewer_products_make_the_same_sums_and_gradients(rows, columns, height, width, channels):
    """Tiles that end below the image, images lower than a tile, columns of any number."""
    with jax.enable_x64(True):
        x = draw(2, height + rows - 1, width + columns - 1, channels)
        kernel, towards = draw(rows, columns, channels, 2, seed=1), draw(2, height, width, 2, seed=2)
        found = [
            jax.jit(functools.partial(with_gradients, f))(x, kernel, towards) for f in (fewer_products, reference)
        ]
        for got, expected in zip(*found):
            np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("rows", [2, 3, 4, 5])
def test_toom_cook_is_exact_for_every_kernel_and_tile(rows):
    """A^T [(G k) * (B^T x)] for the unit vectors k and x: y_q = sum_j x_{q+j} k_j."""
    read, spread, back = toom_cook(rows)
    n = rows + TILE - 1
    assert (read.shape, spread.shape, back.shape) == ((n, n), (n, rows), (TILE, n))
    made = np.einsum("qn,nj,ni->qij", back, spread, read)
    expected = np.fromfunction(lambda q, i, j: i == q + j, (TILE, n, rows))
    np.testing.assert_allclose(made, expected, atol=1e-14)
    assert all(float(4 * point).is_integer() for point in POINTS)  # exact in binary


SHAPES = {"CNN": ((50, 14, 14, 32), (5, 5, 32, 64)), "pfl's CNN": ((10, 30, 30, 32), (3, 3, 32, 64))}


@pytest.mark.parametrize("net", SHAPES)
def test_in_float32_the_error_is_a_few_times_that_of_the_plain_sum(net):
    image, window = SHAPES[net]
    x, kernel = draw(*image), draw(*window, seed=1)
    towards = draw(*jax.eval_shape(reference, x, kernel).shape, seed=2)
    with jax.enable_x64(True):
        doubles = (jnp.array(np.float64(leaf)) for leaf in (x, kernel, towards))
        exact = [*map(np.asarray, jax.jit(functools.partial(with_gradients, reference))(*doubles))]

    def errors(function):
        found = jax.jit(functools.partial(with_gradients, function))(x, kernel, towards)
        return [np.linalg.norm(np.float64(a) - b) / np.linalg.norm(b) for a, b in zip(found, exact)]

    for few, plain in zip(errors(fewer_products), errors(patches)):
        assert few < 2e-6
        assert few < 6 * plain


def products(rows, columns, channels, height, kind=jnp.float32):
    x, kernel = jnp.zeros((2, height + rows - 1, 6, channels), kind), jnp.zeros((rows, columns, channels, 4), kind)
    return str(jax.make_jaxpr(convolve)(x, kernel)).count("dot_general")


def test_on_a_gpu_large_windows_are_xlas_and_the_others_patches(monkeypatch):
    """Patches in TF32, too; with the same sums and gradients, also where every client has its own kernel."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for side, precision, ways in ((5, "highest", (1, 0)), (5, "default", (0, 1)), (3, "highest", (0, 1))):
        x, kernels = draw(3, 2, 8, 6, 4), draw(3, side, side, 4, 2, seed=1)
        with jax.default_matmul_precision(precision):
            program = str(jax.make_jaxpr(convolve)(x[0], kernels[0]))
            assert (program.count("conv_general_dilated["), program.count("dot_general")) == ways
            towards = jnp.ones_like(jax.vmap(convolve)(x, kernels))
            each = jax.vmap(functools.partial(with_gradients, convolve))(x, kernels, towards)
        for k in range(3):
            alone = with_gradients(reference, x[k], kernels[k], towards[k])
            for ours, theirs in zip(each, alone):
                np.testing.assert_allclose(ours[k], theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="on an accelerator there are other ways")
def test_fewer_products_are_for_deep_kernels_that_fill_their_tiles():
    assert products(5, 5, 32, 10) == 8
    assert products(3, 3, 32, 28) == 6
    assert products(5, 5, 3, 28) == 1  # 15 entries a row
    assert products(3, 1, DEEP - 1, 28) == 1
    assert products(1, 1, DEEP, 28) == 1  # nothing to save
    assert products(5, 5, 32, 1) == 1  # a tile of 4 for one row of output
    assert products(7, 5, 32, 28) == 1
    assert products(3, 3, 32, 5) == 6  # 12 rows of products for 15: just worth it
    assert products(3, 3, 32, 28, jnp.bfloat16) == 1


@pytest.mark.parametrize("kind", [jnp.int32, jnp.uint8, bool])
def test_whole_numbers_are_convolved_as_numbers(kind):
    x = jnp.array(np.random.default_rng(0).integers(0, 2, size=(2, 9, 6, 32)), kind)
    kernel = draw(3, 3, 32, 4)
    expected = reference(x.astype(jnp.float32), kernel)
    for function in (convolve, fewer_products, patches, by_xla):
        np.testing.assert_allclose(function(x, kernel), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("function", "image", "window", "sentence"),
    [
        (convolve, (2, 4, 9, 3), (5, 2, 3, 4), "kernel must fit into the image, got 5 x 2 for 4 x 9"),
        (convolve, (2, 4, 9, 3), (2, 10, 3, 4), "kernel must fit into the image, got 2 x 10 for 4 x 9"),
        (fewer_products, (2, 9, 9, 3), (6, 2, 3, 4), "kernel must have at most 5 rows here, got 6"),
    ],
)
def test_a_kernel_that_does_not_fit_is_one_sentence(function, image, window, sentence):
    with pytest.raises(ValueError, match=sentence):
        function(jnp.zeros(image), jnp.zeros(window))


def test_clients_with_kernels_of_their_own_get_their_own_sums():
    x, kernels = draw(3, 2, 8, 6, 32), draw(3, 3, 3, 32, 4, seed=1)
    together = jax.vmap(convolve)(x, kernels)
    for one, image, kernel in zip(together, x, kernels):
        np.testing.assert_allclose(one, reference(image, kernel), rtol=1e-4, atol=1e-4)


def test_derivatives_go_forward_too():
    x, kernel, along = draw(2, 8, 6, 32), draw(3, 3, 32, 4, seed=1), draw(3, 3, 32, 4, seed=2)
    _, moved = jax.jvp(lambda k: convolve(x, k), (kernel,), (along,))
    np.testing.assert_allclose(moved, reference(x, along), rtol=1e-4, atol=1e-4)

"""The largest of each 2 x 2 window: values and gradients of ``lax.reduce_window``, also from a convolution."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_fair.models import pooling
from fedjax_fair.models.convolution import DEEP
from fedjax_fair.models.pooling import convolve_and_pool, max_pool_2x2, windows


def draw(*shape, seed=0):
    return jnp.array(np.random.default_rng(seed).normal(size=shape))


def pooled(x):
    window = (1, 2, 2, 1)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")


def reference(x, kernel):
    dimensions = ("NHWC", "HWIO", "NHWC")
    return pooled(jax.lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=dimensions))


def with_gradients(function, *arguments):
    out, pull = jax.vjp(function, *arguments)
    return out, *pull(draw(*out.shape, seed=9).astype(out.dtype))


def agree(function, other, *arguments):
    """Each is one program, which compiles sooner than one for every operation."""
    both = (jax.jit(partial(with_gradients, f))(*arguments) for f in (function, other))
    for got, expected in zip(*both, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", [(2, 2), (4, 6), (5, 4), (7, 9)])
def test_without_ties_the_gradient_goes_to_the_largest(shape):
    with jax.enable_x64(True):
        agree(max_pool_2x2, pooled, draw(3, *shape, 2))


@pytest.mark.parametrize(
    ("window", "shares"),
    [
        ([[1, 3], [2, 0]], [[0, 1], [0, 0]]),
        ([[3, 1], [3, 0]], [[0.5, 0], [0.5, 0]]),
        ([[3, 3], [1, 0]], [[0.5, 0.5], [0, 0]]),
        ([[3, 0], [1, 3]], [[0.5, 0], [0, 0.5]]),
        ([[3, 3], [3, 0]], [[0.25, 0.5], [0.25, 0]]),
        ([[3, 3], [3, 3]], [[0.25, 0.25], [0.25, 0.25]]),
        ([[-np.inf, -np.inf], [-np.inf, -np.inf]], [[0.25, 0.25], [0.25, 0.25]]),
    ],
)
def test_a_tie_shares_its_gradient(window, shares):
    x = jnp.array(window, jnp.float32).reshape(1, 2, 2, 1)
    out, slope = with_gradients(lambda x: max_pool_2x2(x).sum(), x)
    assert out == np.max(window)
    np.testing.assert_array_equal(slope[0, :, :, 0] / slope.sum(), shares)


def test_derivatives_go_forward_and_twice():
    x, along = draw(1, 4, 4, 2), draw(1, 4, 4, 2, seed=1)

    def loss(x):
        return jnp.sum(max_pool_2x2(x) ** 3)

    _, forward = jax.jvp(loss, (x,), (along,))
    np.testing.assert_allclose(forward, jnp.vdot(jax.grad(loss)(x), along), rtol=1e-5)
    _, twice = jax.jvp(jax.grad(loss), (x,), (along,))
    largest = x == jnp.repeat(jnp.repeat(max_pool_2x2(x), 2, 1), 2, 2)
    np.testing.assert_allclose(twice, jnp.where(largest, 6 * x * along, 0), rtol=1e-5)


def test_what_is_not_a_number_stays_so():
    x = draw(1, 4, 4, 1).at[0, 1, 2, 0].set(jnp.nan)
    assert np.array_equal(np.isnan(max_pool_2x2(x))[0, :, :, 0], [[False, True], [False, False]])


@settings(max_examples=6, deadline=None)
@given(*[st.integers(1, 6)] * 2, *[st.integers(1, 9)] * 2, st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_windows_are_pooled_convolutions(rows, columns, height, width, channels, batch, two):
    """Odd last rows and columns dropped; one product or two."""
    with jax.enable_x64(True), pytest.MonkeyPatch.context() as patched:
        patched.setattr(pooling, "HALVES", 0 if two else 2**40)
        x, kernel = draw(batch, height + rows, width + columns, channels), draw(rows, columns, channels, 2, seed=1)
        agree(windows, reference, x, kernel)


def test_clients_with_kernels_of_their_own_get_their_own_windows():
    with jax.enable_x64(True):
        x, kernels = draw(3, 2, 12, 9, 3), draw(3, 5, 5, 3, 4, seed=1)
        together = with_gradients(jax.vmap(convolve_and_pool), x, kernels)
        for got, expected in zip(
            together, with_gradients(lambda *a: jnp.stack(list(map(reference, *a))), x, kernels)
        ):
            np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)


def widest(batch, rows, columns, channels, side=12, kind=jnp.float32):
    """Products of a program, as (how many, results in a row of one)."""
    x, kernel = jnp.zeros((batch, side, side, channels), kind), jnp.zeros((rows, columns, channels, 4), kind)
    steps = jax.make_jaxpr(convolve_and_pool)(x, kernel).jaxpr.eqns
    shapes = [step.outvars[0].aval.shape for step in steps if step.primitive.name == "dot_general"]
    return sum(int(np.prod(shape[:-2])) for shape in shapes), max(shape[-1] for shape in shapes)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="on an accelerator there is one way only")
def test_windows_are_for_shallow_kernels():
    assert widest(2, 5, 5, 3) == (1, 16)
    assert widest(2, 5, 5, 12) == (1, 16)
    assert widest(2, 5, 5, 13) == (8, 4)  # 65 entries a row: fewer products
    assert widest(2, 3, 3, 3) == (1, 16)
    assert widest(2, 3, 3, 4) == (1, 12)  # 1.8 times the multiplications: all rows of the kernel side by side
    assert widest(2, 1, 1, 3) == (1, 4)  # four times
    assert widest(2, 7, 7, DEEP // 7) == (1, 16)
    assert widest(50, 5, 5, 3, side=32) == (2, 16)
    assert widest(51, 5, 5, 3, side=32) == (1, 16)  # no halves
    assert widest(2, 5, 5, 3, kind=jnp.bfloat16) == (1, 16)


def test_a_first_layer_is_as_exact_as_the_plain_sum():
    """Float32, the CNN's first layer: its kernel's gradient sums 39,200 terms."""
    x, kernel = draw(50, 32, 32, 3), draw(5, 5, 3, 32, seed=1)
    with jax.enable_x64(True):
        exact = [*map(np.array, with_gradients(reference, *(jnp.array(np.float64(a)) for a in (x, kernel))))]
    for got, expected in zip(jax.jit(lambda *a: with_gradients(convolve_and_pool, *a))(x, kernel), exact):
        assert np.linalg.norm(np.float64(got) - expected) < 2e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("kind", [jnp.int32, jnp.uint8, bool])
def test_whole_numbers_are_convolved_as_numbers(kind):
    x, kernel = jnp.array(np.random.default_rng(0).integers(0, 2, size=(2, 9, 6, 3)), kind), draw(3, 3, 3, 4)
    np.testing.assert_allclose(convolve_and_pool(x, kernel), reference(x.astype(jnp.float32), kernel), rtol=1e-5)


def test_an_image_of_one_window_and_of_none():
    kernel = draw(5, 5, 3, 4)
    assert convolve_and_pool(draw(2, 6, 6, 3), kernel).shape == (2, 1, 1, 4)
    assert convolve_and_pool(draw(2, 5, 9, 3), kernel).shape == (2, 0, 2, 4)
    with pytest.raises(ValueError, match="kernel must fit into the image, got 5 x 5 for 4 x 9"):
        convolve_and_pool(draw(2, 4, 9, 3), kernel)

"""Sums and products with an entry for every channel: the same values and derivatives, from two sums over pixels."""

import operator

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_fair.models.pixel_sums import repeat_pixels, sum_pixels
from fedjax_fair.models.rewriting import rewritten

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="an accelerator's program stays as it is")

IMAGES = (2, 16, 16, 8)


@pytest.fixture(autouse=True, scope="module")
def float64():
    with jax.enable_x64(True):
        yield


def draw(*shape, seed=0):
    return jnp.array(np.random.default_rng(seed).normal(size=shape))


def gradients(function, *args):
    """The value, the gradients and a derivative forward, in some direction."""
    y, pull = jax.vjp(function, *args)
    along = tuple(draw(*arg.shape, seed=7 + i).astype(arg.dtype) for i, arg in enumerate(args))
    return y, pull((draw(*y.shape, seed=5) + 1).astype(y.dtype)), jax.jvp(function, args, along)[1]


def close(got, expected):
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)


def over_pixels(function, *args):
    """How often a function's gradients take sums over pixels, by our operation."""
    slopes = jax.grad(lambda *args: jnp.sum(function(*args) ** 3), tuple(range(len(args))))
    return str(jax.make_jaxpr(slopes)(*args)).count("sum_pixels[")


def by_linen(x, scale, shift):
    return nn.GroupNorm(4).apply({"params": {"scale": scale, "bias": shift}}, x)


def by_nnx(x, scale, shift):
    norm = nnx.GroupNorm(8, num_groups=4, rngs=nnx.Rngs(0))
    norm.scale, norm.bias = nnx.Param(scale), nnx.Param(shift)
    return norm(x)


def by_hand(x, scale, shift):
    spread = jnp.sqrt(x.var((1, 2), keepdims=True) + 1e-5)
    return (x - x.mean((1, 2), keepdims=True)) / spread * scale[None, None, None] + shift[None, None, None]


@pytest.mark.parametrize(("norm", "sums"), [(by_linen, 4), (by_nnx, 4), (by_hand, 2)])
def test_a_normalisation_is_the_same_to_rounding_from_few_sums(norm, sums):
    args = (draw(*IMAGES), draw(8, seed=1), draw(8, seed=2))
    close(gradients(rewritten(norm), *args), gradients(norm, *args))
    curvature = lambda norm: jax.jvp(jax.grad(lambda *args: jnp.sum(norm(*args) ** 3), (0, 1)), args, args)[1]  # noqa: E731
    close(curvature(rewritten(norm)), curvature(norm))
    assert over_pixels(rewritten(norm), *args) == sums


@pytest.mark.parametrize("norm", [by_linen, by_hand])
def test_clients_side_by_side_and_steps_in_a_loop_have_the_same_gradients(norm):
    args = (draw(3, *IMAGES), draw(3, 8, seed=1), draw(3, 8, seed=2))
    slopes = lambda norm: jax.grad(lambda *args: jnp.sum(norm(*args) ** 3), (0, 1, 2))  # noqa: E731
    close(jax.vmap(slopes(rewritten(norm)))(*args), jax.vmap(slopes(norm))(*args))
    one_by_one = jax.jit(lambda *args: jax.lax.map(lambda each: slopes(rewritten(norm))(*each), args))
    close(one_by_one(*args), jax.vmap(slopes(norm))(*args))


STEPS = {
    "x + e": operator.add,
    "x - e": operator.sub,
    "e - x": lambda x, e: e - x,  # ends a chain
    "e + x": lambda x, e: e + x,
    "x * e": operator.mul,
    "e * x": lambda x, e: e * x,
    "x / e": lambda x, e: x / (2 + e**2),
}
ENTRIES = st.sampled_from([(2, 1, 1, 8), (1, 1, 1, 8), (2, 1, 1, 1), (1, 1, 1, 1), (2, 1, 16, 1), (1, 16, 1, 1)])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(STEPS)), ENTRIES), min_size=2, max_size=5))
def test_any_chain_has_the_same_values_and_derivatives(chain):
    def play(x, *entries):
        for (name, _), e in zip(chain, entries):
            x = STEPS[name](x, e)
        return 2.0 * x

    args = (draw(*IMAGES), *(draw(*shape, seed=10 + i) for i, (_, shape) in enumerate(chain)))
    close(gradients(rewritten(play), *args), gradients(play, *args))


def test_values_keep_their_bits():
    args = (draw(*IMAGES), draw(2, 1, 1, 8, seed=1), draw(1, 1, 1, 8, seed=2))
    chain = lambda x, mean, scale: (x - mean) * scale  # noqa: E731
    np.testing.assert_array_equal(rewritten(chain)(*args), chain(*args))


@pytest.mark.parametrize(
    ("chain", "entries"),
    [
        (lambda x, a, b: x + a + b, [(2, 1, 1, 8)] * 2),  # no product: a gradient is a sum as it is
        (lambda x, a, b: x * a * b, [(2, 1, 1, 8)] * 2),
        (lambda x, a, b: a / x + b, [(2, 1, 1, 8)] * 2),  # no line
        (lambda x, a, b: x * a + b, [(2, 16, 1, 8), (2, 1, 16, 8)]),  # together as many entries as images
        (lambda x, a, b: (x[:1] - a) * b, [(1, 1, 1, 8)] * 2),  # too small an array
        (lambda x, a, b: (x - a) * jnp.exp(x * b), [(2, 1, 1, 8)] * 2),  # not one after the other
        (lambda x, a, b: ((moved := x - a) * b) + moved, [(2, 1, 1, 8)] * 2),  # read twice
    ],
)
def test_what_gains_nothing_stays_as_it_is(chain, entries):
    args = (draw(*IMAGES) + 5, draw(*entries[0], seed=1), draw(*entries[1], seed=2))
    assert over_pixels(rewritten(chain), *args) == 0


def errors(function, exact, args):
    """Of the value, the gradients and a derivative forward, by norm."""
    exact = gradients(exact, *[arg.astype(jnp.float64) for arg in args])
    found = zip(jax.tree.leaves(gradients(function, *args)), jax.tree.leaves(exact), strict=True)
    return np.array([np.linalg.norm(np.asarray(got, np.float64) - e) / np.linalg.norm(e) for got, e in found])


@pytest.mark.parametrize("kind", [jnp.float32, jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("mean", [0, 30, 1000])
def test_a_large_mean_and_half_precision_cost_no_more_than_as_the_model_is_written(mean, kind):
    chain = lambda x, mean, scale, shift: (x - mean) * scale + shift  # noqa: E731
    x, few = draw(*IMAGES) + mean, jnp.full((2, 1, 1, 8), mean)
    args = [arg.astype(kind) for arg in (x, few, 1 + draw(1, 1, 1, 8, seed=1), draw(1, 1, 1, 8, seed=2))]
    limit = 2 * errors(chain, chain, args) + jnp.finfo(kind).eps
    assert np.all(errors(rewritten(chain), chain, args) <= limit)


@pytest.mark.parametrize("mean", [0, 3, 100])
def test_nor_does_a_large_mean_where_the_variance_is_a_mean_of_squares(mean):
    args = [arg.astype(jnp.float32) for arg in (draw(*IMAGES) + mean, 1 + draw(8, seed=1), draw(8, seed=2))]
    limit = 2 * errors(by_linen, by_linen, args) + jnp.finfo(jnp.float32).eps
    assert np.all(errors(rewritten(by_linen), by_linen, args) <= limit)


def test_what_does_not_change_takes_no_sum_and_meets_no_infinity():
    x, mean, scale = draw(*IMAGES), draw(2, 1, 1, 8, seed=1), draw(1, 1, 1, 8, seed=2)
    chain = lambda x: (x - mean) * scale  # noqa: E731
    assert over_pixels(rewritten(chain), x) == 0
    far = x.at[0, 0, 0, 0].set(jnp.inf)
    np.testing.assert_array_equal(jax.jvp(rewritten(chain), (far,), (x,))[1], jax.jvp(chain, (far,), (x,))[1])


def test_whole_numbers_are_summed_as_they_are():
    x = jnp.full((1, 16, 16, 8, 2), 2**23 + 1, jnp.int32)
    total = lambda x: x.sum((1, 2, 4), dtype=jnp.int32)  # noqa: E731
    np.testing.assert_array_equal(rewritten(total)(x), total(x))


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((2, 16, 16, 8), (-3, -2)),
        ((2, 16, 16, 8), (-4, -3, -2)),
        ((3, 5, 7, 6), (-3, -2)),  # no number of pixels that fills a row
        ((3, 6, 2, 5), (-3, -2)),
        ((2, 4, 4, 64), (-3, -2)),  # wide enough
        ((2, 4, 3, 8), (-3,)),  # pixels apart
        ((2, 4, 3, 8), (-4, -1)),
        ((2, 0, 3, 8), (-3, -2)),
        ((2, 3, 3, 0), (-3, -2)),
    ],
)
def test_sums_over_pixels_are_sums_and_transposes_of_repeated_entries(shape, axes):
    x, few = draw(*shape), jax.eval_shape(lambda x: x.sum(axes, keepdims=True), draw(*shape))
    y = draw(*few.shape, seed=1)
    np.testing.assert_allclose(sum_pixels(x, axes), x.sum(axes, keepdims=True), rtol=1e-12, atol=1e-12)
    spread = repeat_pixels(y, axes, tuple(shape[axis] for axis in axes))
    np.testing.assert_array_equal(spread, jnp.broadcast_to(y, shape))
    np.testing.assert_allclose(jnp.vdot(sum_pixels(x, axes), y), jnp.vdot(x, spread), rtol=1e-12, atol=1e-12)
    turned = jax.vmap(lambda x: sum_pixels(x, axes), in_axes=2, out_axes=1)(jnp.stack([x, 2 * x], 2))
    np.testing.assert_allclose(turned[:, 1], 2 * x.sum(axes, keepdims=True), rtol=1e-12, atol=1e-12)


def test_half_precision_is_summed_in_full():
    x = jnp.ones((1, 64, 64, 8), jnp.bfloat16)
    assert sum_pixels(x, (-3, -2)).dtype == jnp.bfloat16
    np.testing.assert_array_equal(sum_pixels(x, (-3, -2)).astype(jnp.float32), 4096.0)

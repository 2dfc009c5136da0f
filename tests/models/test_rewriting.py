"""A model's program, rewritten for a CPU: the same values and derivatives, without a convolution in it."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from fedjax_fair.models import as_model, cnn
from fedjax_fair.models.convolution import by_rows, patches
from fedjax_fair.models.rewriting import fast, rewritten, slow_parts
from fedjax_fair.models.row_shifts import add_rows, spread_rows

pytestmark = pytest.mark.skipif(jax.default_backend() != "cpu", reason="an accelerator's program stays as it is")

SLOW = ("conv_general_dilated", "reduce_window", "select_and")


def draw(*shape, seed=0):
    return jnp.array(np.random.default_rng(seed).normal(size=shape))


def program(function, *args):
    return str(jax.make_jaxpr(function)(*args))


def close(got, expected, tolerance=1e-9):
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def derivatives(function, *args):
    """The value, the gradients and a derivative forward, in some direction."""
    y, pull = jax.vjp(function, *args)
    along = tuple(draw(*arg.shape, seed=7 + i) for i, arg in enumerate(args))
    return y, pull(draw(*y.shape, seed=5)), jax.jvp(function, args, along)[1]


@st.composite
def convolutions(draws):
    """Settings of a convolution, and the shapes of its image and its kernel."""
    n = draws(st.integers(1, 3))
    each = lambda low, high: tuple(draws(st.integers(low, high)) for _ in range(n))  # noqa: E731
    groups, wide, features = draws(st.sampled_from([(1, 3, 2), (1, 1, 4), (2, 2, 3), (4, 1, 1), (3, 1, 2)]))
    size, window, gaps, holes = each(3, 7), each(1, 3), each(1, 2), each(1, 2)
    spread = [(side - 1) * gap + 1 for side, gap in zip(size, holes)]
    reach = [(side - 1) * gap + 1 for side, gap in zip(window, gaps)]
    padding = [
        (draws(st.integers(max(-1, far - near), 3)), draws(st.integers(0, 2))) for near, far in zip(spread, reach)
    ]
    first = draws(st.booleans())
    images, kernels = (
        ("NC" + "DHW"[-n:], "OI" + "DHW"[-n:]) if first else ("N" + "DHW"[-n:] + "C", "DHW"[-n:] + "IO")
    )
    shapes = {"N": 2, "C": groups * wide, "I": wide, "O": groups * features}
    x = [shapes[c] if c in shapes else size["DHW"[-n:].index(c)] for c in images]
    kernel = [shapes[c] if c in shapes else window["DHW"[-n:].index(c)] for c in kernels]
    named = {
        "window_strides": each(1, 3),
        "padding": padding,
        "lhs_dilation": holes,
        "rhs_dilation": gaps,
        "dimension_numbers": (images, kernels, images),
        "feature_group_count": groups,
    }
    return named, x, kernel


@settings(max_examples=12, deadline=None, derandomize=True)
@given(convolutions())
def test_any_convolution_has_the_same_values_and_derivatives(drawn):
    named, x, kernel = drawn
    with jax.enable_x64(True):
        plain = lambda x, k: lax.conv_general_dilated(x, k, **named)  # noqa: E731
        args = draw(*x), draw(*kernel, seed=1)
        got, expected = jax.jit(lambda *a: (derivatives(rewritten(plain), *a), derivatives(plain, *a)))(*args)
        close(got, expected)
        assert "conv_general_dilated" not in program(rewritten(plain), *args)


def test_clients_with_kernels_of_their_own_and_steps_in_a_loop_have_the_same_gradients():
    with jax.enable_x64(True):

        def plain(x, k):
            numbers = ("NHWC", "HWIO", "NHWC")
            return lax.conv_general_dilated(x, k, (2, 1), "SAME", dimension_numbers=numbers)

        x, kernels = draw(3, 2, 6, 7, 2), draw(3, 3, 3, 2, 4, seed=1)

        def trained(function):
            def step(k, _):
                slope = jax.vmap(jax.grad(lambda k, x: jnp.sin(function(x, k)).sum()))(k, x)
                return k - 0.1 * slope, None

            return jax.jit(lambda k: lax.scan(step, k, length=2)[0])(kernels)

        close(trained(rewritten(plain)), trained(plain))


class Net(nn.Module):
    """Convolution, bias, ReLU and pooling; a group normalisation; a mean."""

    features: int = 4

    @nn.compact
    def __call__(self, x):
        x = nn.max_pool(nn.relu(nn.Conv(self.features, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.relu(nn.GroupNorm(num_groups=2)(nn.Conv(self.features, (3, 3), use_bias=False)(x)))
        return nn.Dense(3)(nn.avg_pool(x, (2, 2), (2, 2)).mean((1, 2)))


class Other(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 4, (3, 3), strides=2, rngs=rngs)
        self.out = nnx.Linear(4, 3, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.relu(self.conv(x)).mean((1, 2)))


def _apply(params, x):
    rows = lax.scan(lambda c, k: (jnp.tanh(_conv(c, k)), None), x, params["k"])[0]
    again = jax.checkpoint(lambda x: _conv(x, params["k"][0]))(rows)
    return lax.cond(params["w"].sum() > 0, lambda x: _conv(x, params["k"][1]), lambda x: x, again).mean((1, 2))


def _conv(x, kernel):
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _init(key, x):
    return {"k": jax.random.normal(key, (2, 3, 3, 3, 3)) / 5, "w": jnp.ones(2)}


@pytest.mark.parametrize("model", [Net(), Other, (_init, _apply)], ids=["linen", "nnx", "loops, branches, remat"])
def test_models_of_any_library_are_rewritten_to_rounding(model):
    net = as_model(model)
    x = draw(5, 24, 24, 3)
    params = net.init(jax.random.key(0), x[:1])

    def slopes(apply):
        return lambda params: jnp.sin(apply(params, x, None)).sum()

    new, old = fast(net).apply, net.apply
    made = program(jax.grad(slopes(new)), params)
    assert not any(word in made for word in SLOW)
    assert slow_parts(net, params, x) == []
    close(jax.jit(jax.grad(slopes(new)))(params), jax.jit(jax.grad(slopes(old)))(params), 2e-4)
    close(jax.jit(new)(params, x, None), jax.jit(old)(params, x, None), 2e-5)


def test_a_pooled_convolution_is_one_product_of_whole_windows():
    net = as_model(Net(8))
    params = net.init(jax.random.key(0), jnp.zeros((1, 24, 24, 3)))
    made = program(fast(net).apply, params, jnp.zeros((4, 24, 24, 3)), None)
    assert "f32[576,32] = dot_general" in made  # 12 x 12 windows of 4 images, four outputs of 8 features


@pytest.mark.parametrize("window", [(2, 2), (3, 2)])
def test_of_equal_entries_the_first_has_the_gradient(window):
    x = jnp.round(draw(2, 6, 6, 3) / 2)  # many ties

    def slope(function):
        return jax.grad(lambda x: (function(x) * draw(2, *(6 // w for w in window), 3)).sum())(x)

    pool = lambda x: nn.max_pool(x, window, window)  # noqa: E731
    close(slope(rewritten(pool)), slope(pool), 0)
    kernel = jnp.ones((1, 2, 3, 3))
    both = lambda x: pool(nn.relu(_conv(x, kernel) - 1.5))  # noqa: E731
    close(slope(rewritten(both)), slope(both), 1e-6)


def test_what_is_not_after_a_convolution_alone_stays_apart():
    """A second use of what is pooled, a bias by place, a ReLU with a slope of its own."""
    kernel, bias = draw(3, 3, 3, 4), draw(1, 6, 1, 1)

    @jax.custom_jvp
    def relu(x):
        return jnp.maximum(x, 0)

    relu.defjvp(lambda x, along: (relu(*x), 3 * along[0]))
    x, pool = draw(2, 6, 6, 3), lambda x: nn.max_pool(x, (2, 2), (2, 2))
    for function in (
        lambda x: pool(y := _conv(x, kernel)).sum() + jnp.sin(y).sum(),
        lambda x: pool(_conv(x, kernel) + bias).sum(),
        lambda x: pool(relu(_conv(x, kernel))).sum(),
    ):
        close(jax.grad(rewritten(function))(x), jax.grad(function)(x), 1e-4)


def test_random_numbers_are_those_of_the_key_that_is_given():
    net = as_model(
        (
            _init,
            lambda params, x, key: nn.Dropout(0.5, deterministic=key is None).apply(
                {}, _conv(x, params["k"][0]), rngs={} if key is None else {"dropout": key}
            ),
        )
    )
    x, params = draw(2, 6, 6, 3), _init(jax.random.key(0), None)
    for key in (jax.random.key(1), jax.random.key(2), None):
        close(fast(net).apply(params, x, key), net.apply(params, x, key), 1e-5)


def test_a_model_that_stays_as_it_is_says_why():
    def split(params, x):
        return lax.conv_general_dilated(
            x, params["w"], (1, 1), "SAME", batch_group_count=2, dimension_numbers=("NHWC", "HWIO", "NHWC")
        ).sum((1, 2))

    @jax.custom_jvp
    def own(x, kernel):
        return _conv(x, kernel)

    own.defjvp(lambda at, along: (own(*at), own(along[0], at[1])))
    x = jnp.zeros((2, 6, 6, 3))
    said = slow_parts(as_model((_init, split)), {"w": jnp.zeros((3, 3, 3, 4))}, x)
    assert len(said) == 1
    assert "because of batch_group_count above 1: " in said[0]
    said = slow_parts(as_model((_init, lambda p, x: own(x, p["k"][0]))), _init(jax.random.key(0), None), x)
    assert "because of a derivative of their own" in said[0]


def test_a_model_may_print():
    """An operation without outputs is no place to look for a convolution at."""

    def printing(params, x):
        y = _conv(x, params["k"][0])
        jax.debug.callback(lambda mean: None, y.mean())
        return y.sum((1, 2))

    x, params = draw(2, 6, 6, 3), _init(jax.random.key(0), None)
    net = as_model((_init, printing))
    close(fast(net).apply(params, x, None), net.apply(params, x, None), 1e-5)


def test_windows_side_by_side_take_no_slice_a_pixel():
    """As the patches of a vision transformer."""
    settings = {"window_strides": (4, 4), "padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    plain = lambda x, k: lax.conv_general_dilated(x, k, **settings)  # noqa: E731
    args = draw(2, 11, 8, 3), draw(4, 4, 3, 5, seed=1)
    made = program(rewritten(plain), *args)
    assert made.count("slice") <= 1
    close(derivatives(rewritten(plain), *args), derivatives(plain, *args), 1e-4)


def test_a_stock_model_is_itself():
    net = cnn()
    assert fast(net) is net


def test_rows_that_meet_are_the_transpose_of_rows_that_are_spread():
    z, y = draw(2, 7, 3, 12), draw(2, 5, 3, 4, seed=1)
    np.testing.assert_allclose((add_rows(z, 3) * y).sum(), (z * spread_rows(y, 3)).sum(), rtol=1e-4)
    twice = jax.grad(lambda y: jnp.square(spread_rows(y, 3)).sum())(y)
    close(twice, 2 * add_rows(spread_rows(y, 3), 3), 1e-5)
    x, kernel = draw(2, 8, 6, 3), draw(3, 2, 3, 4, seed=1)
    close(by_rows(x, kernel), patches(x, kernel), 1e-5)
    close(jax.vmap(by_rows, (None, 0))(x, kernel[None]), patches(x, kernel)[None], 1e-5)

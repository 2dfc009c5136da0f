"""The stock models' dense layer: flax's own, its outputs in whole vectors, its bias's gradient by halves."""

import itertools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy import KEY, close, optimized

from fedjax_fair.models.dense import LANES, NARROW, Dense, add_bias, product
from fedjax_fair.models.losses import softmax_cross_entropy
from fedjax_fair.numerics.batch_sum import LARGEST, WINDOW

ROWS = [1, WINDOW, WINDOW + 1, 50, 63, 65, 100, 127, LARGEST, LARGEST + 1]


@pytest.fixture(params=["cpu", "gpu"])
def backend(request, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: request.param)
    return request.param


def same(one, other):
    assert one.dtype == other.dtype
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("shape", [(7, 60), (7, 6, 10), (60,)], ids=str)
@pytest.mark.parametrize("x64", [False, True])
def test_parameters_are_flaxs(shape, x64):
    with jax.enable_x64(x64):
        x = jax.random.normal(KEY, shape)
        params, expected = (nn.Sequential([kind(200), kind(10)]).init(KEY, x) for kind in (Dense, nn.Dense))
        jax.tree.map(same, jax.tree.leaves(params), jax.tree.leaves(expected))
        assert jax.tree.structure(Dense(9).init(KEY, x)) == jax.tree.structure(nn.Dense(9).init(KEY, x))


@pytest.mark.parametrize("of_params", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("of_x", ["float32", "bfloat16", "uint8", "bool"])
def test_outputs_and_gradients_are_flaxs_in_every_precision(of_x, of_params):
    x = (4 * jax.random.normal(KEY, (100, 6)) ** 2).astype(of_x)
    params = jax.tree.map(lambda leaf: leaf.astype(of_params), nn.Dense(10).init(KEY, x))
    factors = jax.random.normal(KEY, (100, 10))

    def loss(params, layer):
        outputs = layer.apply(params, x)
        return (outputs.astype("float32") * factors).sum(), outputs

    (ours, made), (theirs, expected) = (
        jax.grad(loss, has_aux=True)(params, kind(10)) for kind in (Dense, nn.Dense)
    )
    same(made, expected)
    same(ours["params"]["kernel"], theirs["params"]["kernel"])
    ours, theirs = ours["params"]["bias"], theirs["params"]["bias"]
    assert ours.dtype == theirs.dtype
    close(ours.astype("float32"), theirs.astype("float32"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("width", [1, 10, NARROW + 1])
def test_its_derivatives_are_those_of_a_sum(backend, rows, width):
    with jax.enable_x64(True):
        rng = np.random.default_rng(rows)
        outputs, cotangent, moved = (rng.normal(size=(rows, width)) for _ in range(3))
        bias, moved_bias = rng.normal(size=(2, width))
        halved = "concatenate" in str(
            jax.make_jaxpr(lambda b: jax.linearize(add_bias, outputs, b)[1](outputs, b))(bias)
        )
        assert halved == (backend == "cpu" and width <= NARROW and WINDOW < rows <= LARGEST)
        made, back = jax.vjp(add_bias, outputs, bias)
        np.testing.assert_array_equal(made, outputs + bias)
        of_outputs, of_bias = back(cotangent)
        np.testing.assert_array_equal(of_outputs, cotangent)
        close(of_bias, cotangent.sum(axis=0), rtol=1e-12, atol=1e-12)
        _, forward = jax.jvp(add_bias, (outputs, bias), (moved, moved_bias))
        np.testing.assert_array_equal(forward, moved + moved_bias)


def test_many_rows_of_few_outputs_are_made_in_whole_vectors_unless_differentiated(backend):
    jax.clear_caches()  # of the traces for the other device
    for rows, width in itertools.product([LANES - 1, 100], [1, 10, LANES, NARROW + 1]):
        x, kernel = jax.random.normal(KEY, (rows, 20)), jax.random.normal(KEY, (20, width))
        whole = "pad" in str(jax.make_jaxpr(product)(x, kernel))
        assert whole == (backend == "cpu" and rows == 100 and width in (1, 10))
        close(product(x, kernel), x @ kernel, rtol=1e-5, atol=1e-5)
        for argnums in (0, 1, (0, 1)):
            gradient, expected = (
                jax.grad(lambda x, kernel, of=of: (of(x, kernel) ** 2).sum(), argnums)
                for of in (product, jnp.matmul)
            )
            assert " pad" not in str(jax.make_jaxpr(gradient)(x, kernel))
            jax.tree.map(same, gradient(x, kernel), expected(x, kernel))


def test_clients_side_by_side_have_each_its_own_gradient():
    cotangents = jax.random.normal(KEY, (4, 50, 10))

    def gradient(bias, cotangent):
        return jax.grad(lambda b: jnp.vdot(add_bias(jnp.zeros((50, 10)), b), cotangent))(bias)

    close(jax.vmap(gradient)(jnp.zeros((4, 10)), cotangents), cotangents.sum(axis=1), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="it is a CPU's compiler that sums in windows")
@pytest.mark.parametrize("rows", [50, 100])
def test_a_softmax_regression_has_no_windows_where_flaxs_has_them(rows):
    def has_windows(layer):
        def loss(params, x, y):
            return softmax_cross_entropy(layer.apply(params, x), y).mean()

        x, y = jnp.zeros((rows, 60)), jnp.zeros(rows, int)
        with optimized(True):
            program = jax.jit(jax.grad(loss)).lower(layer.init(KEY, x), x, y).compile().as_text()
        return " reduce-window(" in program

    assert has_windows(nn.Dense(10))
    assert not has_windows(Dense(10))

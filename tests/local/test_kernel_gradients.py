"""Gradients of kernels where a batch has several axes, as products of matrices: the same, in fewer axes."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy import close

from fedjax_fair.local.kernel_gradients import BESIDE, MANY, NARROW, most_rows
from fedjax_fair.local.loop_sums import after_loops
from fedjax_fair.local.transposed import programs

SHAPES = {
    "more outputs": (4, 6, (2, 3)),
    "few outputs": (6, 4, (2, 3)),
    "many outputs": (NARROW + 2, NARROW + 1, (2, 3)),
    "many outputs of many rows": (NARROW + 2, NARROW + 1, (2, MANY // 2)),
    "as many": (5, 5, (2, 3, 4)),
    "no rows": (6, 4, (0, 3)),
    "no outputs": (6, 0, (2, 3)),
}


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    """What only a CPU does, wherever the tests run."""
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")


def draw(*shape, dtype=float):
    return jnp.array(np.random.default_rng(len(shape)).normal(size=shape), dtype)


def gradient(kernel, x):
    """Of a dense layer whose outputs' gradient differs from row to row."""
    return jax.grad(lambda kernel: jnp.sum(jnp.sin(x @ kernel)))(kernel)


def products(function, *args):
    """Over how many axes each product of a function's program sums, and how many axes it has aside."""
    found = []

    def visit(program):
        for step in program.eqns:
            if step.primitive.name == "dot_general":
                (summed, _), (aside, _) = step.params["dimension_numbers"]
                found.append((len(summed), len(aside)))
            for inner in programs(step):
                visit(inner.jaxpr)

    visit(jax.make_jaxpr(function)(*args).jaxpr)
    return found


@pytest.mark.parametrize(("inputs", "outputs", "rows"), SHAPES.values(), ids=SHAPES)
def test_a_dense_layer_has_the_same_gradient_of_matrices(inputs, outputs, rows):
    with jax.enable_x64(True):
        kernel, x = draw(inputs, outputs), draw(*rows, inputs)
        expected, matrices = gradient(kernel, x), after_loops(gradient)
        assert (len(rows), 0) in products(gradient, kernel, x)
        assert products(matrices, kernel, x) == [(1, 0), (1, 0)]
        for function in (matrices, jax.jit(matrices), lambda *args: jax.jit(after_loops(jax.jit(gradient)))(*args)):
            close(function(kernel, x), expected, rtol=1e-12, atol=1e-12)
        several = jnp.stack([kernel, 2 * kernel])
        mapped = [jax.vmap(function, (0, None))(several, x) for function in (matrices, gradient)]
        moved = [jax.jvp(function, (kernel, x), (kernel, x)) for function in (matrices, gradient)]
        close(*mapped, rtol=1e-12, atol=1e-12)
        close(*moved, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("dtype", "bound"), [(jnp.float32, 1e-5), (jnp.bfloat16, 0.05), (jnp.float16, 0.01)])
def test_a_gradient_keeps_its_type(dtype, bound):
    kernel, x = draw(6, 4, dtype=dtype), draw(2, 3, 6, dtype=dtype)
    found, expected = after_loops(gradient)(kernel, x), gradient(kernel, x)
    assert found.dtype == expected.dtype == dtype
    close(found, expected, rtol=bound, atol=bound)


def test_an_attention_has_the_same_gradients_and_products_of_heads_stay():
    with jax.enable_x64(True):
        net, x = nn.MultiHeadDotProductAttention(2, param_dtype=jnp.float64), draw(2, 3, 6)
        params = net.init(jax.random.key(0), x, x)
        plain = jax.grad(lambda params: jnp.square(net.apply(params, x, x)).sum())
        close(jax.jit(after_loops(plain))(params), plain(params), rtol=1e-10, atol=1e-12)
        before, after = products(plain, params), products(after_loops(plain), params)
        assert sum(summed > 1 for summed, _ in before) > 0
        # What sums over two axes still are layers themselves: from heads and their units to outputs.
        assert sum(summed > 1 for summed, _ in after) == sum(summed > 1 for summed, _ in before) - 4
        assert sorted(aside for _, aside in after) == sorted(aside for _, aside in before)


def test_more_rows_than_pay_beside_another_client_stay():
    kernel, x = draw(3, 2), draw(2, BESIDE // 2 + 1, 3)
    assert products(after_loops(gradient, most_rows(1)), kernel, x) == [(1, 0), (1, 0)]
    assert products(after_loops(gradient, most_rows(2)), kernel, x) == [(1, 0), (2, 0)]
    assert products(after_loops(gradient, most_rows(2)), kernel, x[:, 1:]) == [(1, 0), (1, 0)]

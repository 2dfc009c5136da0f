"""Gradients of kernels where a batch has several axes, as products of matrices: the same, in fewer axes."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy import close

import fedjax_fair as ff
from fedjax_fair.local import sgd
from fedjax_fair.local.kernel_gradients import BESIDE, MANY, NARROW, most_rows
from fedjax_fair.local.loop_sums import after_loops
from fedjax_fair.local.transposed import programs
from fedjax_fair.types import Client

SHAPES = {  # inputs, outputs, rows, and whether the gradient is made as [out, in]
    "more outputs": (4, 6, (2, 3), False),
    "few outputs": (6, 4, (2, 3), True),
    "many outputs": (NARROW + 2, NARROW + 1, (2, 3), False),
    "many outputs of many rows": (NARROW + 2, NARROW + 1, (2, MANY // 2), True),
    "as many": (5, 5, (2, 3, 4), False),
    "one axis, which is a matrix": (6, 4, (5,), False),
    "no rows": (6, 4, (0, 3), True),
    "no outputs": (6, 0, (2, 3), True),
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


def operations(program):
    for step in program.eqns:
        yield step
        for inner in programs(step):
            yield from operations(inner.jaxpr)


def products(function, *args):
    """Over how many axes each product of a function's program sums, and how many axes it has aside."""
    return [
        tuple(map(len, (step.params["dimension_numbers"][0][0], step.params["dimension_numbers"][1][0])))
        for step in operations(jax.make_jaxpr(function)(*args).jaxpr)
        if step.primitive.name == "dot_general"
    ]


@pytest.mark.parametrize(("inputs", "outputs", "rows", "turned"), SHAPES.values(), ids=SHAPES)
def test_a_dense_layer_has_the_same_gradient_of_matrices(inputs, outputs, rows, turned):
    with jax.enable_x64(True):
        kernel, x = draw(inputs, outputs), draw(*rows, inputs)
        expected, matrices = gradient(kernel, x), after_loops(gradient)
        assert (len(rows), 0) in products(gradient, kernel, x)
        assert (
            products(matrices, kernel, x) == products(after_loops(jax.jit(gradient)), kernel, x) == [(1, 0), (1, 0)]
        )
        names = [step.primitive.name for step in operations(jax.make_jaxpr(matrices)(kernel, x).jaxpr)]
        assert names.count("optimization_barrier") == turned
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


def test_a_product_keeps_its_precision_and_the_type_that_it_asks_for():
    low, high = jax.lax.Precision.DEFAULT, jax.lax.Precision.HIGHEST

    def product(x, y):
        settings = {"precision": (low, high), "preferred_element_type": jnp.float32}
        return jax.lax.dot_general(x, y, (((0, 1), (0, 1)), ((), ())), **settings)

    x = draw(2, 3, 4, dtype=jnp.bfloat16)
    for inputs, precision in ((3, (high, low)), (5, (low, high))):  # transposed, or as it is
        y = draw(2, 3, inputs, dtype=jnp.bfloat16)
        found, expected = after_loops(product)(x, y), product(x, y)
        assert found.dtype == expected.dtype == jnp.float32
        close(found, expected, rtol=1e-5, atol=1e-5)
        (made,) = [
            step.params["precision"]
            for step in operations(jax.make_jaxpr(after_loops(product))(x, y).jaxpr)
            if step.primitive.name == "dot_general"
        ]
        assert made == precision


OTHERS = {
    "aside": (((0, 1), (0, 1)), ((2,), (2,))),
    "in another order": (((0, 1), (1, 0)), ((), ())),
    "not the first": (((1, 2), (1, 2)), ((), ())),
}


@pytest.mark.parametrize("axes", OTHERS.values(), ids=OTHERS)
def test_other_products_over_two_axes_stay(axes):
    x, y = draw(3, 3, 3, 4), draw(3, 3, 3, 5)

    def product(x, y):
        return jax.lax.dot_general(x, y, axes)

    assert products(after_loops(product), x, y) == products(product, x, y)
    close(after_loops(product)(x, y), product(x, y), rtol=0, atol=0)


def test_sums_after_a_loop_over_time_are_of_matrices():
    net, x = nn.RNN(nn.SimpleCell(5)), draw(2, 7, 4, dtype=jnp.float32)
    params = net.init(jax.random.key(0), x)
    plain = jax.grad(lambda params: jnp.square(net.apply(params, x)).sum())
    assert {axes for axes, _ in products(after_loops(plain, 14), params)} == {1}
    assert 2 in {axes for axes, _ in products(after_loops(plain, 13), params)}


def test_gradients_on_a_device_of_several_are_of_matrices():
    mesh = jax.make_mesh((1,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))
    everywhere = jax.sharding.PartitionSpec()
    shared = jax.shard_map(after_loops(gradient), mesh=mesh, in_specs=everywhere, out_specs=everywhere)
    kernel, x = draw(6, 4), draw(2, 3, 6)
    assert products(shared, kernel, x) == [(1, 0), (1, 0)]
    close(jax.jit(shared)(kernel, x), gradient(kernel, x), rtol=1e-5, atol=1e-5)


def test_what_an_explicit_mesh_shards_stays():
    mesh = jax.make_mesh((1,), ("units",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(mesh):
        axes = jax.sharding.PartitionSpec(None, "units", None)
        x, kernel = jax.sharding.reshard(draw(2, 3, 6), axes), draw(6, 4)
        assert products(after_loops(gradient), kernel, x) == products(gradient, kernel, x)
        close(after_loops(gradient)(kernel, x), gradient(kernel, x), rtol=0, atol=0)


@pytest.mark.parametrize("trainings", [1, 2])
def test_local_training_tells_how_many_share_its_loop(trainings, monkeypatch):
    seen = []
    monkeypatch.setattr(sgd, "after_loops", lambda function, most: seen.append(most) or function)
    x = draw(4, 3, dtype=jnp.float32)
    clients = [Client(jnp.int32(i), jnp.arange(4), 4, lambda rows: (x[rows], x[rows, 0])) for i in range(trainings)]
    keys = [jax.random.key(i) for i in range(trainings)]

    def loss(params, batch, anchor):
        value = jnp.square(batch.x @ params).mean()
        return value, value

    trainer = ff.local_sgd(optax.sgd(0.1), steps=2, batch_size=2)
    jax.eval_shape(lambda params: trainer.interleaved(loss, params, clients, keys, jnp.int32(0)), jnp.ones(3))
    assert seen == [most_rows(trainings)] * trainings


def test_more_rows_than_pay_beside_another_client_stay():
    kernel, x = draw(3, 2), draw(2, BESIDE // 2 + 1, 3)
    assert products(after_loops(gradient, most_rows(1)), kernel, x) == [(1, 0), (1, 0)]
    assert products(after_loops(gradient, most_rows(2)), kernel, x) == [(1, 0), (2, 0)]
    assert products(after_loops(gradient, most_rows(2)), kernel, x[:, 1:]) == [(1, 0), (1, 0)]

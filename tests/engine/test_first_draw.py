"""A model's first parameters: drawn by one compiled program, the same as step by step."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy

import fedjax_fair as ff
from fedjax_fair.engine.blocks import choose_eval_batch
from fedjax_fair.engine.first_draw import drawer
from fedjax_fair.engine.forward import widest
from fedjax_fair.engine.keys import as_key, stacked
from fedjax_fair.engine.programs import program_of
from fedjax_fair.models import as_model, cnn, logistic_regression, mlp

IMAGE = jax.ShapeDtypeStruct((1, 16, 16, 1), jnp.float32)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(32, (3, 3))(x))
        return nn.Dense(300)(x.mean((1, 2)))


@pytest.mark.parametrize("model", [Net(), logistic_regression()], ids=["of a user", "regression"])
def test_the_draw_is_that_of_the_model(model):
    net, key = as_model(model), jax.random.key(3)
    alone = net.init(key, jnp.zeros(IMAGE.shape))
    for got, expected in zip(leaves(drawer(net, IMAGE)(key)), leaves(alone), strict=True):
        np.testing.assert_allclose(got, expected, rtol=3e-6)


def test_a_stock_models_bits_are_its_own():
    net, key = cnn(), jax.random.key(3)
    for got, expected in zip(leaves(drawer(net, IMAGE)(key)), leaves(net.init(key, jnp.zeros(IMAGE.shape)))):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("model", [Net(), mlp((64,))], ids=["of a user", "stock"])
def test_runs_of_one_program_begin_bit_for_bit_where_each_would_alone(model, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)  # else all is compiled alike
    data = toy.federation((4, 5), dim=16 * 16)
    data = data._replace(x=data.x.reshape(-1, *IMAGE.shape[1:]))
    sim = ff.simulation(model, data, aggregator=ff.fedavg(), trainer=ff.local_sgd(optax.sgd(0.1), batch_size=2))
    keys = stacked([as_key(seed) for seed in range(3)])
    states = program_of(lambda: sim, (), [(0, {})], (), keys, side_by_side=1, mesh=None).start()
    for run, key in enumerate(keys):
        for got, expected in zip(leaves(states.params), leaves(sim.init(key).params), strict=True):
            np.testing.assert_array_equal(got[run], expected)


def test_what_changes_between_two_draws_is_read_again():
    """NumPy's random numbers, a number of Python's, an array inside a function of its own."""
    rng, state = np.random.default_rng(0), {"scale": 1.0}

    def init(key, x):
        drawn = rng.normal(size=(16, 3)).astype(np.float32)
        inner = jax.jit(lambda key: jax.random.normal(key, (2,)) * state["scale"] + drawn[0, :2])
        return {"drawn": jnp.asarray(drawn), "inner": inner(key)}

    draw, key = (
        drawer(as_model((init, lambda params, x: x.mean((1, 2)) * params["inner"].sum())), IMAGE),
        jax.random.key(0),
    )
    one, other = draw(key), draw(key)
    assert not np.array_equal(one["drawn"], other["drawn"])
    np.testing.assert_allclose(
        one["inner"] - one["drawn"][0, :2], other["inner"] - other["drawn"][0, :2], rtol=1e-5
    )
    state["scale"] = 2.0
    third = draw(key)
    np.testing.assert_allclose(
        third["inner"] - third["drawn"][0, :2], 2 * (one["inner"] - one["drawn"][0, :2]), rtol=1e-5
    )


def test_seeds_can_be_mapped_over():
    net = as_model(Net())
    draw, keys = drawer(net, IMAGE), jax.random.split(jax.random.key(0), 2)
    for got, expected in zip(leaves(jax.vmap(draw)(keys)), leaves(draw(keys[1]))):
        np.testing.assert_allclose(got[1], expected, rtol=3e-6)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="on an accelerator batches are of 512")
def test_a_forward_pass_takes_what_stays_in_cache():
    net = as_model(Net())
    params = jax.eval_shape(net.init, jax.random.key(0), IMAGE)
    large = 4 * 16 * 16 * 32  # 32 channels in float32; the kernel's product with [9] patches is narrower
    assert widest(net, params, IMAGE) == large
    assert choose_eval_batch(None, {"w": np.zeros((784, 200))}, lambda: large) == 128
    assert choose_eval_batch(None, {"w": np.zeros((784, 200))}, lambda: 100_000) == 40
    assert choose_eval_batch(None, {"w": np.zeros((784, 200))}, lambda: 2**30) == 16
    assert choose_eval_batch(None, {"w": np.zeros((784, 200))}, lambda: 800) == 512

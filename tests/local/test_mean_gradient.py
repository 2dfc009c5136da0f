"""The mean gradient of a local training: read off the way of plain SGD, added up for any other optimiser."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from toy import close

import fedjax_fair as ff
from fedjax_fair.local.mean_gradient import is_plain
from fedjax_fair.types import Client

PARAMS = {"w": jnp.arange(12.0).reshape(4, 3) / 10, "b": jnp.ones(3)}
PLAIN = {
    "sgd": optax.sgd(0.1),
    "scaled": optax.chain(optax.scale(2.0), optax.sgd(0.1)),
    "twice turned": optax.chain(optax.scale(-1.0), optax.scale(0.3)),
    "decay": optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.1)),
    "divided": optax.stateless(lambda g, w: jax.tree.map(lambda g: -g / 10.0, g)),
}
OTHERS = {
    "momentum": optax.sgd(0.1, momentum=0.9),
    "decay and momentum": optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.1, momentum=0.9)),
    "by size": optax.stateless(lambda g, w: jax.tree.map(lambda g, w: -0.1 * g * w, g, w)),
    "inverse": optax.stateless(lambda g, w: jax.tree.map(lambda g: -1.0 / g, g)),
    "squares": optax.stateless(lambda g, w: jax.tree.map(lambda g: -g * g, g)),
    "of another": optax.stateless(lambda g, w: {"w": -g["w"], "b": -g["w"][0]}),
    "clipped": optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1)),
    "signs": optax.sign_sgd(0.1),
    "adam": optax.adam(0.1),
    "scheduled": optax.sgd(optax.exponential_decay(0.1, 1, 0.5)),
}


@pytest.mark.parametrize("name", PLAIN | OTHERS)
def test_which_steps_are_a_multiple_of_the_gradient(name):
    assert is_plain((PLAIN | OTHERS)[name], PARAMS) == (name in PLAIN)


def test_a_swept_rate_is_one_and_half_precision_is_not():
    found = []
    jax.jit(lambda rate: found.append(is_plain(optax.sgd(rate), PARAMS)) or rate)(0.1)
    assert found == [True]
    assert not is_plain(optax.sgd(0.1), jax.tree.map(lambda w: w.astype(jnp.bfloat16), PARAMS))


@pytest.mark.parametrize("name", ["sgd", "momentum", "decay"])
def test_it_is_the_mean_over_the_steps(data, name, quick_to_compile):
    """Full batches, step by step, under a schedule; plain SGD's weight decay is part of the gradient."""
    optimizer, k = (PLAIN | OTHERS)[name], 1
    trainer = ff.local_sgd(optimizer, steps=3, batch_size=None, schedule=lambda r: jnp.where(r < 2, 1.0, 0.5))
    x, y = toy.examples(data, k)
    rows = data.train.rows[data.train.start[k] + jnp.arange(len(y))]
    client = Client(jnp.int32(k), rows, len(y), data.take)

    def loss(params, batch, anchor):
        value = toy.mean_loss(params, batch.x, batch.y)
        return value, value

    train = jax.jit(lambda r: trainer._replace(gradient=True)(loss, PARAMS, client, toy.KEY, r))
    trained, trace = train(jnp.int32(5))
    w, state, total = PARAMS, optimizer.init(PARAMS), jax.tree.map(jnp.zeros_like, PARAMS)
    for _ in range(3):
        gradient = jax.grad(toy.mean_loss)(w, x, y)
        decay = 0.1 if name == "decay" else 0.0
        total = jax.tree.map(lambda t, g, w, decay=decay: t + g + decay * w, total, gradient, w)
        moves, state = optimizer.update(gradient, state, w)
        w = jax.tree.map(lambda w, u: w + 0.5 * u, w, moves)
    close(trained, w, rtol=1e-5, atol=1e-6)
    close(trace.gradient, jax.tree.map(lambda g: g / 3, total), rtol=1e-4, atol=1e-5)
    assert int(trace.steps) == 3
    assert trainer(loss, PARAMS, client, toy.KEY, jnp.int32(5))[1].gradient is None


def test_a_rate_of_zero_tells_nothing(data):
    trainer = ff.local_sgd(optax.sgd(0.1), steps=2, batch_size=3, schedule=lambda r: jnp.where(r > 0, 0.0, 1.0))
    sim = toy.simulation(data, ff.scaffold(), trainer=trainer)
    state, _ = toy.play(sim, rounds=2)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.params, state.memory)))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_a_mean_of_many_gradients_does_not_stick_in_half_precision(dtype):
    """The gradient is 1 in each of 1,000 steps; added up in bfloat16 it would stay at 256."""

    def apply(params, x, key):
        return x[:, 0].astype(dtype) * params["w"][0]

    data = ff.FederatedData.from_arrays(np.ones((24, 1)), np.zeros(24), client_id=np.repeat([0, 1], 12))
    sim = ff.simulation(
        (lambda key, x: {"w": jnp.zeros((1,), dtype)}, apply),
        data,
        aggregator=ff.scaffold(),
        trainer=ff.local_sgd(optax.sgd(0.001), steps=1_000, batch_size=1),
        loss=lambda outputs, y: outputs.astype(jnp.float32),
        metric=ff.losses.rmse,
    )
    state, _ = jax.jit(sim.step)(sim.init(jax.random.key(0)), sim.data)
    (control,) = jax.tree.leaves(state.memory)
    assert control.dtype == dtype
    np.testing.assert_allclose(np.asarray(control, float), 1, rtol=1e-3)

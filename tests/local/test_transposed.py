"""Matrices turned during local training: only where the optimiser cannot tell, and then with the same result."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose

import fedjax_fair as ff
from fedjax_fair.local import sgd as local
from fedjax_fair.local.objectives import LocalLoss
from fedjax_fair.local.transposed import is_entrywise, transposing, worth_transposing
from fedjax_fair.types import Batch, Client

SHAPES = {"kernel": jax.ShapeDtypeStruct((7, 3), jnp.float32), "bias": jax.ShapeDtypeStruct((3,), jnp.float32)}


def by_fan_in():
    """A rate that depends on the shape, as in some parametrisations: another one when turned."""
    return optax.stateless(lambda g, _: jax.tree.map(lambda leaf: -0.1 * leaf / leaf.shape[0], g))


def by_fan_in_as_an_array():
    """The same, without a number in the program's text: it is summed, or closed over."""
    return optax.stateless(lambda g, _: jax.tree.map(lambda leaf: leaf / jnp.ones(leaf.shape[0]).sum(), g))


def by_fan_in_as_a_constant():
    return optax.stateless(
        lambda g, _: jax.tree.map(lambda leaf: leaf * jax.lax.rsqrt(jnp.asarray(leaf.shape, float)[0]), g)
    )


def by_form():
    """Tall matrices at one rate, wide ones at another, both closed over as arrays."""
    rates = {"tall": optax.sgd(jnp.float32(0.1)), "wide": optax.sgd(jnp.float32(0.2))}
    return optax.multi_transform(
        rates, lambda tree: jax.tree.map(lambda leaf: "tall" if leaf.shape[0] >= leaf.shape[-1] else "wide", tree)
    )


def for_this_shape_alone():
    return optax.stateless(lambda g, _: {**g, "kernel": g["kernel"] + jnp.full((7, 3), 0.1)})


def masked_by_a_matrix():
    mask = np.tri(7, 3)
    return optax.stateless(lambda g, _: {"kernel": g["kernel"] * mask, "bias": g["bias"]})


ALIKE = {
    "sgd": optax.sgd(0.1),
    "momentum": optax.sgd(0.1, 0.9, nesterov=True),
    "decaying": optax.sgd(optax.cosine_decay_schedule(0.1, 10)),
    "adam": optax.adam(0.1),
    "adamw": optax.adamw(0.1),
    "adagrad": optax.adagrad(0.1),
    "rmsprop": optax.rmsprop(0.1),
    "lion": optax.lion(0.01),
    "clipped by the norm": optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1)),
    "if finite": optax.apply_if_finite(optax.sgd(0.1), 3),
    "only the kernel": optax.masked(optax.sgd(0.1), {"kernel": True, "bias": False}),
}
NOT_ALIKE = {
    "muon": optax.contrib.muon(0.1),
    "sm3": optax.sm3(0.1),
    "centred rows": optax.chain(optax.centralize(), optax.sgd(0.1)),
    "noise": optax.chain(optax.add_noise(0.1, 0.1, 0), optax.sgd(0.1)),
    "fan-in": by_fan_in(),
    "fan-in, summed": by_fan_in_as_an_array(),
    "fan-in, closed over": by_fan_in_as_a_constant(),
    "tall and wide": by_form(),
    "for one shape": for_this_shape_alone(),
    "a mask": masked_by_a_matrix(),
}


@pytest.mark.parametrize("name", ALIKE)
def test_an_optimiser_that_treats_entries_alike_is_recognised_and_does(name):
    optimizer = ALIKE[name]
    assert is_entrywise(optimizer, SHAPES)
    keys = jax.random.split(jax.random.key(0), 2)
    params, grads = ({n: jax.random.normal(k, s.shape) for n, s in SHAPES.items()} for k in keys)

    def two_steps(params, grads):
        state = optimizer.init(params)
        for _ in range(2):
            updates, state = optimizer.update(grads, state, params)
            params = optax.apply_updates(params, updates)
        return params

    turn = transposing(SHAPES)
    straight, across = two_steps(params, grads), turn(two_steps(turn(params), turn(grads)))
    jax.tree.map(partial(assert_allclose, rtol=1e-6, atol=1e-7), straight, across)


@pytest.mark.parametrize("name", NOT_ALIKE)
def test_any_other_optimiser_sees_matrices_as_they_are(name):
    assert not is_entrywise(NOT_ALIKE[name], SHAPES)


def test_what_is_turned():
    tree = {
        "matrix": jnp.zeros((3, 2)),
        "of many outputs": jnp.zeros((2, 3)),
        "vector": jnp.zeros(4),
        "filters": jnp.zeros((5, 5, 1, 2)),
        "one": jnp.zeros(()),
    }
    turn = transposing(tree)
    assert jax.tree.map(jnp.shape, turn(tree)) == {**jax.tree.map(jnp.shape, tree), "matrix": (2, 3)}
    assert jax.tree.map(jnp.shape, turn(turn(tree))) == jax.tree.map(jnp.shape, tree)
    for large in ((784, 65), (2**15, 64)):
        leaf = jax.ShapeDtypeStruct(large, jnp.float32)
        assert jax.eval_shape(transposing(leaf), leaf).shape == large


def test_when_it_is_worth_it(monkeypatch):
    assert worth_transposing(optax.sgd(0.1), SHAPES, 10)
    assert worth_transposing(optax.sgd(0.1), SHAPES, jnp.int32(1))  # not known to the compiler
    assert not worth_transposing(optax.sgd(0.1), SHAPES, 3)
    assert not worth_transposing(optax.sgd(0.1), {"bias": SHAPES["bias"]}, 10)
    assert not worth_transposing(optax.sgd(0.1), jax.ShapeDtypeStruct((784, 200), jnp.float32), 10)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not worth_transposing(optax.sgd(0.1), SHAPES, 10)


@pytest.mark.parametrize("sizes", [(24, jnp.int32(24)), (22,)], ids=["whole batches", "a padded one"])
@pytest.mark.parametrize("optimizer", [optax.sgd(0.2), optax.adam(0.05)], ids=["sgd", "adam"])
def test_local_training_is_the_same_turned_unrolled_or_neither(sizes, optimizer, monkeypatch):
    """A small model takes both ways around; with both switched off, the plain loop. The loss is the engine's, or a
    function of the user's; the size is a number, or not known to the compiler."""
    x = jax.random.normal(jax.random.key(1), (30, 7))
    y = jnp.arange(30) % 3
    net = ff.models.mlp((5,), classes=3)
    start = net.init(jax.random.key(2), x[:1])

    def of_examples(params, batch: Batch):
        return ff.losses.softmax_cross_entropy(net.apply(params, batch.x, None), batch.y)

    def whole(params, batch: Batch, anchor):
        values = of_examples(params, batch)
        return ff.proximal(0.1)(values, batch.mask, params, anchor), ff.erm(values, batch.mask, params, anchor)

    def training(loss, size):
        trainer = ff.local_sgd(optimizer, epochs=3, batch_size=4, schedule=lambda r: 0.5)
        client = Client(jnp.int32(0), jnp.arange(24), size, lambda rows: (x[rows], y[rows]))
        return lambda: trainer(loss, start, client, jax.random.key(3), jnp.int32(1))

    assert worth_transposing(optimizer, start, 18)
    assert local.is_small(start)
    losses = (LocalLoss(of_examples, ff.erm, lambda base: ff.proximal(0.1, base)), whole)
    fast = [jax.jit(training(loss, size))() for loss in losses for size in sizes]
    asked = []
    monkeypatch.setattr(local, "worth_transposing", lambda *given: bool(asked.append("turned")))
    monkeypatch.setattr(local, "is_small", lambda params: bool(asked.append("small")))
    plain = jax.jit(training(losses[0], sizes[0]))()
    assert asked == ["turned", "small"]
    for one in fast:
        jax.tree.map(partial(assert_allclose, rtol=2e-5, atol=1e-6), one, plain)


def test_the_gradients_of_model_and_proximal_term_meet_turned():
    """Where the products' gradients come out turned: in the other layout FedProx took half as long again."""

    loss = LocalLoss(lambda p, batch: (batch.x @ p["kernel"] + p["bias"][None, :]).sum(1), ff.proximal(0.1))
    batch = Batch(jnp.ones((4, 7)), jnp.zeros(4, jnp.int32), jnp.ones(4, bool), jax.random.key(0))
    turn = transposing(SHAPES)
    turned = turn(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), SHAPES))
    gradient = jax.grad(lambda p: loss.through(turn)(p, batch, turned)[0])
    sums = [step for step in jax.make_jaxpr(gradient)(turned).eqns if step.primitive.name == "add_any"]
    assert {step.outvars[0].aval.shape for step in sums} == {(3, 7), (3,)}


def test_an_order_drawn_at_once_is_the_one_drawn_step_by_step():
    trainer = ff.local_sgd(optax.sgd(0.1), epochs=3, batch_size=5)
    for size in (1, 4, 5, 12):
        client = Client(jnp.int32(0), jnp.arange(12), size, lambda rows: (rows, rows))
        steps, order, _ = trainer._batches(client, jax.random.key(4))
        _, one_by_one, _ = trainer._batches(client._replace(size=jnp.int32(size)), jax.random.key(4))
        assert order.shape == (steps, 5)
        assert np.array_equal(order, [one_by_one(k) for k in range(steps)])


@pytest.mark.parametrize(
    ("shapes", "small"), [([(60, 10), (10,)], True), ([(784, 200)], False), ([(5, 5, 1, 2)], False)]
)
def test_small_models_are_dense_and_below_2_to_the_15_parameters(shapes, small):
    assert local.is_small([jnp.zeros(shape) for shape in shapes]) is small


@pytest.mark.parametrize("length", [{"epochs": 2}, {"steps": 5}])
def test_64_bit_mode_draws_the_same_batches(length):
    trainer = ff.local_sgd(optax.sgd(0.1), **length, batch_size=4)

    def drawn():
        client = Client(jnp.int32(0), jnp.arange(12), 12, lambda rows: (rows, rows))
        return np.asarray(trainer._batches(client, jax.random.key(1))[1])

    narrow = drawn()
    with jax.enable_x64(True):
        assert np.array_equal(drawn(), narrow)

"""Row 20: an optimiser that steps along its own gradient is refused, on the clients and on the server."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy import simulation

import fedjax_fair as ff
from fedjax_fair.engine.descent import check_descent, check_server, trial
from fedjax_fair.numerics.by_numpy import UNKNOWN, evaluate
from fedjax_fair.types import Method

SHAPES = {
    "dense": {"kernel": jax.ShapeDtypeStruct((7, 3), jnp.float32), "bias": jax.ShapeDtypeStruct((3,), jnp.float32)},
    "conv": jax.ShapeDtypeStruct((3, 3, 3, 8), jnp.float32),
}
GROUPS = {"dense": "moves", "conv": "other"}


def in_two_groups(other):
    return optax.multi_transform({"moves": optax.sgd(0.1), "other": other}, GROUPS)


CLIMBING = {
    "adam without a rate": optax.scale_by_adam(),
    "rms without a rate": optax.scale_by_rms(),
    "clipping alone": optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam()),
    "momentum alone": optax.trace(0.9),
    "nothing": optax.identity(),
    "a positive scale": optax.scale(0.1),
    "a negative rate": optax.sgd(-0.1),
    "adam at a negative rate": optax.adam(-1e-3),
    "turned twice": optax.chain(optax.sgd(0.1), optax.scale(-1.0)),
    "an injected negative rate": optax.inject_hyperparams(optax.sgd)(learning_rate=-0.1),
    "noise around the gradient": optax.add_noise(0.1, 0.1, 0),
    "a schedule that climbs": optax.scale_by_schedule(lambda count: 0.1),
    "gathered": optax.MultiSteps(optax.scale_by_adam(), 2).gradient_transformation(),
    "one's own": optax.stateless(lambda g, _: jax.tree.map(lambda leaf: 0.1 * leaf, g)),
    "averaged": ff.average_iterates(optax.scale_by_adam()),
}
DESCENDING = {
    "sgd": optax.sgd(0.1),
    "nesterov": optax.sgd(0.1, 0.9, nesterov=True),
    "adam": optax.adam(0.1),
    "a strong decay": optax.adamw(0.1, weight_decay=10.0),
    "adagrad": optax.adagrad(0.1),
    "rmsprop": optax.rmsprop(0.1),
    "yogi": optax.yogi(0.1),
    "lion": optax.lion(0.1),
    "the sign": optax.sign_sgd(0.1),
    "lamb": optax.lamb(0.1),
    "adafactor": optax.adafactor(0.1),
    "clipped": optax.chain(optax.clip_by_global_norm(1e-3), optax.sgd(0.1)),
    "centred": optax.chain(optax.centralize(), optax.sgd(0.1)),
    "nothing but noise": optax.chain(optax.add_noise(1e4, 0.1, 0), optax.sgd(0.1)),
    "if finite": optax.apply_if_finite(optax.sgd(0.1), 3),
    "frozen": in_two_groups(optax.set_to_zero()),
    "a rate of 0": optax.sgd(0.0),
    "warming up from 0": optax.sgd(optax.linear_schedule(0.0, 0.1, 10)),
    "gathered": optax.MultiSteps(optax.sgd(0.1), 3).gradient_transformation(),
    "sharpness-aware": optax.contrib.sam(optax.sgd(0.1), optax.sgd(0.05)),
    "averaged": ff.average_iterates(optax.adam(0.1)),
    "for these shapes alone": optax.stateless(
        lambda g, _: jax.tree.map(lambda u, s: -u * jnp.ones(s.shape), g, SHAPES)
    ),
}
LISTENING = {
    "a median": (optax.chain(ff.defences.median(), optax.sgd(1.0)), False),
    "a trimmed mean": (optax.chain(ff.defences.trimmed_mean(0.2), optax.adam(0.1)), False),
    "clipped": (optax.chain(ff.defences.clip_updates(0.1), optax.sgd(1.0)), False),
    "nothing but noise": (optax.chain(ff.defences.clip_and_noise(1e-6, 1e4), optax.sgd(1.0)), False),
    "averaged": (ff.average_iterates(optax.chain(ff.defences.median(), optax.sgd(1.0))), False),
    "a median alone": (ff.defences.median(), True),
    "a median and adam without a rate": (optax.chain(ff.defences.median(), optax.scale_by_adam()), True),
}


@pytest.mark.parametrize("name", CLIMBING)
def test_an_optimiser_that_climbs_is_refused(name):
    with pytest.raises(ValueError, match=r"optimizer must step against the gradient, as optax.sgd\(.1\) does, got"):
        check_descent("optimizer", trial(CLIMBING[name], SHAPES), "optax.sgd(.1)")


@pytest.mark.parametrize("name", DESCENDING)
def test_one_that_descends_or_stays_is_not(name):
    check_descent("optimizer", trial(DESCENDING[name], SHAPES), "optax.sgd(.1)")


@pytest.mark.parametrize("other", [optax.scale_by_adam(), optax.identity(), optax.sgd(-0.1)])
def test_the_arrays_that_climb_are_named(other):
    with pytest.raises(ValueError, match=r"one that follows it in \['conv'\]: .*optax.set_to_zero freezes"):
        check_descent("optimizer", trial(in_two_groups(other), SHAPES), "optax.sgd(.1)")


def test_what_masked_leaves_out_climbs():
    masked = optax.masked(optax.sgd(0.1), {"dense": True, "conv": False})
    with pytest.raises(ValueError, match=r"follows it in \['conv'\]"):
        check_descent("optimizer", trial(masked, SHAPES), "optax.sgd(.1)")


@pytest.mark.parametrize("name", LISTENING)
def test_a_server_that_listens_to_the_report_is_tried_with_one(name):
    optimizer, climbs = LISTENING[name]
    method = Method(ff.fedavg())
    if climbs:
        with pytest.raises(ValueError, match="server_optimizer must step against the gradient"):
            check_server(method, optimizer, SHAPES, 5)
    else:
        check_server(method, optimizer, SHAPES, 5)


@pytest.mark.parametrize("climbing", [optax.scale_by_adam(), optax.sgd(-1.0)])
def test_row_20_both_places_are_refused_in_simulation(data, climbing):
    with pytest.raises(ValueError, match="server_optimizer must step against the gradient"):
        simulation(data, server_optimizer=climbing)
    with pytest.raises(ValueError, match=r"^optimizer must step against the gradient"):
        simulation(data, trainer=ff.local_sgd(climbing, batch_size=4))


def test_a_transform_of_ones_own_that_turns_the_aggregate_is_refused(data):
    turn = optax.GradientTransformationExtraArgs(
        lambda params: (), lambda g, state, params=None, **sent: (jax.tree.map(jnp.negative, g), state)
    )
    with pytest.raises(ValueError, match="server_optimizer must step against the gradient"):
        simulation(data, Method(ff.fedavg(), transform=turn))


def test_an_optimiser_that_wants_more_than_the_gradient_is_refused(data):
    wants = optax.GradientTransformationExtraArgs(lambda params: (), lambda g, s, p=None, *, value: (g, s))
    with pytest.raises(
        ValueError, match="optimizer must take the model's gradient, its state and params, got TypeError"
    ):
        simulation(data, trainer=ff.local_sgd(wants, batch_size=4))


def test_under_a_trace_what_is_concrete_is_still_refused_and_a_swept_rate_is_not():
    def build(rate):
        check_descent("optimizer", trial(optax.sgd(rate), SHAPES), "optax.sgd(.1)")
        with pytest.raises(ValueError, match="must step against"):
            check_descent("optimizer", trial(optax.scale_by_adam(), SHAPES), "optax.sgd(.1)")
        groups = {"moves": optax.sgd(rate), "other": optax.identity()}
        with pytest.raises(ValueError, match=r"follows it in \['conv'\]"):
            check_descent("optimizer", trial(optax.multi_transform(groups, GROUPS), SHAPES), "optax.sgd(.1)")
        return rate

    jax.jit(build)(-0.1)


def test_nothing_is_computed_by_xla():
    from toy import compilations

    jax.clear_caches()
    with compilations() as made:
        for name in ("sgd", "nesterov", "adam", "yogi", "clipped"):
            check_descent("optimizer", trial(DESCENDING[name], SHAPES), "optax.sgd(.1)")
    assert made.count == 0


def test_a_program_played_with_numpy_is_jaxs():
    def program(x, n, y):
        z = jnp.where(x > 0, jnp.sqrt(jnp.abs(x)), x**3) + jnp.sort(x)[::-1] * jnp.sin(x).max()
        z = jax.lax.cond(n > 1, lambda v: v - 1, lambda v: v + 1, z) / jnp.floor(1.5 + n)
        return z @ z[:, None], jnp.concatenate([z, x]).sum(), (7 * n) // 2, jnp.arange(3) % 2 == 1, z * y, y + 1

    args = np.linspace(-1, 2, 4, dtype=np.float32), np.int32(3), np.float32(2)
    closed = jax.make_jaxpr(program)(*args)
    for got, right in zip(evaluate(closed, *args), program(*map(jnp.asarray, args)), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-6)
        assert np.asarray(got).dtype == right.dtype

    def traced(y):
        known = [out is not UNKNOWN for out in evaluate(closed, *args[:2], y)]
        assert known == [True] * 4 + [False] * 2
        return y

    jax.jit(traced)(2.0)


def test_random_numbers_are_made_without_a_key_and_are_about_normal():
    closed = jax.make_jaxpr(lambda: jax.random.normal(jax.random.split(jax.random.key(0))[1], (500,)))()
    (drawn,) = evaluate(closed)
    assert abs(np.mean(drawn)) < 0.2
    assert 0.8 < np.std(drawn) < 1.2

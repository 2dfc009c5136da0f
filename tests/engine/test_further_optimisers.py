"""Further optimisers, schedules, limits, rules and callables: told where they would go wrong, and only there."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from engine.test_further_parts import simulation, told

import fedjax_fair as ff

LOCAL = {
    "a negative rate": optax.sgd(-0.1),
    "adam without its sign": optax.chain(optax.scale_by_adam(), optax.scale(0.1)),
    "lion without its rate": optax.scale_by_lion(),
    "clipping alone": optax.clip(1.0),
    "nothing at all": optax.identity(),
    "a rate that is negated twice": optax.chain(optax.sgd(0.1), optax.scale(-1.0)),
    "ten steps together where there are four": optax.MultiSteps(optax.sgd(0.1), 10),
    "a rate injected as a schedule": optax.inject_hyperparams(optax.sgd)(
        learning_rate=optax.linear_schedule(0.1, 0.0, 100)
    ),
    "a cosine in adam": optax.adam(optax.cosine_decay_schedule(0.1, 50)),
    "a warm up": optax.sgd(optax.warmup_cosine_decay_schedule(0.0, 0.1, 20, 200)),
    "noise whose seed restarts": optax.chain(optax.add_noise(0.1, 0.5, 0), optax.sgd(0.1)),
    "a line search": optax.lbfgs(),
}


@pytest.mark.parametrize("name", LOCAL)
def test_a_local_optimiser_that_would_go_wrong_is_told(name):
    with told("optimi[sz]er|schedule"):
        simulation(trainer=ff.local_sgd(LOCAL[name], steps=4, batch_size=5))


SERVER = {
    "a median that is not followed by a step": ff.defences.median(),
    "clipping and noise alone": ff.defences.clip_and_noise(1.0, 0.1),
    "momentum without its rate": optax.trace(0.9),
    "a scale": optax.scale(1.0),
    "weight decay behind the rate": optax.chain(optax.sgd(1.0), optax.scale(-1.0)),
    "a line search": optax.lbfgs(),
}


@pytest.mark.parametrize("name", SERVER)
def test_a_server_optimiser_that_would_go_wrong_is_told(name):
    with told("optimi[sz]er"):
        simulation(server_optimizer=SERVER[name])


GOOD = {
    "adam": optax.adam(1e-2),
    "adamw": optax.adamw(1e-2),
    "lamb": optax.lamb(1e-2),
    "lion": optax.lion(1e-3),
    "adafactor": optax.adafactor(1e-2),
    "nesterov": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "rmsprop": optax.rmsprop(1e-2),
    "yogi": optax.yogi(1e-2),
    "signs": optax.sign_sgd(1e-3),
    "decayed": optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(0.1)),
    "clipped": optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1)),
    "not finite": optax.apply_if_finite(optax.sgd(0.1), 5),
}


@pytest.mark.parametrize("name", GOOD)
def test_an_optimiser_that_descends_is_let_alone(name):
    simulation(trainer=ff.local_sgd(GOOD[name], steps=4, batch_size=5), server_optimizer=GOOD[name])


def test_a_half_frozen_model_is_let_alone():
    model = (
        lambda key, x: {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)},
        lambda p, x: x @ p["w"] + p["b"][None],
    )
    frozen = optax.multi_transform(
        {"move": optax.sgd(0.1), "stay": optax.set_to_zero()}, lambda p: {"w": "move", "b": "stay"}
    )
    simulation(model, trainer=ff.local_sgd(frozen, steps=2, batch_size=5))


def sgd(**settings):
    return ff.local_sgd(optax.sgd(0.1), steps=4, batch_size=5, **settings)


TRAINERS = {
    "limit": lambda: sgd(limit=lambda key, r, i: jnp.array([2])),
    "limit ": lambda: sgd(limit=lambda key, r, i: 2 if i > 3 else 1),
    "limit  ": lambda: sgd(limit=lambda r, i: 2),
    "schedule": lambda: sgd(schedule=lambda r: (0.1, 0.2)),
    "schedule ": lambda: sgd(schedule=lambda r: jnp.ones(3)),
    "schedule  ": lambda: sgd(schedule=lambda r: [0.1, 0.01][r]),
    "trainer": lambda: lambda loss, params, client, key, round: ({"v": params["w"]}, ff.Trace(0.0, 0.0)),
    "trainer ": lambda: lambda loss, params, client, key, round: params,
    "trainer  ": lambda: lambda loss, params, client, key: (params, ff.Trace(0.0, 0.0)),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_local_work_of_another_form_is_one_sentence(name):
    with told(name.strip()):
        simulation(trainer=TRAINERS[name]())


def rule(weigh):
    return ff.Aggregator(lambda sizes, key: (), weigh)


def selector(select):
    return ff.Selector(lambda *a: (), select, lambda state, report: state, 2)


OTHERS = {
    "coefficients as a column": ("weigh|aggregator", {"aggregator": rule(lambda s, r, k: (r.n[:, None] * 1.0, s))}),
    "coefficients alone": ("weigh|aggregator", {"aggregator": rule(lambda s, r, k: r.n * 1.0)}),
    "ids that are no whole numbers": ("select", {"selector": selector(lambda s, k, c: (jnp.array([0.0, 1.0]), s))}),
    "another number of ids": ("select", {"selector": selector(lambda s, k, c: (jnp.arange(3), s))}),
    "a split that is none": ("evaluate", {"evaluate": ("testing",)}),
    "a model of another form deployed": ("deploy", {"deploy": lambda state: jax.tree.leaves(state.params)[0]}),
    "the state deployed": ("deploy", {"deploy": lambda state: state}),
    "availability of another shape": (
        "available",
        {"available": lambda key, r, ids: jnp.ones((len(ids), 2), bool)},
    ),
    "availability by numbers": ("available", {"available": lambda key, r, ids: jnp.full(ids.shape, 0.5)}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_part_of_another_form_is_one_sentence(name):
    words, settings = OTHERS[name]
    with told(words):
        simulation(**settings)


IMAGES = {
    "channels first": np.zeros((40, 3, 8, 8), "f"),
    "too small for two poolings": np.zeros((40, 2, 2, 1), "f"),
    "no images": np.zeros((40, 7), "f"),
}


@pytest.mark.parametrize("name", IMAGES)
def test_a_cnn_on_what_it_cannot_read_is_one_sentence(name):
    with told("image|pixel|channel"):
        simulation(ff.models.cnn(classes=2, channels=(2, 2), hidden=3), x=IMAGES[name])

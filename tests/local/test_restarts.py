"""Row 13: the state of a local optimiser starts afresh in every round, and a schedule in it too."""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from toy import simulation

import fedjax_fair as ff
from fedjax_fair.engine.restarts import check_local, steps_of

SHAPES = {"kernel": jax.ShapeDtypeStruct((7, 3), jnp.float32), "bias": jax.ShapeDtypeStruct((3,), jnp.float32)}
LINEAR = optax.linear_schedule(0.0, 0.1, 20)
EVEN, UNEVEN = np.array([20, 20]), np.array([20, 5])


class Count(NamedTuple):
    n: Any


class Moments(NamedTuple):
    n: Any
    mean: Any
    square: Any


def fading():
    """A schedule of one's own."""
    return optax.GradientTransformation(
        lambda params: Count(jnp.zeros((), jnp.int32)),
        lambda g, state, params=None: (jax.tree.map(lambda u: -0.1 * 0.9**state.n * u, g), Count(state.n + 1)),
    )


def counting_alone():
    """Its state is a bare number."""
    return optax.GradientTransformation(
        lambda params: jnp.zeros((), jnp.int32),
        lambda g, n, params=None: (jax.tree.map(lambda u: -0.1 / (1 + n) * u, g), n + 1),
    )


def adam_of_ones_own():
    """Its count corrects the bias of its moments."""

    def update(g, state, params=None):
        n = state.n + 1
        mean = jax.tree.map(lambda m, u: 0.9 * m + 0.1 * u, state.mean, g)
        square = jax.tree.map(lambda v, u: 0.999 * v + 0.001 * u * u, state.square, g)
        step = jax.tree.map(
            lambda m, v: -0.1 * (m / (1 - 0.9**n)) / (jnp.sqrt(v / (1 - 0.999**n)) + 1e-8), mean, square
        )
        return step, Moments(n, mean, square)

    def init(params):
        return Moments(jnp.zeros((), jnp.int32), *[jax.tree.map(jnp.zeros_like, params)] * 2)

    return optax.GradientTransformation(init, update)


def every(k, optimizer=None):
    return optax.MultiSteps(optimizer or optax.sgd(0.1), k).gradient_transformation()


RESTARTING = {
    "linear": optax.sgd(LINEAR),
    "momentum": optax.sgd(optax.exponential_decay(0.1, 100, 0.5), 0.9),
    "adam": optax.adam(optax.cosine_decay_schedule(0.1, 10)),
    "warming up": optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 0.1, 5, 50)),
    "late": optax.sgd(optax.piecewise_constant_schedule(0.1, {500: 0.1})),
    "in a chain": optax.chain(optax.clip(1.0), optax.scale_by_schedule(lambda count: -(0.9**count))),
    "injected": optax.inject_hyperparams(optax.sgd)(learning_rate=LINEAR),
    "of one group": optax.multi_transform(
        {"a": optax.sgd(LINEAR), "b": optax.sgd(0.1)}, {"kernel": "a", "bias": "b"}
    ),
    "masked": optax.chain(
        optax.sgd(0.1), optax.masked(optax.scale_by_schedule(LINEAR), {"kernel": True, "bias": False})
    ),
    "if finite": optax.apply_if_finite(optax.sgd(LINEAR), 3),
    "three of four": every(3),
    "applied every third": optax.chain(optax.sgd(0.1), optax.apply_every(3)),
    "a schedule of what is gathered": every(2, optax.sgd(optax.exponential_decay(0.1, 10, 0.9))),
    "one's own": fading(),
    "a bare count": counting_alone(),
}
STEADY = {
    "sgd": optax.sgd(0.1, 0.9),
    "adam": optax.adam(0.1),
    "radam": optax.radam(0.1),
    "adabelief": optax.adabelief(0.1),
    "if finite": optax.apply_if_finite(optax.sgd(0.1), 3),
    "a constant schedule": optax.sgd(optax.constant_schedule(0.1)),
    "an injected rate": optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
    "two by two": every(2),
    "applied every second": optax.chain(optax.sgd(0.1), optax.apply_every(2)),
    "adam of one's own": adam_of_ones_own(),
    "averaged": ff.average_iterates(optax.adam(0.1)),
}
STUCK = {
    "a schedule from 0": (optax.sgd(LINEAR), 1),
    "more steps than a round has": (every(8), 4),
    "applied too seldom": (optax.chain(optax.sgd(0.1), optax.apply_every(8)), 4),
}


def check(optimizer, sizes=EVEN, **settings):
    settings = settings or {"steps": 4}
    check_local(ff.local_sgd(optimizer, batch_size=5, **settings), SHAPES, sizes)


@pytest.mark.parametrize("name", RESTARTING)
def test_what_starts_afresh_in_every_round_is_warned_of(name):
    with pytest.warns(UserWarning, match=r"counts its steps .* starts afresh in every round.*local_sgd\(schedule="):
        check(RESTARTING[name])


@pytest.mark.parametrize("name", STEADY)
def test_what_a_count_does_not_change_is_not(name):
    check(STEADY[name])  # warnings are errors


@pytest.mark.parametrize("name", STUCK)
def test_one_that_never_moves_is_refused(name):
    optimizer, steps = STUCK[name]
    with pytest.raises(ValueError, match=rf"moves nothing in the {steps} local steps .*local_sgd\(schedule=...\)$"):
        check(optimizer, steps=steps)


def test_gathering_by_twos_leaves_nothing_behind_only_where_all_make_an_even_number_of_steps():
    check(every(2), epochs=1)  # four batches each
    for settings in ({"epochs": 3, "sizes": UNEVEN}, {"steps": 4, "limit": lambda key, r, i: 3}, {"steps": 3}):
        with pytest.warns(UserWarning, match="MultiStepsState"):
            check(every(2), **settings)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"steps": 7, "batch_size": 5}, [7, 7]),
        ({"epochs": 2, "batch_size": 8}, [6, 2]),
        ({"epochs": 2, "batch_size": 100}, [2, 2]),
        ({"epochs": 3, "batch_size": None}, [3, 3]),
        ({"steps": 3, "batch_size": None}, [3, 3]),
        ({"batch_size": 5}, [4, 1]),
    ],
)
def test_the_local_steps_of_every_size(settings, steps):
    assert steps_of(ff.local_sgd(optax.sgd(0.1), **settings), UNEVEN).tolist() == steps


def test_row_13_is_refused_with_one_step_and_warned_of_with_four(data):
    def made(steps):
        return simulation(data, trainer=ff.local_sgd(optax.sgd(LINEAR), steps=steps, batch_size=5))

    with pytest.raises(ValueError, match="optimizer moves nothing in the 1 local steps of a round"):
        made(1)
    with pytest.warns(UserWarning, match=r"optimizer counts its steps \(ScaleByScheduleState\)") as caught:
        made(4)
    assert [warning.filename for warning in caught] == [toy.__file__]  # the line that called the package


def test_the_one_step_of_a_method_counts(data):
    with pytest.raises(ValueError, match="moves nothing in the 1 local steps"):
        simulation(data, ff.fedsgd(), trainer=ff.local_sgd(optax.sgd(LINEAR), steps=4, batch_size=5))


def test_the_servers_state_persists_so_its_schedules_are_right(data):
    assert simulation(data, server_optimizer=optax.sgd(LINEAR))
    assert simulation(data, server_optimizer=every(3))


def test_under_a_trace_what_is_swept_is_left_alone_and_said_once_for_the_ends(data):
    def build(rate):
        trainer = ff.local_sgd(optax.sgd(optax.linear_schedule(rate, 0.1, 20)), steps=4, batch_size=5)
        return simulation(data, trainer=trainer)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        ff.sweep(build, {"rate": [0.05, 0.2]}, rounds=1)
    said = {str(warning.message) for warning in caught}
    assert len(said) == 1
    assert "ScaleByScheduleState" in said.pop()

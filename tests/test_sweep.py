"""Sweeps: the results of separate runs, in one program for all numbers and seeds."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from fedjax_fair.results import table
from fedjax_fair.sweep import LARGE, _width

DATA = toy.federation()
ROUNDS, EVERY = 7, 3


def build(eta_b=0.5, lr=0.1, m=3, cdf=None):
    rule = ff.fedmaba(0.8, eta_b) if cdf is None else ff.aaggff_d(cdf)
    trainer = ff.local_sgd(optax.sgd(lr), steps=2, batch_size=4)
    return ff.simulation(toy.linear, DATA, aggregator=rule, selector=ff.uniform(m), trainer=trainer)


@functools.cache
def built(**point):  # once per point: each compiles
    return build(**point)


@functools.cache
def run_alone(seed, **point):
    return ff.run(built(**point), seed, ROUNDS, eval_every=EVERY)[1]


def play(**changes):
    return ff.sweep(build, **{"seeds": 2, "rounds": ROUNDS, "eval_every": EVERY, **changes})


@pytest.mark.parametrize("side_by_side", [None, 1, 4, "auto"])
def test_a_sweep_is_its_separate_runs(side_by_side):
    grid = {"eta_b": [0.1, 2.0], "lr": [0.05, 0.3]}
    done = play(grid=grid, side_by_side=side_by_side)
    assert done.points == [{"eta_b": e, "lr": r} for e in grid["eta_b"] for r in grid["lr"]]
    assert [*done.runs] == [f"eta_b={e:g},lr={r:g}" for e in grid["eta_b"] for r in grid["lr"]]
    for point, histories in zip(done.points, done.histories):
        for seed, history in enumerate(histories):
            alone = run_alone(seed, **point)
            assert_array_equal(history.rounds, [3, 6, 7])
            assert_array_equal(history.ids, alone.ids)
            for name in ("coef", "loss", "accuracy", "received_loss"):
                assert_allclose(getattr(history, name), getattr(alone, name), rtol=2e-5, atol=2e-6)


def test_runs_go_side_by_side_unless_each_keeps_a_cpu_busy():
    small = build()
    large = small._replace(init=lambda key: small.init(key)._replace(params=jnp.zeros(LARGE + 1)))
    assert _width("auto", small, 8) is None
    assert _width("auto", large, 8) == (1 if jax.default_backend() == "cpu" else None)
    assert _width(4, small, 8) == 4
    assert _width(8, small, 8) is None


def test_all_numbers_and_seeds_are_one_program_which_serves_again():
    grid = {"eta_b": [0.1, 0.7, 2.0], "lr": [0.05, 0.3]}
    play(grid=grid)
    with toy.compilations() as made:
        play(grid={"eta_b": [0.2, 0.3, 1.0], "lr": [0.06, 0.2]}, seeds=[8, 9])
    assert made.count == 0


def test_words_and_whole_numbers_are_part_of_the_program():
    done = play(grid={"m": [2, 3], "cdf": ["weibull", "logistic"], "lr": [0.1]}, seeds=1)
    assert len(done.histories) == 4
    assert [history.ids.shape[1] for (history,) in done.histories] == [2] * 2 + [3] * 2
    for point, (history,) in zip(done.points, done.histories):
        assert_allclose(history.loss, run_alone(0, **point).loss, rtol=2e-5)


def test_whole_numbers_among_floats_are_floats():
    done = play(grid={"eta_b": [0, 0.5, np.float32(1)]}, seeds=1)
    assert [*done.runs] == ["eta_b=0", "eta_b=0.5", "eta_b=1"]
    assert_allclose(done.histories[0][0].coef, 1 / 3, rtol=1e-6)  # no step, no preference


def test_seeds_may_be_keys_and_the_grid_empty():
    keys = [jax.random.key(5), 6]
    done = play(grid={}, seeds=keys)
    assert done.points == [{}]
    for key, history in zip(keys, done.histories[0]):
        assert_allclose(history.loss, ff.run(built(), key, ROUNDS, eval_every=EVERY)[1].loss, rtol=2e-5)
    assert "one point" in table(done.runs)


def test_chunks_do_not_change_a_sweep():
    grid = {"eta_b": [0.1, 2.0]}
    whole, cut = (play(grid=grid, rounds=6, eval_every=1, chunk=chunk) for chunk in (6, 2))
    for one, other in zip(whole.histories, cut.histories):
        jax.tree.map(assert_array_equal, one, other)


def test_the_numbers_are_checked_before_anything_is_compiled():
    for small in ({"lr": [0.1], "eta_b": [0.1]}, {"cdf": ["weibull"]}):  # compiles what building does by itself
        play(grid=small)
    with toy.compilations() as made:
        with pytest.raises(ValueError, match=r"eta_b must be at least 0, got -0.1"):
            play(grid={"lr": [0.1, 0.2], "eta_b": [0.1, -0.1, 0.3]})
        with pytest.raises(ValueError, match=r"cdf must be one of"):
            play(grid={"cdf": ["weibull", "wiebull"]})
    assert made.count == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {"lr": []}}, r"grid\['lr'\] must have at least one value, got an empty list"),
        ({"grid": {"lr": 0.1}}, r"grid\['lr'\] must be a list of values, got 0.1"),
        ({"grid": {"cdf": "weibull"}}, r"grid\['cdf'\] must be a list of values, got 'weibull'"),
        ({"grid": {}, "seeds": 0}, "seeds must be at least 1, got 0"),
        ({"grid": {}, "seeds": []}, "seeds must be a number or a list of seeds or keys, got an empty list"),
        ({"grid": {}, "seeds": ["a"]}, r"key must be one jax\.random\.key"),
        ({"grid": {}, "side_by_side": 0}, "side_by_side must be at least 1, got 0"),
        ({"grid": {}, "rounds": 0}, "rounds must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_swept_is_one_sentence(changes, message):
    with pytest.raises(ValueError, match=message):
        play(**changes)


def test_build_must_return_a_simulation():
    with pytest.raises(ValueError, match=r"build must return an ff\.simulation"):
        ff.sweep(lambda: jnp.zeros(3), {})

"""Sweeps: the results of separate runs, in one program for all numbers and seeds."""

import contextlib
import functools
import os
import signal
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from fedjax_fair.engine import program_run
from fedjax_fair.engine.grid import label, values_of
from fedjax_fair.engine.side_by_side import LARGE, width_of
from fedjax_fair.results.table import table

DATA = toy.federation()
ROUNDS, EVERY = 6, 3


def build(eta_b=0.5, lr=0.1, m=3, cdf=None):
    rule = ff.fedmaba(0.8, eta_b) if cdf is None else ff.aaggff_d(cdf)
    trainer = ff.local_sgd(optax.sgd(lr), steps=2, batch_size=4)
    return ff.simulation(toy.linear, DATA, aggregator=rule, selector=ff.uniform(m), trainer=trainer)


@functools.cache
def built(**point):  # once per point: each compiles
    return build(**point)


@functools.cache
def run_alone(seed, rounds=ROUNDS, **point):
    return ff.run(built(**point), seed, rounds, eval_every=EVERY)[1]


def play(**changes):
    return ff.sweep(build, **{"seeds": 2, "rounds": ROUNDS, "eval_every": EVERY, **changes})


@pytest.mark.parametrize("side_by_side", [None, 1, 4, "auto"])
def test_a_sweep_is_its_separate_runs(side_by_side):
    """Also where the last stretch is a shorter one."""
    grid = {"eta_b": [0.1, 2.0], "lr": [0.05, 0.3]}
    done = play(grid=grid, rounds=7, side_by_side=side_by_side)
    assert done.points == [{"eta_b": e, "lr": r} for e in grid["eta_b"] for r in grid["lr"]]
    assert [*done.runs] == [f"eta_b={e:g},lr={r:g}" for e in grid["eta_b"] for r in grid["lr"]]
    for point, histories in zip(done.points, done.histories):
        for seed, history in enumerate(histories):
            alone = run_alone(seed, rounds=7, **point)
            assert_array_equal(history.rounds, [3, 6, 7])
            assert_array_equal(history.ids, alone.ids)
            for name in ("coef", "loss", "accuracy", "received_loss"):
                assert_allclose(getattr(history, name), getattr(alone, name), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("x64", "dtype"), [(False, jnp.bfloat16), (True, jnp.float32)])
def test_swept_numbers_are_as_weak_as_pythons(x64, dtype):
    """On one device and on a mesh."""

    def coarse(momentum):  # its optimiser's state is of the model's type, which a strong number would widen
        trainer = ff.local_sgd(optax.sgd(0.1, momentum), steps=2, batch_size=4)
        return ff.simulation(toy.linear, data, aggregator=ff.fedavg(), trainer=trainer)

    with jax.enable_x64(x64):
        data, values = toy.federation(dtype=dtype), [0.5, 0.9]
        alone = [ff.run(coarse(momentum), 0, 2, eval_every=2)[1].loss for momentum in values]
        for devices in (1, jax.make_mesh((1,), ("d",))):
            done = ff.sweep(coarse, {"momentum": values}, seeds=[0], rounds=2, eval_every=2, devices=devices)
            for loss, (history,) in zip(alone, done.histories, strict=True):
                assert_allclose(history.loss, loss, rtol=2e-2 if dtype == jnp.bfloat16 else 1e-5)


def test_a_large_rate_does_not_lead_away_from_a_run_alone():
    """Training amplifies how products round: one of shared rows and all runs' kernels would lead elsewhere."""
    data = ff.data.synthetic(n_clients=30, alpha=1.0, beta=1.0, seed=0)

    def softmax(lr):
        trainer = ff.local_sgd(optax.sgd(lr), batch_size=50)
        model, selector = ff.models.logistic_regression(), ff.uniform(10)
        return ff.simulation(model, data, aggregator=ff.fedavg(), trainer=trainer, selector=selector)

    done = ff.sweep(softmax, {"lr": [0.05, 0.1]}, rounds=100, eval_every=100)
    for lr, (history,) in zip([0.05, 0.1], done.histories, strict=True):
        assert_allclose(history.loss, ff.run(softmax(lr), 0, 100, eval_every=100)[1].loss, rtol=1e-5, atol=1e-6)


def test_runs_go_side_by_side_unless_each_keeps_a_cpu_busy():
    small = build()
    large = small._replace(init=lambda key: small.init(key)._replace(params=jnp.zeros(LARGE + 1)))
    kernel = small._replace(init=lambda key: small.init(key)._replace(params=jnp.zeros((3, 3, 1, 2))))
    assert width_of("auto", small, 8) is None
    assert width_of("auto", kernel, 8) == (1 if jax.default_backend() == "cpu" else None)
    assert width_of("auto", large, 8) == (1 if jax.default_backend() == "cpu" else None)
    assert width_of(4, small, 8) == 4
    assert width_of(8, small, 8) is None


def test_all_numbers_and_seeds_are_one_program_which_serves_again():
    grid = {"eta_b": [0.1, 0.7, 2.0], "lr": [0.05, 0.3]}
    play(grid=grid)
    with toy.compilations() as made:
        play(grid={"eta_b": [0.2, 0.3, 1.0], "lr": [0.06, 0.2]}, seeds=[8, 9])
    assert made.count == 0


@pytest.mark.parametrize("changed", ["steps", "data"])
def test_a_build_that_reads_something_else_now_makes_something_else(changed):
    """A notebook's build reads globals; the function is the same, what it makes is not."""
    now = {"steps": 1, "data": DATA}

    def build(lr):
        trainer = ff.local_sgd(optax.sgd(lr), steps=now["steps"], batch_size=4)
        return ff.simulation(toy.linear, now["data"], aggregator=ff.fedavg(), trainer=trainer)

    def sweep():
        return ff.sweep(build, {"lr": [0.1]}, rounds=2).histories[0][0]

    before = sweep()
    now[changed] = {"steps": 3, "data": toy.federation(toy.SIZES[::-1], seed=5)}[changed]
    alone = ff.run(build(0.1), 0, 2)[1]
    after = sweep()
    assert_allclose(after.coef, alone.coef, rtol=1e-5)
    assert_allclose(after.loss, alone.loss, rtol=1e-5)
    assert not np.allclose(before.loss, alone.loss)


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


def test_a_mesh_of_one_device_is_no_different():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("anything",))
    one, other = (play(grid={"lr": [0.05, 0.3]}, devices=devices).histories for devices in (1, mesh))
    jax.tree.map(functools.partial(assert_allclose, rtol=2e-5, atol=2e-6), one, other)


def test_seeds_may_be_keys_and_the_grid_empty():
    keys = [jax.random.key(5), 6]
    done = play(grid={}, seeds=keys)
    assert done.points == [{}]
    for key, history in zip(keys, done.histories[0]):
        assert_allclose(history.loss, ff.run(built(), key, ROUNDS, eval_every=EVERY)[1].loss, rtol=2e-5)
    assert "one point" in table(done.runs)


def test_numpys_whole_numbers_are_whole_numbers(tmp_path):
    done = play(grid={}, seeds=np.int64(2), rounds=np.int64(4), eval_every=np.int32(2), checkpoint=tmp_path)
    assert [len(done.histories[0]), *done.histories[0][0].rounds] == [2, 2, 4]
    _, history = ff.run(built(), 0, np.int64(4), eval_every=np.int64(2), checkpoint=tmp_path / "alone")
    assert history.rounds.tolist() == [2, 4]


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
        ({"grid": {"lr": [[0.1]]}}, r"grid\['lr'\] must have numbers, words or functions as values, got \[0\.1\]"),
        ({"grid": {"lr": []}}, r"grid\['lr'\] must have at least one value, got an empty list"),
        ({"grid": {"lr": 0.1}}, r"grid\['lr'\] must be a list of values, got 0.1"),
        ({"grid": {"cdf": "weibull"}}, r"grid\['cdf'\] must be a list of values, got 'weibull'"),
        ({"grid": {}, "seeds": 0}, "seeds must be at least 1, got 0"),
        ({"grid": {}, "seeds": []}, "seeds must be a number or a list of seeds or keys, got an empty list"),
        ({"grid": {}, "seeds": ["a"]}, r"key must be one jax\.random\.key"),
        (
            {"grid": {}, "seeds": [3, 1, 3]},
            "seeds must be different, or runs count twice, got the same at places 0 and 2",
        ),
        ({"grid": {}, "seeds": [jax.random.key(1), 1]}, "seeds must be different, .* at places 0 and 1"),
        ({"grid": {}, "side_by_side": 0}, "side_by_side must be at least 1, got 0"),
        ({"grid": {}, "devices": 64}, "devices must be from 1 to the 1 that JAX sees, got 64"),
        ({"grid": {}, "rounds": 0}, "rounds must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_swept_is_one_sentence(changes, message):
    with pytest.raises(ValueError, match=message):
        play(**changes)


@pytest.mark.parametrize("where", ["the factory", "weigh"])
def test_a_python_if_about_a_swept_number_is_told_of_jnp_where(where):
    def rule(power):
        if where == "the factory":
            return ff.fedavg("uniform" if power > 1 else "size")
        return ff.Aggregator(
            lambda sizes, key: (), lambda state, report, key: (report.n * (2 if power > 1 else 1), state)
        )

    def of(power):
        trainer = ff.local_sgd(optax.sgd(0.1), steps=1, batch_size=4)
        return ff.simulation(toy.linear, DATA, aggregator=rule(power), trainer=trainer)

    with pytest.raises(jax.errors.TracerBoolConversionError, match=r"a swept setting: use jnp.where\n"):
        ff.sweep(of, {"power": [0.5, 2.0]}, seeds=1, rounds=1)


def test_build_must_return_a_simulation():
    with pytest.raises(ValueError, match=r"build must return an ff\.simulation"):
        ff.sweep(lambda: jnp.zeros(3), {})


def test_functions_of_one_name_are_told_apart():
    def of(phi):
        trainer = ff.local_sgd(optax.sgd(0.1), batch_size=4)
        return ff.simulation(toy.linear, DATA, aggregator=ff.reweighted(phi), trainer=trainer)

    done = ff.sweep(of, {"phi": [lambda loss: loss, lambda loss: loss**2]}, rounds=1)
    assert [*done.runs] == ["phi=<lambda>", "phi=<lambda> #2"]
    assert [histories[0] for histories in done.runs.values()] == [one for (one,) in done.histories]


def test_labels_are_the_same_in_every_process():
    """Of a rule, a tuple of functions, the text says where in memory they lie."""
    assert label({"rule": ff.fedmaba(alpha=0.3)}) == label({"rule": ff.fedmaba(alpha=0.3)})
    assert " at 0x" not in label({"rule": ff.fedmaba()})
    assert label({"lr": 0.1 + 0.2, "rule": functools.partial(ff.term, t=2.0)}) == "lr=0.3,rule=term(t=2)"


ENGINE = sys.modules[ff.sweep.__module__]
GRID = {"cdf": ["weibull", "logistic"], "lr": [0.1, 0.3]}


def count_calls(monkeypatch, at=None, act=None):
    """How many stretches of rounds are trained from here on; at the given one, something happens."""
    calls, play_on = [], program_run.go_on

    def counted(*args, **more):
        calls.append(more["static"])
        if len(calls) == at:
            act()
        return play_on(*args, **more)

    monkeypatch.setattr(program_run, "go_on", counted)
    return calls


def cut():
    raise RuntimeError("cut")


@pytest.mark.parametrize("at", [1, 2, 3, 6])
def test_a_sweep_that_was_cut_off_goes_on_to_the_same_end(at, tmp_path, monkeypatch):
    whole = play(grid=GRID, rounds=7, chunk=1)
    with monkeypatch.context() as here:
        count_calls(here, at, cut)
        with pytest.raises(RuntimeError, match="cut"):
            play(grid=GRID, rounds=7, chunk=1, checkpoint=tmp_path)
    with monkeypatch.context() as here:
        calls = count_calls(here)
        resumed = play(grid=GRID, rounds=7, chunk=1, checkpoint=tmp_path)
        assert len(calls) == 6 - (at - 1)  # three stretches for each cdf, none twice
    assert resumed.points == whole.points
    for one, other in zip(whole.histories, resumed.histories, strict=True):
        jax.tree.map(assert_array_equal, one, other)


def test_what_is_kept_is_not_trained_again_and_added_words_are(tmp_path, monkeypatch):
    grid = {"m": [2, 3], "cdf": ["weibull"], "lr": [0.1]}
    first = play(grid=grid, checkpoint=tmp_path)
    calls = count_calls(monkeypatch)
    again = play(grid=grid, checkpoint=tmp_path)
    assert not calls
    more = play(grid=grid | {"cdf": ["frechet", "weibull"]}, checkpoint=tmp_path)
    assert {dict(static)["cdf"] for static in calls} == {"frechet"}
    for one, other, extended in zip(first.histories, again.histories, more.histories[1::2], strict=True):
        jax.tree.map(assert_array_equal, one, other)
        jax.tree.map(assert_array_equal, one, extended)


def test_checkpoints_every_so_many_rounds(tmp_path, monkeypatch):
    """What was played after the last one is played again; cut elsewhere, it agrees to rounding."""
    settings = {"grid": {"lr": [0.1]}, "rounds": 10, "eval_every": 1, "every": 4, "checkpoint": tmp_path}
    with monkeypatch.context() as here:
        count_calls(here, 3, cut)
        with pytest.raises(RuntimeError, match="cut"):
            play(**settings, chunk=2)
    assert {path.name for path in (tmp_path / "one_point").iterdir()} == {"4"}
    resumed = play(**settings)
    assert {path.name for path in (tmp_path / "one_point").iterdir()} == {"8", "10"}
    for one, other in zip(play(**settings | {"every": None, "checkpoint": None}).histories, resumed.histories):
        jax.tree.map(functools.partial(assert_allclose, rtol=1e-5), one, other)


def test_a_sweep_of_which_one_part_is_anothers_trains_nothing(tmp_path, monkeypatch):
    play(grid={"cdf": ["logistic"]}, checkpoint=tmp_path, rounds=3)
    calls = count_calls(monkeypatch)
    with pytest.raises(ValueError, match="rounds was 3 and is 6"):
        play(grid={"cdf": ["weibull", "logistic"]}, checkpoint=tmp_path)
    assert not calls


def test_ctrl_c_between_two_parts_ends_the_sweep(tmp_path, monkeypatch):
    answers = iter([False] * 5 + [True])  # before a part once, and twice after each of its two stretches
    monkeypatch.setattr(ENGINE, "asked_to_stop", lambda watch: contextlib.nullcontext(lambda: next(answers)))
    with pytest.raises(KeyboardInterrupt, match="stopped before cdf=logistic; what is trained is kept in"):
        play(grid={"cdf": ["weibull", "logistic"]}, chunk=1, checkpoint=tmp_path)


def test_ctrl_c_after_a_stretch_that_is_not_kept_waits_for_the_next(tmp_path, monkeypatch):
    """It came after the question whether to save: the sentence must not claim what is not on disk."""
    answers = iter([False, False, True, True, True])
    monkeypatch.setattr(ENGINE, "asked_to_stop", lambda watch: contextlib.nullcontext(lambda: next(answers)))
    with pytest.raises(KeyboardInterrupt, match="stopped after round 4"):
        play(grid={}, chunk=1, rounds=10, eval_every=2, every=100, checkpoint=tmp_path)
    assert {path.name for path in (tmp_path / "one_point").iterdir()} == {"4"}


def test_ctrl_c_keeps_what_is_played(tmp_path, monkeypatch):
    with monkeypatch.context() as here:
        count_calls(here, 2, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt, match=r"stopped after round 6, which is kept in .*cdf=weibull"):
            play(grid=GRID, rounds=7, chunk=1, checkpoint=tmp_path)
    calls = count_calls(monkeypatch)
    play(grid=GRID, rounds=7, chunk=1, checkpoint=tmp_path)
    assert len(calls) == 4


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a sweep over two rates."""
    folder = tmp_path_factory.mktemp("finished")
    play(grid={"lr": [0.1, 0.3]}, checkpoint=folder)
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {"lr": [0.1, 0.2]}}, r"of another run: grid\['lr'\] was \[0\.1, 0\.3\] and is \[0\.1, 0\.2\]"),
        ({"seeds": 3}, "of another run: seeds was 2 and is 3"),
        ({"rounds": 9}, "of another run: rounds was 6 and is 9"),
        ({"seeds": [3, 4]}, "of another run: the key or state to start from is not the same"),
        ({"every": 0}, "every must be at least 1, got 0"),
        ({"checkpoint": 3}, "checkpoint must be a folder, got 3"),
        ({"checkpoint": None, "every": 3}, "every is the rounds between checkpoints, got 3 without checkpoint"),
    ],
)
def test_another_sweep_is_refused(changes, message, finished):
    with pytest.raises(ValueError, match=message):
        play(**{"grid": {"lr": [0.1, 0.3]}, "checkpoint": finished} | changes)


# What build makes


def shifted(p, data=DATA):
    moved = data._replace(x=data.x + p)
    return ff.simulation(
        toy.linear, moved, aggregator=ff.fedavg(), trainer=ff.local_sgd(optax.sgd(0.1), batch_size=4)
    )


def test_build_may_make_its_data():
    """Also under the trace, where the floats are no numbers; side by side and one after another."""
    x, y = np.array(DATA.x), np.array(DATA.y)

    def with_its_data(lr, kind=0):
        data = ff.FederatedData.from_arrays(x, y, partition=ff.partition.dirichlet(3, 0.5), seed=kind)
        return ff.simulation(
            toy.linear, data, aggregator=ff.fedavg(), trainer=ff.local_sgd(optax.sgd(lr), steps=2, batch_size=4)
        )

    grid, rounds = {"lr": [0.1, 0.3], "kind": [0, 1]}, {"rounds": 4, "eval_every": 2}
    points = [{"lr": lr, "kind": kind} for lr in grid["lr"] for kind in grid["kind"]]
    alone = [ff.run(with_its_data(**point), 0, **rounds)[1].loss for point in points]
    for side_by_side in (None, 1):
        swept = ff.sweep(with_its_data, grid, side_by_side=side_by_side, **rounds)
        assert swept.points == points
        for (history,), loss in zip(swept.histories, alone, strict=True):
            assert_allclose(history.loss, loss, rtol=1e-5)


@pytest.mark.parametrize(
    "make", [lambda p: ff.partition.dirichlet(3, p), lambda p: ff.partition.log_normal(3, p, 1)]
)
def test_a_float_that_deals_the_data_is_refused(make):
    """Though there is but one value of it, and the data are alike at both ends."""

    def dealt(p):
        data = ff.FederatedData.from_arrays(np.array(DATA.x), np.array(DATA.y), partition=make(p), split=(1, 0, 0))
        return ff.simulation(toy.linear, data, aggregator=ff.fedavg(), trainer=toy.FULL, evaluate=("train",))

    with pytest.raises(ValueError, match=r"must be a number that is known when the data are made, got .*sweep"):
        ff.sweep(dealt, {"p": [0.5]}, rounds=2)


def test_a_float_that_changes_the_data_is_refused_a_word_is_not():
    with pytest.raises(ValueError, match="points that differ in floats the same data, got others at p=2: take"):
        ff.sweep(shifted, {"p": [0.0, 2.0]}, rounds=2)
    with pytest.raises(ValueError, match="the same data, got others for other p: take"):  # alike at both ends
        ff.sweep(lambda p: shifted(p * (2 - p)), {"p": [0.0, 1.0, 2.0]}, rounds=2)
    with pytest.raises(ValueError, match="the same data, got others for other p: take"):  # in the second program
        ff.sweep(lambda kind, p: shifted(p * (kind == "b")), {"kind": ["a", "b"], "p": [0.0, 2.0]}, rounds=2)
    swept = ff.sweep(shifted, {"p": [0, 2]}, rounds=2)  # whole numbers: a program each
    for p, (history,) in zip((0, 2), swept.histories):
        assert_allclose(history.loss, ff.run(shifted(p), 0, 2)[1].loss, rtol=2e-5)
    assert not np.allclose(swept.histories[0][0].loss, swept.histories[1][0].loss)


def test_a_checkpoint_of_a_build_that_has_changed_is_refused_though_the_first_point_is_the_same(tmp_path):
    def prox(scale):
        def build(mu):
            trainer = ff.local_sgd(optax.sgd(0.1), steps=2, batch_size=4)
            return ff.simulation(toy.linear, DATA, aggregator=ff.fedprox(mu=scale * mu), trainer=trainer)

        return build

    settings = {"rounds": 2, "checkpoint": tmp_path}
    first = ff.sweep(prox(1.0), {"mu": [0.0, 5.0]}, **settings)
    again = ff.sweep(prox(1.0), {"mu": [0.0, 5.0]}, **settings)
    assert_array_equal(first.histories[1][0].loss, again.histories[1][0].loss)
    with pytest.raises(ValueError, match="is of another run: the simulation is not the same"):
        ff.sweep(prox(0.5), {"mu": [0.0, 5.0]}, **settings)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"seeds": 2.0}, "seeds must be a number or a list of seeds or keys, got 2.0"),
        ({"seeds": None}, "seeds must be a number or a list of seeds or keys, got None"),
        ({"seeds": b"ab"}, "seeds must be a number or a list of seeds or keys, got b'ab'"),
        ({"seeds": np.array(3)}, "seeds must be a number or a list of seeds or keys, got array"),
        ({"seeds": "3"}, "seeds must be a number or a list of seeds or keys, got '3'"),
        ({"grid": [0.1]}, "grid must map settings to their values, such as"),
        ({"build": (), "grid": {}}, "build must be a function of the settings, got tuple"),
    ],
    ids=str,
)
def test_a_sweep_of_what_is_no_sweep_is_one_sentence(changes, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        ff.sweep(**{"build": build, "grid": {"lr": [0.1]}} | changes)


def test_keys_of_several_kinds_are_one_sentence():
    seeds = [jax.random.key(0), jax.random.key(0, impl="rbg")]
    with pytest.raises(ValueError, match="seeds must be keys of one kind, got rbg and threefry2x32"):
        ff.sweep(build, {"lr": [0.1]}, seeds=seeds)


@pytest.mark.parametrize("values", [[(1,), (True,)], [0.1, 0.1], ["a", "a"], [1, 1.0]])
def test_a_grid_holds_every_value_once(values):
    """Equal values would be one program."""
    with pytest.raises(ValueError, match=r"grid\['k'\] must have every value once, got .* twice"):
        values_of("k", values)

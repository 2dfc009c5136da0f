"""Many rounds: the same history however they are cut, compiled once; and the user's own parts."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy import SIZES, compilations, examples, federation, linear, mean_loss

import fedjax_fair as ff
from fedjax_fair.engine.run import chunks

TRAINER = ff.local_sgd(optax.sgd(0.1), steps=2, batch_size=3)
FULL = ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=None)
ROUNDS, EVERY = 7, 2


@pytest.fixture(scope="module")
def sim(data):
    """Something of everything that a state can hold: a bandit's memory, Adam's moments, a random cohort."""
    return ff.simulation(
        linear,
        data,
        aggregator=ff.fedmaba(),
        trainer=TRAINER,
        selector=ff.uniform(3),
        server_optimizer=optax.adam(0.01),
        evaluate=("validation", "test"),
    )


@pytest.fixture(scope="module")
def whole(sim):
    return ff.run(sim, 0, ROUNDS, eval_every=EVERY)


def raw(tree):
    """Leaves as NumPy arrays, keys included."""
    return [
        np.asarray(jax.random.key_data(a) if jnp.issubdtype(a.dtype, jax.dtypes.prng_key) else a)
        for a in jax.tree.leaves(tree)
    ]


def identical(a, b):
    return all(np.array_equal(p, q) and p.dtype == q.dtype for p, q in zip(raw(a), raw(b), strict=True))


# What comes back


def test_the_history_holds_every_round_and_every_evaluation(whole, sim):
    state, history = whole
    assert history.rounds.tolist() == [2, 4, 6, 7]
    assert history.ids.shape == history.coef.shape == history.active.shape == (7, 3)
    assert list(history.scores) == ["validation", "test"]
    assert history.accuracy.shape == history.loss.shape == (4, 5)
    assert np.array_equal(history.accuracy, history.scores["validation"].accuracy)
    assert np.array_equal(history.loss, history.scores["validation"].loss)
    assert not np.array_equal(history.loss, history.scores["test"].loss)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(history))
    assert int(state.round) == 7


def test_the_last_evaluation_is_of_the_model_that_comes_back(whole, sim):
    state, history = whole
    for split, evaluation in sim.evaluate(state.params, sim.data).items():
        np.testing.assert_allclose(history.scores[split].loss[-1], evaluation.loss, rtol=1e-5)


def test_the_coefficients_are_the_rules(whole):
    _, history = whole
    np.testing.assert_allclose(history.coef.sum(1), 1, rtol=1e-5)
    assert history.active.all()
    assert all(len(set(ids)) == 3 for ids in history.ids.tolist())


def test_evaluating_less_often_than_the_run_is_long_still_ends_with_an_evaluation(sim, whole):
    _, history = ff.run(sim, 0, 2, eval_every=100)
    assert history.rounds.tolist() == [2]
    np.testing.assert_allclose(history.loss[0], whole[1].loss[0], rtol=1e-5)


# However it is cut


def test_chunks_of_any_size_give_the_same_bits_as_users_compile_them():
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    script = [sys.executable, Path(__file__).parents[1] / "bits.py"]
    ended = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stdout + ended.stderr


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_chunks_of_any_size_give_the_same(sim, whole, chunk):
    """All that a state can hold, to rounding where it is no whole number."""
    got = ff.run(sim, 0, ROUNDS, eval_every=EVERY, chunk=chunk)
    for a, b in zip(raw(got), raw(whole), strict=True):
        assert a.dtype == b.dtype
        rounding = 1e-5 if np.issubdtype(a.dtype, np.floating) else 0
        np.testing.assert_allclose(a, b, rtol=rounding, atol=rounding / 10)


def test_a_run_continued_gives_the_same_bits(sim, whole):
    state, first = ff.run(sim, 0, 4, eval_every=EVERY)
    end, second = ff.run(sim, rounds=3, eval_every=EVERY, state=state)
    assert identical(end, whole[0])
    assert second.rounds.tolist() == [6, 7]
    joined = jax.tree.map(lambda a, b: np.concatenate([a, b]), first, second)
    assert identical(joined, whole[1])


def test_a_state_that_was_handed_in_stays_usable(sim, whole):
    state, _ = ff.run(sim, 0, 4, eval_every=EVERY)
    before = jax.tree.map(jnp.copy, state)  # not through NumPy: an array that NumPy looks at is never donated
    for _ in range(2):
        end, _ = ff.run(sim, rounds=3, eval_every=EVERY, state=state)
        assert identical(end, whole[0])
    assert identical(state, before)


def test_states_and_histories_of_earlier_chunks_stay_usable(sim, whole):
    seen = []
    ff.run(sim, 0, ROUNDS, eval_every=EVERY, chunk=1, on_chunk=lambda state, history: seen.append((state, history)))
    assert [int(state.round) for state, _ in seen] == [2, 4, 6, 7]
    assert [history.rounds.tolist() for _, history in seen] == [[2], [2, 4], [2, 4, 6], [2, 4, 6, 7]]
    assert identical(seen[-1], whole)


def test_a_true_answer_between_chunks_stops_the_run(sim, whole):
    state, history = ff.run(sim, 0, ROUNDS, eval_every=EVERY, chunk=1, on_chunk=lambda s, h: h.rounds[-1] >= 4)
    assert int(state.round) == 4
    assert history.rounds.tolist() == [2, 4]
    assert identical(history.coef, whole[1].coef[:4])


# Seeds and compilations


def test_a_seed_decides_everything_and_another_seed_changes_it(sim, whole):
    again, other = (ff.run(sim, key, ROUNDS, eval_every=EVERY) for key in (jax.random.key(0), 1))
    assert identical(again, whole)
    assert not np.array_equal(other[1].ids, whole[1].ids)
    assert not np.isclose(other[1].loss, whole[1].loss).any()


def test_a_regular_experiment_is_one_program_and_a_second_run_compiles_nothing(data):
    sim = ff.simulation(linear, data, aggregator=ff.fedavg(), trainer=FULL)
    with compilations() as first:
        ff.run(sim, 0, 20, eval_every=1)
    assert first.names.count("jit(play)") == 1
    with compilations() as later:
        ff.run(sim, 0, 20, eval_every=1)
        ff.run(sim, 1, 20, eval_every=1)
        ff.run(sim, jax.random.key(2), 20, eval_every=1)
        ff.run(sim, 0, 10, eval_every=1, chunk=2)
    assert later.count == 0


@pytest.mark.parametrize(
    ("rounds", "every", "programs"), [(12, 3, 1), (1000, 10, 1), (13, 1, 1), (97, 1, 2), (7, 2, 2), (123, 2, 3)]
)
def test_chunks_come_in_few_lengths_some_ten_of_them(rounds, every, programs):
    calls = list(chunks(rounds, every, None))
    assert sum(evaluations * length for evaluations, length in calls) == rounds
    assert len(set(calls)) == programs
    assert min(rounds // every, 10) <= len(calls) <= 50


# The progress bar


def test_a_progress_bar_is_shown_on_standard_error_when_asked_for(sim, capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # how a terminal is told to rich
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    ff.run(sim, 0, 4, eval_every=EVERY, progress="my rounds")
    out, err = capfd.readouterr()
    assert out == ""
    assert "my rounds" in err
    assert "4/4" in err


def test_a_progress_bar_is_shown_on_a_terminal(sim, capfd, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    ff.run(sim, 0, 4, eval_every=EVERY)
    assert "4/4" in capfd.readouterr().err


@pytest.mark.parametrize("progress", [None, False])
def test_nothing_is_printed_otherwise(sim, capfd, progress):
    ff.run(sim, 0, 4, eval_every=EVERY, progress=progress)
    assert capfd.readouterr() == ("", "")


# A research project in ten lines, without touching the package


def first_round(data, **settings):
    """State before, state after and history of one round."""
    settings = {"aggregator": ff.fedavg("uniform"), "trainer": FULL} | settings
    sim = ff.simulation(linear, data, **settings)
    state, history = ff.run(sim, 0, 1)
    return sim.init(jax.random.key(0)), state, history


def losses_of(params, data):
    return np.array([mean_loss(params, *examples(data, k)) for k in range(len(SIZES))])


def test_a_rule_of_ones_own(data):
    def weigh(state, report, key):
        return jax.nn.softmax(report.loss, where=report.active), state + 1

    start, state, history = first_round(data, aggregator=ff.Aggregator(lambda sizes, key=None: sizes.sum(), weigh))
    expected = np.exp(losses_of(start.params, data))
    np.testing.assert_allclose(history.coef[0], expected / expected.sum(), rtol=1e-5)
    assert float(state.aggregator) == sum(SIZES) + 1


@pytest.mark.parametrize("batch", [None, 1, 64])
def test_a_selector_of_ones_own_may_probe_the_current_model(data, batch):
    """Power-of-choice among all: the two clients of highest loss, by all of their examples or by a few."""

    def select(probed, key, context):
        losses = context.probe(jnp.arange(context.n_clients), key, batch)
        return jax.lax.top_k(losses, 2)[1], losses

    init = lambda sizes, key=None: jnp.zeros(sizes.shape)  # noqa: E731
    selector = ff.Selector(init, select, lambda probed, report: probed, 2)
    start, state, history = first_round(data, selector=selector)
    probed, exact = state.selector, losses_of(start.params, data)
    assert history.ids[0].tolist() == np.argsort(-probed)[:2].tolist()
    np.testing.assert_allclose(probed, exact, **{None: {"rtol": 1e-5}, 1: {"atol": 12}, 64: {"rtol": 0.5}}[batch])
    assert np.allclose(probed, exact, rtol=1e-5) == (batch is None)


def test_a_selector_of_ones_own_learns_from_the_report(data):
    learn = lambda state, report: report.train_loss  # noqa: E731
    selector = ff.uniform(5)._replace(init=lambda sizes, key=None: jnp.zeros(5), observe=learn)
    start, state, _ = first_round(data, selector=selector)
    np.testing.assert_allclose(state.selector, losses_of(start.params, data), rtol=1e-5)


def test_an_objective_of_ones_own(data):
    twice = lambda losses, mask, params, anchor: 2 * ff.erm(losses, mask, params, anchor)  # noqa: E731
    _, doubled, _ = first_round(data, trainer=FULL._replace(objective=twice))
    _, faster, _ = first_round(data, trainer=FULL._replace(optimizer=optax.sgd(0.2)))
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-5), doubled.params, faster.params)


def test_a_trainer_of_ones_own(data):
    """Sign descent on the first example alone."""

    def train(loss, params, client, key, round):
        x, y = client.take(client.rows[:1])
        grads, plain = jax.grad(loss, has_aux=True)(params, ff.Batch(x, y, jnp.ones(1, bool)), params)
        return jax.tree.map(lambda p, g: p - 0.01 * jnp.sign(g), params, grads), ff.Trace(plain, 0.0)

    start, state, _ = first_round(data, trainer=train)
    signs = [
        jax.tree.map(jnp.sign, jax.grad(mean_loss)(start.params, x[:1], y[:1]))
        for x, y in (examples(data, k) for k in range(5))
    ]
    expected = jax.tree.map(lambda p, *s: p - 0.01 * sum(s) / 5, start.params, *signs)
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=1e-5), state.params, expected)


def test_any_model_on_any_pytree_of_inputs_with_any_loss_and_metric():
    """Regression of two inputs of different shapes, trained to the least-squares solution."""
    rng = np.random.default_rng(0)
    x = {"image": rng.normal(size=(40, 2, 2)).astype(np.float32), "age": rng.normal(size=40).astype(np.float32)}
    y = (x["image"].sum((1, 2)) - 3 * x["age"]).astype(np.float32)
    data = ff.FederatedData.from_arrays(x, y, client_id=np.arange(40) % 4)
    init = lambda key, x: {"image": jnp.zeros((2, 2)), "age": jnp.zeros(())}  # noqa: E731
    model = (init, lambda p, x: (x["image"] * p["image"][None]).sum((1, 2)) + x["age"] * p["age"])
    sim = ff.simulation(
        model,
        data,
        aggregator=ff.fedavg(),
        trainer=FULL,
        loss=ff.losses.squared_error,
        metric=lambda outputs, y: jnp.abs(outputs - y),
    )
    state, history = ff.run(sim, 0, 200, eval_every=100)
    np.testing.assert_allclose(state.params["image"], 1, atol=1e-3)
    np.testing.assert_allclose(state.params["age"], -3, atol=1e-3)
    np.testing.assert_allclose(history.loss[-1], history.accuracy[-1] ** 2, atol=1e-6)


@pytest.mark.parametrize("model", [linear, ff.models.logistic_regression(3)], ids=["float64", "float32"])
def test_a_run_in_double_precision(model):
    """Also where only the data is double: flax makes its parameters float32."""
    with jax.enable_x64(True):
        data = federation(dtype=np.float64)
        sim = ff.simulation(model, data, aggregator=ff.fedmaba(), trainer=TRAINER, selector=ff.uniform(2))
        state, history = ff.run(sim, 0, 2, eval_every=1)
        assert history.loss.dtype == np.float64
        assert jax.tree.leaves(state.params)[0].dtype == (np.float64 if model is linear else np.float32)
        assert np.isfinite(history.loss).all()


def test_a_history_is_a_data_frame_in_one_call(whole, monkeypatch):
    _, history = whole
    frame = history.to_pandas()
    assert [*frame.columns] == ["round", "split", "client", "accuracy", "loss", "failed"]
    assert len(frame) == 2 * len(history.rounds) * len(SIZES)
    one = frame[(frame["round"] == 4) & (frame["split"] == "test") & (frame["client"] == 3)]
    assert one["accuracy"].item() == history.scores["test"].accuracy[1, 3]
    assert one["loss"].item() == history.scores["test"].loss[1, 3]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ValueError, match=r"pip install 'fedjax-fair\[pandas\]'"):
        history.to_pandas()

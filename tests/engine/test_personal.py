"""Clients judged by models of their own: remembered ones, and the global one tuned on their data."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from fedjax_fair.engine import personal

N = 5
LOCAL = ff.local_sgd(optax.sgd(0.1), steps=2, batch_size=3)
TUNE = ff.local_sgd(optax.sgd(0.1), epochs=3, batch_size=None)


@pytest.fixture(scope="module", autouse=True)
def quick(quick_to_compile):
    pass


@pytest.fixture(scope="module")
def ran(data):
    """Ditto's clients on every kind of evaluation: ``(simulation, state, history)``."""
    kinds = ["test@personal", "train@personal", "test", "train", ff.fine_tune(TUNE), ff.fine_tune(TUNE, "train")]
    sim = toy.simulation(data, ff.ditto(), LOCAL, selector=ff.uniform(3), evaluate=kinds)
    return sim, *ff.run(sim, 0, 4, eval_every=2)


def own(tree, k):
    return jax.tree.map(lambda leaf: leaf[k], tree)


def test_every_kind_has_its_name_in_the_order_asked_for(ran):
    _, _, history = ran
    assert list(history.scores) == ["test@personal", "train@personal", "test", "train", "test@tuned", "train@tuned"]
    assert_array_equal(history.accuracy, history.scores["test@personal"].accuracy)
    assert history.examples["train@tuned"][-1].tolist() == list(toy.SIZES)
    assert not history.failed.any()


@pytest.mark.parametrize("split", ["test", "train"])
def test_each_client_is_judged_by_the_model_that_it_keeps(ran, data, split):
    _, state, history = ran
    scores = history.scores[f"{split}@personal"]
    for k in range(N):
        x, y = toy.examples(data, k, split)
        assert_allclose(scores.loss[-1, k], toy.mean_loss(own(state.memory, k), x, y), rtol=1e-5)
        right = toy.linear_apply(own(state.memory, k), x).argmax(1) == y
        assert_allclose(scores.accuracy[-1, k], right.mean(), rtol=1e-6)


def test_each_client_tunes_the_global_model_first(ran, data):
    _, state, history = ran
    for k in range(N):
        x, y = toy.examples(data, k)
        tuned = state.params
        for _ in range(3):
            gradient = jax.grad(toy.mean_loss)(tuned, x, y)
            tuned = jax.tree.map(lambda w, g: w - 0.1 * g, tuned, gradient)
        assert_allclose(history.scores["train@tuned"].loss[-1, k], toy.mean_loss(tuned, x, y), rtol=1e-5)
        theirs = toy.examples(data, k, "test")
        assert_allclose(history.scores["test@tuned"].loss[-1, k], toy.mean_loss(tuned, *theirs), rtol=1e-5)


def test_blocks_and_batches_change_nothing(ran, data, monkeypatch):
    _, state, history = ran
    for width, batch in ((1, 2), (2, 100)):
        monkeypatch.setattr(personal, "width_of", lambda *_, width=width: width)
        again = jax.jit(sim_of(data, batch).evaluate)(state.params, data, state.memory)
        for name, scores in again.items():
            assert_allclose(scores.loss, history.scores[name].loss[-1], rtol=1e-5)


def test_clients_of_very_different_sizes_do_not_wait_for_the_largest(monkeypatch):
    """One after another on a CPU: side by side all would pass as many examples as the largest has."""
    params, told = {"kernel": jnp.zeros((60, 10))}, []
    assert personal.width_of(params) > 1
    assert personal.width_of(params, uneven=True) == 1
    monkeypatch.setattr(personal, "width_of", lambda _, uneven: told.append(uneven) or 1)
    for sizes in ([20, 10, 10], [100, 10, 10]):
        owner = np.repeat(np.arange(3), sizes)
        data = ff.FederatedData.from_arrays(np.ones((len(owner), 2), np.float32), owner, client_id=owner)
        sim = toy.simulation(data, ff.ditto(), LOCAL, evaluate=["test@personal"])
        state = jax.eval_shape(sim.init, toy.KEY)
        jax.eval_shape(sim.evaluate, state.params, data, state.memory)
    assert list(dict.fromkeys(told)) == [False, True]


def sim_of(data, batch):
    kinds = ["test@personal", "train@personal", ff.fine_tune(TUNE, "train")]
    return toy.simulation(data, ff.ditto(), LOCAL, selector=ff.uniform(3), evaluate=kinds, eval_batch=batch)


def test_tables_and_measures_take_any_kind(ran):
    _, _, history = ran
    runs = {"ditto": [history]}
    assert "test@personal" in ff.table(runs)
    assert "train@tuned" in ff.table(runs, split="train@tuned")
    measured = ff.metrics.summary(history.scores["test@personal"].accuracy[-1])
    assert np.isfinite(measured["gini"])


def test_a_personal_model_that_is_not_finite_is_no_fair_one(data):
    sim = toy.simulation(data, ff.ditto(), LOCAL, evaluate=["test@personal"])
    state = sim.init(toy.KEY)
    broken = jax.tree.map(lambda leaf: leaf.at[2].set(jnp.inf), state.memory)
    [scores] = sim.evaluate(state.params, data, broken).values()
    assert np.flatnonzero(np.isnan(scores.loss)).tolist() == [2]
    assert np.flatnonzero(np.isnan(scores.accuracy)).tolist() == [2]


def test_a_client_without_examples_has_no_result(data):
    lacking = data._replace(test=data.test._replace(size=data.test.size.at[1].set(0)))
    sim = toy.simulation(lacking, ff.ditto(), LOCAL, evaluate=["test@personal", ff.fine_tune(TUNE)])
    state = sim.init(toy.KEY)
    for scores in sim.evaluate(state.params, lacking, state.memory).values():
        assert np.flatnonzero(np.isnan(scores.loss)).tolist() == [1]


def test_fine_tuning_of_a_rule_without_memory(data):
    """Its numbers: test_freezing.py."""
    sim = toy.simulation(data, ff.fedavg(), LOCAL, evaluate=["test", ff.fine_tune(TUNE)])
    scores = jax.eval_shape(sim.evaluate, jax.eval_shape(sim.init, toy.KEY).params, data)
    assert list(scores) == ["test", "test@tuned"]


REFUSED = {
    "evaluate asks for test@personal, but the aggregator has no personal models, as ff.ditto() has": (
        ff.scaffold(),
        ["test@personal"],
    ),
    "evaluate takes ff.fine_tune(trainer, 'test') for tuned models, got 'test@tuned'": (ff.ditto(), ["test@tuned"]),
    "kind in evaluate must be one of personal, tuned, got 'persnal'; did you mean 'personal'?": (
        ff.ditto(),
        ["test@persnal"],
    ),
    "evaluate must be one of test, validation, train, got 'tset'; did you mean 'test'?": (
        ff.ditto(),
        ["tset@personal"],
    ),
    "evaluate must be a non-empty list of splits, such as ('test',), got one fine_tune": (
        ff.ditto(),
        ff.fine_tune(TUNE),
    ),
    "fine_tune's optimizer must step against the gradient, as optax.sgd(.1) does, got one that follows it: give it "
    "a rate above 0, or end the chain in optax.scale(-rate)": (
        ff.fedavg(),
        ["test", ff.fine_tune(ff.local_sgd(optax.scale(0.1), steps=2, batch_size=2))],
    ),
    "fine_tune's trainer must return a model of the form that it was sent, {'b': [3], 'w': [4, 3]}, got ()": (
        ff.fedavg(),
        [ff.fine_tune(lambda loss, params, client, key, round: ((), ff.Trace(jnp.zeros(()), jnp.zeros(()))))],
    ),
    "evaluate must name each of its results once, got test@tuned 2 times": (
        ff.fedavg(),
        [ff.fine_tune(TUNE), ff.fine_tune(LOCAL)],
    ),
    "trainer must be ff.local_sgd(...) or a function, got int": (ff.fedavg(), ["test", ff.fine_tune(3)]),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_wrong_evaluation_is_one_sentence(data, sentence):
    method, evaluate = REFUSED[sentence]
    with pytest.raises(ValueError) as error:  # noqa: PT011
        toy.simulation(data, method, LOCAL, evaluate=evaluate)
    assert str(error.value) == sentence

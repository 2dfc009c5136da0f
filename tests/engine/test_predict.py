"""What a model says of every client's examples is what its accuracy is counted from, and so is the confusion."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import confusion_matrix
from toy import CLASSES, DRAWS, KEY, close, examples, federation, linear_apply, simulation

import fedjax_fair as ff

NAMES = ["north", "south", "west"]


@pytest.fixture(scope="module")
def named():
    rng = np.random.default_rng(0)
    owner = np.repeat(NAMES, (20, 30, 44))
    x, y = rng.normal(size=(94, 4)).astype(np.float32), rng.integers(0, CLASSES, 94)
    return ff.FederatedData.from_arrays(x, y, client_id=owner, split=(0.5, 0.1, 0.4))


@pytest.fixture(scope="module")
def trained(named, quick_to_compile):
    splits = ("test", "test@personal")
    sim = simulation(named, ff.ditto(), DRAWS, evaluate=splits, eval_batch=7)
    return sim, *ff.run(sim, KEY, rounds=2, eval_every=2)


def test_each_clients_outputs_are_the_models_on_its_examples(trained, named):
    sim, state, _ = trained
    for split in ("test", "validation", "train"):
        found = ff.predict(sim, state, split)
        assert list(found) == NAMES
        for k, mine in enumerate(found.values()):
            x, y = examples(named, k, split)
            np.testing.assert_allclose(mine.outputs, linear_apply(state.params, x), rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(mine.y, y)
            np.testing.assert_array_equal(named.take(mine.rows)[0], x)


@pytest.mark.parametrize("personal", [False, True])
def test_accuracies_of_the_history_are_those_of_the_predictions(personal, trained):
    sim, state, history = trained
    found = ff.predict(sim, state, personal=personal)
    wanted = history.scores["test@personal" if personal else "test"].accuracy[-1]
    right = [(mine.outputs.argmax(1) == mine.y).mean() for mine in found.values()]
    np.testing.assert_allclose(right, wanted, rtol=1e-6)
    shares = [matrix.trace() / matrix.sum() for matrix in ff.confusion(found).values()]
    np.testing.assert_allclose(shares, wanted, rtol=1e-6)


def test_personal_models_are_each_clients_own(trained, named):
    sim, state, _ = trained
    for k, mine in enumerate(ff.predict(sim, state, personal=True).values()):
        own = jax.tree.map(lambda leaf, k=k: leaf[k], state.memory)
        np.testing.assert_allclose(
            mine.outputs, linear_apply(own, examples(named, k, "test")[0]), rtol=1e-4, atol=1e-5
        )


def test_it_is_the_model_that_is_deployed(data):
    sim = simulation(data, deploy=lambda state: jax.tree.map(jnp.zeros_like, state.params))
    found = ff.predict(sim, sim.init(KEY))
    assert list(found) == [0, 1, 2, 3, 4]  # clients that are numbers
    assert all((mine.outputs == 0).all() for mine in found.values())


def test_a_client_without_examples_has_none():
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    who = np.repeat(["a", "b"], 15)
    data = ff.FederatedData.from_arrays(
        x, np.arange(30) % 3, client_id=who, test=(x[:4], np.arange(4) % 3), test_client_id=["a"] * 4
    )
    sim = simulation(data)
    found = ff.predict(sim, sim.init(KEY))
    assert [len(mine.y) for mine in found.values()] == [4, 0]
    assert found["b"].outputs.shape == (0, 3)
    assert ff.confusion(found)["b"].sum() == 0


def of(outputs, y):
    return ff.Prediction(np.asarray(outputs, np.float32), np.asarray(y), np.arange(len(y), dtype=np.int32))


@pytest.mark.parametrize("shape", [(50, 4), (50, 1), (50,)])
def test_the_confusion_is_scikit_learns(shape):
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=shape)
    classes = 4 if shape[-1] == 4 else 2
    y = rng.integers(0, classes, 50)
    said = outputs.argmax(1) if classes == 4 else (outputs.reshape(-1) > 0).astype(int)
    wanted = confusion_matrix(y, said, labels=np.arange(classes))
    np.testing.assert_array_equal(ff.confusion(of(outputs, y)), wanted)
    found = ff.confusion({"a": of(outputs[:20], y[:20]), "b": of(outputs[20:], y[20:])})
    np.testing.assert_array_equal(found["a"] + found["b"], wanted)


def test_a_class_that_the_outputs_lack_has_a_row_if_asked_for():
    matrix = ff.confusion(of(np.eye(2), [0, 2]), classes=3)
    np.testing.assert_array_equal(matrix, [[1, 0, 0], [0, 0, 0], [0, 1, 0]])


NAN = of([[np.nan, 1.0]], [0])


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda sim, state: ff.predict(state, sim), r"sim must be an ff.simulation\(...\), got SimState"),
        (lambda sim, state: ff.predict(sim, state.params), "state must be what a run .* left, got dict"),
        (lambda sim, state: ff.predict(sim, state, "tests"), "split must be .* did you mean 'test'"),
        (lambda sim, state: ff.predict(sim, state, personal="yes"), "personal must be True or False, got 'yes'"),
        (lambda sim, state: ff.confusion(state), "predictions must be what ff.predict returned, got SimState"),
        (lambda sim, state: ff.confusion({"a": [1]}), "predictions must be what ff.predict returned, got dict"),
        (lambda sim, state: ff.confusion({"a": NAN}), "got NaN in the outputs of client a"),
        (
            lambda sim, state: ff.confusion(of(np.ones((2, 3, 4)), [[0, 1, 2]] * 2)),
            r"integer labels \[n\], got outputs \[2, 3, 4\] and labels int64\[2, 3\]",
        ),
        (lambda sim, state: ff.confusion(of(np.ones((2, 1)), [0.5, 1.5])), r"labels float64\[2\]"),
        (lambda sim, state: ff.confusion(of(np.eye(2), [0, 2])), "more than the largest label, 2, got 2"),
        (lambda sim, state: ff.confusion(of(np.eye(2), [0, -1])), "labels must be classes 0, 1, ..., got -1"),
        (lambda sim, state: ff.confusion(of(np.eye(2), [0, 1]), classes=1), "classes must be at least 2, got 1"),
    ],
)
def test_what_cannot_be_predicted_or_counted_is_refused(wrong, sentence, trained):
    with pytest.raises(ValueError, match=sentence):
        wrong(*trained[:2])


def test_a_split_or_models_that_are_not_there_are_refused():
    sim = simulation(federation((3, 4), validation=False))
    state = sim.init(KEY)
    with pytest.raises(ValueError, match="split asks for validation examples, but the data has none"):
        ff.predict(sim, state, "validation")
    with pytest.raises(ValueError, match="personal asks for clients' own models, but the aggregator has none"):
        ff.predict(sim, state, personal=True)
    other = simulation(federation((3, 4), dim=7))
    with pytest.raises(ValueError, match=r"state.params at w must have the model's shape, \[4, 3\], got \[7, 3\]"):
        ff.predict(sim, other.init(KEY))


def test_frozen_parameters_are_part_of_what_is_asked(named):
    given = {"w": np.eye(4, 3, dtype=np.float32), "b": np.array([0, 1, 2], np.float32)}
    sim = simulation(named, params=given, freeze="b")
    mine = ff.predict(sim, sim.init(KEY))["west"]
    close(mine.outputs, linear_apply(given, named.take(mine.rows)[0]), rtol=1e-6)

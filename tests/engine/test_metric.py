"""A metric's direction, unit and range go with the history; what failed is told from a client without examples."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_fair as ff
from fedjax_fair.engine.history import judged

X = np.random.default_rng(0).normal(size=(60, 3)).astype("f")
Y = (X @ np.array([1, -2, 0.5])).astype("f")
LINE = (lambda key, x: {"w": jnp.zeros(3)}, lambda params, x, key: x @ params["w"])
TRAINER = ff.local_sgd(optax.sgd(0.1), steps=4, batch_size=5)
DATA = ff.FederatedData.from_arrays(X, Y, client_id=np.arange(60) % 3)
CLASSES = ff.FederatedData.from_arrays(X, (X[:, 0] > 0).astype(int), client_id=np.arange(60) % 3)
ERROR = ff.Metric(lambda o, y: jnp.abs(o - y), higher_is_better=False, unit="m", range=(0, float("inf")))


def line(metric, **more):
    settings = {"aggregator": ff.fedavg(), "trainer": TRAINER, "loss": ff.losses.squared_error, **more}
    return ff.simulation(LINE, DATA, metric=metric, **settings)


def classifier(**more):
    settings = {"aggregator": ff.fedavg(), "trainer": TRAINER, **more}
    return ff.simulation(settings.pop("model", ff.models.logistic_regression(classes=2)), CLASSES, **settings)


def by_hand(accuracy, loss):
    none = np.zeros((1, 1))
    scores = {"test": ff.Evaluation(np.array(accuracy), np.array(loss))}
    return ff.History(np.arange(len(accuracy)), scores, none, none, none > 0, None, none, none)


def own_loss(outputs, y):
    return jnp.square(outputs - y)


@pytest.mark.parametrize(
    ("metric", "more", "kind"),
    [
        (lambda o, y: o > y, {}, (True, "%", (0, 1), "accuracy")),
        (ERROR, {}, (False, "m", (0, np.inf), "metric")),
        (ERROR._replace(name="error", range=[0, 9]), {}, (False, "m", (0, 9), "error")),
        (ff.losses.squared_error, {}, (False, "", (0, np.inf), "squared error")),
        (jax.jit(ff.losses.squared_error), {}, (False, "", (0, np.inf), "squared error")),
        (functools.partial(ff.losses.squared_error), {}, (False, "", (0, np.inf), "squared error")),
        (own_loss, {"loss": own_loss}, (False, "", (-np.inf, np.inf), "own loss")),
        (jax.jit(own_loss), {"loss": own_loss}, (False, "", (-np.inf, np.inf), "own loss")),
    ],
)
def test_what_a_metric_is_goes_with_the_simulation(metric, more, kind):
    assert line(metric, **more).metric[1:] == (*kind, True)


def test_the_stock_losses_and_accuracies_are_known():
    assert classifier().metric == ff.Metric(ff.losses.accuracy, name="accuracy")
    assert classifier(metric=ff.losses.softmax_cross_entropy).metric[1:3] == (False, "nats")


def test_a_history_has_it_without_the_function_however_it_came_to_be(tmp_path):
    sim, seen = line(ERROR._replace(name="error")), []
    plain = ff.run(sim, 0, 4, eval_every=2)[1]
    wanted = ff.Metric(None, False, "m", (0.0, np.inf), "error")
    ff.run(sim, 0, 2, eval_every=2, checkpoint=tmp_path / "a", on_chunk=lambda state, history: seen.append(history))
    resumed = ff.run(sim, 0, 2, eval_every=2, checkpoint=tmp_path / "a")[1]

    def build(lr):
        return line(ERROR._replace(name="error"), server_optimizer=optax.sgd(lr))

    swept = ff.sweep(build, {"lr": [0.5, 1.0]}, rounds=4, eval_every=2, checkpoint=tmp_path / "b")
    for history in (plain, seen[-1], resumed, *(h for of in swept.histories for h in of)):
        assert history.metric == wanted
        assert history.examples["test"].shape == history.accuracy.shape
        assert (history.examples["test"] == 2).all()
    assert pickle.loads(pickle.dumps(plain)).metric == wanted
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(plain))
    twice = jax.tree.map(lambda *parts: np.concatenate(parts), plain, plain)
    assert (twice.metric, len(twice.examples["test"])) == (wanted, 4)


def test_early_stopping_goes_by_the_metrics_direction():
    sim = line(ff.losses.squared_error)
    falls = ff.run(sim, 0, 8, eval_every=1, chunk=1, on_chunk=ff.callbacks.early_stopping(2))[1]
    assert len(falls.rounds) == 8
    assert (np.diff(falls.accuracy.mean(1)) < 0).all()
    told = ff.run(sim, 0, 8, eval_every=1, chunk=1, on_chunk=ff.callbacks.early_stopping(2, best="highest"))[1]
    assert len(told.rounds) == 3


@pytest.mark.parametrize("measure", ["loss", "std", "gini"])
def test_early_stopping_waits_for_less_of_what_should_be_small(measure):
    accuracy = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]])
    loss = np.array([[0.9, 0.1], [0.7, 0.1], [0.5, 0.1]])
    history = by_hand(accuracy, loss)
    assert not ff.callbacks.early_stopping(1, measure)(None, history)
    assert ff.callbacks.early_stopping(1, measure, "highest")(None, history)


def dead_model(kill):
    """A classifier with a leaf that nothing reads, NaN from the second round on; or one whose outputs are NaN."""
    init = lambda key, x: {"w": jnp.zeros((3, 2)), "idle": jnp.zeros(())}  # noqa: E731
    apply = lambda p, x, key: x @ p["w"] + (p["w"].sum() * jnp.inf if kill else 0)  # noqa: E731
    return init, apply


def test_row_16_a_dead_model_is_never_fair():
    sim = classifier(model=dead_model(False), server_optimizer=optax.adam(0.1, eps=0.0))
    history = ff.run(sim, 0, 5, eval_every=5)[1]
    assert np.isnan(history.accuracy).all()
    assert history.failed.all()
    assert all(np.isnan(value) for value in ff.metrics.summary(history.accuracy[-1]).values())


def test_outputs_that_are_nan_for_everybody_are_a_dead_model_too():
    sim = classifier(model=dead_model(True))
    found = sim.evaluate(sim.init(jax.random.key(0)).params, sim.data)["test"]
    assert np.isnan(found.accuracy).all()


def test_row_17_no_examples_and_failed_are_told_apart():
    def brittle(logits, y):
        return jnp.where(y == 2, jnp.nan, ff.losses.accuracy(logits, y))

    owner = np.arange(60) % 3
    data = ff.FederatedData.from_arrays(X, np.where(owner == 0, 2, X[:, 0] > 0), client_id=owner)
    data = data._replace(test=data.test._replace(size=data.test.size.at[2].set(0)))
    model = ff.models.logistic_regression(classes=3)
    sim = ff.simulation(model, data, aggregator=ff.fedavg(), trainer=TRAINER, metric=brittle)
    history = ff.run(sim, 0, 1)[1]
    assert np.isnan(history.accuracy[-1]).tolist() == [True, False, True]
    assert history.failed[-1].tolist() == [True, False, False]
    assert judged(history, "test")[-1].tolist() == [True, True, False]
    assert "a (failed: 1 of 2 clients)" in ff.table({"a": history})


def test_a_history_made_by_hand_takes_who_never_had_a_result_for_somebody_without_examples():
    nan = np.nan
    history = by_hand([[0.5, nan, 0.5], [0.5, nan, nan]], [[1, nan, 1], [nan, nan, nan]])
    assert history.failed.tolist() == [[False] * 3, [True, False, True]]


@pytest.mark.parametrize(
    ("metric", "more", "message"),
    [
        (3, {}, "metric must be a function of outputs and labels, got 3"),
        (ff.Metric(None), {}, "metric must be a function of outputs and labels, got None"),
        (ff.Metric(abs, "lower"), {}, "metric's higher_is_better must be True or False, got 'lower'"),
        (ff.Metric(abs, unit=None), {}, "metric's unit must be a text, got None"),
        (ff.Metric(abs, name=3), {}, "metric's name must be a text, got 3"),
        (ff.Metric(abs, range=(1, 0)), {}, r"metric's range must be its lowest and its highest .*, got \(1, 0\)"),
        (ff.Metric(abs, range=1), {}, "metric's range must be its lowest and its highest .*, got 1"),
        (ff.Metric(ERROR), {}, "metric must hold a function of outputs and labels, got one ff.Metric in another"),
        (
            ERROR,
            {"aggregator": ff.pg_ffl()},
            "metric must be one of which higher .*PG-FFL.*lower is better",
        ),
        (ff.losses.squared_error, {"aggregator": ff.pg_ffl()}, "where the rule reads accuracy"),
        (
            ff.Metric(lambda o, y: o, unit="", range=(-1, 1), name="score"),
            {"aggregator": ff.pg_ffl()},
            r"none below 0, where the rule reads accuracy .*, got score in \[-1, 1\]",
        ),
    ],
)
def test_a_wrong_metric_is_one_sentence(metric, more, message):
    with pytest.raises(ValueError, match=message):
        line(metric, **more)

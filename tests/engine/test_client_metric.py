"""A metric of whole clients in a simulation: clients of uneven size, the global model and each client's own."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose
from sklearn import metrics as sk

import fedjax_fair as ff

SIZES = (7, 40, 3, 25, 12, 18)
LOCAL = ff.local_sgd(optax.sgd(0.1), steps=3, batch_size=4)


@pytest.fixture(scope="module", autouse=True)
def quick(quick_to_compile):
    pass


@pytest.fixture(scope="module")
def data():
    """Two classes; client 2 has one of them only."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(6), 2 * np.array(SIZES))
    x = rng.normal(size=(len(owner), 4)).astype(np.float32)
    y = (x[:, 0] + rng.normal(0, 1, len(owner)) > 0).astype(int)
    y[owner == 2] = 1
    test = np.concatenate([np.arange(2 * s) >= s for s in SIZES])
    return ff.FederatedData.from_arrays(
        x[~test], y[~test], client_id=owner[~test], test=(x[test], y[test]), test_client_id=owner[test]
    )


def build(data, aggregator=None, **settings):
    return ff.simulation(
        ff.models.logistic_regression(classes=2),
        data,
        aggregator=aggregator or ff.fedavg(),
        trainer=LOCAL,
        **{"metric": ff.losses.auroc, **settings},
    )


@pytest.fixture(scope="module")
def plain(data, quick):
    """FedAvg, judged by AUROC: all tests' runs of it are of two rounds, which are one program."""
    return build(data)


def by_sklearn(sim, data, model):
    """AUROC of each client's test examples by the model ``model(k)``; NaN for one class."""
    found = []
    for k in range(data.n_clients):
        rows = np.asarray(data.test.rows)[data.test.start[k] : data.test.start[k] + data.test.size[k]]
        x, y = data.take(jnp.asarray(rows))
        logits = np.asarray(sim.arguments["model"].apply(model(k), x, None))
        one_class = len(np.unique(y)) < 2
        found.append(np.nan if one_class else sk.roc_auc_score(y, logits[:, 1] - logits[:, 0]))
    return np.array(found)


def test_the_global_models_auroc_is_scikit_learns(data, plain):
    state, history = ff.run(plain, 0, rounds=2)
    wanted = by_sklearn(plain, data, lambda k: state.params)
    assert np.isnan(wanted[2])
    assert_allclose(history.accuracy[-1], wanted, rtol=1e-6)
    assert history.metric.name == "AUROC"
    assert np.isfinite(history.loss[-1]).all()


def test_batches_of_evaluation_do_not_matter(data, plain):
    whole, small = (ff.run(sim, 0, rounds=2)[1].accuracy[-1] for sim in (plain, build(data, eval_batch=7)))
    assert_allclose(whole, small, rtol=1e-6)


@pytest.mark.parametrize(
    "settings", [{}, {"freeze": "kernel", "evaluate": ("train", "test"), "eval_batch": 5}], ids=str
)
def test_clients_judged_alone_have_what_they_have_among_all(data, settings):
    sim, who = build(data, **settings), np.array([True, False, True, True, False, False])
    params = sim.init(jax.random.key(0)).params
    everybody, some = sim.evaluate(params, data), sim.evaluate(params, data, None, who)
    for all_of, got in zip(jax.tree.leaves(everybody), jax.tree.leaves(some)):
        np.testing.assert_array_equal(got, np.where(who, all_of, np.nan))
    with pytest.raises(ValueError, match=r"^who must be bool\[6\], one for each client, got int64\[1\]$"):
        sim.evaluate(params, data, None, np.array([3]))


def test_each_clients_own_model_and_the_tuned_one(data):
    sim = build(data, ff.ditto(), evaluate=("test", "test@personal", ff.fine_tune(LOCAL)), eval_batch=5)
    state, history = ff.run(sim, 0, rounds=2, eval_every=2)
    own = by_sklearn(sim, data, lambda k: jax.tree.map(lambda leaf: leaf[k], state.memory))
    assert_allclose(history.scores["test@personal"].accuracy[-1], own, rtol=1e-6)
    tuned = history.scores["test@tuned"].accuracy[-1]
    assert np.isnan(tuned).tolist() == np.isnan(own).tolist()


def test_seeds_side_by_side_are_those_alone(data, plain):
    swept = ff.sweep(lambda: build(data), {}, seeds=2, rounds=2)
    for seed, history in enumerate(swept.histories[0]):
        assert_allclose(history.accuracy[-1], ff.run(plain, seed, rounds=2)[1].accuracy[-1], rtol=1e-5)


REFUSED = {
    "metric must fit the model and the labels: auroc needs one logit": {
        "model": ff.models.logistic_regression(classes=3)
    },
    "metric must be a mean over examples where the rule reads accuracy": {"aggregator": ff.pg_ffl()},
    "metric must return one number of a whole client, got shape (2,)": {
        "metric": ff.losses.whole(lambda outputs, y, mask: outputs[:, 0])
    },
    "metric must take a client's outputs, labels and mask": {"metric": ff.losses.whole(lambda outputs, y: 0.0)},
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_wrong_metric_is_one_sentence(data, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        ff.simulation(**(build(data).arguments | REFUSED[sentence]))
    assert str(error.value).startswith(sentence)


def test_a_users_own_metric_of_a_client(data):
    """The client's worst example."""

    def worst(outputs, y, mask):
        return jnp.min(ff.losses.accuracy(outputs, y), where=mask, initial=1.0)

    metric = ff.Metric(ff.losses.whole(worst), name="worst example")
    history = ff.run(ff.simulation(**(build(data).arguments | {"metric": metric})), 0, rounds=2)[1]
    assert set(np.unique(history.accuracy[-1])) <= {0.0, 1.0}
    assert history.metric.name == "worst example"


def test_a_client_with_one_class_is_left_out_and_has_not_failed(plain):
    history = ff.run(plain, 0, rounds=2)[1]
    assert not history.failed.any()
    others = np.delete(np.asarray(history.accuracy[-1]), 2)
    assert_allclose(ff.metrics.summary(history.accuracy[-1], metric=history.metric)["accuracy"], others.mean())
    assert "failed" not in str(ff.table({"fedavg": [history, history]}))
    above, _ = ff.plot.accuracy_and_fairness({"fedavg": [history, history]})
    assert above.lines[0].get_ydata()[-1] == pytest.approx(others.mean(), rel=1e-5)


def test_other_data_may_not_have_larger_clients_than_there_is_room_for(data):
    few = data._replace(test=data.validation)
    most = int(np.asarray(few.test.size).max())
    with pytest.raises(
        ValueError, match=f"data must have at most {most} test examples a client, as at first, got 40"
    ):
        build(few).check(data)


@pytest.mark.parametrize(
    "careless",
    [
        lambda outputs, y, mask: (outputs.argmax(1) == y).mean(),
        lambda outputs, y, mask: jnp.where(mask, outputs.argmax(1) == y, 0).mean(),
        lambda outputs, y, mask: jnp.abs(outputs).max(),
    ],
    ids=["no mask", "divided by all", "a maximum over all"],
)
def test_a_metric_that_sees_what_is_behind_the_mask_is_refused(careless, data):
    with pytest.raises(ValueError, match=r"metric must leave out .* mask is False, .* changes"):
        build(data, metric=ff.losses.whole(careless))


NAMED = ("auroc", "balanced_accuracy", "calibration_error", "f1", "f1_macro", "f1_micro")


@pytest.mark.parametrize("name", NAMED)
def test_the_metrics_that_there_are_do_not(name, data):
    assert build(data, metric=getattr(ff.losses, name)).metric.for_everybody is False

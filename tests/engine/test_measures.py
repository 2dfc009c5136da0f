"""Several metrics at once, by name: every one is what it is alone, of the same forward pass."""

import json

import jax
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from fedjax_fair.results.report import report

LOCAL = ff.local_sgd(optax.sgd(0.1), steps=3, batch_size=4)
SEVERAL = {
    "accuracy": ff.losses.binary_accuracy,
    "auroc": ff.losses.auroc,
    "entropy": ff.losses.sigmoid_cross_entropy,
    "F1": ff.losses.f1,
}
NAMES = ("north", "south", "west")


@pytest.fixture(scope="module", autouse=True)
def quick(quick_to_compile):
    pass


@pytest.fixture(scope="module")
def data():
    """Three clients, of whom the last has one class only among its test examples."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 4)).astype(np.float32)
    y = (x[:, 0] + rng.normal(0, 1, 90) > 0).astype(int)
    owner = np.repeat(NAMES, 30)
    y[owner == "west"] = 1
    return ff.FederatedData.from_arrays(x, y, client_id=owner, split=(0.5, 0.2, 0.3))


def build(data, metric, **settings):
    return ff.simulation(
        ff.models.logistic_regression(classes=1),
        data,
        aggregator=settings.pop("aggregator", ff.fedavg()),
        trainer=LOCAL,
        loss=ff.losses.sigmoid_cross_entropy,
        metric=metric,
        **settings,
    )


@pytest.fixture(scope="module")
def history(data):
    return ff.run(build(data, SEVERAL), 0, rounds=4, eval_every=2)[1]


def test_every_metric_is_what_it_is_alone(data, history):
    assert [*history.measures] == [*SEVERAL]
    for name, metric in SEVERAL.items():
        alone = ff.run(build(data, metric), 0, rounds=4, eval_every=2)[1]
        assert_allclose(history.measures[name], alone.accuracy, rtol=1e-6)
    assert_array_equal(history.accuracy, history.measures["accuracy"])
    assert_array_equal(history.loss, history.measures["entropy"])
    assert np.isnan(history.measures["auroc"][:, 2]).all()
    assert not history.failed.any()


def test_the_model_is_applied_once(data):
    """Two metrics of whole clients go by one array of outputs."""
    ones, several = (
        str(jax.make_jaxpr(sim.evaluate)(sim.init(jax.random.key(0)).params, data))
        for sim in (build(data, ff.losses.auroc), build(data, SEVERAL))
    )
    assert ones.count("dot_general") == several.count("dot_general") == 1


def test_one_metric_is_a_measure_by_its_own_name(data):
    history = ff.run(build(data, ff.losses.auroc), 0, rounds=1)[1]
    assert [*history.measures] == ["AUROC"]
    assert history.further is None


def test_tables_have_a_column_for_every_metric(history):
    table, frame = history.client_table(), history.to_pandas()
    assert [*table.columns] == ["client", "rounds", "examples", *SEVERAL, "loss", "failed"]
    assert [*frame.columns] == ["round", "split", "client", *SEVERAL, "loss", "failed"]
    assert_array_equal(table.set_index("client").loc[[*NAMES], "auroc"], history.measures["auroc"][-1])
    assert_array_equal(frame["F1"], history.measures["F1"].ravel())


def test_direction_unit_and_range_of_each_are_kept(history):
    assert history.metric == ff.Metric(None, name="accuracy")
    assert history.further["entropy"] == ff.Metric(None, False, "nats", (0.0, np.inf), "entropy")
    assert not history.further["auroc"].for_everybody


def test_the_folder_and_its_page_have_them_all(history, tmp_path):
    place = ff.save(tmp_path / "out", {"fedavg": [history, history]})
    kept = np.load(place / "history.npz")
    assert_array_equal(kept["fedavg/measures/auroc"], np.stack([history.measures["auroc"]] * 2))
    assert json.loads((place / "summary.json").read_text())["further"]["entropy"]["higher_is_better"] is False
    page = report(place).read_text()
    for heading in ("accuracy, fedavg", "auroc, fedavg", "entropy, fedavg", "F1, fedavg"):
        assert f"<th>{heading}</th>" in page


def test_a_metric_behind_the_first_may_be_called_accuracy(data, tmp_path):
    several = {"auroc": ff.losses.auroc, "accuracy": ff.losses.binary_accuracy}
    history = ff.run(build(data, several), 0, rounds=1)[1]
    page = report(ff.save(tmp_path / "out", {"fedavg": history})).read_text()
    worst = page.partition("The worst served clients")[2].partition("</tr>")[0]
    assert "<th>client</th><th>auroc, fedavg</th><th>accuracy, fedavg</th>" in worst


def test_personal_models_are_judged_by_all(data):
    sim = build(data, SEVERAL, aggregator=ff.ditto(), evaluate=("test", "test@personal"), eval_batch=5)
    history = ff.run(sim, 0, rounds=2)[1]
    own = history.scores["test@personal"]
    assert_allclose(own.further["entropy"], own.loss, rtol=1e-6)
    assert np.isnan(own.further["auroc"][:, 2]).all()


def test_sweeps_and_comparisons_keep_them(data, history):
    swept = ff.sweep(lambda: build(data, SEVERAL), {}, seeds=2, rounds=4, eval_every=2)
    assert_allclose(swept.histories[0][0].measures["F1"], history.measures["F1"], rtol=1e-5)
    found = ff.compare(
        {"term": ff.term},
        lambda rule, data: build(data, SEVERAL, aggregator=rule),
        federation=data,
        replicates=2,
        rounds=2,
        last=1,
        references=False,
    )
    assert [*found.runs["term"][0].measures] == [*SEVERAL]


def test_some_clients_history_has_their_measures(history):
    few = ff.engine.outcome.of_clients(history, np.array([True, False, True]))
    assert_array_equal(few.measures["F1"], history.measures["F1"][:, [0, 2]])


REFUSED = {
    "metric must hold at least one metric by name, such as ff.losses.accuracy, got none": {},
    "metric must have words without a slash as names, none of round": {"loss": ff.losses.f1},
    "got 3": {3: ff.losses.f1},
    "got 'clients'": {"clients": ff.losses.f1},  # a column of the groups' table
    "metric must be a function of outputs and labels, got 'auroc' for 'area'": {"area": "auroc"},
    "metric's unit must be a text, got 3": {"a": ff.Metric(ff.losses.f1, unit=3)},
    "metric must fit the model and the labels: perplexity needs logits": {
        "accuracy": ff.losses.binary_accuracy,
        "p": ff.losses.perplexity,
    },
    "metric must depend on the outputs, but accuracy of one output": {
        "auroc": ff.losses.auroc,
        "share": ff.losses.accuracy,
    },
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_wrong_metrics_are_one_sentence(data, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        build(data, REFUSED[sentence])
    assert sentence in str(error.value)

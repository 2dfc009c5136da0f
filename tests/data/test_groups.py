"""Groups of clients: told by their examples or by name, and summed up beside the clients."""

import json

import numpy as np
import optax
import pandas as pd
import pytest

import fedjax_fair as ff
from fedjax_fair.metrics.groups import group_means, worst_group
from fedjax_fair.results.report import report

RNG = np.random.default_rng(0)
CLIENT = np.repeat(["Basel", "Bern", "Lyon"], 20)
COUNTRY = np.where(CLIENT == "Lyon", "France", "Switzerland")
X = RNG.normal(size=(60, 2)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
GROUPS = ("Switzerland", "Switzerland", "France")


@pytest.fixture(scope="module", autouse=True)
def quick(quick_to_compile):
    pass


def arrays(**settings):
    return ff.FederatedData.from_arrays(X, Y, client_id=CLIENT, **settings)


def frame(**columns):
    return pd.DataFrame({"town": CLIENT, "country": COUNTRY, "a": X[:, 0], "ill": Y, **columns})


def test_every_reader_keeps_the_groups(tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=Y, client=CLIENT, group=COUNTRY)
    table = ff.data.table(frame(), client="town", label="ill", group="country")
    assert table.names.features == ("a",)
    by_name = {"Basel": "Switzerland", "Bern": "Switzerland", "Lyon": "France"}
    for data in (arrays(group=COUNTRY), arrays(group=by_name), table, ff.data.npz(tmp_path / "a.npz")):
        assert data.groups == GROUPS
        assert data.clients == ("Basel", "Bern", "Lyon")
    numbers = ff.FederatedData.from_arrays(X, Y, client_id=np.repeat([0, 1, 2], 20), group=COUNTRY)
    assert (numbers.clients, numbers.groups) == (None, GROUPS)


def test_clients_that_are_left_out_take_their_group_with_them():
    small = frame().iloc[:45]
    with pytest.warns(UserWarning, match="leaves out 1 of 3 clients"):
        data = ff.data.table(small, client="town", label="ill", group="country", min_examples=10)
    assert data.groups == GROUPS[:2]


@pytest.fixture(scope="module")
def history():
    sim = ff.simulation(
        ff.models.logistic_regression(classes=2),
        arrays(group=COUNTRY, split=(0.4, 0.2, 0.4)),
        aggregator=ff.fedavg(),
        trainer=ff.local_sgd(optax.sgd(0.1), batch_size=4),
    )
    return ff.run(sim, 0, rounds=2, eval_every=2)[1]


def test_tables_have_the_groups(history):
    basel, bern, lyon = history.accuracy[-1].astype(float)
    clients, groups = history.client_table(), history.group_table()
    assert dict(zip(clients["client"], clients["group"])) == dict(zip(("Basel", "Bern", "Lyon"), GROUPS))
    assert dict(zip(groups["group"], groups["clients"])) == {"Switzerland": 2, "France": 1}
    means = dict(zip(groups["group"], groups["accuracy"]))
    assert means == pytest.approx({"Switzerland": (basel + bern) / 2, "France": lyon})
    assert groups["accuracy"].is_monotonic_increasing
    assert history.to_pandas()["group"].tolist() == [*GROUPS]
    text = ff.table({"fedavg": [history, history]})
    assert "worst group  group gap" in text
    assert f"{100 * min(means.values()):.1f}" in text
    assert f"{100 * abs(means['Switzerland'] - means['France']):.1f}" in text


def test_the_folder_and_its_page_have_them(history, tmp_path):
    place = ff.save(tmp_path / "out", {"fedavg": history})
    assert np.load(place / "history.npz")["groups"].tolist() == [*GROUPS]
    measures = json.loads((place / "summary.json").read_text())["rules"]["fedavg"]
    worst = 100 * history.group_table()["accuracy"][0]
    assert measures["worst_group"]["mean"] == pytest.approx(worst)
    page = report(place).read_text()
    assert "<h2>Groups of clients</h2>" in page
    assert "<td>Switzerland</td><td>2</td>" in page


def row_of(page, group):
    return page.partition(f"<td>{group}</td>")[2].partition("</tr>")[0]


def test_the_page_judges_by_the_clients_that_the_table_judges_by(history, tmp_path):
    place = ff.save(tmp_path / "out", {"fedavg": history}, clients=np.array([False, True, True]))
    bern = 100 * history.accuracy[-1][1]
    assert row_of(report(place).read_text(), "Switzerland") == f"<td>1</td><td>{bern:.1f}</td>"


def test_the_page_leaves_out_of_a_groups_mean_the_runs_in_which_a_client_of_it_failed(history, tmp_path):
    test = history.scores["test"]
    broken = [np.where(np.arange(3) == 0, np.nan, of) for of in (test.accuracy, test.loss)]
    failed = history._replace(scores={"test": test._replace(accuracy=broken[0], loss=broken[1])})
    page = report(ff.save(tmp_path / "out", {"fedavg": [history, failed]})).read_text()
    assert row_of(page, "Switzerland") == f"<td>2</td><td>{100 * history.accuracy[-1][:2].mean():.1f}</td>"
    assert row_of(page, "France") == f"<td>1</td><td>{100 * history.accuracy[-1][2]:.1f}</td>"


def test_every_column_is_of_the_clients_that_have_a_value_in_it(history):
    auroc, other = np.array([[np.nan, 0.5, 0.75]]), np.array([[0.25, 0.75, 1.0]])
    kinds = {
        "metric": ff.Metric(None, name="auroc", for_everybody=False),
        "further": {"sensitivity": ff.Metric(None)},
    }
    score = ff.types.Evaluation(auroc, np.array([[1.0, 2.0, 3.0]]), {"sensitivity": other})
    made = history._replace(scores={"test": score}, examples={"test": np.ones((1, 3))}, **kinds).group_table()
    assert made.set_index("group").loc["Switzerland"].to_dict() == {
        "clients": 2,
        "auroc": 0.5,
        "sensitivity": 0.5,
        "loss": 1.5,
    }


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_a_group_of_which_a_client_failed_comes_first_and_one_without_a_value_last(history, higher_is_better):
    accuracy, loss = np.array([[0.75, 0.5, np.nan, np.nan]]), np.array([[1.0, 1.0, np.nan, np.nan]])
    made = history._replace(
        scores={"test": ff.types.Evaluation(accuracy, loss, {})},
        examples={"test": np.array([[5, 5, 5, 0]])},
        names=ff.data.Names(clients=("a", "b", "c", "d"), groups=("fair", "good", "broken", "empty")),
        metric=ff.Metric(None, higher_is_better=higher_is_better),
        ids=np.zeros((1, 1), int),
        active=np.ones((1, 1), bool),
    )
    between = ["good", "fair"] if higher_is_better else ["fair", "good"]
    for table in (made.group_table(), made.client_table()):
        assert table["group"].tolist() == ["broken", *between, "empty"]


def test_the_worst_group_of_an_error_is_the_one_with_the_highest():
    assert worst_group({"a": 1.0, "b": 3.0}, higher_is_better=False) == (3.0, 2.0)
    assert np.isnan(worst_group({"a": np.nan})).all()


def test_a_client_without_a_value_counts_in_no_group():
    assert group_means([0.5, np.nan, 1.0], ["a", "a", "b"]) == {"a": 0.5, "b": 1.0}
    assert np.isnan(group_means([0.5, 1.0], ["a", "b"], [True, False])["b"])


REFUSED = {
    "group must have one entry per example, 60, got [3]": lambda: arrays(group=["a", "b", "c"]),
    "group must be one for all examples of a client, got 'a' and 'b' for client 'Basel'": (
        lambda: arrays(group=["a"] * 10 + ["b"] * 50)
    ),
    "group must name a group for every client, got none for 'Lyon'": (
        lambda: arrays(group={"Basel": "a", "Bern": "b"})
    ),
    "group must name a group for every client, got none for 'Bern'": (
        lambda: arrays(group={"Basel": "a", "Bern": float("nan"), "Lyon": "b"})
    ),
    "group must be there for every example, got none for example 59": (
        lambda: arrays(group=pd.array(["a"] * 59 + [None], dtype="string"))
    ),
    "where must be bool, True for who counts": lambda: group_means([1, 2], ["a", "b"], where=[0, 1]),
    "group says which group a natural client is of: it needs client_id= beside it, got none": (
        lambda: ff.FederatedData.from_arrays(X, Y, partition=ff.partition.iid(3), group=COUNTRY)
    ),
    "group must be one of town, country, a, ill, got 'contry'; did you mean 'country'?": (
        lambda: ff.data.table(frame(), client="town", label="ill", group="contry")
    ),
    "group must be a column of its own, got 'town', which is client or label": (
        lambda: ff.data.table(frame(), client="town", label="ill", group="town")
    ),
    "groups must name a group per client, [2], got [1]": lambda: group_means([1, 2], ["a"]),
    "where must have one entry per client, [2], got [1]": lambda: group_means([1, 2], ["a", "b"], np.array([True])),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_wrong_groups_are_one_sentence(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        REFUSED[sentence]()
    assert sentence in str(error.value)


@pytest.mark.parametrize("table", ["client_table", "group_table"])
def test_values_that_no_accuracy_has_are_refused_as_in_the_table_of_rules(table, history):
    far = history._replace(scores={"test": history.scores["test"]._replace(accuracy=np.array([[0.5, 3.0, 1.0]]))})
    with pytest.raises(ValueError, match=r"accuracy in \[0, 1\], .* got 0.5 to 3: .* metric=ff.losses.absol"):
        getattr(far, table)()
    kind = ff.Metric(None, False, "", (0, np.inf), "error")
    getattr(far._replace(metric=kind), table)()


def test_a_table_without_groups_is_one_sentence(history):
    with pytest.raises(ValueError, match=r"group_table needs clients with groups, .*, got none"):
        history._replace(names=None).group_table()

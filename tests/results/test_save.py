"""A folder of results from Python is the one that the command line writes, and has the same page."""

import json
import re
import tomllib
import uuid
import warnings

import numpy as np
import optax
import pandas as pd
import pytest

import fedjax_fair as ff
from fedjax_fair.cli.commands import main
from fedjax_fair.engine.files import write_atomically
from fedjax_fair.results.comparison import Comparison
from fedjax_fair.results.folder import claim_folder

pytestmark = pytest.mark.usefixtures("quick_to_compile")
NAMES = ("Aarau", "B<b>ern", "Chur")


@pytest.fixture(scope="module")
def history():
    """Of three clients with names, one of them without test examples, evaluated on two splits."""
    rng = np.random.default_rng(0)
    x, x_test = rng.normal(size=(30, 2)), rng.normal(size=(4, 2))
    y, test = (x[:, 0] > 0).astype(int), (x_test, np.array([0, 1, 1, 0]))
    data = ff.FederatedData.from_arrays(
        x, y, client_id=np.repeat(NAMES, 10), test=test, test_client_id=["Chur", "Aarau", "Aarau", "Aarau"]
    )
    sim = ff.simulation(
        ff.models.logistic_regression(classes=2),
        data,
        aggregator=ff.fedavg(),
        selector=ff.uniform(2),
        trainer=ff.local_sgd(optax.sgd(0.1), batch_size=10),
        evaluate=("test", "validation"),
    )
    return ff.run(sim, 0, rounds=4, eval_every=2)[1]


def test_a_history_has_the_clients_names(history):
    assert history.clients == NAMES
    assert history.to_pandas().client.tolist() == [*NAMES] * 4  # two evaluations on two splits


def test_a_saved_run_has_the_files_and_the_page_of_a_run_of_the_command_line(history, tmp_path):
    settings = {"dataset": "hospitals", "model": "a line", "rates": [0.1, np.float32(0.5)], "note": None}
    settings["evaluate"] = "train"  # not what it is about
    place = ff.save(tmp_path / "out", {"fedavg": history, "again": [history]}, settings)
    assert {path.name for path in place.iterdir()} == {"config.toml", "summary.json", "summary.csv", "history.npz"}
    kept = tomllib.loads((place / "config.toml").read_text())
    assert kept == {"evaluate": "test", "dataset": "hospitals", "model": "a line", "rates": [0.1, 0.5]}
    summary = json.loads((place / "summary.json").read_text())
    assert summary["cohort"] == 2
    assert summary["identical"] == [["fedavg", "again"]]
    with np.load(place / "history.npz") as arrays:
        np.testing.assert_array_equal(arrays["fedavg/accuracy"], history.accuracy[None])
        assert tuple(arrays["clients"]) == NAMES
    main(["report", str(place)])
    page = (place / "report.html").read_text()
    assert "hospitals: 3 clients, 2 a round, 4 rounds, 1 seed, a line." in page


def test_the_page_names_whom_the_first_rule_serves_worst(history, tmp_path):
    accuracy = np.array([[0.9, np.nan, 0.2]] * 2, np.float32)
    scores = {"test": history.scores["test"]._replace(accuracy=accuracy)}
    place = ff.save(tmp_path / "out", {"fedavg": history._replace(scores=scores)})
    main(["report", str(place)])
    section = (place / "report.html").read_text().partition("The worst served clients")[2]
    rows = re.findall("<tr><td>(.*?)</td></tr>", section)
    assert rows == ["Chur</td><td>20.0", "Aarau</td><td>90.0", "B&lt;b&gt;ern</td><td>–"]


def test_runs_with_more_metrics_or_groups_than_others_share_a_folder(history, tmp_path):
    """It keeps what all of them have, every figure in its own column."""
    test = history.scores["test"]
    more = history._replace(
        scores={"test": test._replace(further={"auroc": test.accuracy})},
        further={"auroc": ff.Metric(None, name="auroc")},
        names=history.names._replace(groups=("north", "north", "south")),
    )
    place = ff.save(tmp_path / "out", {"more": more, "fewer": history})
    assert "further" not in json.loads((place / "summary.json").read_text())
    table = pd.read_csv(place / "summary.csv", index_col="rule")
    assert table.index.tolist() == ["more", "fewer"]
    assert table["failed_mean"].tolist() == [0, 0]
    assert table["downloads_mean"].tolist() == [history.downloads.mean()] * 2
    main(["report", str(place)])


def test_a_run_that_was_stopped_before_its_first_round_cost_nothing(history):
    none = {field: getattr(history, field)[:0] for field in ("ids", "coef", "active", "downloads", "evaluations")}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        measures = ff.results.table.summarize([history._replace(**none)])
    assert [*measures["downloads"], *measures["evaluations"]] == [0, 0]


def test_a_further_metric_may_be_called_accuracy(history, tmp_path):
    scores = {"test": history.scores["test"]._replace(further={"accuracy": history.accuracy})}
    kinds = {
        "metric": ff.Metric(None, name="auroc", unit=""),
        "further": {"accuracy": ff.Metric(None, name="accuracy")},
    }
    place = ff.save(tmp_path / "out", {"fedavg": history._replace(scores=scores, **kinds)})
    main(["report", str(place)])
    page = (place / "report.html").read_text()
    assert "<th>auroc, fedavg</th><th>accuracy, fedavg</th>" in page


def test_a_client_is_shown_by_the_runs_that_have_a_value_of_it(history, tmp_path):
    def run(*accuracy):
        found = history.scores["test"]._replace(
            accuracy=np.array([accuracy] * 2, np.float32), loss=np.zeros((2, 3))
        )
        kind = history.metric._replace(for_everybody=False)
        names = history.names._replace(groups=("west", "north", "west"))
        return history._replace(
            scores={"test": found}, metric=kind, names=names, examples={"test": np.ones((2, 3))}
        )

    runs = [run(0.9, np.nan, 0.2), run(np.nan, np.nan, 0.4)]
    place = ff.save(tmp_path / "out", {"fedavg": runs})
    main(["report", str(place)])
    page = (place / "report.html").read_text()
    clients, groups = page.partition("worst served clients")[2].split("Groups of clients")
    assert "Chur</td><td>30.0" in clients
    assert "Aarau</td><td>90.0" in clients
    west = 100 * np.mean([run.group_table().accuracy[0] for run in runs])
    assert f"<td>west</td><td>2</td><td>{west:.1f}</td>" in groups
    assert "<td>north</td><td>1</td><td>–</td>" in groups
    assert "–: none of them has one" in groups


def test_a_history_is_a_table_by_client_from_the_worst_served(history):
    made = history.client_table()
    assert isinstance(made, pd.DataFrame)
    splits = [f"{split} {name}" for split in history.scores for name in ("examples", "accuracy", "loss", "failed")]
    assert made.columns.tolist() == ["client", "rounds", *splits]
    assert made.client.tolist()[-1] == "B<b>ern"  # who has no test examples
    assert made["test accuracy"][:2].is_monotonic_increasing
    assert made.rounds.sum() == history.active.sum()
    assert dict(zip(made.client, made["test examples"])) == {"Aarau": 3, "B<b>ern": 0, "Chur": 1}
    one = history._replace(scores={"test": history.scores["test"]}).client_table()
    assert one.columns.tolist() == ["client", "rounds", "examples", "accuracy", "loss", "failed"]


def test_judged_clients_alone_are_summarised_and_keep_their_names(history, tmp_path):
    who = np.array([True, False, True])
    place = ff.save(tmp_path / "out", {"fedavg": history}, clients=who)
    kept = json.loads((place / "summary.json").read_text())["rules"]["fedavg"]["accuracy"]["mean"]
    assert kept == pytest.approx(100 * history.accuracy[-1][who].mean())
    main(["report", str(place)])
    assert "Judged by 2 of them." in (place / "report.html").read_text()
    from fedjax_fair.engine.outcome import of_clients

    assert of_clients(history, who).clients == ("Aarau", "Chur")


def test_a_comparison_and_a_sweep_are_saved_as_they_are(tmp_path):
    data = ff.data.synthetic(n_clients=4, max_size=30, seed=0)

    def build(rule, data, lr=0.1):
        return ff.simulation(
            ff.models.logistic_regression(),
            data,
            aggregator=rule,
            trainer=ff.local_sgd(optax.sgd(lr), batch_size=10),
        )

    rules = {"fedavg": ff.fedavg(), "uniform": ff.fedavg(weighting="uniform")}
    found = ff.compare(rules, build, federation=data, replicates=2, rounds=2, eval_every=2, references=False)
    place = ff.save(tmp_path / "compared", found, {"dataset": "synthetic"})
    assert (place / "comparison.txt").read_text() == found.table() + "\n"
    tex = (place / "comparison.tex").read_text()
    assert tex.endswith(found.differences().to_latex())
    assert tex.count(r"\begin{tabular}") == 2
    assert "comparison" in json.loads((place / "summary.json").read_text())
    swept = ff.sweep(lambda lr: build(ff.fedavg(), data, lr), {"lr": [0.1, 0.2]}, seeds=1, rounds=2, eval_every=2)
    place = ff.save(tmp_path / "swept", swept)
    assert [*json.loads((place / "summary.json").read_text())["rules"]] == [*swept.runs]
    with np.load(place / "history.npz") as arrays:
        assert "clients" not in arrays  # they are numbers


def test_settings_that_are_functions_are_kept_in_words(history, tmp_path, monkeypatch):
    settled = {"baseline": "a", "split": "validation", "last": 1, "fixed": True, "same_examples": True}
    kept = {"examples": [np.full(3, 20)], "choose": "accuracy", "references": {}, "clients": None}
    found = Comparison(
        {"a": [history]},
        **settled,
        **kept,
        settings={"a": {"f": max, "widths": (20, 10), "lr": 0.1}},
        grids={"a": {"f": [max], "widths": [(20, 10)], "lr": [0.1]}},
        tried={},
        tried_runs={},
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    place = ff.save("~/out", found)
    assert place == tmp_path / "out"
    assert json.loads((place / "summary.json").read_text())["comparison"]["settings"] == {
        "a": {"f": "max", "widths": [20, 10], "lr": 0.1}
    }


def test_a_comparisons_folder_is_of_the_split_that_it_quotes(history, tmp_path):
    """Whatever else was evaluated before it."""
    other = history._replace(scores=history.scores | {"test": history.scores["validation"]})
    runs = {"a": [history, history], "b": [other, other]}  # of one validation split, but not of one test split
    settled = {"baseline": "a", "split": "validation", "last": 1, "fixed": True, "same_examples": True}
    kept = {"examples": [np.full(3, 20)] * 2, "choose": "accuracy", "references": {}, "clients": None}
    found = Comparison(runs, **settled, **kept, settings={}, grids={}, tried={}, tried_runs={})
    place = ff.save(tmp_path / "out", found)
    summary = json.loads((place / "summary.json").read_text())
    assert summary["identical"] == [["a", "b"]]
    assert summary["rules"]["a"]["accuracy"]["per_seed"] == pytest.approx(
        found.measures()["a"]["accuracy"].tolist()
    )
    with np.load(place / "history.npz") as arrays:
        np.testing.assert_array_equal(arrays["b/accuracy"][0], history.scores["validation"].accuracy)
    main(["report", str(place)])
    assert "Clients' validation accuracy" in (place / "report.html").read_text()
    assert tomllib.loads((place / "config.toml").read_text())["evaluate"] == "validation"


WRONG = {
    "runs": (lambda h, p: ff.save(p, h), "runs must map each rule to its History, or to one per seed, got History"),
    "names": (lambda h, p: ff.save(p, {3: h}), "runs must have words as names, got 3"),
    "clients": (
        lambda h, p: ff.save(p, {"a": h}, clients=[0, 1]),
        r"clients must be bool\[3\], one for",
    ),
    "settings": (lambda h, p: ff.save(p, {"a": h}, [1]), "settings must map names to values, got list"),
    "a setting": (
        lambda h, p: ff.save(p, {"a": h}, {"rule": {"of": [ff.fedavg()]}}),
        "settings must hold words, numbers, truth values, lists and tables of them, got .* for rule.of",
    ),
    "two splits": (
        lambda h, p: ff.save(p, {"a": h, "b": h._replace(scores=dict(reversed(h.scores.items())))}),
        "runs must be judged by one split, got test and validation",
    ),
    "seeds of two lengths": (
        lambda h, p: ff.save(p, {"a": [h, h._replace(ids=h.ids[:-1])]}),
        "runs must have seeds of one length under each name, got .* rounds with .* for 'a'",
    ),
    "seeds of two cohorts": (
        lambda h, p: ff.save(p, {"a": [h, h._replace(ids=h.ids[:, :1])]}),
        "runs must have as many clients, cohorts as large and evaluations at the same rounds for all seeds",
    ),
    "seeds evaluated at other rounds": (
        lambda h, p: ff.save(p, {"a": [h, h._replace(rounds=h.rounds + 1)]}),
        "runs must have as many clients, .* got others for 'a'",
    ),
    "earlier results": (
        lambda h, p: ff.save(ff.save(p, {"a": h}), {"a": h}),
        "folder .* already holds results: name another folder, or pass overwrite=True",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_calls_say_so_in_one_sentence(wrong, history, tmp_path):
    call, sentence = WRONG[wrong]
    with pytest.raises(ValueError, match=sentence):
        call(history, tmp_path / "out")
    assert wrong == "earlier results" or not (tmp_path / "out").exists()


def test_results_written_over_others_leave_nothing_of_them(history, tmp_path):
    place = ff.save(tmp_path / "found", {"old": history}, plots=True)
    (place / "comparison.txt").write_text("of old")
    ff.save(place, {"new": history}, overwrite=True)
    assert {file.name for file in place.iterdir()} == {"config.toml", "history.npz", "summary.csv", "summary.json"}


def test_the_command_line_refuses_what_only_python_knows(history, tmp_path, capsys):
    """It would compare other rules on other data."""
    ff.save(tmp_path / "found", {"fedavg": history})
    with pytest.raises(SystemExit):
        main(["compare", str(tmp_path / "found" / "config.toml"), "--out", str(tmp_path / "again")])
    assert "was written by ff.save, from Python: it does not hold all of the run" in capsys.readouterr().err


def test_results_of_which_no_file_can_be_made_leave_the_others_as_they_are(history, tmp_path, monkeypatch):
    place = ff.save(tmp_path / "found", {"old": history}, {"lr": 1})
    before = {file.name: file.read_bytes() for file in place.iterdir()}
    monkeypatch.setattr("fedjax_fair.results.folder.to_json", lambda found: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ff.save(place, {"new": history}, {"lr": 2}, overwrite=True)
    assert {file.name: file.read_bytes() for file in place.iterdir()} == before


def test_results_that_cannot_be_written_over_others_leave_none(history, tmp_path, monkeypatch):
    """Not a half of each."""
    place = ff.save(tmp_path / "found", {"old": history}, {"lr": 1})

    def full(path, content):
        if path.name == "history.npz":
            raise OSError(28, "No space left on device")
        path.write_text(content)

    monkeypatch.setattr("fedjax_fair.results.folder.write_atomically", full)
    with pytest.raises(ValueError, match=r"results cannot be written to .*found: No space left on device"):
        ff.save(place, {"new": history}, {"lr": 2}, overwrite=True)
    assert not {"summary.json", "history.npz"} & {file.name for file in place.iterdir()}


def test_what_a_killed_call_left_of_a_file_goes(tmp_path):
    for name in (f".history.npz.{uuid.uuid4().hex}.part", ".mine.part"):
        (tmp_path / name).write_text("half")
    claim_folder(tmp_path, overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == [".mine.part"]


def test_half_a_file_is_no_file(tmp_path, monkeypatch):
    def full(*places):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedjax_fair.engine.files.os.replace", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(tmp_path / "file", "text")
    assert not [*tmp_path.iterdir()]

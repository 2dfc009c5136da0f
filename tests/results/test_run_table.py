"""Every run as a row of a data frame: its settings, and the measures that the printed table has."""

import csv

import numpy as np
import pytest
from test_clients import ran

import fedjax_fair as ff
from fedjax_fair.results.table import summarize


def huber():
    """Stands for a loss."""


def swept(*settings):
    """A sweep of these settings, each from two seeds; points and seeds can be told apart by client 0's accuracy."""
    runs = [[ran(0.1 * i + 0.01 * seed, 0.4, 0.6) for seed in range(2)] for i in range(len(settings))]
    return ff.Sweep([*settings], runs, [5, 7])


def test_a_run_is_a_row_with_its_settings_and_its_measures():
    found = swept({"alpha": 0.5, "batch": 10}, {"alpha": 0.9, "batch": 10})
    frame = ff.run_table(found)
    assert frame.name.tolist() == ["alpha=0.5,batch=10"] * 2 + ["alpha=0.9,batch=10"] * 2
    assert frame.run.tolist() == [0, 1, 0, 1]
    assert frame.seed.tolist() == [5, 7, 5, 7]
    assert frame.alpha.tolist() == [0.5, 0.5, 0.9, 0.9]
    assert frame.batch.tolist() == [10] * 4
    assert frame.accuracy.tolist() == pytest.approx([100 * (a + 1) / 3 for a in (0, 0.01, 0.1, 0.11)])  # per cent
    for (name, run), row in frame.set_index(["name", "run"]).iterrows():
        for measure, values in summarize(found.runs[name]).items():
            np.testing.assert_array_equal(row[measure], values[run])


def test_rules_without_settings_have_their_names():
    frame = ff.run_table({"fedavg": ran(0.9, 0.4, 0.6), "afl": [ran(0.5, 0.4, 0.6), ran(0.6, 0.4, 0.6)]})
    assert [*frame.columns[:3]] == ["name", "run", "accuracy"]
    assert frame.name.tolist() == ["fedavg", "afl", "afl"]


def test_it_is_judged_by_the_clients_and_the_split_that_are_asked_for():
    history = ran(0.9, 0.4, 0.6)
    history.scores["train"] = history.scores["test"]._replace(accuracy=np.array([[0.1, 0.2, 0.4]]))
    history = history._replace(examples={**history.examples, "train": np.array([[1, 1, 1]])})
    mask = np.array([True, False, True])
    assert ff.run_table({"fedavg": history}, mask).accuracy.tolist() == pytest.approx([75])
    assert ff.run_table({"fedavg": history}, mask, "train").accuracy.tolist() == pytest.approx([25])


def test_a_run_that_failed_has_no_measures_and_the_others_keep_theirs():
    frame = ff.run_table({"fedavg": [ran(0.9, 0.4, 0.6), ran(0.9, 0.4, 0.6, loss=(np.nan, np.nan, np.nan))]})
    assert frame.failed.tolist() == [0, 3]
    assert frame.accuracy.isna().tolist() == frame.gini.isna().tolist() == [False, True]


def test_an_infinite_loss_of_a_seed_that_counts_is_not_left_out(tmp_path):
    runs = {"fedavg": [ran(0.9, 0.3, 0.6), ran(0.9, 0.3, 0.6, loss=(np.inf, 1, 1))]}
    with open(ff.save(tmp_path / "out", runs) / "summary.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["seeds_failed"], row["accuracy_mean"], row["loss_mean"]) == ("0", "60", "nan")


def test_numbers_beside_a_function_stay_numbers():
    frame = ff.run_table(swept({"schedule": None}, {"schedule": 0.5}, {"schedule": huber}))
    assert frame.schedule.tolist()[2:] == [0.5, 0.5, "huber", "huber"]


def test_functions_of_one_name_are_not_taken_for_one():
    half, whole = ff.proximal(0.5), ff.proximal(1.0)
    settings = [{"objective": of, "lr": lr} for of in (half, whole) for lr in (0.1, 0.2)]
    frame = ff.run_table(swept(*settings))
    assert frame.objective.tolist() == ["objective"] * 4 + ["objective #2"] * 4
    assert frame.groupby(["objective", "lr"]).ngroups == 4


def test_a_sweep_from_keys_has_no_seeds():
    frame = ff.run_table(swept({"lr": 0.1})._replace(seeds=None))
    assert [*frame.columns[:3]] == ["name", "run", "lr"]


def test_a_function_is_its_name_and_a_setting_called_as_a_measure_says_that_it_is_a_setting(tmp_path):
    found = swept({"loss": huber, "flag": True}, {"loss": "hinge", "flag": False})
    frame = ff.run_table(found)
    assert frame["setting loss"].tolist() == ["huber"] * 2 + ["hinge"] * 2
    assert frame.flag.tolist() == [True, True, False, False]
    assert frame.loss.tolist() == [1.0] * 4  # the measure
    with open(ff.save(tmp_path / "out", found) / "summary.csv", newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [(row["setting loss"], row["flag"], row["loss_mean"]) for row in rows] == [
        ("huber", "True", "1"),
        ("hinge", "False", "1"),
    ]


def test_the_csv_has_the_means_of_the_printed_table_and_how_many_seeds_are_in_them(tmp_path):
    good, lost = ran(0.9, 0.3, 0.6), ran(0.9, 0.4, 0.6, loss=(np.nan, np.nan, np.nan))
    runs = {"all": [good, ran(0.9, 0.6, 0.6)], "one": [good], "some": [good, lost], "none": [lost, lost]}
    with open(ff.save(tmp_path / "out", runs) / "summary.csv", newline="") as file:
        rows = [*csv.DictReader(file)]
    shown = [[row[key] for key in ("seeds", "seeds_failed", "accuracy_mean", "accuracy_std")] for row in rows]
    assert shown[0] == ["2", "0", "65", f"{50**0.5:.6g}"]
    assert shown[1:] == [["1", "0", "60", "nan"], ["2", "1", "60", "nan"], ["2", "2", "nan", "nan"]]
    assert [row["failed_mean"] for row in rows] == ["0", "0", "1.5", "3"]  # of all seeds
    printed = ff.table(runs).splitlines()
    assert any("some (1 of 2 seeds failed)" in line and " 60.0 " in line for line in printed)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "runs must map each rule to its History"),
        (ran(0.9, 0.4, 0.6), r"runs must be a sweep or histories by rule, got a History: see its to_pandas\(\)"),
        ({"fedavg": 3}, "runs must map each rule to its History, or to one per seed, got 3"),
        ({"a": ran(0.9, 0.4, 0.6), "b": ran(0.9, 0.4, 0.6, split="train")}, "runs must be judged by one split"),
    ],
)
def test_what_the_table_refuses_is_refused(given, sentence):
    with pytest.raises(ValueError, match=sentence):
        ff.run_table(given)

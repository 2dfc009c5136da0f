"""The table's split; the results folder: its name, its files, and the commit it records."""

import contextlib
import json
import subprocess
import warnings

import numpy as np
import pytest

import fedjax_fair as ff
from fedjax_fair.cli.arguments import read_command
from fedjax_fair.cli.commands import set_up
from fedjax_fair.results import folder as results
from fedjax_fair.results.folder import files_of, write
from fedjax_fair.types import Evaluation


def test_two_jobs_of_the_same_second_get_two_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda *_: "20300101-000000")
    experiment, rules = read_command(["run"])
    with contextlib.ExitStack() as during:
        folders = [set_up(experiment, rules, during)[1] for _ in range(3)]
    assert [str(folder) for folder in folders] == [
        f"runs/synthetic-20300101-000000{suffix}" for suffix in ("", "-2", "-3")
    ]
    assert all((folder / "config.toml").exists() for folder in folders)


def test_what_is_not_finite_is_null_in_json_and_nan_in_csv(tmp_path):
    nan = np.full((1, 3), np.nan, np.float32)
    history = ff.History(
        rounds=np.array([1]),
        scores={"test": Evaluation(accuracy=nan, loss=np.full((1, 3), np.inf, np.float32))},
        ids=np.zeros((1, 2), np.int32),
        coef=nan[:, :2],
        active=np.ones((1, 2), bool),
        received_loss=None,
        downloads=np.array([2]),
        evaluations=np.array([0]),
    )
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(tmp_path, files_of({"fedavg": [history]}, {"model": "mlp", "cohort": 2}))

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    summary = json.loads((tmp_path / "summary.json").read_text(), parse_constant=refuse)
    assert summary["rules"]["fedavg"]["accuracy"] == {"mean": None, "std": None, "per_seed": [None]}
    assert summary["cohort"] == 2
    assert "nan" in (tmp_path / "summary.csv").read_text()


def test_the_table_names_the_split_that_it_judges_by():
    def scored(*splits):
        scores = {split: Evaluation(np.full((1, 2), 0.5), np.ones((1, 2))) for split in splits}
        none = np.zeros((1, 2), int)
        return ff.History(np.ones(1), scores, none, none, none > 0, None, np.zeros(1), np.zeros(1))

    both = {"a": scored("validation", "test"), "b": scored("validation", "test")}
    both["a"].scores["test"] = Evaluation(np.full((1, 2), 0.25), np.ones((1, 2)))
    assert "Clients' validation accuracy after" in ff.table(both)
    quoted = ff.table(both, split="test")
    assert "Clients' test accuracy after" in quoted
    assert [row.split()[1] for row in quoted.splitlines() if row.split()[:1] in (["a"], ["b"])] == ["25.0", "50.0"]
    with pytest.raises(ValueError, match="split must be one of validation, test, got 'train'"):
        ff.table(both, split="train")
    with pytest.raises(ValueError, match="runs must be judged by one split, got test and train"):
        ff.table({"a": scored("test"), "b": [scored("test"), scored("train", "test")]})


def test_an_edited_checkout_is_recorded_as_dirty(tmp_path, monkeypatch):
    def git(*words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", "-C", str(tmp_path), *identity, *words], capture_output=True, check=True)
        return done.stdout.decode().strip()

    file = tmp_path / "results.py"
    file.write_text("first\n")
    monkeypatch.setattr(results, "__file__", str(file))
    git("init", "-q")
    assert results._commit() is None  # not tracked: the package is installed inside somebody else's checkout
    git("add", "results.py")
    git("commit", "-qm", "first")
    git("tag", "-a", "v1", "-m", "v1")
    assert results._commit() == git("rev-parse", "HEAD")
    file.write_text("second\n")
    assert results._commit() == git("rev-parse", "HEAD") + "-dirty"


def test_a_git_that_hangs_or_is_not_there_is_no_obstacle(monkeypatch):
    def hang(*_, timeout, **__):
        raise subprocess.TimeoutExpired("git", timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    assert results._commit() is None
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "")
    assert results._commit() is None


def test_tables_and_files_are_judged_by_the_clients_they_are_given(tmp_path):
    accuracy, none = np.array([[0.1, 0.9, 0.9], [0.2, 0.6, 1.0]]), np.zeros((2, 2), int)
    scores = {"test": Evaluation(accuracy, accuracy)}
    history = ff.History(np.array([1, 2]), scores, none, none, none == 0, None, np.ones(2), np.zeros(2))
    honest = np.array([True, True, False])
    table = ff.table({"a": history}, clients=honest).splitlines()
    (row,) = [line.split() for line in table if line.split()[:1] == ["a"]]
    assert row[1:3] == ["40.0", "400.0"]
    write(tmp_path, files_of({"a": [history]}, {}, honest))
    kept = json.loads((tmp_path / "summary.json").read_text())["rules"]["a"]
    assert kept["accuracy"]["mean"] == pytest.approx(40)
    assert np.load(tmp_path / "history.npz")["a/accuracy"].shape == (1, 2, 3)  # everybody's


def scored(accuracy):
    accuracy = np.array(accuracy, np.float32)
    none = np.zeros((len(accuracy), 2), int)
    scores = {"validation": Evaluation(accuracy, accuracy)}
    return ff.History(np.arange(len(accuracy)), scores, none, none, none == 0, None, np.ones(1), np.zeros(1))


def test_the_table_has_the_worst_tenth_as_a_comparison_has():
    heads, _, row = ff.table({"a": scored([np.arange(40) / 100])}).splitlines()[:3]
    assert heads.split()[5:11] == ["worst", "10%", "worst", "5%", "best", "5%"]
    assert row.split()[3:6] == ["1.5", "0.5", "38.5"]


def test_the_table_says_how_many_clients_five_percent_are():
    def legend(clients=None, **runs):
        lines = ff.table(runs, clients).split("\n\n")[1].splitlines()
        assert max(map(len, lines)) < 80
        return " ".join(lines)

    thirty, hundred = scored(np.full((1, 30), 0.5)), scored(np.full((1, 100), 0.5))
    assert "5 % of clients (here 1 of 30), Gini" in legend(a=thirty, b=[thirty, thirty])
    assert "(here 5 of 100)" in legend(a=hundred)
    assert "(here 2 of 40)" in legend(np.arange(100) < 40, a=hundred)
    assert "5 % of clients, Gini" in legend(a=thirty, b=hundred)  # no one number
    untested = scored(np.where(np.arange(30) < 10, np.nan, 0.5)[None])  # who has no test examples is not judged
    assert "(here 1 of 20)" in legend(a=untested)

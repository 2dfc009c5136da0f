"""The command line as a user meets it: tables, folders, and one sentence for every wrong call."""

import json
import re
import subprocess
import sys
import tomllib

import numpy as np
import pytest

import fedjax_fair as ff
from fedjax_fair import registry
from fedjax_fair.cli import main
from fedjax_fair.results import COLUMNS

SMALL = ["--clients", "6", "--cohort", "3", "--rounds", "4", "--eval-every", "2", "--synthetic.max-size", "80"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The folder and the printed table of one small comparison."""
    out = tmp_path_factory.mktemp("compared") / "results"
    command = ["compare", *SMALL, "--seeds", "2", "--out", str(out), "--algorithms", "fedavg", "fedmaba:alpha=.8"]
    done = subprocess.run(
        [sys.executable, "-m", "fedjax_fair", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_compare_prints_a_row_per_rule_and_a_column_per_measure(compared):
    table = compared[1].splitlines()
    assert all(heading in table[0] for heading in COLUMNS.values())
    assert table[2].split()[0] == "fedavg"
    assert table[3].split()[0] == "fedmaba:alpha=.8"
    assert all(cell.count("±") == 1 for row in table[2:4] for cell in row.split()[1:])


def test_the_folder_holds_settings_summaries_every_client_and_plots(compared):
    out = compared[0]
    names = {
        "config.toml",
        "summary.json",
        "summary.csv",
        "history.npz",
        "lorenz.png",
        "histogram.png",
        "over_rounds.png",
    }
    assert {path.name for path in out.iterdir()} == names
    history = np.load(out / "history.npz")
    assert history["fedavg/accuracy"].shape == (2, 2, 6)  # seeds, evaluations, clients
    assert history["fedmaba:alpha=.8/coef"].shape == (2, 4, 3)  # seeds, rounds, cohort
    assert history["fedavg/rounds"].tolist() == [2, 4]
    np.testing.assert_array_equal(history["fedavg/ids"], history["fedmaba:alpha=.8/ids"])  # the same cohorts


def test_the_summary_is_the_history_summarised(compared):
    out = compared[0]
    summary = json.loads((out / "summary.json").read_text())
    accuracy = np.load(out / "history.npz")["fedavg/accuracy"].astype(float)
    measured = summary["rules"]["fedavg"]
    assert measured["accuracy"]["per_seed"] == pytest.approx(100 * accuracy[:, -1].mean(1))
    assert measured["variance"]["per_seed"] == pytest.approx(1e4 * accuracy[:, -1].var(1), rel=1e-4)
    assert measured["variance"]["std"] == pytest.approx(1e4 * accuracy[:, -1].var(1).std(ddof=1), rel=1e-4)
    assert measured["peak"]["per_seed"] == pytest.approx(100 * accuracy.mean(2).max(1))
    assert summary["command"].startswith("fedjax-fair compare --clients 6")
    assert set(summary["versions"]) >= {"python", "jax", "flax", "optax", "fedjax-fair"}


def test_the_written_configuration_repeats_the_run_bit_for_bit(compared, tmp_path, capsys):
    out = compared[0]
    main(["compare", str(out / "config.toml"), "--out", str(tmp_path / "again")])
    first, again = np.load(out / "history.npz"), np.load(tmp_path / "again" / "history.npz")
    assert set(first) == set(again)
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    capsys.readouterr()


def test_flags_win_over_the_file(compared, tmp_path, capsys):
    main(
        ["compare", str(compared[0] / "config.toml"), "--out", str(tmp_path / "o"), "--seeds", "1", "--rounds", "2"]
    )
    config = tomllib.loads((tmp_path / "o" / "config.toml").read_text())
    assert (config["seeds"], config["rounds"], config["clients"]) == (1, 2, 6)
    capsys.readouterr()


def test_run_trains_one_rule(tmp_path, capsys):
    main(["run", "--aggregator", "afl", "--afl.lr", ".5", *SMALL, "--seeds", "1", "--out", str(tmp_path / "o")])
    assert capsys.readouterr().out.splitlines()[2].split()[0] == "afl"
    assert tomllib.loads((tmp_path / "o" / "config.toml").read_text())["afl"]["lr"] == 0.5


def test_list_names_everything_in_the_registry(capsys):
    main(["list"])
    printed = capsys.readouterr().out
    for table in (registry.AGGREGATORS, registry.SELECTORS, registry.MODELS, registry.PARTITIONS):
        assert all(name in printed for name in table)


def test_results_already_there_are_never_overwritten_unasked(compared, capsys):
    out = compared[0]
    before = (out / "summary.json").read_bytes()
    assert refusal(capsys, "compare", *SMALL, "--out", str(out)) == (
        f"out {out} already holds results: name another folder, or pass --overwrite"
    )
    assert (out / "summary.json").read_bytes() == before


def refusal(capsys, *arguments):
    """The one sentence that a wrong call ends in."""
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    assert stop.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.strip().splitlines()
    assert len(lines) == 1, printed.err
    return lines[0].removeprefix("fedjax-fair: ")


WRONG = {
    "unknown rule": (
        ["--algorithms", "fedmba"],
        "algorithm must be one of .*, got 'fedmba'; did you mean 'fedmaba'",
    ),
    "no rule": (["--algorithms"], "algorithms needs at least one rule"),
    "a rule twice": (["--algorithms", "afl", "afl"], "algorithms names 'afl' twice"),
    "unknown setting": (["--algorithms", "fedmaba:alfa=.3"], "setting of fedmaba must be .*did you mean 'alpha'"),
    "broken setting": (["--algorithms", "fedmaba:alpha"], r"name:setting=value,\.\.\., got 'fedmaba:alpha'"),
    "word for a number": (["--algorithms", "afl:lr=fast"], "lr must be a number, got 'fast'"),
    "alpha outside [0, 1]": (["--fedmaba.alpha", "1.5"], r"alpha must be in \[0, 1\], got 1.5"),
    "negative q": (["--qfedavg.q", "-1"], "q must be at least 0, got -1"),
    "negative rate": (["--lr", "-0.1"], "lr must be above 0, got -0.1"),
    "NaN rate": (["--lr", "nan"], "lr must be above 0, got nan"),
    "m > N": (["--cohort", "40"], "cohort must be from 1 to the 30 clients, got 40"),
    "m = 0": (["--cohort", "0"], "cohort must be at least 1, got 0"),
    "no rounds": (["--rounds", "0"], "rounds must be at least 1, got 0"),
    "no batch": (["--batch-size", "0"], "batch_size must be at least 1, got 0"),
    "epochs and steps": (["--epochs", "1", "--steps", "5"], "epochs or steps, not both"),
    "unknown dataset": (["--dataset", "fashionmnist"], "dataset must be one of .*did you mean 'fashion_mnist'"),
    "unknown partition": (["--partition", "shard"], "partition must be one of .*did you mean 'shards'"),
    "unknown selector": (["--selector", "unifrom"], "selector must be one of .*did you mean 'uniform'"),
    "unknown model": (["--model", "resnet"], "model must be one of"),
    "split": (["--split", ".5", ".1", ".1"], "split must"),
    "official test of synthetic": (["--test", "official"], "test=official needs a public test set"),
    "aaggff_s with a cohort": (["--algorithms", "aaggff_s"], "needs all 30 clients.*use aaggff_d"),
    "convolution on vectors": (["--model", "cnn"], "cnn needs images"),
    "no such file": (["nowhere.toml"], "config nowhere.toml cannot be read: No such file"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_call_is_one_sentence_and_status_2(wrong, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags, message = WRONG[wrong]
    assert re.search(message, refusal(capsys, "compare", *flags))
    assert not list(tmp_path.iterdir())  # no results folder was begun


def test_a_dataset_that_is_not_there_says_how_to_prepare_it(capsys, tmp_path):
    sentence = refusal(capsys, "compare", "--dataset", "mnist", "--data-dir", str(tmp_path))
    assert sentence.startswith("mnist is not prepared")
    assert "download_and_prepare" in sentence


def test_blocks_needs_its_number(capsys, tmp_path):
    sentence = refusal(capsys, "compare", "--dataset", "mnist", "--partition", "blocks")
    assert sentence == "partition blocks needs blocks.blocks_per_client, got nothing"


def test_an_unwritable_folder_is_refused_before_training(capsys, tmp_path):
    (tmp_path / "file").touch()
    sentence = refusal(capsys, "compare", *SMALL, "--out", str(tmp_path / "file" / "results"))
    assert sentence.startswith(f"out {tmp_path}/file/results cannot be written")


def test_unknown_flags_are_named_with_the_nearest(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["compare", "--datset", "synthetic"])
    assert stop.value.code == 2
    assert "--dataset" in capsys.readouterr().err


def test_finished_rules_survive_a_crash(tmp_path, monkeypatch, capsys):
    original, calls = ff.run, []

    def failing(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(sys.modules["fedjax_fair.run"], "run", failing)
    out = tmp_path / "o"
    with pytest.raises(KeyboardInterrupt):
        main(["compare", *SMALL, "--seeds", "1", "--out", str(out), "--algorithms", "fedavg", "afl"])
    assert list(json.loads((out / "summary.json").read_text())["rules"]) == ["fedavg"]
    capsys.readouterr()

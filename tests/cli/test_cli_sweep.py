"""``fedjax-fair sweep``, and what scripts read: ``--quiet`` and ``--json``."""

import json
import os
import re
import signal
import tomllib

import numpy as np
import pandas as pd
import pytest
from test_cli import SMALL
from test_cli_errors import refusal
from toy import same_arrays

from fedjax_fair.cli.commands import main
from fedjax_fair.engine import program_run


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The folder of a small sweep, from seeds 7 and 8: two settings of the rule's and the learning rate."""
    out = tmp_path_factory.mktemp("swept") / "results"
    grid = ["--grid", "alpha=.2,.8", "lr=.05,.1"]
    seeds = ["--seeds", "2", "--first-seed", "7"]
    main(["sweep", "--aggregator", "fedmaba:eta_b=.5", *grid, *SMALL, *seeds, "--out", str(out), "--quiet"])
    return out


def test_every_point_is_a_row_with_every_seed(swept):
    rows = json.loads((swept / "summary.json").read_text())["rules"]
    assert [*rows] == [f"alpha={a},lr={lr}" for a in (0.2, 0.8) for lr in (0.05, 0.1)]
    assert all(len(row["accuracy"]["per_seed"]) == 2 for row in rows.values())
    files = {path.name for path in swept.iterdir()}
    assert files >= {"config.toml", "history.npz", "summary.csv", "lorenz.png", "frontier.png"}


def test_the_csv_has_a_column_for_each_setting(swept):
    found = pd.read_csv(swept / "summary.csv")
    assert [*found.columns[:4]] == ["rule", "alpha", "lr", "seeds"]
    assert found[["alpha", "lr"]].values.tolist() == [[a, lr] for a in (0.2, 0.8) for lr in (0.05, 0.1)]
    rows = json.loads((swept / "summary.json").read_text())["rules"]
    means = [row["accuracy"]["mean"] for row in rows.values()]
    assert found.accuracy_mean.tolist() == pytest.approx(means, rel=1e-5)


def test_a_point_is_the_run_with_its_settings_and_seed(swept, tmp_path, capsys):
    rule = ["--aggregator", "fedmaba", "--fedmaba.eta-b", ".5", "--fedmaba.alpha", ".8"]
    seed = ["--seeds", "1", "--first-seed", "8"]
    main(["run", *rule, "--lr", ".05", *SMALL, *seed, "--out", str(tmp_path / "o")])
    assert capsys.readouterr().out.splitlines()[2].split()[0] == "fedmaba"
    settings = tomllib.loads((tmp_path / "o" / "config.toml").read_text())["fedmaba"]
    assert (settings["eta_b"], settings["alpha"]) == (0.5, 0.8)
    point, alone = np.load(swept / "history.npz"), np.load(tmp_path / "o" / "history.npz")
    for field in ("ids", "coef", "loss"):
        np.testing.assert_allclose(point[f"alpha=0.8,lr=0.05/{field}"][1:], alone[f"fedmaba/{field}"], rtol=1e-4)


def test_settings_are_chosen_by_validation(tmp_path, capsys):
    main(
        [
            "sweep",
            "--grid",
            "lr=.05,.1",
            *SMALL,
            "--seeds",
            "1",
            "--evaluate",
            "validation",
            "--out",
            str(tmp_path / "o"),
        ]
    )
    said = capsys.readouterr()
    assert "Clients' validation accuracy" in said.out
    assert "To quote the test split of a point: fedjax-fair sweep " in said.err
    main(["report", str(tmp_path / "o")])
    assert "Clients' validation accuracy" in (tmp_path / "o" / "report.html").read_text()


def test_the_written_configuration_repeats_the_sweep(swept, tmp_path, capsys):
    main(["sweep", str(swept / "config.toml"), "--out", str(tmp_path / "again")])
    same_arrays(swept / "history.npz", tmp_path / "again" / "history.npz")
    capsys.readouterr()


def test_a_sweep_becomes_a_report(swept, capsys):
    main(["report", str(swept)])
    assert "alpha=0.2,lr=0.05" in (swept / "report.html").read_text()
    capsys.readouterr()


def test_the_rules_own_rate_is_named_after_the_rule(tmp_path, capsys):
    grid = ["--grid", "afl.lr=.01,.1", "lr=.05", "server_lr=.5,1.", "lr_decay=.9,1."]
    main(["sweep", "--aggregator", "afl", *grid, *SMALL, "--seeds", "1", "--out", str(tmp_path / "o"), "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert len(shown["rules"]) == 8
    assert "afl.lr=0.1,lr=0.05,server_lr=1,lr_decay=0.9" in shown["rules"]


def test_a_rule_of_the_users_own_is_swept(tmp_path, monkeypatch, capsys):
    source = """
import fedjax_fair as ff
import jax
import numpy as np

ONE = np.asarray(jax.random.uniform(jax.random.key(0), ())) * 0 + 1  # nothing that can be traced

def tempered(power=1.0):
    return ff.reweighted(lambda loss: ONE * loss**power)
"""
    (tmp_path / "mine.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    main(
        ["sweep", "--aggregator", "mine.py:tempered", "--grid", "power=.5,2.", *SMALL, "--seeds", "1", "--out", "o"]
    )
    assert "power=0.5" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "compare"])
def test_json_is_the_summary_and_quiet_says_nothing_else(command, tmp_path, capsys):
    once = ["--seeds", "1"]
    rules = []
    if command == "compare":
        once, rules = ["--replicates", "1", "--no-references"], ["--algorithms", "fedavg"]
    unused = ["--pow-d.d", "20", "--liars", ".2"]
    main([command, *rules, *unused, *SMALL, *once, "--out", str(tmp_path / "o"), "--json", "--quiet"])
    printed = capsys.readouterr()
    shown = json.loads(printed.out)
    assert shown.pop("folder") == str(tmp_path / "o")
    assert shown == json.loads((tmp_path / "o" / "summary.json").read_text())
    assert printed.err == ""
    config = tomllib.loads((tmp_path / "o" / "config.toml").read_text())
    assert not config["json"]
    assert not config["quiet"]


def test_what_the_grid_varies_is_neither_fixed_nor_misreported(tmp_path, capsys):
    grid = ["--grid", "cohort=2,3", "fedmaba.alpha=.5", "--fedmaba.alpha", ".2", "--lr", ".1", "--cohort", "4"]
    main(
        ["sweep", "--aggregator", "fedmaba", *grid, *SMALL[:2], *SMALL[4:], "--seeds", "1", "--out", str(tmp_path)]
    )
    said = capsys.readouterr().err
    assert "2, 3 a round" in said
    assert "cohort has no effect: the grid varies it" in said
    assert "fedmaba.alpha has no effect: the grid varies it" in said
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["cohort"] == "2, 3"
    assert [*summary["rules"]] == ["cohort=2,alpha=0.5", "cohort=3,alpha=0.5"]
    main(["report", str(tmp_path)])
    assert "2, 3 a round" in (tmp_path / "report.html").read_text()
    capsys.readouterr()


def test_a_sweep_that_was_cut_off_is_resumed_without_another_flag(swept, tmp_path, monkeypatch, capsys):
    """Ctrl-C in the first of two stretches; resumed, it plays the second, and ends as if never interrupted."""
    lengths, play_on = [], program_run.go_on

    def counted(*args, **more):
        lengths.append(more["evaluations"])
        return play_on(*args, **more)

    def interrupted(*args, **more):
        os.kill(os.getpid(), signal.SIGINT)
        return counted(*args, **more)

    with monkeypatch.context() as here:
        here.setattr(program_run, "go_on", interrupted)
        kept = ["--checkpoint", str(tmp_path / "k"), "--out", str(tmp_path / "o")]
        with pytest.raises(SystemExit) as stop:
            main(["sweep", str(swept / "config.toml"), *kept])
    assert stop.value.code == 130
    assert f"go on with: fedjax-fair sweep --resume {tmp_path / 'k'}" in capsys.readouterr().err
    assert not (tmp_path / "o" / "history.npz").exists()
    monkeypatch.setattr(program_run, "go_on", counted)
    main(["sweep", "--resume", str(tmp_path / "k")])
    assert lengths == [1, 1]
    same_arrays(swept / "history.npz", tmp_path / "o" / "history.npz")
    capsys.readouterr()


WRONG = {
    "no grid": ([], r"grid needs a setting and its values, such as --grid q=\.1,1\.,5\., got nothing"),
    "no values": (["--grid", "lr"], r"grid takes setting=value,value,\.\.\., got 'lr'"),
    "an empty value": (["--grid", "lr=.1,"], r"grid takes setting=value,value,\.\.\., got 'lr=\.1,'"),
    "no such setting": (["--grid", "lrr=.1"], r"setting in grid must be one of .*, got 'lrr'; did you mean 'lr'\?"),
    "of another rule": (["--grid", "afl.lr=.1"], "setting in grid must be one of"),
    "a setting twice": (["--grid", "lr=.1", "lr=.2"], "grid names 'lr' twice"),
    "under two names": (
        ["--aggregator", "fedmaba", "--grid", "alpha=.1", "fedmaba.alpha=.2"],
        "grid names 'alpha' twice",
    ),
    "a value twice": (["--grid", "lr=.1,.10"], "grid gives lr the value .1 twice"),
    "fixed, too": (
        ["--aggregator", "fedmaba:alpha=.3", "--grid", "alpha=.1,.2"],
        "alpha is either in grid or in aggregator, got both 'alpha=.1,.2' and 'fedmaba:alpha=.3'",
    ),
    "only together": (["--grid", "epochs=None,1", "steps=None,5"], "epochs or steps, not both"),
    "a value that the rule refuses": (
        ["--aggregator", "fedmaba", "--grid", "alpha=.5,1.5"],
        r"fedmaba\.alpha must be in \[0, 1\], got 1\.5",
    ),
    "a negative rate of a rule with a setting made of it": (
        ["--aggregator", "qfedavg", "--grid", "q=.1,5.", "lr=.1,-1"],
        r"^lr must be above 0, got -1",
    ),
    "a negative rate": (["--grid", "lr=.1,-.1"], r"lr must be above 0, got -0\.1"),
    "m > N": (["--grid", "cohort=2,40"], "cohort must be from 1 to the 30 clients, got 40"),
    "epochs and steps": (["--grid", "epochs=1,2", "steps=5"], "epochs or steps, not both"),
    "a resume": (["--resume", "kept"], "resume kept is not a folder that --checkpoint left behind"),
    "rounds between none": (["--grid", "lr=.1", "--checkpoint-every", "5"], "checkpoint_every needs checkpoint"),
}


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_sweep_is_refused_before_anything_is_trained(call, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words, sentence = WRONG[call]
    assert re.search(sentence, refusal(capsys, "sweep", *words))
    assert not [*tmp_path.iterdir()]

"""The command line as a user meets it: tables, folders, help and flags."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
from toy import same_arrays

import fedjax_fair as ff
from fedjax_fair import registry
from fedjax_fair.cli.arguments import flags, read_command
from fedjax_fair.cli.commands import main
from fedjax_fair.cli.comparing import grid_of, prepare_comparison
from fedjax_fair.cli.experiment import settings_class
from fedjax_fair.cli.rule_syntax import parse_rule
from fedjax_fair.cli.short_help import HELP_ALL

SMALL = ["--clients", "6", "--cohort", "3", "--rounds", "4", "--eval-every", "2", "--synthetic.max-size", "80"]
ALONE = ["--replicates", "1", "--no-references"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The folder and the printed table of one small comparison."""
    out = tmp_path_factory.mktemp("compared") / "results"
    rules = ["fedavg", "fedmaba:alpha=.8"]
    command = ["compare", *SMALL, "--replicates", "2", "--plots", "--out", str(out), "--algorithms", *rules]
    done = subprocess.run(
        [sys.executable, "-m", "fedjax_fair", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_compare_prints_measures_references_and_paired_differences(compared):
    table = compared[1].splitlines()
    assert table[0].split("  ")[0].strip() == "rule"
    names = ["fedavg", "fedmaba:alpha=.8", "(local)", "(pooled)"]
    assert [row.split()[0] for row in table[2:6]] == names
    assert all(cell.count("±") == 1 for row in table[2:6] for cell in row.split()[1:])
    assert any(line.split()[:2] == ["minus", "fedavg"] for line in table)
    assert "replicates (federation and training seed)" in compared[1]


def test_the_folder_holds_settings_summaries_every_client_and_plots(compared):
    out = compared[0]
    names = {
        "config.toml",
        "summary.json",
        "summary.csv",
        "history.npz",
        "comparison.tex",
        "comparison.txt",
        "lorenz.png",
        "histogram.png",
        "over_rounds.png",
        "paired.png",
    }
    assert {path.name for path in out.iterdir()} == names
    assert (out / "comparison.txt").read_text() == compared[1]
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
    kept = summary["comparison"]["measures"]["fedavg"]["accuracy"]
    assert kept == pytest.approx(100 * accuracy.mean((1, 2)))  # of both evaluations, that are fewer than five
    assert summary["command"].startswith("fedjax-fair compare --clients 6")
    assert set(summary["versions"]) >= {"python", "jax", "flax", "optax", "fedjax-fair"}


def test_the_written_configuration_repeats_the_run_bit_for_bit(compared, tmp_path, capsys):
    out = compared[0]
    main(["compare", str(out / "config.toml"), "--out", str(tmp_path / "again")])
    same_arrays(out / "history.npz", tmp_path / "again" / "history.npz")
    capsys.readouterr()


def test_flags_win_over_the_file(compared):
    file = str(compared[0] / "config.toml")
    experiment, _ = read_command(["compare", file, "--replicates", "1", "--rounds", "2"])
    assert (experiment.replicates, experiment.rounds, experiment.clients) == (1, 2, 6)


def test_rows_with_selectors_of_their_own_show_what_selection_cost(tmp_path, capsys):
    rules = ["fedavg", "fedavg@pow_d", "fedavg@cpow_d:d=5,batch=7", "fedavg@ucb_cs"]
    main(["compare", *SMALL, *ALONE, "--out", str(tmp_path / "o"), "--algorithms", *rules])
    (cost,) = [
        line for line in capsys.readouterr().out.split("\n- ") if line.startswith("selection's cost a round")
    ]
    parts = " ".join(cost.split()).removeprefix("selection's cost a round: ").split("; ")
    costs = {part.split()[0]: (part.split()[1], int(part.split()[4])) for part in parts}
    assert costs.keys() == {"fedavg@pow_d", "fedavg@cpow_d:d=5,batch=7"}  # the others ask nobody
    assert costs["fedavg@cpow_d:d=5,batch=7"] == ("5", 35)
    assert costs["fedavg@pow_d"][0] == "6"
    assert costs["fedavg@pow_d"][1] > 6 * 35  # six clients' whole training sets


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["compare", "--help"], ["list", "--help"]])
def test_help_goes_to_standard_output(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    printed = capsys.readouterr()
    assert not stop.value.code
    assert "usage: fedjax-fair" in printed.out
    assert printed.err == ""


def test_the_flags_that_errors_name_are_those_of_the_help(capsys):
    experiment, _ = read_command(["compare"])
    with pytest.raises(SystemExit):
        main(["compare", "--help-all"])
    assert set(re.findall("--[A-Za-z][A-Za-z0-9.-]*", capsys.readouterr().out)) - {"--fedjax-fair", "--resume"} == {
        flag for flag in flags(experiment) if flag.startswith("--") and flag != HELP_ALL
    }


@pytest.mark.parametrize("command", ["run", "compare", "sweep"])
def test_help_is_short_and_names_every_flag_that_is_no_rules(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    printed = capsys.readouterr().out
    assert printed.count("\n") < 60
    named = set(re.findall("--[A-Za-z][A-Za-z0-9.-]*", printed))
    general = {flag for flag in flags(read_command([command])[0]) if re.fullmatch("--(?!no-)[a-z-]+", flag)}
    assert general - {"--help"} <= named


def test_completion_goes_to_standard_output(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--tyro-print-completion", "bash"])
    assert not stop.value.code
    printed = capsys.readouterr()
    assert "fedjax-fair" in printed.out
    assert printed.err == ""


@pytest.mark.parametrize("group", [registry.AGGREGATORS, registry.SELECTORS, registry.OBJECTIVES], ids=len)
def test_every_setting_has_a_flag(group):
    words, expected = [], {}
    for name, factory in group.items():
        for field in dataclasses.fields(settings_class(factory)):
            kind = get_args(field.type)[0]
            value = True if kind is bool else get_args(kind)[-1] if get_origin(kind) is Literal else 3
            value = "3" if kind in (str, str | None) else value
            words += [f"--{name}.{field.name}".replace("_", "-"), *([] if kind is bool else [str(value)])]
            expected[name, field.name] = value
    experiment, _ = read_command(["compare", *words])
    assert {key: getattr(getattr(experiment, key[0]), key[1]) for key in expected} == expected


def test_tune_tries_twelve_settings_of_every_rule_and_says_which_it_chose(tmp_path, capsys):
    rules = ["afl:lr=.1", "qfedavg"]
    main(["compare", *SMALL, *ALONE, "--tune", "--choose", "gini", "--out", str(tmp_path), "--algorithms", *rules])
    printed = capsys.readouterr().out
    assert "Tuning: 12 points for every rule." in printed
    kept = json.loads((tmp_path / "summary.json").read_text())["comparison"]
    assert {rule: len(points) for rule, points in kept["tried"].items()} == dict.fromkeys(rules, 12)
    assert kept["settings"]["afl:lr=.1"].keys() == {"lr"}
    assert kept["settings"]["qfedavg"].keys() == {"q", "lr"}
    assert f"q={kept['settings']['qfedavg']['q']:g}" in printed
    config = (tmp_path / "config.toml").read_text()
    assert re.search(r"^# Tuned: .*\n#   afl:lr=.1 lr=.*\n#   qfedavg q=.*,lr=", config)
    assert tomllib.loads(config)["lr"] == 0.1  # what is read back is what was asked for


@pytest.mark.parametrize(("words", "rule"), [(["--qfedavg.q", "3"], "qfedavg"), ([], "qfedavg:q=3")])
def test_a_setting_that_is_given_is_not_tuned(words, rule):
    experiment, _ = read_command(["compare", *words])
    grid = grid_of(experiment, parse_rule(rule))
    assert grid.keys() == {"lr"}
    assert len(grid["lr"]) == 12
    assert grid_of(read_command(["compare"])[0], parse_rule("qfedavg")).keys() == {"q", "lr"}


def test_with_a_data_seed_all_replicates_have_one_federation():
    words = ["compare", *SMALL, "--algorithms", "fedavg"]
    assert isinstance(prepare_comparison(*read_command([*words, "--data-seed", "3"])).federation, ff.FederatedData)
    assert callable(prepare_comparison(*read_command(words)).federation)


def test_workers_can_be_sent_what_a_comparison_is_made_of():
    cloudpickle = pytest.importorskip("cloudpickle")
    contest = prepare_comparison(*read_command(["compare", *SMALL, "--algorithms", "fedavg", "fedmaba"]))
    assert contest.laid is not None
    sent = cloudpickle.loads(cloudpickle.dumps(contest.laid.asked))
    assert np.array_equal(sent.federation(1).x, contest.federation(1).x)


def test_a_comparison_that_is_kept_is_checked_first_and_laid_out_when_the_folder_is_its_own(tmp_path):
    words = ["compare", *SMALL, "--algorithms", "fedavg", "--checkpoint", str(tmp_path / "kept")]
    assert prepare_comparison(*read_command(words)).laid is None
    with pytest.raises(ValueError, match="labels must be 0 or 1"):
        prepare_comparison(*read_command([*words, "--loss", "sigmoid_cross_entropy"]))


def test_a_setting_of_something_unused_is_remarked_on(tmp_path, capsys):
    flags = ["--fedmaba.alpha", ".3", "--partition", "dirichlet", "--afl.lr", ".2", *ALONE]
    main(["compare", *SMALL, *flags, "--dry-run", "--out", str(tmp_path / "o"), "--algorithms", "afl"])
    printed = capsys.readouterr().err
    assert "fedmaba.alpha has no effect: this run has no fedmaba" in printed
    assert "partition has no effect: synthetic has clients of its own" in printed
    assert "afl.lr has no effect" not in printed


@pytest.mark.parametrize("command", [["run"], ["sweep", "--grid", "lr=.05,.1"]], ids=["run", "sweep"])
def test_a_cpu_is_as_many_devices_as_it_is_asked_for_and_has_cores(command, tmp_path):
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    def words(devices: int, place: str) -> list[str]:
        flags = [*SMALL, "--seeds", "1", "--devices", str(devices), "--out", str(tmp_path / place)]
        return [*command, *flags]

    main(words(1, "one"))
    unsaid = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    environment = unsaid | {"JAX_PLATFORMS": "cpu"}
    afresh = [sys.executable, "-m", "fedjax_fair", *words(cores, "all")]
    done = subprocess.run(afresh, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    one, other = (np.load(tmp_path / place / "history.npz") for place in ("one", "all"))
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-4, err_msg=name)


def test_a_reader_that_has_seen_enough_ends_it_quietly():
    done = subprocess.run(
        f"{sys.executable} -m fedjax_fair list | head -1", shell=True, capture_output=True, text=True, check=False
    )
    assert "Rules" in done.stdout
    assert done.stderr == ""


def test_the_second_call_finds_its_programs_compiled(tmp_path):
    places = os.environ | {"FEDJAX_FAIR_CACHE": str(tmp_path / "cache")}
    environment = {name: value for name, value in places.items() if name != "JAX_COMPILATION_CACHE_DIR"}

    def call(out: str) -> set[str]:
        command = [sys.executable, "-m", "fedjax_fair", "run", *SMALL, "--seeds", "1", "--out", str(tmp_path / out)]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        # Only the programs of rounds: whether a trifle is worth keeping is decided by how long it happened to take.
        return {path.name for path in (tmp_path / "cache" / "programs").glob("jit_play-*-cache")}

    first = call("first")
    assert first
    assert call("second") == first  # nothing was compiled anew
    one, two = (np.load(tmp_path / out / "history.npz") for out in ("first", "second"))
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])


def test_a_run_that_was_cut_off_is_resumed_without_another_flag(tmp_path, monkeypatch, capsys):
    """Ctrl-C in the middle; resumed, it ends as what was never interrupted. It is refused as a new run."""
    flags = [
        *SMALL,
        "--no-references",
        "--replicates",
        "1",
        "--eval-every",
        "2",
        "--checkpoint-every",
        "2",
        "--algorithms",
        "fedmaba",
    ]
    flags += ["--liars", ".2", "--fault", "inflate_loss:factor=5", "--defence", "clip_losses", "--available", ".8"]
    main(["compare", *flags, "--checkpoint", str(tmp_path / "kept"), "--out", str(tmp_path / "whole")])
    whole = capsys.readouterr().out
    assert "honest clients;" in whole
    keeping, saves = sys.modules["fedjax_fair.engine.checkpoint"].Keeper.save, []

    def save(self, *what):
        keeping(self, *what)
        saves.append(what[0])
        if len(saves) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    begun = ["compare", *flags, "--checkpoint", str(tmp_path / "cut"), "--out", str(tmp_path / "out")]
    with monkeypatch.context() as patch:
        patch.setattr("fedjax_fair.engine.checkpoint.Keeper.save", save)
        with pytest.raises(SystemExit) as stop:
            main(begun)
    assert stop.value.code == 130
    printed = capsys.readouterr().err
    assert f"go on with: fedjax-fair compare --resume {tmp_path / 'cut'}" in printed
    with pytest.raises(SystemExit):
        main(["compare", *flags, "--checkpoint", str(tmp_path / "cut"), "--out", str(tmp_path / "other")])
    assert "already holds a run: go on with fedjax-fair compare --resume" in capsys.readouterr().err
    main(["compare", "--resume", str(tmp_path / "cut"), "--quiet"])
    assert capsys.readouterr() == (whole.partition("Judged by")[0], "")
    main(["compare", "--resume", str(tmp_path / "cut"), "--quiet", "--out", str(tmp_path / "elsewhere")])
    assert json.loads((tmp_path / "cut" / "resume.json").read_text())["out"] == str(tmp_path / "elsewhere")
    for place in ("out", "elsewhere"):
        one, other = (np.load(tmp_path / name / "history.npz") for name in ("whole", place))
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


OWN = """
from __future__ import annotations
import dataclasses
import fedjax_fair as ff, jax.numpy as jnp

@dataclasses.dataclass
class Unused:
    power: float

def squared(power: float = 2.0):
    def weigh(state, report, key):
        coef = jnp.where(report.active, report.loss, 0) ** power
        return coef / coef.sum(), state
    return ff.Aggregator(lambda sizes, key=None: (), weigh)
"""


def test_a_rule_of_the_users_own_file_is_a_row_like_any_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    rules = ["loss_proportional", "mine.py:squared:power=1", "mine:squared@pow_d:d=6"]
    main(["compare", *SMALL, *ALONE, "--out", "out", "--algorithms", *rules])
    kept = json.loads((tmp_path / "out" / "summary.json").read_text())["rules"]
    assert [*kept] == rules
    assert kept[rules[1]]["accuracy"]["mean"] == pytest.approx(kept[rules[0]]["accuracy"]["mean"])
    assert rules[1] in capsys.readouterr().out
    experiment, again = read_command(["compare", "out/config.toml"])
    assert [*again] == rules
    assert prepare_comparison(experiment, again).rules.keys() == {*rules}

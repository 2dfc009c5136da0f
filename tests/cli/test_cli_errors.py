"""Every wrong call of the command line ends in one sentence and exit status 2."""

import errno
import fcntl
import os
import re
import stat
from importlib import metadata

import pytest

from fedjax_fair.cli.commands import main
from fedjax_fair.cli.folders import held


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
    "unknown selector of a row": (["--algorithms", "afl@unifrom"], "selector must be one of .*mean 'uniform'"),
    "unknown setting of it": (["--algorithms", "afl@pow_d:k=3"], "setting of pow_d must be one of d, got 'k'"),
    "selector's cohort": (["--algorithms", "afl@uniform:m=3"], "setting of uniform must be one of among, got 'm'"),
    "no selector after @": (["--algorithms", "afl@"], "algorithms takes rule@selector, got 'afl@'"),
    "two selectors": (
        ["--algorithms", "afl@uniform@ucb_cs"],
        "algorithms takes rule@selector, got 'afl@uniform@ucb_cs'",
    ),
    "no rule before @": (["--algorithms", "@uniform"], "algorithms takes rule@selector, got '@uniform'"),
    "a setting twice": (["--algorithms", "afl:lr=.1,lr=.2"], "algorithms gives 'lr' twice, in 'afl:lr=.1,lr=.2'"),
    "d > N": (["--algorithms", "afl", "afl@pow_d:d=31"], "d must be at most the 30 clients, got 31"),
    "d < m": (["--algorithms", "afl@pow_d:d=6"], "pow_d.d must be at least the 10 clients of the cohort, got 6"),
    "no such file of rules": (["--algorithms", "my.py:rule"], "rule my.py cannot be read: there is no such file"),
    "no such module": (["--algorithms", "my:rule"], "rule my cannot be imported: ModuleNotFoundError: No"),
    "a file alone": (
        ["--algorithms", "my.py"],
        "rule my.py needs the name of a rule in it, as my.py:rule, got noth",
    ),
    "not in the module": (["--algorithms", "json:lods"], "rule in json must be one of .*did you mean 'loads'"),
    "no rule at all": (["--algorithms", "json:dump"], "json:dump needs obj, as json:dump:obj=value, got nothing"),
    "a row twice": (["--algorithms", "mine=afl", "mine=fedavg"], "algorithms names 'mine' twice"),
    "a baseline by its rule": (
        ["--algorithms", "mine=afl:lr=1", "fedavg", "--baseline", "afl:lr=1"],
        "baseline must be one of mine, fedavg, got 'afl:lr=1'",
    ),
    "a row's rule": (["--algorithms", "mine=alf"], "algorithm must be one of .*did you mean 'afl'"),
    "a row like a reference": (["--algorithms", "local=afl"], "rules must not be called as the rows local and"),
    "a rule twice": (["--algorithms", "afl", "afl"], "algorithms names 'afl' twice"),
    "unknown setting": (["--algorithms", "fedmaba:alfa=.3"], "setting of fedmaba must be .*did you mean 'alpha'"),
    "broken setting": (["--algorithms", "fedmaba:alpha"], r"name:setting=value,\.\.\., got 'fedmaba:alpha'"),
    "word for a number": (["--algorithms", "afl:lr=fast"], "afl.lr must be a number, got 'fast'"),
    "alpha outside [0, 1]": (["--fedmaba.alpha", "1.5"], r"fedmaba\.alpha must be in \[0, 1\], got 1.5"),
    "negative q": (["--qfedavg.q", "-1"], "qfedavg.q must be at least 0, got -1"),
    "negative rate": (["--lr", "-0.1"], "lr must be above 0, got -0.1"),
    "NaN rate": (["--lr", "nan"], "lr must be above 0, got nan"),
    "m > N": (["--cohort", "40"], "cohort must be from 1 to the 30 clients, got 40"),
    "m = 0": (["--cohort", "0"], "cohort must be at least 1, got 0"),
    "no replicates": (["--replicates", "0"], "replicates must be at least 1, got 0"),
    "no evaluations": (["--last", "0"], "last must be at least 1, got 0"),
    "baseline that is no row": (["--baseline", "term"], "baseline must be one of fedavg, .*got 'term'"),
    "tuning without validation": (
        ["--tune", "--split", ".6", "0", ".4"],
        "tune chooses by the validation split, got none: --split 0.6 0.2 0.2 gives it a fifth",
    ),
    "unknown criterion": (["--tune", "--choose", "worst"], "choose must be one of accuracy, worst10.*got 'worst'"),
    "no rounds": (["--rounds", "0"], "rounds must be at least 1, got 0"),
    "no batch": (["--batch-size", "0"], "batch_size must be at least 1, got 0"),
    "epochs and steps": (["--epochs", "1", "--steps", "5"], "epochs or steps, not both"),
    "unknown dataset": (["--dataset", "fashionmnist"], "dataset must be one of .*did you mean 'fashion_mnist'"),
    "unknown partition": (["--partition", "shard"], "partition must be one of .*did you mean 'shards'"),
    "unknown selector": (["--selector", "unifrom"], "selector must be one of .*did you mean 'uniform'"),
    "selector's setting": (["--selector", "pow_d:k=3"], "setting of pow_d must be one of d, got 'k'"),
    "unknown objective": (["--objective", "prox"], "objective must be one of .*did you mean 'proximal'"),
    "objective without its number": (["--objective", "tilted"], "tilted needs tilted.t, got nothing"),
    "unknown model": (["--model", "resnet"], "model must be one of"),
    "split": (["--split", ".5", ".1", ".1"], "split must"),
    "official test of synthetic": (["--test", "official"], "--test official needs a public test set"),
    "aaggff_s with a cohort": (["--algorithms", "aaggff_s"], "needs all 30 clients.*use aaggff_d"),
    "convolution on vectors": (["--model", "cnn"], "cnn needs images"),
    "settings of a model": (
        ["--model", "mlp:features=50"],
        "model mlp takes its settings by flags, --mlp.feat",
    ),
    "settings of an objective": (
        ["--objective", "proximal:mu=1"],
        "objective proximal takes its settings by flags, --proximal.mu, got 'proximal:mu=1'",
    ),
    "unknown fault": (["--liars", ".1", "--fault", "inflate"], "fault must be one of .*mean 'inflate_loss'"),
    "unknown setting of a fault": (
        ["--liars", ".1", "--fault", "inflate_loss:by=3"],
        "setting of inflate_loss must be one of factor, got 'by'",
    ),
    "a fault's value": (
        ["--liars", ".1", "--fault", "inflate_loss:factor=-1"],
        "inflate_loss.factor must be at least 0",
    ),
    "everybody lies": (["--liars", "1"], "liars must leave an honest client to judge by, got 1.0"),
    "share of liars": (["--liars", "1.5"], r"liars must be in \[0, 1\], got 1.5"),
    "capitals": (["--metric", "AUROC"], "metric must be .*did you mean 'auroc'"),
    "unknown defence": (["--defence", "medain"], "defence must be one of .*did you mean 'median'"),
    "a defence without its number": (
        ["--defence", "clip_updates"],
        "defence needs max_norm, as clip_updates:max_norm=value",
    ),
    "a defence's value": (["--defence", "clip_losses:factor=.5"], "clip_losses.factor must be at least 1, got 0.5"),
    "a setting of the median": (["--defence", "median:share=.5"], "median takes no settings, got 'share'"),
    "probability": (["--available", "1.5"], r"available must be in \(0, 1\], got 1.5"),
    "nobody": (["--available", "0"], r"available must be in \(0, 1\], got 0"),
    "devices": (["--devices", "64"], "devices must be from 1 to the 1 that JAX sees, got 64; jax.config"),
    "no checkpoint": (["--checkpoint-every", "5"], "checkpoint_every needs checkpoint, a folder, got none"),
    "resume with a flag": (
        ["--resume", "x", "--rounds", "5"],
        "resume goes on with a call as it was begun, compare --resume FOLDER, beside which may stand --workers, "
        "--scheduler, --out, --quiet, --json, --plots, got --rounds$",
    ),
    "resume what is not there": (["--resume", "x"], "resume x is not a folder that --checkpoint left behind"),
    "no such file": (["nowhere.toml"], "config nowhere.toml cannot be read: No such file"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_call_is_one_sentence_and_status_2(wrong, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags, message = WRONG[wrong]
    assert re.search(message, refusal(capsys, "compare", *flags))
    assert not list(tmp_path.iterdir())  # no results folder was begun


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--process 0 --processes 2", "coordinator, process, processes go together, got no coordinator$"),
        ("--coordinator host:1 --process 2 --processes 2", "process must be from 0 to 1, got 2$"),
        ("--coordinator host:1 --process 0 --processes 1", "processes must be at least 2, got 1"),
        ("--coordinator host --process 0 --processes 2", "coordinator must be HOST:PORT of the first process, got"),
        (
            "--coordinator host:1 --process 0 --processes 2 --devices 3",
            "devices must be as many for each of the 2 processes, got 3",
        ),
        (
            "--resume kept --rounds 5",
            "run --resume FOLDER, beside which may stand --devices, --coordinator, --process, --processes, --out, "
            "--quiet, --json, got --rounds$",
        ),
        ("--resume", "resume goes on with a call as it was begun, run --resume FOLDER, .*, got run --resume$"),
        ("--resume --devices 2", "may stand .*, got run --resume --devices 2$"),
        ("--resume kept --quiet no", "may stand .*, got no$"),
        ("--resume kept --devices", "may stand .*, got --devices$"),
        ("--quiet --resume kept --json", "resume kept is not a folder that --checkpoint left behind"),
        ("--coordinator=host:1 --resume kept", "resume kept is not a folder that --checkpoint left behind"),
    ],
)
def test_a_run_of_several_processes_that_cannot_be_is_refused_before_they_meet(flags, said, capsys):
    assert re.search(said, refusal(capsys, "run", *flags.split()))


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("unknown", "rule mine.py:unknown fails in line 20: NameError: name 'jpn' is not defined"),
        ("powered:power=abc", "powered.power must be a number, got 'abc'"),
        ("powered:power=()", "rule mine.py:powered fails in line 7: TypeError: unsupported operand"),
        ("unasked", r"rule mine.py:unasked: weigh must take \(state, report, key\), got \(state, report\)"),
        (
            "mistyped",
            "rule mine.py:mistyped fails in line 15: AttributeError: report has no signal 'los', only ids, n, .*; "
            "did you mean 'loss'",
        ),
    ],
)
def test_a_mistake_in_a_rule_of_the_users_own_is_a_sentence_with_its_line(
    rule, said, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "import fedjax_fair as ff\n\n"
        "def init(sizes, key=None):\n    return ()\n\n"
        "def powered(power=1.0):\n"
        "    return ff.Aggregator(init, lambda state, report, key: (report.n**power, state))\n\n"
        "def unasked():\n"
        "    return ff.Aggregator(init, lambda state, report: (report.n, state))\n\n"
        "def mistyped():\n"
        "    def weigh(state, report, key):\n"
        "        # read a loss\n"
        "        return report.los, state\n\n"
        "    return ff.Aggregator(init, weigh)\n\n"
        "def unknown():\n"
        "    return ff.Aggregator(init, lambda state, report, key: (jpn.ones(3), state))\n"
    )
    assert re.search(said, refusal(capsys, "run", "--aggregator", f"mine.py:{rule}"))


def test_the_version_and_completion_scripts(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert not stop.value.code
    assert capsys.readouterr().out == f"fedjax-fair {metadata.version('fedjax-fair')}\n"
    for shell in ("bash", "zsh"):
        with pytest.raises(SystemExit) as stop:
            main(["--tyro-print-completion", shell])
        assert not stop.value.code
        assert "compare" in capsys.readouterr().out
    sentence = refusal(capsys, "--tyro-print-completion", "tcsh")
    assert sentence == "tyro-print-completion must be one of bash, zsh, got 'tcsh'"


def test_a_dataset_that_is_not_there_says_how_to_prepare_it(capsys, tmp_path):
    sentence = refusal(capsys, "compare", "--dataset", "mnist", "--data-dir", str(tmp_path))
    assert sentence.startswith("mnist is not prepared")
    assert "download_and_prepare" in sentence


def test_blocks_needs_its_number(capsys, tmp_path):
    sentence = refusal(capsys, "compare", "--dataset", "mnist", "--partition", "blocks")
    assert sentence == "blocks needs blocks.blocks_per_client, got nothing"


def test_a_checkpoint_that_cannot_be_kept_is_refused_before_training(capsys, tmp_path):
    (tmp_path / "file").touch()
    sentence = refusal(capsys, "compare", "--checkpoint", str(tmp_path / "file"), "--out", str(tmp_path / "out"))
    assert sentence == f"checkpoint {tmp_path / 'file'} cannot be written: File exists"
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_of_another_version_is_refused_in_a_sentence(capsys, tmp_path, monkeypatch):
    flags = ["--rounds", "2", "--seeds", "1", "--clients", "5", "--cohort", "2", "--out", str(tmp_path / "out")]
    main(["run", *flags, "--checkpoint", str(tmp_path / "kept")])
    capsys.readouterr()
    kept = (tmp_path / "out" / "summary.json").read_bytes()
    monkeypatch.setattr("fedjax_fair.engine.checkpoint.metadata.version", lambda name: "9.9")
    with pytest.raises(SystemExit):
        main(["run", "--resume", str(tmp_path / "kept")])
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.endswith("is of another run: fedjax-fair was '0.1.0' and is '9.9'")
    assert (tmp_path / "out" / "summary.json").read_bytes() == kept  # nothing already written is damaged


@pytest.mark.parametrize("text", ["{", "[]", '{"command": "fly", "out": "x"}', '{"command": "run", "out": 3}'])
def test_a_damaged_note_of_how_to_resume_is_one_sentence(text, capsys, tmp_path):
    (tmp_path / "resume.json").write_text(text)
    sentence = refusal(capsys, "run", f"--resume={tmp_path}")
    assert sentence == f"resume {tmp_path} holds a damaged resume.json: it must name the command and the folder out"


def test_a_configuration_of_the_other_command_says_whose_it_is(capsys, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('aggregator = "afl"')
    sentence = refusal(capsys, "compare", str(path))
    assert sentence == f"config {path} sets aggregator: it is one for fedjax-fair run"


def test_an_unwritable_folder_is_refused_before_training(capsys, tmp_path):
    (tmp_path / "file").touch()
    sentence = refusal(capsys, "compare", "--out", str(tmp_path / "file" / "results"))
    assert sentence.startswith(f"out {tmp_path}/file/results cannot be written")


def test_results_already_there_are_never_overwritten_unasked(capsys, tmp_path):
    (tmp_path / "summary.json").write_text("{}")
    assert refusal(capsys, "compare", "--out", str(tmp_path)) == (
        f"out {tmp_path} already holds results: name another folder, or pass --overwrite"
    )
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("summary.json", "{}")]


def test_a_folder_that_another_call_writes_is_left_to_it(capsys, tmp_path):
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / f".summary.json.{'0' * 32}.part").write_text("{")  # it is writing
    with held(tmp_path):
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        sentence = refusal(capsys, "run", "--out", str(tmp_path), "--overwrite")
        assert sentence == f"out {tmp_path} is in use by another call: wait, or name another folder"
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    main(["run", "--rounds", "1", "--seeds", "1", "--quiet", "--out", str(tmp_path), "--overwrite"])
    assert {path.name for path in tmp_path.glob(".*")} == set()


def test_where_a_folder_cannot_be_locked_a_file_in_it_is(tmp_path, monkeypatch):
    """As on NFS, for what is open for reading alone."""
    real = fcntl.flock

    def of_files_alone(mark, how):
        if stat.S_ISDIR(os.fstat(mark).st_mode):
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(mark, how)

    monkeypatch.setattr(fcntl, "flock", of_files_alone)
    for _ in range(2):
        with held(tmp_path), pytest.raises(ValueError, match="is in use by another call"), held(tmp_path):
            pass


def test_a_checkpoint_that_another_call_writes_is_left_to_it(capsys, tmp_path):
    kept = tmp_path / "kept"
    flags = ["run", "--rounds", "1", "--seeds", "1", "--quiet", "--out", str(kept), "--checkpoint", str(kept)]
    with held(kept):
        assert refusal(capsys, *flags) == (
            f"checkpoint {kept} is in use by another call: wait, or name another folder"
        )
        assert list(kept.iterdir()) == []
    main(flags)  # one folder may be both
    assert {"summary.json", "resume.json"} <= {path.name for path in kept.iterdir()}


def test_an_unwritable_default_folder_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").touch()
    assert "cannot be written" in refusal(capsys, "compare")


UNREADABLE = {
    "compare --datset synthetic": "compare has no flag --datset; did you mean --dataset?",
    "compare --fedmaba.alfa .3": "compare has no flag --fedmaba.alfa; did you mean --fedmaba.alpha?",
    "compare --bogus 3": "compare has no flag --bogus; fedjax-fair compare --help-all lists them all",
    "run --algorithms fedavg": "run has no flag --algorithms; compare has",
    "compare --rounds abc": "--rounds must be a whole number, got 'abc'",
    "compare --rounds=3.5": "--rounds must be a whole number, got '3.5'",
    "compare --rounds": "--rounds takes one value, got nothing",
    "compare --rounds 3 4": "--rounds takes one value, got 3 4",
    "compare --lr fast": "--lr must be a number, got 'fast'",
    "compare --cohort all": "--cohort must be a whole number, got 'all'",
    "compare --pg-ffl.baseline high": "--pg-ffl.baseline must be a number, got 'high'",
    "compare --split .5 .5": "--split must be 3 numbers, got [0.5, 0.5]",
    "compare --mlp.features 3 x": "--mlp.features must be a whole number, got 'x'",
    "compare --overwrite maybe": "--overwrite takes no value, got 'maybe'",
    "compare --references False": "--references takes no value, got 'False'; --no-references turns it off",
    "compare --no-references no": "--no-references takes no value, got 'no'",
    "compare --test offical": "--test must be one of clients, official, got 'offical'; did you mean 'official'?",
    "compare --cohort None --test x": "--test must be one of clients, official, got 'x'",
    "compare stray": "compare takes flags, or first a settings file that ends in .toml, got 'stray'",
    "sweep --plots": "sweep has no flag --plots; compare has",
    "list --x": "list has no flag --x; fedjax-fair list --help lists them all",
    "list my.py:by:power=3": "list takes names alone, without settings or selectors, got 'my.py:by:power=3'",
    "list qfedavg:q=1": "list takes names alone, without settings or selectors, got 'qfedavg:q=1'",
    "foo": "command must be one of run, compare, sweep, list, report, reproduce, got 'foo'",
    "comprae": "command must be one of run, compare, sweep, list, report, reproduce, got 'comprae'; "
    "did you mean 'compare'?",
    "--seeds 3": "command must be one of run, compare, sweep, list, report, reproduce, got '--seeds'",
    "": "command must be one of run, compare, sweep, list, report, reproduce, got nothing",
}


@pytest.mark.parametrize("call", UNREADABLE)
def test_an_unreadable_call_is_one_sentence_too(call, capsys):
    assert refusal(capsys, *call.split()) == UNREADABLE[call]


@pytest.mark.parametrize("call", UNREADABLE)
def test_what_is_not_explained_is_the_parsers_own_message_on_one_line(call, capsys, monkeypatch):
    monkeypatch.setattr("fedjax_fair.cli.arguments.explain", lambda *_: None)
    said = refusal(capsys, *call.split())
    assert said
    assert not set(said) & set("│╭╰─")
    assert "helptext" not in said


def test_a_full_disk_is_one_sentence(capsys, monkeypatch, tmp_path):
    def full(*places):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedjax_fair.engine.files.os.replace", full)
    small = ["--clients", "4", "--cohort", "2", "--rounds", "2", "--quiet"]
    said = refusal(capsys, "run", *small, "--out", str(tmp_path / "found"))
    assert said == f"{tmp_path / 'found' / 'config.toml'}: No space left on device"

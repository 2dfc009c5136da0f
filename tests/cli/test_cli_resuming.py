"""``--resume FOLDER``: the words that it stands for, and who may go on."""

import contextlib
import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from fedjax_fair.cli.folders import check_own, say_what_was_chosen
from fedjax_fair.cli.resuming import digest_of_config, resumed, with_home
from fedjax_fair.cli.several import alone_again


def test_other_workers_may_go_on(tmp_path):
    (tmp_path / "resume.json").write_text(json.dumps({"command": "compare", "out": "found"}))
    words, going_on = resumed(["compare", f"--resume={tmp_path}", "--scheduler", "tcp://host:8786"])
    kept = [str(tmp_path / "config.toml"), "--checkpoint", str(tmp_path), "--out", "found", "--overwrite"]
    assert (words, going_on) == (["compare", *kept, "--scheduler", "tcp://host:8786"], True)


def test_another_folder_may_take_the_results(tmp_path):
    """As on another machine, where that of the first call cannot be made."""
    (tmp_path / "resume.json").write_text(json.dumps({"command": "run", "out": "/gone/found"}))
    words, _ = resumed(["run", "--resume", str(tmp_path), "--out=here", "--quiet"])
    kept = [str(tmp_path / "config.toml"), "--checkpoint", str(tmp_path), "--overwrite"]
    assert words == ["run", *kept, "--out", "here", "--quiet"]


def test_a_damaged_or_edited_configuration_does_not_go_on(tmp_path):
    """Half of it is a call of other rules, by default."""
    (tmp_path / "config.toml").write_text("rounds = 5\n")
    told = {"command": "run", "out": "found", "config": digest_of_config(tmp_path)}
    (tmp_path / "resume.json").write_text(json.dumps(told))
    assert resumed(["run", "--resume", str(tmp_path)])[1]
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(ValueError, match=r"holds another config.toml than the call was begun with"):
        resumed(["run", "--resume", str(tmp_path)])


def test_what_was_chosen_heads_the_configuration_once(tmp_path):
    (tmp_path / "config.toml").write_text("rounds = 5\n")
    for q in (1.0, 5.0):
        say_what_was_chosen(tmp_path, SimpleNamespace(settings={"qfedavg": {"q": q}}))
    first, *rest = (tmp_path / "config.toml").read_text().splitlines()
    assert first.startswith("# Tuned: ")
    assert rest == ["#   qfedavg q=5", "rounds = 5"]


def test_another_command_does_not_go_on(tmp_path):
    (tmp_path / "resume.json").write_text(json.dumps({"command": "run", "out": "found"}))
    with pytest.raises(ValueError, match=f"is of another command, go on with fedjax-fair run --resume {tmp_path}$"):
        resumed(["compare", "--resume", str(tmp_path)])


@dataclasses.dataclass
class Placed:
    out: Path | None
    checkpoint: Path | None = None
    data: str = "~/data.csv"


def test_a_path_may_begin_with_the_users_home(monkeypatch):
    """As in --out=~/runs, which a shell leaves as it is, and in a config.toml."""
    monkeypatch.setenv("HOME", "/home/me")
    assert with_home(Placed(Path("~/runs"))) == Placed(Path("/home/me/runs"))


@dataclasses.dataclass
class Shared:
    workers: int | None = 2
    scheduler: str | None = "tcp://host:8786"
    rounds: int = 7


def test_a_configuration_does_not_keep_who_did_the_work():
    """Another scheduler answers the next time."""
    assert alone_again(Shared()) == Shared(None, None)


@pytest.mark.parametrize(("there", "own"), [("rounds = 5\ndevices = 2\n", True), ("rounds = 6\n", False)])
def test_results_of_another_call_are_not_written_over(there, own, tmp_path):
    (tmp_path / "summary.json").write_text("{}")
    (tmp_path / "config.toml").write_text(there)
    with contextlib.nullcontext() if own else pytest.raises(ValueError, match="holds the results of another call"):
        check_own(tmp_path, "rounds = 5\n")

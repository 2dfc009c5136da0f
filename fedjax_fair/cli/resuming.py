"""``run``, ``compare`` and ``sweep --resume FOLDER``: the words that they stand for."""

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

from fedjax_fair.cli.several import FLAGS
from fedjax_fair.engine.digests import digest

TRAINING = ("run", "compare", "sweep")
RESUME = "resume.json"
"""In a checkpoint folder, beside config.toml: the command, and the folder of its results."""
WORKERS = ("--workers", "--scheduler", "--out")
MOVED = {"run": ("--devices", *(f"--{name}" for name in FLAGS), "--out"), "compare": WORKERS, "sweep": WORKERS}
"""What ``--resume FOLDER`` takes beside, with a value, by command: a run may go on elsewhere."""
SHOWN = {"run": ("--quiet", "--json"), "compare": ("--quiet", "--json", "--plots"), "sweep": ("--quiet", "--json")}
"""What it takes without a value: what is printed and drawn decides no result."""


def resumed(given: list[str]) -> tuple[list[str], bool]:
    """The words that ``run --resume FOLDER`` stands for, and whether it was that.

    Raises:
      ValueError: ``--resume`` with anything else, or a folder that no run left behind.
    """
    given = _split(given)
    if "--resume" not in given:
        return given, False
    at = given.index("--resume")
    more = given[1:at] + given[at + 2 :]
    command = given[0] if given[0] in TRAINING else "run"
    wrong = _refused(more, MOVED[command], SHOWN[command])
    named = given[0] in TRAINING and len(given) > at + 1 and not given[at + 1].startswith("--")
    if not named or wrong is not None:
        beside = ", ".join((*MOVED[command], *SHOWN[command]))
        raise ValueError(
            f"resume goes on with a call as it was begun, {command} --resume FOLDER, beside which may stand "
            f"{beside}, got {wrong if named else shlex.join(given)}"
        )
    folder = Path(given[at + 1]).expanduser()
    try:
        text = (folder / RESUME).read_text()
    except OSError as error:
        raise ValueError(f"resume {folder} is not a folder that --checkpoint left behind: no {RESUME}") from error
    try:
        left = json.loads(text)
        command, out = left["command"], left["out"]
    except (ValueError, KeyError, TypeError):
        command, out = "", None
    if command not in TRAINING or not isinstance(out, str):
        raise ValueError(f"resume {folder} holds a damaged {RESUME}: it must name the command and the folder out")
    if left.get("config") not in (None, digest_of_config(folder)):
        raise ValueError(
            f"resume {folder} holds another config.toml than the call was begun with, which would be another "
            "experiment: put the first one back, or begin anew with it in another folder"
        )
    if given[0] != command:
        raise ValueError(
            f"resume {folder} is of another command, go on with fedjax-fair {command} --resume "
            f"{shlex.quote(str(folder))}"
        )
    place = [] if "--out" in more else ["--out", out]
    return [command, str(folder / "config.toml"), "--checkpoint", str(folder), *place, "--overwrite", *more], True


def digest_of_config(folder: Path) -> str | None:
    """Of the settings that a checkpoint's folder holds; None without any."""
    config = folder / "config.toml"
    return digest(config.read_bytes()) if config.exists() else None


def with_home(asked: Any) -> Any:
    """What a call asks for, with the user's home in the place of ``~``, which no shell sees in ``--out=~/runs``."""
    found = {field.name: getattr(asked, field.name) for field in dataclasses.fields(asked)}
    paths = {name: value.expanduser() for name, value in found.items() if isinstance(value, Path)}
    return dataclasses.replace(asked, **paths)


def _split(given: list[str]) -> list[str]:
    """The words with ``--resume=FOLDER``, ``--devices=2`` and the like in two."""
    flags = ("--resume", *MOVED.get(given[0] if given else "", ()))
    return [
        piece
        for word in given
        for piece in (word.split("=", 1) if word.partition("=")[0] in flags and "=" in word else [word])
    ]


def _refused(words: list[str], moved: tuple[str, ...], shown: tuple[str, ...]) -> str | None:
    """The first of the words that may not stand there: flags that move a run have a value each, those of what is
    shown none."""
    left = iter(words)
    return next(
        (word for word in left if word not in shown and (word not in moved or next(left, None) is None)), None
    )

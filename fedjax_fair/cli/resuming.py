"""``run``, ``compare`` and ``sweep --resume FOLDER``: the words that they stand for."""

import json
import shlex
from pathlib import Path

from fedjax_fair.cli.several import FLAGS

TRAINING = ("run", "compare", "sweep")
RESUME = "resume.json"
"""In a checkpoint folder, beside config.toml: the command, and the folder of its results."""
WORKERS = ("--workers", "--scheduler")
MOVED = {"run": ("--devices", *(f"--{name}" for name in FLAGS)), "compare": WORKERS, "sweep": WORKERS}
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
    if given[0] not in TRAINING or len(given) < at + 2 or not _allowed(more, MOVED[command], SHOWN[command]):
        flags, usage = ", ".join((*MOVED[command], *SHOWN[command])), f"{command} --resume FOLDER"
        raise ValueError(f"resume takes a folder and no other flag but {flags}, {usage}, got {shlex.join(given)}")
    folder = Path(given[at + 1])
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
    words = [command, str(folder / "config.toml"), "--checkpoint", str(folder), "--out", out, "--overwrite"]
    return words + more, True


def _split(given: list[str]) -> list[str]:
    """The words with ``--resume=FOLDER``, ``--devices=2`` and the like in two."""
    flags = ("--resume", *MOVED.get(given[0] if given else "", ()))
    return [
        piece
        for word in given
        for piece in (word.split("=", 1) if word.partition("=")[0] in flags and "=" in word else [word])
    ]


def _allowed(words: list[str], moved: tuple[str, ...], shown: tuple[str, ...]) -> bool:
    """Whether these are some of the flags: those that move a run have a value each, those of what is shown none."""
    left = iter(words)
    return all(word in shown or (word in moved and next(left, None) is not None) for word in left)

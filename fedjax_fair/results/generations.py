"""Replicates that were asked for by one call after another: each call's share programs of their own.

Federations that share a program have room for the largest of them. So replicates that come later, and may be
larger, must not change the programs of those that a checkpoint holds.
"""

import json
from itertools import accumulate
from pathlib import Path

from fedjax_fair.engine.checkpoint import CheckpointError
from fedjax_fair.engine.files import to_json, write_atomically

NAME = "replicates.json"


def generations(folder: Path | None, replicates: int) -> list[int]:
    """How many replicates each call has added, up to the one that added the last of those asked for.

    Together they may be more than are asked for. Without a ``folder`` all of them are this call's.

    Raises:
      CheckpointError: the folder's list cannot be read.
    """
    known = _known(folder)
    if (there := sum(known)) < replicates:
        return [*known, replicates - there]
    return known[: next(i for i, total in enumerate(accumulate(known), 1) if total >= replicates)]


def remember(folder: Path | None, added: list[int]) -> None:
    """Write down what a call adds, once it is known that it can be played.

    Raises:
      CheckpointError: the folder's list cannot be written.
    """
    if folder is None or sum(added) <= sum(_known(folder)):
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / NAME, to_json(added, None))
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder / NAME} cannot be written: {error.strerror}") from error


def _known(folder: Path | None) -> list[int]:
    if folder is None or not (folder / NAME).exists():
        return []
    try:
        return [int(count) for count in json.loads((folder / NAME).read_text())]
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"checkpoint {folder / NAME} cannot be read ({type(error).__name__})") from error

"""Replicates that were asked for by one call after another: each call's share programs of their own.

Federations that share a program have room for the largest of them. So replicates that come later, and may be
larger, must not change the programs of those that a checkpoint holds.
"""

import json
from pathlib import Path

from fedjax_fair.engine.checkpoint import CheckpointError
from fedjax_fair.engine.files import to_json, write_atomically

NAME = "replicates.json"


def generations(folder: Path | None, replicates: int) -> list[int]:
    """How many replicates each call has added, this one the last; without a ``folder`` all of them are this call's.

    They may be more than are asked for now.

    Raises:
      CheckpointError: the folder's list cannot be read or written.
    """
    if folder is None:
        return [replicates]
    place = folder / NAME
    try:
        known = json.loads(place.read_text()) if place.exists() else []
        if sum(known) < replicates:
            known.append(replicates - sum(known))
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(place, to_json(known, None))
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"checkpoint {place} cannot be read or written ({type(error).__name__})") from error
    return known

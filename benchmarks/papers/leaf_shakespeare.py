"""Roles of Shakespeare, from an archive of texts to LEAF's JSON, in windows that do not overlap.

    python -m benchmarks.papers.leaf_shakespeare ROLES.npz FOLDER

The archive holds ``text`` u8[L], all roles' lines one after another, ``offsets`` i[N + 1], where each role's begin,
and ``client_names`` [N]. FOLDER gets ``shakespeare/all_data.json`` with, for every role, ``x``, its windows of 80
characters, and ``y``, the one that follows each. LEAF's own windows overlap in all but one character: a random
split of these trains on the characters that it tests.
"""

import json
import sys
from pathlib import Path

import numpy as np

from fedjax_fair.data.sources.published import LENGTH


def windows(text: bytes) -> tuple[list[str], list[str]]:
    """The windows of a role's text, and the characters that follow them.

    >>> [len(part) for part in windows(b"a" * 200)[0]], windows(b"a" * 80)
    ([80, 80], ([], []))
    """
    line, step = text.decode("latin-1"), LENGTH + 1
    pieces = [line[i : i + step] for i in range(0, len(line) - LENGTH, step)]
    return [piece[:LENGTH] for piece in pieces], [piece[LENGTH] for piece in pieces]


def convert(archive: Path, folder: Path) -> Path:
    """Write the JSON file; roles too short for a window are left out."""
    with np.load(archive, allow_pickle=False) as held:
        text, offsets = held["text"], held["offsets"]
        names = [str(name) for name in held["client_names"]]
    users = {}
    for name, start, end in zip(names, offsets[:-1], offsets[1:]):
        x, y = windows(text[start:end].tobytes())
        if x:
            users[name] = {"x": x, "y": y}
    whole = {"users": [*users], "num_samples": [len(of["y"]) for of in users.values()], "user_data": users}
    place = folder / "shakespeare" / "all_data.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(whole))
    return place


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m benchmarks.papers.leaf_shakespeare ROLES.npz FOLDER")
    print(convert(Path(sys.argv[1]), Path(sys.argv[2])))

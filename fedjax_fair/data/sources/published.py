"""The published natural federations FEMNIST and Shakespeare, by name, from LEAF's files."""

import os
import string
from pathlib import Path

import numpy as np

from fedjax_fair.data.names import Names
from fedjax_fair.data.sources.examples import Examples, Part
from fedjax_fair.data.sources.leaf import is_leaf, parts_of, tokens

PUBLISHED = ("femnist", "shakespeare")
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""LEAF's 80 characters of Shakespeare, in its order."""
LENGTH = 80
CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
"""FEMNIST's 62 classes, in LEAF's order."""
SIDE = 28


class NoFilesError(ValueError, FileNotFoundError):
    """LEAF's files are not where they are looked for."""


def read_published(name: str, folder: str | Path | None = None) -> Examples:
    """FEMNIST, x f32[E, 28, 28, 1], or Shakespeare, x i16[E, 80] and the character that follows.

    Args:
      name: femnist (clients are writers) or shakespeare (roles).
      folder: where LEAF's ``train`` and ``test`` are, or a folder that has them in ``NAME`` or ``NAME/data``; by
        default ``$LEAF_DATA_DIR``.

    Raises:
      NoFilesError: a ValueError and a FileNotFoundError; there are none, and how LEAF makes them.
      ValueError: files of another form.

    References: Caldas et al., LEAF: A benchmark for federated settings, 2018.
    """
    train, test = parts_of(_place(name, folder))
    parts = [train] if test is None else [train, test]
    if name == "shakespeare":
        for part in parts:
            if part.x.dtype != np.dtype(f"U{LENGTH}") or part.y.dtype != np.dtype("U1"):
                wanted = f"texts of {LENGTH} characters and the one that follows"
                raise ValueError(f"shakespeare must have {wanted}, got {_form(part)}")
        return tokens(train, test, ALPHABET)
    for part in parts:
        classes = part.y.dtype.kind in "iu" and part.y.ndim == 1
        if part.x.shape[1:] != (SIDE**2,) or not classes or not 0 <= part.y.min() <= part.y.max() < len(CHARACTERS):
            wanted = f"images of {SIDE**2} numbers and classes from 0 to {len(CHARACTERS) - 1}"
            raise ValueError(f"femnist must have {wanted}, got {_form(part)}")
    images = [part._replace(x=part.x.astype(np.float32).reshape(-1, SIDE, SIDE, 1)) for part in parts]
    return Examples(images[0], images[1] if len(images) > 1 else None, Names(labels=CHARACTERS))


def _form(part: Part) -> str:
    labels = "" if part.y.dtype.kind == "U" else f" from {part.y.min():g} to {part.y.max():g}"
    return f"x {part.x.dtype}{list(part.x.shape)} and y {part.y.dtype}{list(part.y.shape)}{labels}"


def _place(name: str, folder: str | Path | None) -> Path:
    """The folder with the files of ``name``."""
    given = folder if folder is not None else os.environ.get("LEAF_DATA_DIR")
    root = None if given is None else Path(given).expanduser()
    for place in () if root is None else (root / name, root):
        if place.is_dir() and is_leaf(place):
            return place
    looked = "no folder is named by data_dir or $LEAF_DATA_DIR" if root is None else f"looked in {root}"
    raise NoFilesError(
        f"{name} is not prepared ({looked}): LEAF makes its files once, git clone "
        f"https://github.com/TalwalkarLab/leaf && cd leaf/data/{name} && ./preprocess.sh -s niid --sf 0.2 -k 0 -t "
        "sample, and data_dir or $LEAF_DATA_DIR names the folder"
    )

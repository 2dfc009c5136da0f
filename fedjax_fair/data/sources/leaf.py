"""LEAF's folders of JSON files, train and test as they are given."""

import gzip
import json
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_fair.checks import warn
from fedjax_fair.data.federated import FederatedData
from fedjax_fair.data.names import Names
from fedjax_fair.data.sources.examples import Examples, Part, check_file, check_tested, deal, large_enough, numbered
from fedjax_fair.data.sources.images import SUFFIXES

PATTERNS = ("*.json", "*.json.gz")


def leaf(
    folder: str | Path, *, min_examples: int | None = None, seed: int = 0, split: Sequence[float] | None = None
) -> FederatedData:
    """Read a data set in the form of LEAF: JSON files with ``users``, ``num_samples`` and ``user_data``.

    ``folder`` holds ``train`` and ``test``, each a folder of files ``.json`` or ``.json.gz`` (also inside a folder
    ``data``), and every user is tested on its own test examples; or it holds the files themselves, and every
    user's examples are split. ``x`` are numbers, or texts of one length: these become tokens [E, length], one for
    each letter, from one alphabet with the letters in ``y``; it is kept in ``data.names.categories``.

    Args:
      folder: see above.
      min_examples: leave out clients with fewer examples (given test ones aside); a UserWarning says how many.
      seed: of the split.
      split: shares of (train, validation, test); by default (.9, .1, 0) beside test examples, else (.8, .1, .1).

    Returns:
      :class:`FederatedData`; ``data.clients`` are the users' names, sorted; ``data.names.labels`` the labels that
      were words, or whole numbers with gaps.

    Raises: ValueError, in one sentence: no such folder, no files in it, files that are damaged or of another form;
    counts that do not agree; test users who do not train (LEAF's split by user); and as
    :meth:`FederatedData.from_arrays`.

    References: Caldas et al., LEAF: A benchmark for federated settings, 2018.
    """
    return deal(large_enough(read_leaf(folder), min_examples), seed=seed, split=split)


def is_leaf(folder: Path) -> bool:
    """Whether there are JSON files in a folder, or in its ``train``."""
    places = (folder, folder / "train", folder / "data" / "train")
    return any(_files(place) for place in places)


def read_leaf(folder: str | Path) -> Examples:
    """What the files hold; see :func:`leaf`."""
    train, test = parts_of(folder)
    if train.x.dtype.kind == "U":
        return tokens(train, test)
    y, y_test, labels = train.y, None if test is None else test.y, None
    if y.ndim == 1 and y.dtype.kind != "f":
        y, y_test, labels = numbered(y, y_test, "y")
    tests = None if test is None or y_test is None else test._replace(y=y_test)
    return Examples(train._replace(y=y), tests, Names(labels=labels))


def parts_of(folder: str | Path) -> tuple[Part, Part | None]:
    """All users' training and test examples, as the files hold them; no test examples where they are not apart."""
    place = check_file("folder", folder)
    if not place.is_dir():
        raise ValueError(f"folder must be a folder of LEAF's JSON files, got the file {place}")
    if (place / "data" / "train").is_dir():
        place = place / "data"
    apart = _files(place / "train")
    if not apart and not _files(place):
        raise ValueError(f"folder {place} holds no JSON files: neither *.json[.gz], nor train/*.json[.gz]")
    train = _read(apart or _files(place))
    tested = _files(place / "test") if apart else []
    test = _read(tested) if tested else None
    if test is not None:
        check_tested(test, train, f"{place / 'test'}", published=True)
        if test.x.shape[1:] != train.x.shape[1:] or test.x.dtype.kind != train.x.dtype.kind:
            raise ValueError(
                f"{place / 'test'} must have x like those of train, {train.x.dtype}{list(train.x.shape[1:])}, got "
                f"{test.x.dtype}{list(test.x.shape[1:])}"
            )
    return train, test


def _files(folder: Path) -> list[Path]:
    found = sorted(path for pattern in PATTERNS for path in folder.glob(pattern)) if folder.is_dir() else []
    for path in found:
        if path.with_name(f"{path.name}.gz") in found:
            raise ValueError(f"{folder} must hold each file once, got {path.name} and {path.name}.gz")
    return found


def _read(files: list[Path]) -> Part:
    """All users' examples, user after user; texts stay texts, U[E]."""
    xs, ys, users, sizes = [], [], [], []
    for path in files:
        held = _loaded(path)
        counts = held.get("num_samples") or []
        if not isinstance(counts, list) or not all(isinstance(user, str | int) for user in held["users"]):
            raise ValueError(
                f"{path} is not in LEAF's form: users and num_samples must be lists, of names and counts"
            )
        if counts and len(counts) != len(held["users"]):
            raise ValueError(f"{path} names {len(held['users'])} users, and num_samples of {len(counts)}")
        for i, user in enumerate(held["users"]):
            mine = held["user_data"].pop(str(user), None)  # freed as it is read
            if not isinstance(mine, dict) or not {"x", "y"} <= mine.keys():
                raise ValueError(f"{path} must have x and y of user {user!r} in user_data")
            x, y = mine["x"], mine["y"]
            if not (isinstance(x, list) and isinstance(y, list)):
                raise ValueError(f"{path} must have lists in x and y of user {user!r}, got {type(x).__name__}")
            if len(x) != len(y) or (counts and counts[i] != len(y)):
                said = f", num_samples {counts[i]}" if counts else ""
                raise ValueError(f"{path} has {len(x)} x and {len(y)} y of user {user!r}{said}: they must agree")
            if len(y):
                xs.append(_array(x, "x", user, path))
                ys.append(_array(y, "y", user, path))
                users.append(str(user))
                sizes.append(len(y))
        if held["user_data"]:
            some = next(iter(held["user_data"]))
            warn(f"{path} has user_data of {len(held['user_data'])} who are not among its users, such as {some!r}")
    if not users:
        raise ValueError(f"{files[0].parent} holds no user with an example")
    for arrays, name in ((xs, "x"), (ys, "y")):
        forms = {array.shape[1:] for array in arrays}
        if len(forms) > 1:
            raise ValueError(f"{files[0].parent} must have {name} of one form, got {sorted(map(str, forms))}")
        words = [array.dtype.kind == "U" for array in arrays]
        if len({*words}) > 1:
            of = {"texts": users[words.index(True)], "numbers": users[words.index(False)]}
            both = " and ".join(f"{kind} of user {user!r}" for kind, user in of.items())
            raise ValueError(f"{files[0].parent} must have {name} of one kind, got {both}")
    return Part(np.concatenate(xs), np.concatenate(ys), np.repeat(np.array(users), sizes))


def _loaded(path: Path) -> dict[str, Any]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            held = json.load(file)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read as JSON: {type(error).__name__}: {error}") from error
    if not isinstance(held, dict) or not isinstance(held.get("users"), list):
        raise ValueError(f"{path} is not in LEAF's form: it must have users, num_samples and user_data")
    if not isinstance(held.get("user_data"), dict):
        raise ValueError(f"{path} is not in LEAF's form: it must have user_data, a table by user")
    return held


def _array(values: list[Any], name: str, user: str, path: Path) -> np.ndarray:
    """Numbers, as 32 bits where they fit, or texts; ValueError for anything else, such as lists with words."""
    try:
        array = np.array(values)
    except ValueError:
        raise ValueError(f"{path} must have {name} of one length for user {user!r}, got several") from None
    if array.dtype.kind in "biu":
        short = array.astype(np.int32)
        return short if np.array_equal(short, array) else array  # which is refused later, or names of classes
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    if array.dtype.kind != "U" or array.ndim != 1 or not all(isinstance(value, str) for value in values):
        kinds = [_kind(value) for value in values]
        at = next((i for i, kind in enumerate(kinds) if kind is None or kind != kinds[0]), 0)
        beside = f" beside {repr(values[0])[:40]}" if at and kinds[at] else ""
        raise ValueError(
            f"{path} must have numbers or texts in {name}, got {repr(values[at])[:40]}{beside} of user {user!r}: "
            "turn it into numbers beforehand"
        )
    if name == "x" and Path(values[0]).suffix.lower() in SUFFIXES:  # CelebA's, all of one length
        raise ValueError(
            f"{path} must hold examples in x, got names of images, such as {values[0]!r}: ff.data.images reads "
            "folders of them"
        )
    return array


def _kind(value: Any) -> str | None:
    """What a value is; None for what has no place among examples."""
    if isinstance(value, list):
        return "rows" if np.array(value).dtype.kind in "biuf" else None
    return "texts" if isinstance(value, str) else "numbers" if isinstance(value, int | float) else None


def tokens(train: Part, test: Part | None, alphabet: str | None = None) -> Examples:
    """Texts as tokens, of one alphabet with the letters in ``y``, where these are letters.

    By default the alphabet is what occurs. Of one that is given, a letter that it lacks is its last, as LEAF's
    ``find`` has it; a UserWarning says how many there are.
    """
    parts = [train] if test is None else [train, test]
    codes = [_codes(part.x) for part in parts]
    length = codes[0].shape[1]
    for code, part in zip(codes, parts):
        short = (code == 0).any(1)
        if short.any() or code.shape[1] != length:
            first = str(part.x[int(short.argmax())])
            raise ValueError(f"x must be texts of one length, {length} letters, got {first[:40]!r} of {len(first)}")
    letters = all(part.y.dtype == np.dtype("U1") for part in parts)
    marks = [_codes(part.y) for part in parts] if letters else []
    seen = np.zeros(sys.maxunicode + 1, bool)
    for array in (*codes, *marks):
        seen[array] = True
    words = tuple(map(chr, np.flatnonzero(seen).tolist())) if alphabet is None else tuple(alphabet)
    kind = np.int16 if len(words) <= np.iinfo(np.int16).max else np.int32
    number = np.full(len(seen), len(words) - 1, kind)  # of every letter, by its number in Unicode
    number[[*map(ord, words)]] = np.arange(len(words))
    seen[[*map(ord, words)]] = False
    if seen.any():
        count = sum(int(seen[array].sum()) for array in (*codes, *marks))
        strange = "".join(map(chr, np.flatnonzero(seen)[:8].tolist()))
        warn(f"{count} letters are not of the alphabet, such as {strange!r}")
    labels: Any = words
    if letters:
        ys = [number[mark[:, 0]].astype(np.int32) for mark in marks]
    elif any(part.y.dtype.kind == "f" for part in parts):
        ys, labels = [part.y for part in parts], None
    else:
        first_y, second_y, labels = numbered(train.y, None if test is None else test.y, "y")
        ys = [first_y] if second_y is None else [first_y, second_y]
    made = [Part(number[code], y, part.client) for code, y, part in zip(codes, ys, parts)]
    return Examples(made[0], None if test is None else made[1], Names(labels=labels, categories=(("x", words),)))


def _codes(texts: np.ndarray) -> np.ndarray:
    """u32[E, length]: the letters' numbers in Unicode; 0 behind a text that is shorter."""
    return np.ascontiguousarray(texts).view(np.uint32).reshape(len(texts), texts.dtype.itemsize // 4)

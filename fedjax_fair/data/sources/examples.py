"""What a reader found, before it is split: examples, whose they are and what they are called; and their dealing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from fedjax_fair.checks import check_count, warn
from fedjax_fair.data.federated import FederatedData, Place
from fedjax_fair.data.names import Names
from fedjax_fair.data.normalize import Normalizer
from fedjax_fair.data.store import device_copy

LEAKED = 0.5
"""The share of test examples that are training examples from where it is no chance, if these are as distinct."""
LOOKED_AT = 64e6
"""Bytes of training examples up to which they are compared with the test examples."""
MANY = 1_000_000
"""Training examples up to which they are."""


class Part(NamedTuple):
    """Training examples, or test examples."""

    x: np.ndarray
    """[E, ...]."""
    y: np.ndarray
    """[E, ...]."""
    client: np.ndarray
    """[E]: the name of each example's client."""


class Examples(NamedTuple):
    """All that a file or a folder holds; :func:`deal` makes a federation of it, for every seed another split."""

    train: Part
    test: Part | None = None
    """Test examples of the same clients, where they are given."""
    names: Names = Names()
    """Of classes, columns and words."""
    fill: Literal["mean", "median"] | None = None
    """What stands for NaN in a column of ``x``, of the training rows."""
    scale: np.ndarray | None = None
    """bool[F]: columns to be standardised by the training rows' mean and standard deviation; None for none."""
    groups: dict[Any, str] | None = None
    """Of every client's name, the group that it is of."""


def deal(
    found: Examples,
    *,
    seed: int = 0,
    split: Sequence[float] | None = None,
    normalizer: Normalizer | Literal["auto"] | None = "auto",
    store: Place = "device",
) -> FederatedData:
    """Split every client's examples; then fill and standardise columns by what the clients train on.

    Raises:
      ValueError: as :meth:`FederatedData.from_arrays`, or a column of which the training rows have no value.
    """
    train, test = found.train, found.test
    parts = [train] if test is None else [train, test]
    filled = (
        parts if found.fill is None else [part._replace(x=np.where(np.isnan(part.x), 0, part.x)) for part in parts]
    )
    data = FederatedData.from_arrays(
        filled[0].x,
        train.y,
        client_id=train.client,
        seed=seed,
        split=split,
        test=None if test is None else (filled[1].x, test.y),
        test_client_id=None if test is None else test.client,
        group=found.groups,
        normalizer=normalizer,
        store=store,
    )
    data = data._replace(names=found.names._replace(clients=data.clients, groups=data.groups))
    if found.fill is None and found.scale is None:
        return data
    rows = np.unique(np.asarray(data.train.rows))
    whole = np.concatenate([part.x for part in parts])
    with jax.ensure_compile_time_eval():
        if found.fill is not None:
            whole = np.where(np.isnan(whole), _centre(found, whole[rows]), whole)
            data = data._replace(x=device_copy(whole))
        if found.scale is not None:
            data = data._replace(normalizer=_standard(whole[rows], found.scale))
    return data


def _centre(found: Examples, x: np.ndarray) -> np.ndarray:
    """f32[F]: mean or median of every column's values."""
    columns = found.names.features or tuple(str(i) for i in range(x.shape[1]))
    if (empty := np.isnan(x).all(0)).any():
        name = columns[int(empty.argmax())]
        raise ValueError(
            f"column {name!r} has no value in the rows that clients train on: leave it out of features"
        )
    centre = np.nanmean(x, 0, dtype=np.float64) if found.fill == "mean" else np.nanmedian(x, 0)
    return centre.astype(x.dtype)


def _standard(x: np.ndarray, scale: np.ndarray) -> Normalizer:
    mean, std = x.mean(0, dtype=np.float64), x.std(0, dtype=np.float64)
    varies = (x.max(0) > x.min(0)) & (std > np.finfo(np.float32).tiny)
    inverse = 1 / np.where(varies, std, 1)  # a constant column becomes 0
    shift, inverse = np.where(scale, mean, 0), np.where(scale, inverse, 1)
    return Normalizer(*(jax.device_put(np.float32(part)) for part in (shift, inverse)))


def large_enough(found: Examples, least: int | None) -> Examples:
    """Without the clients that have fewer than ``least`` training examples; a UserWarning says how many they are.

    Raises:
      ValueError: ``least`` is no whole number from 1, or no client has as many.
    """
    if least is None:
        return found
    check_count("min_examples", least)
    names, owner, size = np.unique(found.train.client, return_inverse=True, return_counts=True)
    small = size < least
    if small.all():
        raise ValueError(
            f"min_examples must be at most {size.max()}, what the largest of the {len(size)} clients has, got "
            f"{least}"
        )
    if not small.any():
        return found
    gone = int(size[small].sum())
    warn(
        f"min_examples={least} leaves out {small.sum()} of {len(size)} clients, with {gone} of {size.sum()} "
        "examples"
    )
    kept = ~small[owner]
    train = Part(*(part[kept] for part in found.train))
    test = found.test
    if test is not None:
        theirs = ~np.isin(test.client, names[small])
        test = Part(*(part[theirs] for part in test))
    return found._replace(train=train, test=test)


def check_tested(test: Part | None, train: Part, where: str, published: bool = False) -> None:
    """Raise ValueError for test examples of clients that nobody trains as; warn where most are training examples.

    They may be so in a split that was ``published``; of large data nothing is known.
    """
    if test is None:
        return
    if len(strangers := np.setdiff1d(test.client, train.client)):
        raise ValueError(
            f"{where} must be of clients that train, got {len(strangers)} others, such as {str(strangers[0])!r}: "
            "every client's own examples are to be split, not the clients"
        )
    if published or train.x.nbytes > LOOKED_AT or len(train.y) > MANY:
        return
    kinds = [np.result_type(*arrays) for arrays in zip(train[:2], test[:2])]
    mine, theirs = ([a.astype(kind, copy=False) for a, kind in zip(part, kinds)] for part in (train, test))
    known = {x.tobytes() + y.tobytes() for x, y in zip(*mine)}
    if len(known) < LEAKED * len(train.y):  # rows of few columns of words are often alike
        return
    again = sum(x.tobytes() + y.tobytes() in known for x, y in zip(*theirs))
    if again > LEAKED * len(test.y):
        warn(
            f"{again} of {len(test.y)} examples of {where} are training examples, too: results on them tell how "
            "well they are remembered"
        )


def numbered(y: np.ndarray, others: np.ndarray | None, name: str) -> tuple[np.ndarray, np.ndarray | None, Any]:
    """Labels as classes from 0 in sorted order, those of ``others`` likewise, and the words that they were.

    Whole numbers 0, ..., C - 1 stay as they are, and have no words.

    Raises:
      ValueError: words among ``others`` that are no labels of ``y``.
    """
    known, of_row = np.unique(y, return_inverse=True)
    plain = known.dtype.kind in "iu" and np.array_equal(known, np.arange(len(known)))
    if plain and (others is None or (others.dtype.kind in "iu" and others.min() >= 0)):
        return y, others, None
    theirs = None
    if others is not None:
        if len(strange := np.setdiff1d(others, known)):
            raise ValueError(
                f"{name} of the test examples must be among those that are trained on, got {strange[0]}"
            )
        theirs = np.searchsorted(known, others).astype(np.int32)
    return of_row.reshape(y.shape).astype(np.int32), theirs, tuple(str(word) for word in known.tolist())


def check_file(name: str, path: Any) -> Path:
    """``path`` as a path that is there; ValueError for one that is not."""
    try:
        place = Path(path).expanduser()
    except TypeError:
        raise ValueError(f"{name} must be a path, got {type(path).__name__}") from None
    if not place.exists():
        lost = FileNotFoundError(str(place))
        raise ValueError(f"{name} {place} cannot be read: there is no such file or folder") from lost
    return place

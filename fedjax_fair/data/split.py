"""From each client's rows to its train, validation and test rows."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from fedjax_fair.data.names import Words, called

NO_TEST = (0.9, 0.1, 0.0)  # default split beside official test examples


class Split(NamedTuple):
    """One split (train, validation or test) of all clients: a flat table, R rows in all.

    It has no padding, but where federations of other sizes share a program: rows of nobody are then its last.
    """

    rows: Array
    """i32[R]: rows of the example store, client after client."""
    start: Array
    """i32[N]: where each client's rows begin."""
    size: Array
    """i32[N]: how many rows each client has; 0 for all of them where the split is not kept."""
    owner: Array
    """i32[R]: the client of each row, ascending; N of nobody's."""


def check_split(split: Any, official: bool) -> tuple[float, ...]:
    """Shares of (train, validation, test), the defaults filled in, or ValueError."""
    default = NO_TEST if official else (0.8, 0.1, 0.1)
    try:
        shares = default if split is None else tuple(float(share) for share in split)
    except (TypeError, ValueError):
        shares = ()
    if len(shares) != 3 or not all(s >= 0 for s in shares) or not abs(sum(shares) - 1) <= 1e-6:
        raise ValueError(
            f"split must be three shares (train, validation, test), none negative, that sum to 1, got {split!r}"
        )
    if shares[0] == 0:
        raise ValueError(f"split must leave training a share above 0, got {split!r}")
    if official and shares[2] > 0:
        raise ValueError(f"split's test share must be 0 beside official test examples, got {split!r}")
    return shares


def check_clients(clients: list[np.ndarray], n_examples: int) -> tuple[np.ndarray, np.ndarray]:
    """All clients' rows i64[R], one client's after another's, and how many each has, i64[N].

    Raises:
      ValueError: naming the client that has none, or none that exist, or one twice.
    """
    if not clients:
        raise ValueError("the partition returned no client")
    if any(rows.ndim != 1 or rows.size == 0 or rows.dtype.kind not in "iu" for rows in clients):
        _check_each(clients, n_examples)
    size = np.fromiter(map(len, clients), np.int64, len(clients))
    rows = np.concatenate(clients).astype(np.int64, copy=False)
    if rows.min() < 0 or rows.max() >= n_examples:
        _check_each(clients, n_examples)
    if np.bincount(rows).max() > 1:  # shared, or twice with one client
        _check_each(clients, n_examples)
    return rows, size


def _check_each(clients: list[np.ndarray], n_examples: int) -> None:
    """The first client with a fault, looked for one by one."""
    for k, rows in enumerate(clients):
        if rows.size == 0:
            raise ValueError(f"client {k} has no example")
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise ValueError(f"client {k} must get a vector of integer rows, got {rows.dtype}{list(rows.shape)}")
        if rows.min() < 0 or rows.max() >= n_examples:
            raise ValueError(f"client {k} gets rows from {rows.min()} to {rows.max()} of {n_examples} examples")
        if len(np.unique(rows)) < len(rows):
            raise ValueError(f"client {k} gets an example twice")


Rows = tuple[np.ndarray, np.ndarray]  # (rows, owner), client after client


def split_clients(
    rows: np.ndarray,
    size: np.ndarray,
    shares: Sequence[float],
    rng: np.random.Generator,
    names: Words | None = None,
) -> list[Rows]:
    """Cut every client's shuffled rows, as :func:`check_clients` has them, into train, validation and test.

    The part of a row that several clients hold is drawn once for all its owners: a row that one client is tested on
    is never one that another trains on. Each client's own rows then fill its parts up to their sizes, which are
    therefore exact for a client that shares nothing, and on average for one that shares everything.
    """
    least = sum(share > 0 for share in shares)
    if size.min() < least:
        k, n = int(size.argmin()), int(size.min())
        raise ValueError(
            f"{called(k, names)} has {n} example{'s' * (n > 1)}, but a split into {least} parts needs at "
            f"least {least} of every client"
        )
    validation = _share_of(size, shares[1], size - least + 1)
    test = _share_of(size, shares[2], size - validation - 1)
    train = size - validation - test
    owner = np.repeat(np.arange(len(size)), size)
    chance = rng.random(rows.max() + 1)[rows]  # of the row, the same for all who own it
    order = np.lexsort((chance, owner))
    rows, chance = rows[order], chance[order]
    shared = np.bincount(rows)[rows] > 1
    drawn = np.searchsorted(np.cumsum(shares)[:2], chance, side="right")
    has_validation, has_test = (np.bincount(owner[shared & (drawn == i)], minlength=len(size)) for i in (1, 2))
    own = np.bincount(owner[~shared], minlength=len(size))
    kept = (np.bincount(owner[shared & (drawn == 0)], minlength=len(size)) == 0) & (own > 0)  # one to train on
    wanted = (shares[2] > 0) & (has_test == 0)
    validation = np.clip(validation - has_validation, 0, np.maximum(own - kept - wanted, 0))
    test = np.clip(test - has_test, 0, own - kept - validation)
    train = own - validation - test
    place = np.cumsum(~shared) - 1 - (np.cumsum(own) - own)[owner]  # among the owner's own rows
    filled = (place >= train[owner]) * 1 + (place >= (train + validation)[owner])
    part = np.where(shared, drawn, filled)
    for i, name in enumerate(("training", "validation", "test")):
        lacking = np.flatnonzero(np.bincount(owner[part == i], minlength=len(size)) == 0)
        if shares[i] > 0 and lacking.size:
            raise ValueError(f"client {lacking[0]} shares its examples, and the draw left it none for {name}")
    return [(rows[part == i], owner[part == i]) for i in range(3)]


def _share_of(size: np.ndarray, share: float, most: np.ndarray) -> np.ndarray:
    if share == 0:
        return np.zeros_like(size)
    return np.clip(np.rint(share * size).astype(np.int64), 1, most)


def owned(split: Split) -> Rows:
    """The rows of a split and their owners, without those that pad the table: their owner is N, nobody."""
    rows, owner = np.asarray(split.rows), np.asarray(split.owner)
    known = owner < len(split.size)
    return rows[known], owner[known]


def table(rows: np.ndarray, owner: np.ndarray, n_clients: int) -> Split:
    """Complete the table of a split from its rows and their owners."""
    size = np.bincount(owner, minlength=n_clients)
    parts = (np.asarray(part, np.int32) for part in (rows, np.cumsum(size) - size, size, owner))
    return Split(*map(jax.device_put, parts))  # jnp.asarray would compile a program for every length

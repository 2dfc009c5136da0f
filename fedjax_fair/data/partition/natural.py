"""Natural clients: every example comes with the name of its client."""

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np

from fedjax_fair.checks import check_complete


class Natural(NamedTuple):
    """The partition that :func:`by_client` makes; it remembers the clients' names."""

    names: list[Any]
    """[N], sorted."""
    of_row: np.ndarray
    """i64[E]: the number of each example's client."""

    def __call__(self, labels: np.ndarray, seed: int) -> list[np.ndarray]:
        """The rows of every client, in their order."""
        rows, sizes = self.flat(labels)
        return np.split(rows, np.cumsum(sizes)[:-1])

    def flat(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All clients' rows i64[E], one client's after another's, and how many each has, i64[N]."""
        if len(labels) != len(self.of_row):
            raise ValueError(f"client_id must have one entry per example, {len(labels)}, got {len(self.of_row)}")
        return np.argsort(self.of_row, kind="stable"), np.bincount(self.of_row, minlength=len(self.names))

    def numbers(self, client_id: Any, name: str) -> np.ndarray:
        """i64[E']: the numbers of the clients named ``client_id``; ValueError for a name that is none of theirs."""
        check_complete(name, client_id)
        rank = {known: k for k, known in enumerate(self.names)}
        try:
            plain = _plain(client_id)
            listed = list(client_id) if plain is None else plain.tolist()
            found = [rank.get(known, -1) for known in listed]
        except TypeError as error:
            raise ValueError(
                f"{name} must be a list of names of client_id, got {type(client_id).__name__}: {error}"
            ) from None
        if -1 in found:
            first = found.index(-1)
            some = ", ".join(map(repr, self.names[:3])) + ", ..." * (len(self.names) > 3)
            raise ValueError(
                f"{name} must hold names of client_id, {some}, got {listed[first]!r} for test example {first}"
            )
        return np.array(found, np.int64)


def by_client(client_id: Iterable[Hashable]) -> Natural:
    """Natural clients: example i belongs to the client named ``client_id[i]``.

    Args:
      client_id: one label per example (integers, strings, tuples, ...). Clients are numbered in the sorted
        order of the distinct labels. The seed has no influence.

    Raises: ValueError for labels that cannot be hashed and sorted, are masked, NaN or None; when applied, for
    another number of labels than of examples.

    >>> [rows.tolist() for rows in by_client(["north", "east", "north"])(np.zeros(3, int), seed=0)]
    [[1], [0, 2]]
    """
    return _number(client_id)


def _number(client_id: Any) -> Natural:
    """Map client names to 0, ..., N - 1 in sorted order."""
    check_complete("client_id", client_id)
    names = _plain(client_id)
    if names is not None:
        if names.dtype.kind == "f" and np.isnan(names).any():
            raise ValueError(f"client_id holds NaN, first for example {int(np.isnan(names).argmax())}")
        known, of_row = np.unique(names, return_inverse=True)
        return Natural(known.tolist(), of_row)
    try:
        listed = list(client_id)
        distinct = set(listed)
        if any(map(is_missing, distinct)):  # every gap of dates would be a client of its own
            missing = next(k for k, name in enumerate(listed) if is_missing(name))
            what = "NaN" if isinstance(listed[missing], float) else listed[missing]
            raise ValueError(f"client_id holds {what}, first for example {missing}")
        rank = {name: k for k, name in enumerate(sorted(distinct))}
    except TypeError as error:
        raise ValueError(f"client_id must be a list of names that can be hashed and sorted: {error}") from None
    return Natural([*rank], np.fromiter((rank[name] for name in listed), np.int64, len(listed)))


def is_missing(name: Any) -> bool:
    """Whether it is None, NaN or pandas' NA, which equals nothing, or nobody can say what."""
    return name is None or type(name).__name__ in ("NAType", "NaTType") or bool(name != name)


def _plain(client_id: Any) -> np.ndarray | None:
    """A vector of numbers or strings as it is; None for anything else, whose names are Python's objects."""
    names = np.asarray(client_id) if hasattr(client_id, "__array__") else np.asarray(None)
    return names if names.ndim == 1 and names.dtype.kind in "iubUSf" else None

"""Natural clients: every example comes with the name of its client."""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from fedjax_fair.data.partition.dealing import Partition


def by_client(client_id: Iterable[Hashable]) -> Partition:
    """Natural clients: example i belongs to the client named ``client_id[i]``.

    Args:
      client_id: one label per example (integers, strings, tuples, ...). Clients are numbered in the sorted
        order of the distinct labels. The seed has no influence.

    Raises: ValueError for labels that cannot be hashed and sorted, or are NaN; when applied, for another
    number of labels than of examples.

    >>> [rows.tolist() for rows in by_client(["north", "east", "north"])(np.zeros(3, int), seed=0)]
    [[1], [0, 2]]
    """
    of_row, n_clients = _number(client_id)

    def apply(labels: np.ndarray, seed: int) -> list[np.ndarray]:
        if len(labels) != len(of_row):
            raise ValueError(f"client_id must have one entry per example, {len(labels)}, got {len(of_row)}")
        sizes = np.bincount(of_row, minlength=n_clients)
        return np.split(np.argsort(of_row, kind="stable"), np.cumsum(sizes)[:-1])

    return apply


def _number(client_id: Any) -> tuple[np.ndarray, int]:
    """Map client names to 0, ..., N - 1 in sorted order; return the number of each example, and N."""
    names = np.asarray(client_id) if hasattr(client_id, "__array__") else np.asarray(None)
    if names.ndim == 1 and names.dtype.kind in "iubUSf":
        if names.dtype.kind == "f" and np.isnan(names).any():
            raise ValueError(f"client_id holds NaN, first for example {int(np.isnan(names).argmax())}")
        known, of_row = np.unique(names, return_inverse=True)
        return of_row, len(known)
    try:
        listed = list(client_id)
        rank = {name: k for k, name in enumerate(sorted(set(listed)))}
    except TypeError as error:
        raise ValueError(f"client_id must be a list of names that can be hashed and sorted: {error}") from None
    if any(name != name for name in rank):
        raise ValueError("client_id holds NaN")
    return np.fromiter((rank[name] for name in listed), np.int64, len(listed)), len(rank)

"""Groups of clients, such as a country's hospitals: one per client, told by its examples or by its name."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_fair.data.partition.natural import Natural, is_missing


def by_name(client: Any, group: Any, names: Any = None) -> dict[Any, str]:
    """Each client's group, of arrays with one entry per example; ``names`` are what numbers are called.

    Raises:
      ValueError: arrays of other lengths, an example without a group, or a client whose examples are of several.
    """
    listed = group if isinstance(group, list | tuple) else None
    masked = np.ma.getmaskarray(group) if isinstance(group, np.ma.MaskedArray) else False
    client, group = np.asarray(client), as_words(np.asarray(group), "group")
    if group.ndim != 1 or len(group) != len(client):
        raise ValueError(f"group must have one entry per example, {len(client)}, got {list(group.shape)}")
    # Of a list its own entries, for NumPy makes the word "nan" of NaN.
    gaps = np.array([is_missing(name) for name in (group.tolist() if listed is None else listed)], bool) | masked
    if gaps.any():
        raise ValueError(f"group must be there for every example, got none for example {int(gaps.argmax())}")
    words = group.astype(str)
    clients, first, of_row = np.unique(client, return_index=True, return_inverse=True)
    other = np.flatnonzero(words != words[first][of_row])
    if len(other):
        k = of_row[other[0]]
        both = [str(words[row]) for row in (first[k], other[0])]
        name = (clients.tolist() if names is None else names)[k]
        raise ValueError(
            f"group must be one for all examples of a client, got {both[0]!r} and {both[1]!r} for client {name!r}: "
            "groups among a client's examples are judged by hand, from ff.predict"
        )
    return dict(zip(clients.tolist(), words[first].tolist()))


def as_words(names: np.ndarray, what: str) -> np.ndarray:
    """Bytes as words of UTF-8; anything else as it is."""
    try:
        return np.char.decode(names, "utf-8") if names.dtype.kind == "S" else names
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} must hold words of UTF-8, got {error.object!r}") from None


def groups_of(group: Any, partition: Any) -> tuple[str, ...]:
    """[N]: the groups of natural clients, in their order.

    Args:
      group: one entry per example, or a mapping of the clients' names.
      partition: who the clients are.

    Raises:
      ValueError: clients that are not natural, or without a group; and as :func:`by_name`.
    """
    if not isinstance(partition, Natural):
        raise ValueError("group says which group a natural client is of: it needs client_id= beside it, got none")
    if not isinstance(group, Mapping):
        numbers = by_name(partition.of_row, group, partition.names)
        return tuple(numbers[k] for k in range(len(partition.names)))
    for name in partition.names:
        if name not in group or is_missing(group[name]):
            raise ValueError(f"group must name a group for every client, got none for {name!r}")
    return tuple(str(group[name]) for name in partition.names)

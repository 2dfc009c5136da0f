"""What the numbers of a federation are called: clients, classes, columns and the words in them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax

Words = tuple[str, ...]


@jax.tree_util.register_static  # no leaf of data that have it; federations of the same names share programs
class Names(NamedTuple):
    """The words behind the numbers."""

    clients: Words | None = None
    """[N]: the clients' names, in their order; None for clients that are numbers."""
    labels: Words | None = None
    """[C]: what class c is called; None where labels are as they were given."""
    features: Words | None = None
    """[F]: the columns of ``x`` [E, F]; a column ``town=Rome`` is 1 where the word ``town`` is Rome."""
    categories: tuple[tuple[str, Words], ...] = ()
    """Per column of words, or of text, its name and its words: number k stands for word k."""
    groups: Words | None = None
    """[N]: the group that each client is of, where there are groups."""


def words_of(clients: Iterable[Any]) -> Words | None:
    """The names of clients as words; None where they are the numbers 0, ..., N - 1, which say nothing.

    >>> words_of(["north", "south"]), words_of([0, 1]), words_of([7, 12])
    (('north', 'south'), None, ('7', '12'))
    """
    listed = list(clients)
    return None if listed == [*range(len(listed))] else tuple(map(_word, listed))


def _word(name: Any) -> str:
    return name.decode(errors="backslashreplace") if isinstance(name, bytes) else str(name)


def called(k: int, clients: Sequence[str] | None) -> str:
    """Client k in a sentence.

    >>> called(1, None), called(1, ("north", "south"))
    ('client 1', "client 1 ('south')")
    """
    return f"client {k}" if clients is None else f"client {k} ({clients[k]!r})"

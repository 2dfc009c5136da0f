"""Several federations brought to one form, so that one compiled program serves them all."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_fair.data.federated import FederatedData
from fedjax_fair.data.host_store import HostStore
from fedjax_fair.data.split import Split

SPLITS = ("train", "validation", "test")


class Alike(NamedTuple):
    """Federations of one form; built by :func:`alike`."""

    largest: FederatedData
    """What to build a program with: the first of them, but its sizes are, of each client, the most that it has in
    any of them. Nobody is to play it: the examples that it claims too many are not the client's."""
    each: list[FederatedData]
    """The federations, with rows that belong to nobody behind the last client's."""


def alike(datas: Sequence[FederatedData]) -> Alike:
    """Pad what differs in size: the stores with zeros, the tables with rows whose owner is client N, who is not.

    Federations of as many clients and of examples of one shape; those of one form already stay as they are.

    Raises:
      ValueError: one client, of several sizes; several federations that are off the device.
    """
    first = datas[0]
    stores = [data.x for data in datas if isinstance(data.x, HostStore)]
    if stores and any(data.x is not stores[0] for data in datas):
        raise ValueError(
            "data must be one federation where store='host': several in one program need store='device', got "
            f"{len(datas)}"
        )
    if any(data.names != first.names for data in datas):  # client 0 is then another one in each
        datas = [data._replace(names=None) for data in datas]
        first = datas[0]
    if all(_form(data) == _form(first) for data in datas):
        sizes = [[np.asarray(getattr(data, split).size) for split in SPLITS] for data in datas]
        if all(np.array_equal(mine, of) for these in sizes for mine, of in zip(these, sizes[0])):
            return Alike(first, list(datas))
    length = max(len(data.y) for data in datas)
    most = {split: np.max([getattr(data, split).size for data in datas], axis=0) for split in SPLITS}
    others = any((data.sizes != most["train"]).any() for data in datas)
    if others and len(most["train"]) == 1:  # whose size is one size, however it is padded
        got = sorted({int(data.sizes[0]) for data in datas})
        raise ValueError(
            "federation must have two clients or more where replicates differ in size, got one client with "
            f"{got[0]} to {got[-1]} training examples"
        )
    if others and (most["train"] == most["train"][0]).all():
        most["train"][0] += 1  # or a program would take it that all clients of all federations have as many
    rows = {split: max(len(getattr(data, split).rows) for data in datas) for split in SPLITS}
    each: list[FederatedData] = []
    for data in datas:
        store = jax.tree.map(lambda leaf: _longer(leaf, length, 0), (data.x, data.y))
        if each and equal(store, (each[0].x, each[0].y)):
            store = each[0].x, each[0].y  # held once
        tables = (_padded(getattr(data, split), rows[split]) for split in SPLITS)
        each.append(_put_together(store[0], store[1], tables, data))
    claimed = (getattr(each[0], split)._replace(size=_counts(most[split])) for split in SPLITS)
    return Alike(_put_together(each[0].x, each[0].y, claimed, first), each)


def _put_together(x: Any, y: Any, splits: Iterable[Split], data: FederatedData) -> FederatedData:
    train, validation, test = splits
    return FederatedData(x, y, train, validation, test, data.normalizer, data.names)


def with_union(data: FederatedData) -> FederatedData:
    """The federation with one more client, N, who trains on everybody's examples; those who judge stay the same."""
    train = jax.device_get(data.train)
    whole = train.rows[: train.size.sum()]  # the whole table of an Alike's largest, whose sizes claim more
    owner = np.concatenate([train.owner[: len(whole)], np.full(len(whole), data.n_clients)])
    start, size = np.append(train.start, len(whole)), np.append(train.size, len(whole))
    extended = Split(*map(_counts, (np.concatenate([whole, whole]), start, size, owner)))
    return data._replace(train=_padded(extended, 2 * len(train.rows)))


def _form(data: FederatedData) -> list[Any]:
    return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(data)]


def _longer(array: Any, length: int, value: int) -> Any:
    missing = (length - len(array), *array.shape[1:])
    if not missing[0]:
        return array
    return jax.device_put(np.concatenate([np.asarray(array), np.full(missing, value, array.dtype)]))


def _padded(split: Split, length: int) -> Split:
    """The table with rows of nobody at its end, up to this length."""
    nobody = split.size.shape[0]
    return split._replace(rows=_longer(split.rows, length, 0), owner=_longer(split.owner, length, nobody))


def _counts(values: np.ndarray) -> Any:
    return jax.device_put(values.astype(np.int32))


def _may_be_nan(array: Any) -> bool:
    return np.issubdtype(array.dtype, np.inexact)


def equal(one: Any, other: Any) -> bool:
    """Whether two trees hold the same, of which the leaves are mostly one object."""
    mine, theirs = jax.tree.leaves(one), jax.tree.leaves(other)
    same = (a is b or np.array_equal(a, b, equal_nan=_may_be_nan(a)) for a, b in zip(mine, theirs))
    return len(mine) == len(theirs) and all(same)

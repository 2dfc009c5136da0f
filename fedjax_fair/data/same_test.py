"""Whether several federations have the same clients, and judge them by the same examples."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_fair.data.alike import equal
from fedjax_fair.data.federated import FederatedData
from fedjax_fair.data.host_store import HostStore
from fedjax_fair.data.split import Split

LOOKED_AT, NUMBERS = 1000, 2**22
"""Examples of a split that are compared, and numbers of them, at most."""
FEW = 5
"""Below so many examples chance correlates them: places and labels must do."""
ALIKE = 0.99
"""Correlation from which a feature is the same, scaled or with a few gaps filled otherwise."""


def same_examples(datas: Sequence[FederatedData], split: str) -> bool:
    """Whether the split of all of these has the same places, labels and examples.

    Features may be scaled, or have gaps filled, by what each federation trains on. So a feature is the same where
    it correlates over the examples, and examples are where half of their features do. Features that are constant
    tell nothing.
    """
    judged = [_judged(data, split) for data in datas]
    if not all(equal(mine, judged[0]) for mine in judged):
        return False
    return _same_features(datas, np.asarray(judged[0][0].rows))


def same_clients(datas: Sequence[FederatedData]) -> bool:
    """Whether every client has the same examples in all of these, however they are split; features as above."""
    owners = [_owners(data) for data in datas]
    labels = [np.asarray(data.y) for data in datas]
    if not all(equal(mine, owners[0]) for mine in owners) or not all(equal(y, labels[0]) for y in labels):
        return False
    return _same_features(datas, np.flatnonzero(owners[0] >= 0))


def _owners(data: FederatedData) -> np.ndarray:
    """i32[E]: the client of every example in the store, -1 of those that nobody has."""
    owners = np.full(len(data.y), -1, np.int32)
    for split in jax.device_get((data.train, data.validation, data.test)):
        mine = split.owner < data.n_clients  # the rest fills up
        owners[split.rows[mine]] = split.owner[mine]
    return owners


def _same_features(datas: Sequence[FederatedData], rows: np.ndarray) -> bool:
    """Whether the first of these rows have the same features."""
    wide = jax.eval_shape(lambda: datas[0].take(jnp.zeros((1,), jnp.int32)))[0]
    numbers = sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(wide))
    rows = rows[: max(FEW, min(LOOKED_AT, NUMBERS // max(1, numbers)))]
    others = [data for data in datas if not _is_one(data.x, datas[0].x)]
    if len(rows) < FEW or not others:
        return True
    first = _features(datas[0], rows)
    return all(_correlate(first, _features(data, rows)) for data in others)


def _judged(data: FederatedData, split: str) -> tuple[Split, np.ndarray]:
    """Whose rows, and their labels."""
    places = jax.device_get(getattr(data, split))
    return places, np.asarray(data.y)[places.rows]


def _is_one(x: Any, other: Any) -> bool:
    """Whether two stores are one object, or of the same arrays."""
    if x is other or isinstance(x, HostStore) or isinstance(other, HostStore):
        return x is other
    return all(a is b for a, b in zip(jax.tree.leaves(x), jax.tree.leaves(other), strict=True))


def _features(data: FederatedData, rows: np.ndarray) -> np.ndarray:
    """f64[R, F]: every number of these examples, as stored: positive scales move no correlation."""
    if isinstance(data.x, HostStore):
        leaves = jax.tree.leaves(data.x.read(rows))
    elif jax.default_backend() == "cpu":  # by NumPy: each step of a gather would be compiled
        leaves = [np.asarray(leaf)[rows] for leaf in jax.tree.leaves(data.x)]
    else:  # on the device: the host would keep a copy of all
        leaves = [np.asarray(leaf[rows]) for leaf in jax.tree.leaves(data.x)]
    return np.concatenate([leaf.astype(float).reshape(len(rows), -1) for leaf in leaves], 1)


def _correlate(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape:
        return False
    finite = np.isfinite(one).all(0) & np.isfinite(other).all(0)
    one, other = one[:, finite], other[:, finite]
    vary = (np.ptp(one, 0) > 0) & (np.ptp(other, 0) > 0)
    if not vary.any():
        return True
    one, other = (each[:, vary] - each[:, vary].mean(0) for each in (one, other))
    found = (one * other).sum(0) / np.sqrt((one**2).sum(0) * (other**2).sum(0))
    return bool(np.median(found) >= ALIKE)

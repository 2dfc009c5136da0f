"""Who can take part: ``simulation(..., available=ff.availability.bernoulli(.8))``.

An availability is any function ``(key, round i32[], ids i32[K]) -> bool[K]``. Its key is the same all round, so
that a client is there or not whoever asks: draw per client, with ``fold_in(key, id)``. A client that is selected
and absent sends nothing; the rule renormalises over those that are active, as after any failure. Selectors may
ask ``context.available(ids)`` before they choose, and a probe of an absent client gives NaN.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.checks import check_count, check_range
from fedjax_fair.data import FederatedData
from fedjax_fair.data.split import owned
from fedjax_fair.types import Key

Available = Callable[..., Any]
"""``(key, round, ids i32[K]) -> bool[K]``."""


class PerClient(NamedTuple):
    """An :data:`Available` made from a number per client; ``simulation`` checks that there are N."""

    n_clients: int
    function: Available

    def __call__(self, key: Key, round: Array, ids: Array) -> Array:
        """bool[K]: whether the clients ``ids`` are there."""
        return self.function(key, round, ids)


def always(key: Key, round: Array, ids: Array) -> Array:
    """Everybody, every round."""
    del key, round
    return jnp.ones(ids.shape, bool)


def bernoulli(p: Any) -> Available | PerClient:
    """Each client is there with probability p, independently in every round.

    Args:
      p: one probability for all clients, or one per client, f[N].

    Raises:
      ValueError: a probability outside [0, 1], or an array of more than one axis; in ``simulation``, not N of them.

    >>> there = ff.availability.bernoulli([0.0, 1.0, 1.0])
    >>> there(jax.random.key(0), 0, jnp.arange(3))
    Array([False,  True,  True], dtype=bool)
    """
    if np.ndim(p) == 0:
        check_range("p", p, 0, 1)
        return lambda key, round, ids: _uniform(key, ids) < p
    each = np.asarray(p, np.float32)
    if each.ndim != 1 or not ((each >= 0) & (each <= 1)).all():
        raise ValueError(f"p must be probabilities in [0, 1], one or one per client, got {p!r}")
    return PerClient(len(each), lambda key, round, ids: _uniform(key, ids) < jnp.asarray(each)[ids])


def trace(present: Any) -> PerClient:
    """Who is there, written down: round r plays by row ``r mod T``.

    Args:
      present: bool[T, N] (or 0 and 1), a row per round; after the last it starts over.

    Raises:
      ValueError: not two axes, without a row, or values other than 0 and 1; in ``simulation``, not N columns.

    >>> there = ff.availability.trace([[1, 0], [0, 1]])
    >>> there(jax.random.key(0), 2, jnp.arange(2))  # round 2 plays by row 0
    Array([ True, False], dtype=bool)
    """
    table = np.asarray(present)
    if table.ndim != 2 or not len(table) or not np.isin(table, (0, 1)).all():
        raise ValueError(f"present must be bool[T, N] with at least one row, got {table.dtype}{list(table.shape)}")
    return PerClient(table.shape[1], lambda key, round, ids: jnp.asarray(table, bool)[round % len(table), ids])


def by_size(data: FederatedData, smallest: float, largest: float) -> Available | PerClient:
    """Bernoulli with a probability that is linear in the number of a client's training examples.

    Args:
      data: the federation.
      smallest: probability of the client with the fewest examples.
      largest: of the one with the most.

    Raises:
      ValueError: a probability outside [0, 1].
    """
    check_range("smallest", smallest, 0, 1)
    check_range("largest", largest, 0, 1)
    sizes = data.sizes.astype(float)
    return bernoulli(np.interp(sizes, [sizes.min(), max(sizes.max(), sizes.min() + 1)], [smallest, largest]))


def by_label(data: FederatedData, label: int, without: float, only: float) -> Available | PerClient:
    """Bernoulli with a probability that is linear in the share of one label in a client's training examples.

    Args:
      data: the federation, with class labels.
      label: whose owners are there more or less often.
      without: probability of a client with no example of the label.
      only: of a client with no other example.

    Raises:
      ValueError: a probability outside [0, 1]; a label that is not a whole number from 0 or that nobody trains on;
        or data without one class label per example (several labels each, or targets).
    """
    check_count("label", label, low=0)
    check_range("without", without, 0, 1)
    check_range("only", only, 0, 1)
    y = np.asarray(data.y)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(
            f"by_label needs data with one class label per example, y i32[E], got {y.dtype}{list(y.shape)}"
        )
    rows, owner = owned(data.train)
    hits = y[rows] == label
    if not hits.any():
        raise ValueError(f"label must be one that some client trains on, got {label}")
    share = np.bincount(owner, hits, data.n_clients) / data.sizes
    return bernoulli(np.interp(share, [0, 1], [without, only]))


def _uniform(key: Key, ids: Array) -> Array:
    """f32[K]; in 64-bit mode, too, or others would be absent."""
    return jax.vmap(lambda i: jax.random.uniform(jax.random.fold_in(key, i), dtype=jnp.float32))(ids)

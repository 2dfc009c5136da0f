"""Who owns which example: plain functions ``(labels, seed) -> rows of every client``.

A factory takes what describes the federation and checks it at once; what it returns is applied to the labels
by :func:`fedjax_fair.data.load` or :meth:`FederatedData.from_arrays`, or by hand::

    clients = partition.shards(n_clients=100)(labels, seed=0)
    partition.describe(clients, labels)

Every partition here is finite, a pure function of ``(labels, seed)``, and gives each example to exactly one
client, with the one exception of ``blocks(..., overlap=True)``. Your own is any function of that form.
"""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

from fedjax_fair.checks import check_count, check_range
from fedjax_fair.data.dealing import Partition, apportion, count_examples, equal_sizes
from fedjax_fair.data.describe import describe
from fedjax_fair.data.label_skew import blocks, dirichlet, shards

__all__ = [
    "Partition",
    "blocks",
    "by_client",
    "describe",
    "dirichlet",
    "iid",
    "log_normal",
    "power_law",
    "shards",
]


def iid(n_clients: int) -> Partition:
    """Deal the shuffled examples evenly: sizes differ by at most 1.

    Args:
      n_clients: N.

    Raises, when applied: ValueError for more clients than examples.

    >>> [len(rows) for rows in iid(3)(np.zeros(10, int), seed=0)]
    [4, 3, 3]
    """
    check_count("n_clients", n_clients)

    def apply(labels: np.ndarray, seed: int) -> list[np.ndarray]:
        total = count_examples(labels, n_clients)
        return _cut(np.random.default_rng(seed), equal_sizes(total, n_clients))

    return apply


def power_law(n_clients: int, exponent: float = 2.0, min_size: int = 10) -> Partition:
    r"""Random examples, sizes with a power-law tail: few clients own most of the data.

    .. math:: n_k = m + (E - N m) \, w_k / \textstyle\sum_j w_j, \qquad Pr(w_k > w) = w^{1 - a}, \; w \ge 1

    rounded by largest remainders, with m = ``min_size``, a = ``exponent`` and E examples in all.

    Args:
      n_clients: N.
      exponent: of the density :math:`w^{-a}`, above 1; the nearer to 1, the more unequal.
      min_size: smallest client, in examples.

    Raises, when applied: ValueError for fewer than N * min_size examples.
    """
    check_count("n_clients", n_clients)
    check_range("exponent", exponent, 1, open_low=True, open_high=True)
    check_count("min_size", min_size)

    def apply(labels: np.ndarray, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return _skewed(labels, rng.standard_exponential(n_clients) / (exponent - 1), min_size, rng)

    return apply


def log_normal(n_clients: int, sigma: float = 2.0, min_size: int = 10) -> Partition:
    """Random examples, log-normal sizes: :func:`power_law` with log w_k ~ N(0, sigma^2).

    Args:
      n_clients: N.
      sigma: spread of the sizes, >= 0; 2 in q-FFL's and FedProx's Synthetic(a, b), 0 is IID.
      min_size: smallest client, in examples.

    Raises, when applied: ValueError for fewer than N * min_size examples.
    """
    check_count("n_clients", n_clients)
    check_range("sigma", sigma, 0, open_high=True)
    check_count("min_size", min_size)

    def apply(labels: np.ndarray, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return _skewed(labels, sigma * rng.standard_normal(n_clients), min_size, rng)

    return apply


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


def _skewed(labels: np.ndarray, log_w: np.ndarray, min_size: int, rng: np.random.Generator) -> list[np.ndarray]:
    spare = count_examples(labels, len(log_w), min_size) - len(log_w) * min_size
    return _cut(rng, min_size + apportion(spare, np.exp(log_w - log_w.max()), rng))


def _cut(rng: np.random.Generator, sizes: np.ndarray) -> list[np.ndarray]:
    return np.split(rng.permutation(int(sizes.sum())), np.cumsum(sizes)[:-1])

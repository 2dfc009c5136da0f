"""What every partition is made of: the type, the classes' rows, and exact rounding of shares to counts."""

from collections.abc import Callable, Sequence

import numpy as np

from fedjax_fair.checks import check_count

Partition = Callable[[np.ndarray, int], list[np.ndarray]]
"""``(labels [E], seed) -> [rows of client 0, rows of client 1, ...]``, every entry i64[n_k]."""


def draws_of(seed: int) -> np.random.Generator:
    """The generator of a partition's draws; ValueError for a seed that is no whole number from 0."""
    return np.random.default_rng(check_count("seed", seed, low=0))


def rows_by_class(labels: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Rows of each class that occurs, by ascending label, in random order inside a class.

    Raises ValueError unless ``labels`` is a non-empty vector of class labels (integers, bools or strings).
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.size == 0 or labels.dtype.kind not in "iubUS":
        raise ValueError(
            "a partition by class needs a non-empty vector with one integer label per example, "
            f"got shape {labels.shape} of {labels.dtype}"
        )
    _, of_row, size = np.unique(labels, return_inverse=True, return_counts=True)
    shuffled = rng.permutation(labels.size)
    ordered = shuffled[np.argsort(of_row[shuffled], kind="stable")]
    return np.split(ordered, np.cumsum(size)[:-1])


def count_examples(labels: np.ndarray, n_clients: int, each: int = 1) -> int:
    """Number of examples, or ValueError if ``n_clients`` cannot have ``each`` of their own."""
    total = len(labels)
    if total < n_clients * each:
        raise ValueError(
            f"{n_clients} clients with at least {each} example{'s' * (each > 1)} each need "
            f"{n_clients * each} examples, got {total}"
        )
    return total


def equal_sizes(total: int, n_clients: int) -> np.ndarray:
    """i64[N]: sizes that add up to ``total`` and differ by at most 1, the larger first."""
    return total // n_clients + (np.arange(n_clients) < total % n_clients)


def apportion(total: int, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """i64[N]: ``total`` units in proportion to ``weights`` >= 0, by largest remainders, ties at random.

    Integer weights are rounded exactly; nobody of weight 0 gets a unit.
    """
    quota, mass = total * weights, weights.sum()
    whole = quota // mass
    rest = quota - whole * mass
    units = whole.astype(np.int64)
    first = np.lexsort((rng.random(len(units)), -rest))
    units[first[: total - int(units.sum())]] += 1
    return units


def hand_out(pools: Sequence[np.ndarray], counts: np.ndarray) -> list[np.ndarray]:
    """Cut pool c into pieces of ``counts[:, c]`` rows, one per client; gather each client's pieces."""
    n_clients = len(counts)
    owner = np.concatenate([np.repeat(np.arange(n_clients), counts[:, c]) for c in range(len(pools))])
    rows = np.concatenate([pool[: counts[:, c].sum()] for c, pool in enumerate(pools)])
    return np.split(rows[np.argsort(owner, kind="stable")], np.cumsum(counts.sum(1))[:-1])

"""Random examples, clients of equal or of skewed sizes: IID, power law, log-normal."""

import numpy as np

from fedjax_fair.checks import check_count, check_known, check_range
from fedjax_fair.data.partition.dealing import Partition, apportion, count_examples, draws_of, equal_sizes


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
        return _cut(draws_of(seed), equal_sizes(total, n_clients))

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
    exponent = check_known("exponent", exponent)
    check_count("min_size", min_size)

    def apply(labels: np.ndarray, seed: int) -> list[np.ndarray]:
        rng = draws_of(seed)
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
    sigma = check_known("sigma", sigma)
    check_count("min_size", min_size)

    def apply(labels: np.ndarray, seed: int) -> list[np.ndarray]:
        rng = draws_of(seed)
        return _skewed(labels, sigma * rng.standard_normal(n_clients), min_size, rng)

    return apply


def _skewed(labels: np.ndarray, log_w: np.ndarray, min_size: int, rng: np.random.Generator) -> list[np.ndarray]:
    spare = count_examples(labels, len(log_w), min_size) - len(log_w) * min_size
    return _cut(rng, min_size + apportion(spare, np.exp(log_w - log_w.max()), rng))


def _cut(rng: np.random.Generator, sizes: np.ndarray) -> list[np.ndarray]:
    return np.split(rng.permutation(int(sizes.sum())), np.cumsum(sizes)[:-1])

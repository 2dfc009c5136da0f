"""Label skew from a Dirichlet law, by three conventions."""

import math
from typing import Literal

import numpy as np

from fedjax_fair.checks import check_choice, check_count, check_known, check_range
from fedjax_fair.data.partition.dealing import (
    Partition,
    count_examples,
    draws_of,
    equal_sizes,
    hand_out,
    rows_by_class,
)

Convention = Literal["client", "client_prior", "class"]
SMALLEST = 1e-300
"""Below it NumPy's draws and sums lose what they are made of: the limit of alpha = 0 is taken."""


def dirichlet(
    n_clients: int, alpha: float = 0.5, convention: Convention = "client", min_size: int = 10
) -> Partition:
    r"""Label skew from a Dirichlet law; the smaller ``alpha``, the more the clients differ.

    Three laws go by this name; C is the number of classes that occur, N the number of clients:

    * ``"client"`` (default): every client draws its class proportions :math:`p_k \sim Dir(\alpha 1_C)`. Equal
      sizes. Our reading of FedMABA's "LDA", whose 10 steps of 50 an epoch mean 500 examples everywhere.
    * ``"client_prior"``: :math:`p_k \sim Dir(\alpha \pi)`, with :math:`\pi` the overall class proportions, so
      that ``alpha`` is C times that of ``"client"`` for balanced classes. Equal sizes. Hsu et al., 2019.
    * ``"class"``: every class draws its split over the clients, :math:`q_c \sim Dir(\alpha 1_N)`. Unequal
      sizes, at least ``min_size``. Yurochkin et al., 2019; Li et al., 2022.

    The examples are drawn without replacement and every one has exactly one owner. Equal sizes differ by at
    most 1. Clients draw in random order; where a class is used up, the client's other proportions are scaled
    up to fill it, so that those who draw late get less of the class that they wanted. Where ``"class"`` leaves a
    client with fewer than ``min_size``, it gets more of the classes that it holds, in its own proportions, or of
    one class if it holds none: the skew stays. As ``alpha`` falls to 0, every client comes to hold one class,
    but for those where a class ends.

    Args:
      n_clients: N.
      alpha: concentration, above 0.
      convention: which of the three laws.
      min_size: smallest client, in examples; read by ``"class"`` alone.

    Raises, when applied: ValueError for more clients than examples (``"class"``: fewer than N * min_size).

    Differs from the authors' code in: ``"class"`` reaches ``min_size`` by moving as few examples as it takes, from
    those who hold most of the class, where the authors draw again until it holds (it may never). Yurochkin's code
    gives clients that have their N-th of all examples no more of the classes that follow: its sizes vary less.

    >>> labels = np.repeat([0, 1], 100)
    >>> [np.bincount(labels[rows]).tolist() for rows in ff.partition.dirichlet(2, alpha=0.5)(labels, seed=0)]
    [[60, 40], [40, 60]]
    """
    check_count("n_clients", n_clients)
    check_range("alpha", alpha, 0, open_low=True, open_high=True)
    alpha = check_known("alpha", alpha)
    check_choice("convention", convention, ("client", "client_prior", "class"))
    check_count("min_size", min_size)

    def apply(labels: np.ndarray, seed: int) -> list[np.ndarray]:
        rng = draws_of(seed)
        pools = rows_by_class(labels, rng)
        stock = np.array([len(pool) for pool in pools])
        if convention == "class":
            count_examples(labels, n_clients, min_size)
            counts = _fill_up(_split_classes(stock, n_clients, alpha, rng), min_size, rng)
        else:
            count_examples(labels, n_clients)
            prior = np.ones(len(stock)) if convention == "client" else stock / stock.sum()
            counts = _draw_clients(stock, n_clients, alpha, prior, rng)
        return hand_out(pools, counts)

    return apply


def _proportions(alpha: float, base: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One draw from Dir(alpha * base), or its limit where ``alpha`` is so extreme that the draw is not finite."""
    concentration = alpha * base
    if concentration.min() >= SMALLEST:
        with np.errstate(all="ignore"):
            p = rng.dirichlet(concentration)
        if np.isfinite(p).all() and p.sum() > 0:
            return p / p.sum()
    mean = base / base.sum()
    return mean if alpha > 1 else np.eye(len(base))[rng.choice(len(base), p=mean)]


def _draw_clients(
    stock: np.ndarray, n_clients: int, alpha: float, base: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """i64[N, C]: counts of equal-size clients; every pass but a client's last uses up a class."""
    left, counts = stock.copy(), np.zeros((n_clients, len(stock)), np.int64)
    sizes = equal_sizes(int(stock.sum()), n_clients)
    for k in rng.permutation(n_clients):
        p = _proportions(alpha, base, rng)
        while (need := sizes[k] - counts[k].sum()) > 0:
            p = np.where(left > 0, p, 0.0)
            if p.sum() < SMALLEST:
                # Nothing is left of all that this client wanted: what it would have wanted of the others is too
                # little for a float. A part of a Dirichlet draw, scaled up, has a Dirichlet law of its own.
                p[left > 0] = _proportions(alpha, base[left > 0], rng)
            got = np.minimum(rng.multinomial(need, p / p.sum()), left)
            counts[k] += got
            left -= got
    return counts


def _split_classes(stock: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """i64[N, C]: every class cut at the cumulated proportions of its own draw over the clients."""
    cuts = [np.cumsum(_proportions(alpha, np.ones(n_clients), rng))[:-1] for _ in stock]
    ends = [np.minimum(np.floor(cut * n), n).astype(np.int64) for cut, n in zip(cuts, stock)]
    return np.stack([np.diff(end, prepend=0, append=n) for end, n in zip(ends, stock)], axis=1)


def _fill_up(counts: np.ndarray, min_size: int, rng: np.random.Generator) -> np.ndarray:
    """Move as few examples as give every client ``min_size``, and those so that the skew stays.

    A client gets more of the classes that it holds, in its own proportions; one that holds nothing gets examples of
    one class, drawn in proportion to what there is. They come from the client that can give most of the class, and
    nobody gives what it needs itself.
    """
    counts, spare = counts.copy(), np.maximum(counts.sum(1) - min_size, 0)
    given = np.minimum(counts.T, spare).copy()  # [C, N]: what each could give of a class
    stock = given.sum(1)
    for k in np.flatnonzero(counts.sum(1) < min_size):
        wanted = counts[k] / max(1, counts[k].sum())
        while (need := min_size - int(counts[k].sum())) > 0:
            wanted = np.where(stock > 0, wanted, 0.0)
            if not wanted.any():
                most = given.max(1)
                enough = stock * (most >= min(need, most.max()))  # of those that one client can give, if any
                wanted = np.eye(len(stock))[rng.choice(len(stock), p=enough / enough.sum())]
            wanted = wanted / wanted.sum()
            c = int((wanted * min_size - counts[k]).argmax())
            donor = int(given[c].argmax())
            moved = min(math.ceil(wanted[c] * need), int(given[c, donor]))
            counts[donor, c] -= moved
            counts[k, c] += moved
            spare[donor] -= moved
            before, given[:, donor] = given[:, donor].copy(), np.minimum(counts[donor], spare[donor])
            stock = stock + given[:, donor] - before
    return counts

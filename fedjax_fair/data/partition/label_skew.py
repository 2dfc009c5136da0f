"""Partitions in which the clients' label distributions differ: shards, Dirichlet, blocks."""

import heapq
from typing import Literal

import numpy as np

from fedjax_fair.checks import check_choice, check_count, check_range
from fedjax_fair.data.partition.dealing import Partition, count_examples, equal_sizes, hand_out, rows_by_class

Convention = Literal["client", "client_prior", "class"]


def shards(n_clients: int, shards_per_client: int = 2, distinct_labels: bool = True) -> Partition:
    """Sort by label, cut into ``n_clients * shards_per_client`` shards, deal them at random.

    Equal labels are in random order before the cut. A remainder of the division is spread, one example
    each, over the first shards: every example has exactly one owner, and shard sizes differ by at most 1.

    Args:
      n_clients: N.
      shards_per_client: shards each client gets.
      distinct_labels: no client gets two shards of one label (a shard that straddles classes counts by its
        majority label). Doubles of the random deal are swapped away, at most one swap per shard; this is
        always possible when no label fills more shards than there are clients.

    Raises, when applied: ValueError if there are fewer examples than shards, or if a label fills more shards
    than there are clients while ``distinct_labels`` is set.

    Differs from the authors' code in:
      1. McMahan et al. and FedFV deal the shards freely, so that about one client in ten (100 clients, 10
         classes) holds one class only: ``distinct_labels=False``. FedMABA asks for different labels;
      2. the remainder is dealt, not dropped.

    References: McMahan et al., 2017 (Section 3); Wang et al., FedFV, 2021; Wang et al., FedMABA, 2024.
    """
    check_count("n_clients", n_clients)
    check_count("shards_per_client", shards_per_client)

    def apply(labels: np.ndarray, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        rows = np.concatenate(rows_by_class(labels, rng))
        if len(rows) < n_clients * shards_per_client:
            raise ValueError(
                f"{n_clients} clients with {shards_per_client} shards each need at least "
                f"{n_clients * shards_per_client} examples, got {len(rows)}"
            )
        pieces = np.array_split(rows, n_clients * shards_per_client)
        deal = rng.permutation(len(pieces)).reshape(n_clients, shards_per_client)
        if distinct_labels and shards_per_client > 1:
            deal = _swap_doubles(deal, [_majority(np.asarray(labels)[piece]) for piece in pieces], rng)
        return [np.concatenate([pieces[i] for i in mine]) for mine in deal]

    return apply


def _majority(labels: np.ndarray) -> object:
    values, counts = np.unique(labels, return_counts=True)
    return values[counts.argmax()]


def _swap_doubles(deal: np.ndarray, majority: list, rng: np.random.Generator) -> np.ndarray:
    """Swap shards between clients until no client holds two of one label.

    If client k holds label c twice and c fills at most N shards, some client j holds no c. Were every
    label of j single in j and present in k besides c, j would hold S distinct labels out of the at most S - 2
    that k has to offer. So j has a shard whose swap makes the total number of doubles smaller: it ends.
    """
    deal = deal.copy()
    names, label = np.unique(np.asarray(majority), return_inverse=True)
    total = np.bincount(label)
    if total.max() > len(deal):
        raise ValueError(
            f"label {names[total.argmax()]} fills {total.max()} shards, but only {len(deal)} clients can "
            "hold one each; use fewer shards_per_client, or distinct_labels=False"
        )
    held = np.zeros((len(deal), len(names)), np.int64)
    np.add.at(held, (np.arange(len(deal))[:, None], label[deal]), 1)
    for k in np.flatnonzero((held > 1).any(1)):
        while (held[k] > 1).any():
            mine = rng.choice(np.flatnonzero(held[k, label[deal[k]]] > 1))
            c = label[deal[k, mine]]
            j = rng.choice(np.flatnonzero(held[:, c] == 0))
            theirs = label[deal[j]]
            gain = (held[k, theirs] == 0) * 1 + (held[j, theirs] > 1)
            other = rng.choice(np.flatnonzero(gain == gain.max()))
            d = theirs[other]
            deal[k, mine], deal[j, other] = deal[j, other], deal[k, mine]
            held[k, c], held[k, d] = held[k, c] - 1, held[k, d] + 1
            held[j, c], held[j, d] = held[j, c] + 1, held[j, d] - 1
    return deal


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
    up to fill it, so that those who draw late get less of the class that they wanted.

    Args:
      n_clients: N.
      alpha: concentration, above 0.
      convention: which of the three laws.
      min_size: smallest client, in examples; read by ``"class"`` alone.

    Raises, when applied: ValueError for more clients than examples (``"class"``: fewer than N * min_size).

    Differs from the authors' code in: ``"class"`` reaches ``min_size`` by moving random examples from the
    largest clients, one at a time, where the authors draw again until it holds (it may never).
    """
    check_count("n_clients", n_clients)
    check_range("alpha", alpha, 0, open_low=True, open_high=True)
    check_choice("convention", convention, ("client", "client_prior", "class"))
    check_count("min_size", min_size)

    def apply(labels: np.ndarray, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        pools = rows_by_class(labels, rng)
        stock = np.array([len(pool) for pool in pools])
        if convention == "class":
            count_examples(labels, n_clients, min_size)
            counts = _fill_up(_split_classes(stock, n_clients, alpha, rng), min_size, rng)
        else:
            count_examples(labels, n_clients)
            prior = np.ones(len(stock)) if convention == "client" else stock / stock.sum()
            counts = _draw_clients(stock, n_clients, alpha * prior, rng)
        return hand_out(pools, counts)

    return apply


def _proportions(alpha: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One draw from Dir(alpha), or its limit where ``alpha`` is so extreme that the draw is not finite."""
    with np.errstate(all="ignore"):
        p = rng.dirichlet(alpha)
    if np.isfinite(p).all() and p.sum() > 0:
        return p / p.sum()
    mean = alpha / alpha.max() / (alpha / alpha.max()).sum()
    return mean if alpha.max() > 1 else np.eye(len(alpha))[rng.choice(len(alpha), p=mean)]


def _draw_clients(stock: np.ndarray, n_clients: int, alpha: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """i64[N, C]: counts of equal-size clients; every pass but a client's last uses up a class."""
    left, counts = stock.copy(), np.zeros((n_clients, len(stock)), np.int64)
    sizes = equal_sizes(int(stock.sum()), n_clients)
    for k in rng.permutation(n_clients):
        p = _proportions(alpha, rng)
        while (need := sizes[k] - counts[k].sum()) > 0:
            p = np.where(left > 0, p, 0.0)
            if p.sum() < 1e-300:  # nothing left of all that this client wanted
                p = left / left.sum()
            got = np.minimum(rng.multinomial(need, p / p.sum()), left)
            counts[k] += got
            left -= got
    return counts


def _split_classes(stock: np.ndarray, n_clients: int, alpha: float, rng: np.random.Generator) -> np.ndarray:
    """i64[N, C]: every class cut at the cumulated proportions of its own draw over the clients."""
    cuts = [np.cumsum(_proportions(np.full(n_clients, alpha), rng))[:-1] for _ in stock]
    ends = [np.minimum(np.floor(cut * n), n).astype(np.int64) for cut, n in zip(cuts, stock)]
    return np.stack([np.diff(end, prepend=0, append=n) for end, n in zip(ends, stock)], axis=1)


def _fill_up(counts: np.ndarray, min_size: int, rng: np.random.Generator) -> np.ndarray:
    """Move one random example at a time from the largest client until every client has ``min_size``."""
    counts, sizes = counts.copy(), counts.sum(1)
    largest = [(-int(size), k) for k, size in enumerate(sizes)]
    heapq.heapify(largest)
    for k in np.flatnonzero(sizes < min_size):
        for _ in range(min_size - int(sizes[k])):
            size, donor = heapq.heappop(largest)
            c = np.searchsorted(np.cumsum(counts[donor]), rng.integers(-size), side="right")
            counts[donor, c] -= 1
            counts[k, c] += 1
            heapq.heappush(largest, (size + 1, donor))
    return counts


def blocks(n_clients: int, blocks_per_client: int, overlap: bool = False) -> Partition:
    """Cut each of the C classes into ``n_clients * blocks_per_client / C`` equal blocks; deal them at random.

    The three cases of PG-FFL: Case I is ``blocks(100, 20)`` (on CIFAR-100: 20 blocks of 25 images in every
    class), Case II ``blocks(5, 4)`` and Case III ``blocks(5, 2)`` (on 10 classes: one block in every class,
    so that the clients' classes do not overlap at all). Blocks of one class differ in size by at most 1.

    Args:
      n_clients: N.
      blocks_per_client: blocks each client gets, all different; two may be of one class.
      overlap: False deals every block once: the clients are disjoint and all examples have an owner. True
        lets every client draw without regard to the others: two clients may own the same examples
        (which then have the same part, train, validation or test, with both).

    Raises, when applied: ValueError if the number of blocks per class is not whole, or above a class's size.

    Differs from the paper in: the text says that clients select "different numbers of partitions", but each
    of its cases fixes the number. Whether a block can go to two clients is not said; Case III rules it out.

    Reference: Sun et al., PG-FFL, 2022 (Section IV-A).
    """
    check_count("n_clients", n_clients)
    check_count("blocks_per_client", blocks_per_client)

    def apply(labels: np.ndarray, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        pools = rows_by_class(labels, rng)
        total = n_clients * blocks_per_client
        if total % len(pools):
            raise ValueError(
                f"n_clients * blocks_per_client must be a multiple of the {len(pools)} classes, got {total}"
            )
        per_class, smallest = total // len(pools), min(len(pool) for pool in pools)
        if per_class > smallest:
            raise ValueError(f"cannot cut a class of {smallest} examples into {per_class} blocks")
        pieces = [piece for pool in pools for piece in np.array_split(pool, per_class)]
        if overlap:
            deal = np.stack([rng.permutation(total)[:blocks_per_client] for _ in range(n_clients)])
        else:
            deal = rng.permutation(total).reshape(n_clients, blocks_per_client)
        return [np.concatenate([pieces[i] for i in mine]) for mine in deal]

    return apply

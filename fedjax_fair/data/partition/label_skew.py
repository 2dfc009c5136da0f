"""Partitions in which the clients' label distributions differ: shards and blocks."""

import numpy as np

from fedjax_fair.checks import check_count, check_truth
from fedjax_fair.data.partition.dealing import Partition, draws_of, rows_by_class


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

    >>> labels = np.repeat([0, 1, 2, 3], 5)
    >>> [sorted(set(labels[rows].tolist())) for rows in ff.partition.shards(2)(labels, seed=0)]
    [[2, 3], [0, 1]]
    """
    check_count("n_clients", n_clients)
    check_count("shards_per_client", shards_per_client)
    check_truth("distinct_labels", distinct_labels)

    def apply(labels: np.ndarray, seed: int) -> list[np.ndarray]:
        rng = draws_of(seed)
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

    >>> labels = np.repeat([0, 1], 6)
    >>> [labels[rows].tolist() for rows in ff.partition.blocks(2, 2)(labels, seed=0)]
    [[1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 0]]
    """
    check_count("n_clients", n_clients)
    check_count("blocks_per_client", blocks_per_client)
    check_truth("overlap", overlap)

    def apply(labels: np.ndarray, seed: int) -> list[np.ndarray]:
        rng = draws_of(seed)
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

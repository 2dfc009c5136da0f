"""A partition as a table: how many examples of each class every client owns."""

from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

MAX_CLIENTS, MAX_CLASSES = 40, 20  # beyond these the table summarises
MOST_COUNTS = 2**28
"""Counts that are made: of ids of 31 bits for classes there would be 16 GiB for every client."""
SUMMARY: dict[str, Any] = {"min": np.nanmin, "median": np.nanmedian, "max": np.nanmax}


def describe(data: Any, labels: Any = None) -> np.ndarray:
    """Print each client's number of examples per class and per split; return the counts.

    Above 40 clients, the minimum, median and maximum over the clients of every column are printed instead of
    a row each; above 20 classes, the number of classes held and the largest class's share instead of a column
    each. Clients and classes stand under their names, where they have any. Where targets are one number each that
    is no class, as in a regression, their mean and standard deviation stand in the place of classes; of any other
    targets nothing does.

    Args:
      data: a :class:`FederatedData` (all three splits are counted), or what a partition returned.
      labels: [E], with the latter only: the labels that the partition was applied to.

    Returns:
      i64[N, C]: examples of label c that client k owns; C is the largest label plus 1, and 1 where there are no
      classes. Of labels that are words class c is the c-th of them in sorted order.

    Raises:
      ValueError: labels below 0, or so large that the counts would not fit in memory.
    """
    federation: Any = data if hasattr(data, "train") else None
    if federation is not None:
        splits = {name: getattr(federation, name) for name in ("train", "validation", "test")}
        y = np.asarray(federation.y)
        owner = np.concatenate([np.asarray(split.owner) for split in splits.values()])
        rows = np.concatenate([np.asarray(split.rows) for split in splits.values()])
        sizes = {name: np.asarray(split.size) for name, split in splits.items()}
    else:
        if labels is None:
            raise ValueError("describe needs the labels that the partition was applied to, got None")
        clients = list(data)
        y = np.asarray(labels)
        sizes = {"examples": np.array([len(mine) for mine in clients])}
        owner, rows = np.repeat(np.arange(len(clients)), sizes["examples"]), np.concatenate(clients)
    words = getattr(getattr(federation, "names", None), "labels", None)
    if y.ndim == 1 and y.dtype.kind in "US":  # which partitions by class take, too
        known, y = np.unique(y, return_inverse=True)
        words = [*map(str, known.tolist())]
    y = y.reshape(len(y)) if y.dtype.kind == "f" and y.size == len(y) else y  # a regression's may be [E, 1]
    n_clients = len(next(iter(sizes.values())))
    who = getattr(getattr(federation, "names", None), "clients", None)
    if y.ndim != 1 or y.dtype.kind not in "iub":
        targets = _targets(y[rows].astype(float), owner, n_clients) if y.ndim == 1 and y.dtype.kind == "f" else {}
        counts = np.bincount(owner, minlength=n_clients)
        _print(f"{n_clients} clients, {counts.sum()} examples", targets | sizes, who)
        return counts[:, None]
    if y.min(initial=0) < 0:
        raise ValueError(f"labels must be at least 0, got {y.min()}")
    n_classes = int(y.max(initial=0)) + 1
    if n_clients * n_classes > MOST_COUNTS:
        raise ValueError(
            f"labels must be classes numbered from 0 for {n_clients} clients to be counted by class, got "
            f"{len(np.unique(y))} up to {n_classes - 1}: number them, np.unique(y, return_inverse=True)[1]"
        )
    at = owner.astype(np.int64) * n_classes + y[rows]
    counts = np.bincount(at, minlength=n_clients * n_classes).reshape(n_clients, n_classes)
    title = f"{n_clients} clients, {n_classes} classes, {counts.sum()} examples"
    _print(title, _classes(counts, [*sizes], words) | sizes, who)
    return counts


def _targets(y: np.ndarray, owner: np.ndarray, n_clients: int) -> dict[str, np.ndarray]:
    """Mean and standard deviation of each client's targets; NaN of a client without examples."""
    count = np.bincount(owner, minlength=n_clients)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(owner, y, n_clients) / count
        std = np.sqrt(np.bincount(owner, (y - mean[owner]) ** 2, n_clients) / count)
    return {"target mean": mean, "target std": std}


def _classes(counts: np.ndarray, sizes: list[str], labels: Any) -> dict[str, np.ndarray]:
    """A column for each class, or of many how many are held and what the largest has."""
    columns: dict[str, np.ndarray] = {}
    if counts.shape[1] <= MAX_CLASSES:
        # a class may have the name of a column of sizes: its heading is then its number
        heads = [str(c) if labels is None or labels[c] in sizes else labels[c] for c in range(counts.shape[1])]
        columns |= {head: counts[:, c] for c, head in enumerate(heads)}
    else:
        columns["classes held"] = (counts > 0).sum(1)
        columns["largest class %"] = np.round(100 * counts.max(1) / np.maximum(counts.sum(1), 1)).astype(int)
    return columns


def _cell(value: Any, column: np.ndarray) -> str:
    """A count, or the median of counts, in full; a number of any other column in four digits."""
    return f"{value:.4g}" if column.dtype.kind == "f" else f"{value:.12g}"


def _print(title: str, columns: dict[str, np.ndarray], clients: Any) -> None:
    n_clients = len(next(iter(columns.values())))
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for head in ("client", *columns):
        table.add_column(escape(head), justify="right", no_wrap=True)
    if n_clients <= MAX_CLIENTS:
        for k in range(n_clients):
            name = escape(str(k) if clients is None else clients[k])
            table.add_row(name, *(_cell(column[k], column) for column in columns.values()))
    else:
        for name, statistic in SUMMARY.items():
            table.add_row(name, *(_cell(statistic(column), column) for column in columns.values()))
    wide = Console(width=1000).measure(table).maximum  # a narrow terminal wraps: figures are never cut short
    Console(width=max(Console().width, wide)).print(table)

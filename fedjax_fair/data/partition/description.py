"""A partition as a table: how many examples of each class every client owns."""

from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

MAX_CLIENTS, MAX_CLASSES = 40, 20  # beyond these the table summarises
SUMMARY: dict[str, Any] = {"min": np.min, "median": np.median, "max": np.max}


def describe(data: Any, labels: Any = None) -> np.ndarray:
    """Print each client's number of examples per class and per split; return the counts.

    Above 40 clients, the minimum, median and maximum over the clients of every column are printed instead of
    a row each; above 20 classes, the number of classes held and the largest class's share instead of a column
    each. Clients and classes stand under their names, where they have any. Targets that are not a vector of
    integers count as one class.

    Args:
      data: a :class:`FederatedData` (all three splits are counted), or what a partition returned.
      labels: [E], with the latter only: the labels that the partition was applied to.

    Returns:
      i64[N, C]: examples of label c that client k owns; C is the largest label plus 1.
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
    if y.ndim != 1 or y.dtype.kind not in "iub":
        y = np.zeros(len(y), np.int64)
    if y.min(initial=0) < 0:
        raise ValueError(f"labels must be at least 0, got {y.min()}")
    n_clients, n_classes = len(next(iter(sizes.values()))), int(y.max(initial=0)) + 1
    at = owner.astype(np.int64) * n_classes + y[rows]
    counts = np.bincount(at, minlength=n_clients * n_classes).reshape(n_clients, n_classes)
    names = getattr(federation, "names", None)
    _print(counts, sizes, getattr(names, "clients", None), getattr(names, "labels", None))
    return counts


def _print(counts: np.ndarray, sizes: dict[str, np.ndarray], clients: Any, labels: Any) -> None:
    columns: dict[str, np.ndarray] = {}
    if counts.shape[1] <= MAX_CLASSES:
        # a class may have the name of a column of sizes: its heading is then its number
        heads = [str(c) if labels is None or labels[c] in sizes else labels[c] for c in range(counts.shape[1])]
        columns |= {head: counts[:, c] for c, head in enumerate(heads)}
    else:
        columns["classes held"] = (counts > 0).sum(1)
        columns["largest class %"] = np.round(100 * counts.max(1) / np.maximum(counts.sum(1), 1)).astype(int)
    columns |= sizes
    n_clients = len(counts)
    title = f"{n_clients} clients, {counts.shape[1]} classes, {counts.sum()} examples"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for head in ("client", *columns):
        table.add_column(escape(head), justify="right", no_wrap=True)
    if n_clients <= MAX_CLIENTS:
        for k in range(n_clients):
            table.add_row(
                escape(str(k) if clients is None else clients[k]), *(str(column[k]) for column in columns.values())
            )
    else:
        for name, statistic in SUMMARY.items():
            table.add_row(name, *(f"{float(statistic(column)):g}" for column in columns.values()))
    wide = Console(width=1000).measure(table).maximum  # a narrow terminal wraps: figures are never cut short
    Console(width=max(Console().width, wide)).print(table)

"""A study's separate runs shared out among processes, and what a comparison needs to do so."""

import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax

from benchmarks.papers.runs import Row, path_of, train
from fedjax_fair.engine.cluster import Cluster, Piece, on_cluster

CLUSTER: ContextVar[Cluster | None] = ContextVar("cluster", default=None)
"""Whose processes train what a study is made of; None for this one."""


def workers() -> dict[str, Any]:
    """The arguments of ``ff.compare`` that have the same processes train its runs."""
    cluster = CLUSTER.get()
    return {} if cluster is None else cluster._asdict()


def share_out(
    left: Sequence[tuple[Row, int]], place: Path, asked: Mapping[str, int], ended: Callable[[], Any]
) -> None:
    """Have the processes of ``CLUSTER``, where there are any, train these rows from these seeds.

    They write to ``place``, which they must share with this process. ``ended`` is called here whenever one has.

    Raises:
      ValueError: what they have trained is not here.
    """
    cluster = CLUSTER.get()
    if cluster is None or not left:
        return
    pieces = [Piece(_name(row, seed), asked["rounds"]) for row, seed in left]
    done: list[int] = []

    def advance(rounds: int) -> None:
        done.append(rounds)
        ended()
        if sys.stderr.isatty():  # else there is a line for every piece
            print(f"{len(done)} of {len(left)} runs", file=sys.stderr, flush=True)

    remark = f"{len(left)} run{'s' * (len(left) > 1)}"
    on_cluster(cluster, _train_piece, (tuple(left), place.absolute(), asked), pieces, advance, remark)
    missing = [_name(row, seed) for row, seed in left if not path_of(place, row, seed).exists()]
    if missing:
        raise ValueError(
            f"workers must write to the folder of this process, {place.absolute()}, got no {missing[0]}"
        )


def _name(row: Row, seed: int) -> str:
    return f"{row.name}, seed {seed}"


def _train_piece(shared: bytes, i: int) -> tuple[str, None, int]:
    """One run of those that are shared out, unless another process has finished it: its name and rounds played."""
    left, place, asked = _laid_out(shared)
    row, seed = left[i]
    if path_of(place, row, seed).exists():
        return _name(row, seed), None, 0
    _one_row(row.name)
    train(row, seed, place, asked, progress=False)
    return _name(row, seed), None, asked["rounds"]


@lru_cache(maxsize=1)  # a row whose simulation is the same for every seed compiles once
def _laid_out(shared: bytes) -> Any:
    return pickle.loads(shared)[0]


@lru_cache(maxsize=1)
def _one_row(name: str) -> None:
    """Forget the programs of the row before: a process may hold only so many, and no two rows share any."""
    jax.clear_caches()

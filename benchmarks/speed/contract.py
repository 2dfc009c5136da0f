"""What an opponent's process takes and prints; standard library only, for every opponent imports it.

``python run.py --workload NAME --warmup K --rounds R --seed S --threads T`` prints one JSON line, its last.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

START = time.perf_counter()
"""Imported first by every opponent: set-up time includes importing its framework."""


def arguments(more: Callable[[argparse.ArgumentParser], object] = lambda parser: None) -> argparse.Namespace:
    """The command line of an opponent, with arguments of its own that ``more`` adds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument(
        "--call", type=int, default=1, help="rounds per compiled call, for engines that fuse rounds"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", type=Path, default=None, help="file that benchmarks.speed.prepared wrote")
    parser.add_argument("--quick", action="store_true", help="the workload in its shortest form")
    more(parser)
    return parser.parse_args()


def versions(*packages: str) -> dict[str, str]:
    """Versions of installed packages."""
    return {name: metadata.version(name) for name in packages}


def emit(**result: object) -> None:
    """Print the JSON line."""
    print(json.dumps(result), flush=True)


def refuse(reason: str) -> None:
    """Say that this opponent does not run this workload, and end well."""
    emit(not_run=reason)
    raise SystemExit(0)


def play(
    args: argparse.Namespace,
    one_round: Callable[[], object],
    loss: Callable[[], float],
    packages: Iterable[str],
    together: int = 1,
) -> None:
    """Warm up, time single rounds, and print the line. ``one_round`` returns when the new model is there.

    ``together`` rounds count as one, of their mean: where clients differ, so do rounds.
    """
    before = loss()
    ready = time.perf_counter()
    for _ in range(args.warmup):
        one_round()
    warm = time.perf_counter()
    seconds, busy = [], []
    for _ in range(args.rounds // together):
        begin, begun = time.perf_counter(), time.process_time()
        for _ in range(together):
            one_round()
        seconds.append((time.perf_counter() - begin) / together)
        busy.append((time.process_time() - begun) / together)
    emit(
        setup_s=ready - START,
        warmup_s=warm - ready,
        round_s=seconds,
        cpu_s=busy,
        loss_before=before,
        loss_after=loss(),
        versions=versions(*packages),
    )


def report_stamps(
    args: argparse.Namespace, stamps: list[float], before: float, after: float, packages: Iterable[str]
) -> None:
    """The same from time stamps, for a framework that owns its loop: its start, then one after each round."""
    gaps = [late - early for early, late in itertools.pairwise(stamps)]
    emit(
        setup_s=stamps[0] - START,
        warmup_s=sum(gaps[: args.warmup]),
        round_s=gaps[args.warmup :],
        loss_before=before,
        loss_after=after,
        versions=versions(*packages),
    )

"""How long 64 runs of a softmax regression take in one process, with two workers, and where one of these is killed.

Eight settings of q-FedAvg by eight seeds, one after another in each process, so that results are equal bit for bit.
Threads of one process already share out what fits; see docs/cluster.md for when workers pay.
"""

import dataclasses
import json
import os
import signal
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import psutil

import fedjax_fair as ff
from benchmarks.speed import runner

GRID = {"q": [0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0]}


@dataclasses.dataclass
class Options:
    """Time 64 runs on one process and on two."""

    rounds: int = 2000
    """Rounds of every run, of 10 of 30 clients."""
    repeats: int = 3
    """Times that each is measured; quoted are medians."""
    workers: int = 2
    """Processes."""
    out: Path = runner.HERE / "results" / "many_runs.json"
    """Where the seconds go."""
    quick: bool = False
    """Few rounds: to see that it runs."""


def build(q: Any) -> ff.Simulation:
    """q-FedAvg on Synthetic(1, 1)."""
    data = ff.data.synthetic(30, 1.0, 1.0, seed=0)
    trainer = ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=50)
    rule = ff.qfedavg(q, lipschitz=10.0)
    model = ff.models.logistic_regression()
    return ff.simulation(model, data, aggregator=rule, selector=ff.uniform(10), trainer=trainer)


def played(rounds: int, **settings: Any) -> tuple[float, ff.Sweep]:
    """Seconds, and what was found."""
    begun = time.perf_counter()
    every = max(rounds // 10, 1)
    found = ff.sweep(
        build, GRID, seeds=8, rounds=rounds, eval_every=every, side_by_side=1, progress=False, **settings
    )
    return time.perf_counter() - begun, found


def kill_a_worker(folder: Path, killed: list[int]) -> None:
    """SIGKILL one of the workers as soon as the first run is kept."""
    while not killed:
        time.sleep(0.05)
        if any(folder.glob("*/[0-9]*")):
            workers = [p for p in psutil.Process().children() if "spawn_main" in " ".join(p.cmdline())]
            os.kill(workers[0].pid, signal.SIGKILL)
            killed.append(workers[0].pid)


def same(one: ff.Sweep, other: ff.Sweep) -> bool:
    """Whether all histories are, bit for bit."""
    leaves = (jax.tree.leaves(found.histories) for found in (one, other))
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(*leaves, strict=True))


def main() -> None:
    """One process, workers, workers of whom one is killed, in turn."""
    import tyro

    options = tyro.cli(Options)
    rounds, repeats = (20, 1) if options.quick else (options.rounds, options.repeats)
    times: dict[str, list[float]] = {"one process": [], f"{options.workers} workers": [], "one of them killed": []}
    for _ in range(repeats):
        killed: list[int] = []
        with tempfile.TemporaryDirectory() as place:
            alone_s, alone = played(rounds)
            far_s, far = played(rounds, workers=options.workers)
            threading.Thread(target=kill_a_worker, args=(Path(place), killed), daemon=True).start()
            killed_s, after = played(rounds, workers=options.workers, checkpoint=place)
        if not (killed and same(alone, far) and same(alone, after)):
            raise SystemExit("the results differ, or nobody was killed")
        for name, seconds in zip(times, (alone_s, far_s, killed_s)):
            times[name].append(seconds)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"rounds": rounds, "seconds": times}, indent=1) + "\n")
    print(f"64 runs of {rounds} rounds; results equal bit for bit")
    for name, seconds in times.items():
        print(f"{name:20} {statistics.median(seconds):7.1f} s")


if __name__ == "__main__":
    main()

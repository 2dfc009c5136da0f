"""How long the first table takes: ``fedjax-fair compare`` with no arguments, beside a plain PyTorch loop.

Six rules, five replicates, 200 rounds, each client alone, and all data pooled. Cold: an empty compilation cache.
Warm: the cache of the call before. One after another in every repeat; see README.md beside this file.
"""

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tyro

from benchmarks.speed import runner


@dataclasses.dataclass
class Options:
    """Time the first table."""

    repeats: int = 5
    """Times that each is measured; quoted are medians."""
    loop_repeats: int = 1
    """Times that the PyTorch loop is measured, which takes minutes; 0 leaves it out."""
    out: Path = runner.HERE / "results" / "first_table.json"
    """Where the seconds go."""


def ours(cache: Path, out: Path) -> float:
    """Seconds of one call, from the shell to the table."""
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache), "PYTHONPATH": str(runner.ROOT)}
    environment |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is not parsed anew by every process
    begun = time.perf_counter()
    command = [sys.executable, "-m", "fedjax_fair", "compare", "--out", str(out), "--overwrite", "--quiet"]
    subprocess.run(command, check=True, env=environment, capture_output=True)
    return time.perf_counter() - begun


def write_data(place: Path) -> None:
    """The five federations of the default comparison, client by client."""
    import fedjax_fair as ff

    arrays = {}
    for seed in range(5):
        data = ff.data.synthetic(30, 1.0, 1.0, seed=seed)
        for name in ("train", "test"):
            split = getattr(data, name)
            for k in range(30):
                x, y = data.take(split.rows[split.start[k] : split.start[k] + split.size[k]])
                arrays |= {f"{seed}/{name}/{k}/x": np.asarray(x), f"{seed}/{name}/{k}/y": np.asarray(y)}
    np.savez(place, **arrays)


def loop(data: Path) -> float | str:
    """Seconds of the PyTorch loop, or why there are none."""
    torch = runner.OPPONENTS["torch_loop"]
    if (error := runner.install(torch)) is not None:
        return error
    script = runner.HERE / "opponents" / "first_table_loop.py"
    found = runner.run_json([str(runner.interpreter(torch)), str(script), str(data)])
    return found.get("error") or float(found["seconds"])


def main() -> None:
    """Every repeat: cold, warm, and the loop while it is asked for; written after each."""
    options = tyro.cli(Options)
    found: dict[str, list[float | str]] = {"cold": [], "warm": [], "loop": []}
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "data.npz"
        if options.loop_repeats:
            write_data(data)
        for repeat in range(max(options.repeats, options.loop_repeats)):
            if repeat < options.repeats:
                cache = Path(place) / f"cache-{repeat}"
                found["cold"].append(ours(cache, Path(place) / "out"))
                found["warm"].append(ours(cache, Path(place) / "out"))
            if repeat < options.loop_repeats:
                found["loop"].append(loop(data))
            medians = {
                name: statistics.median(values)
                for name, values in found.items()
                if values and not any(isinstance(value, str) for value in values)
            }
            report = {"machine": runner.machine(), "commit": runner.commit(), "seconds": found, "medians": medians}
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["medians"], indent=1))


if __name__ == "__main__":
    main()

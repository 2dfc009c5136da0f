"""Peak memory against ``client_block``, and whether memory grows over ten thousand rounds.

Every figure is a process of its own. Linux can forget a process's peak; elsewhere the peak never goes down, and
what making the data took hides what a round takes.
"""

import contextlib
import dataclasses
import gc
import json
import math
import resource
import sys
from pathlib import Path

import jax

import fedjax_fair as ff
from benchmarks.speed import common, ours, runner, workloads

PEAK_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes in one unit of ru_maxrss
MB = 1e6


@dataclasses.dataclass
class Options:
    """Peak memory against client_block, and over many rounds."""

    workloads: tuple[str, ...] = ("mlp-fmnist-all", "pfl-cifar")
    """For the first table."""
    blocks: tuple[int, ...] = (1, 5, 10, 25, 0)
    """Clients side by side; 0 stands for all of them."""
    rounds: int = 10_000
    """For the second table, on lr-synthetic."""
    out: Path | None = None
    """Folder for the results."""
    quick: bool = False
    """Small: to see that it runs."""
    child: str | None = None
    """Used by the script itself: the workload to measure in this process."""
    block: int = 0
    """Used by the script itself."""
    play: int = 1
    """Used by the script itself: rounds to play."""


def peak() -> int:
    """Bytes of resident memory that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * PEAK_UNIT


def resident() -> int | None:
    """Bytes of resident memory now, where the system tells."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return None


def forget_peak() -> None:
    """Set the peak to what is resident now, where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def child(options: Options) -> dict:
    """One workload in this process: a second round after one that compiled, or memory along many rounds."""
    work = workloads.WORKLOADS[options.child or ""]
    x, y = workloads.make_data(work)
    data = ours.federation(x, y)
    del x, y
    gc.collect()
    sim = ours.simulate(work, data, client_block=options.block or None)
    state = jax.block_until_ready(sim.init(jax.random.key(0)))
    state, _ = ff.run(sim, state=state, rounds=1, progress=False)
    jax.block_until_ready(state)
    gc.collect()
    forget_peak()
    before, seen = resident(), []

    def note(state: ff.SimState, history: ff.History) -> None:
        seen.append({"rounds": len(history.ids), "resident": resident(), "peak": peak()})

    every = max(1, options.play // 10)
    ff.run(sim, state=state, rounds=options.play, eval_every=every, chunk=1, progress=False, on_chunk=note)
    return {"before": before, "peak": peak(), "seen": seen}


def ask(work: str, block: int, rounds: int) -> dict:
    """The child's figures."""
    module = ["-m", "benchmarks.speed.memory", "--child", work, "--block", str(block), "--play", str(rounds)]
    answer = runner.run_json([sys.executable, *module])
    if "error" in answer:
        raise SystemExit(f"{work}, client_block={block or None}: {answer['error']}")
    return answer


def main() -> None:
    """Children first, then both tables."""
    import tyro

    options = tyro.cli(Options)
    if options.child is not None:
        print(json.dumps(child(options)))
        return
    if options.quick:
        options = dataclasses.replace(options, workloads=("mlp-fmnist",), blocks=(1, 0), rounds=50)
    rows, numbers = [], {"blocks": [], "rounds": []}
    for name in options.workloads:
        work = workloads.WORKLOADS[name]
        store = 4 * work.clients * work.examples * (math.prod(work.shape) + 1)
        model = 4 * sum(kernel.size + bias.size for kernel, bias in workloads.initial(work))
        for block in options.blocks:
            if block >= work.cohort:
                continue
            got = ask(name, block, 1)
            numbers["blocks"].append({"workload": name, "client_block": block or None, **got})
            before = got["before"] or 0
            sizes = (store, work.cohort * model, before, got["peak"], got["peak"] - before)
            rows.append([name, f"{block or 'all'} of {work.cohort}", *(f"{size / MB:.0f}" for size in sizes)])
    long = ask("lr-synthetic", 0, options.rounds)
    numbers["rounds"] = long
    flat = [
        [f"{entry['rounds']:,}", f"{(entry['resident'] or 0) / MB:.1f}", f"{entry['peak'] / MB:.1f}"]
        for entry in long["seen"]
    ]
    columns = ("workload", "client_block", "store", "all updates", "before the round", "peak", "the round")
    notes = (
        "Resident memory in MB. Every line of the first table is a process that plays a second round, the first "
        "having compiled; store and all updates are what the examples and the cohort's stacked models take by "
        "themselves. The second table is one process that plays lr-synthetic and keeps the whole history."
    )
    tables = [(columns, rows), (("rounds played", "resident now", "peak"), flat)]
    common.write(common.folder(options.out, quick=options.quick), "memory", "Memory", notes, tables, numbers)


if __name__ == "__main__":
    main()

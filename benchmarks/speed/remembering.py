"""What clients that remember cost: rounds of SCAFFOLD and Ditto in units of FedAvg's, and beside PFLlib's clients.

    python -m benchmarks.speed.remembering --workload mlp-fmnist
    python -m benchmarks.speed.remembering --pfllib PFLlib --python PYTHON_WITH_TORCH

In every repeat each takes a turn, so that a slow minute hits all of them.
"""

import dataclasses
import statistics
import subprocess
from pathlib import Path

import jax
import optax

import fedjax_fair as ff
from benchmarks.speed import common, ours, runner, workloads

RULES = {
    "fedavg": lambda: ff.fedavg("uniform"),
    "scaffold": lambda: ff.scaffold(),
    "ditto": lambda: ff.ditto(aggregator=ff.fedavg("uniform")),
}


@dataclasses.dataclass
class Options:
    """Time rounds of clients that remember."""

    workload: str = "mlp-fmnist"
    """One of the suite's."""
    repeats: int = 9
    """Timed calls of each, in turn."""
    rounds: int = 0
    """Rounds a call; 0 for the workload's own."""
    pfllib: Path | None = None
    """A checkout of PFLlib, to run its clients beside ours."""
    python: Path = Path("benchmarks/speed/opponents/torch_loop/.venv/bin/python")
    """A Python that has torch and scikit-learn."""
    out: Path | None = None
    """Folder for the results."""


def theirs(options: Options, method: str) -> list[float]:
    """Seconds of each of some rounds of PFLlib's."""
    command = [str(options.python), "-m", "benchmarks.speed.opponents.pfllib.run"]
    command += ["--source", str(options.pfllib), "--method", method, "--workload", options.workload]
    ended = subprocess.run(command, cwd=runner.ROOT, check=True, capture_output=True, text=True)
    return [float(word) for word in ended.stdout.split()]


def main() -> None:
    """One process of ours, whose programs take turns; PFLlib's in processes of their own before and after."""
    import tyro

    options = tyro.cli(Options)
    work = workloads.WORKLOADS[options.workload]
    rounds = options.rounds or work.call
    data = common.equal_federation(*workloads.make_data(work))
    trainer = ff.local_sgd(optax.sgd(work.lr), epochs=work.epochs, batch_size=work.batch)
    programs, starts = {}, {}
    for name, rule in RULES.items():
        sim = ff.simulation(
            ours.model(work),
            data,
            aggregator=rule(),
            selector=ff.uniform(work.cohort),
            trainer=trainer,
            evaluate=("train",),
        )
        programs[name], starts[name] = common.rounds_of(sim, rounds), sim.init(jax.random.key(0))
    peers: dict[str, list[float]] = {"scaffold": [], "ditto": []}
    times: dict[str, list[float]] = {name: [] for name in RULES}
    for _ in range(3):  # ours and theirs by turns
        if options.pfllib is not None:
            for method, found in peers.items():
                found += theirs(options, method)
        for name, found in common.interleaved(programs, starts, max(1, options.repeats // 3), rounds).items():
            times[name] += found
    base = statistics.median(times["fedavg"])
    rows = []
    for name in RULES:
        mine = statistics.median(times[name])
        peer = statistics.median(peers[name]) if peers.get(name) else None
        shown = ["–", "–"] if peer is None else [f"{1e3 * peer:.3g}", f"{peer / mine:.1f}"]
        rows.append([f"`{name}`", common.spread(times[name]), f"{mine / base:.2f}", *shown])
    columns = ("rule", "round, ms", "in FedAvg rounds", "PFLlib's round, ms", "times ours")
    notes = f"{work.title}. Medians of {len(times['fedavg'])} calls of {rounds} rounds, in turn."
    if options.pfllib is not None:
        notes += (
            " PFLlib's own client classes, one after another, with their data in memory and without its "
            "evaluation, in three processes before each turn of ours."
        )
    out = common.folder(options.out)
    name = f"remembering-{options.workload}"
    common.write(out, name, "What clients that remember cost", notes, [(columns, rows)], {**times, "pfllib": peers})


if __name__ == "__main__":
    main()

"""How a round's time grows with the cohort, and with the federation around a cohort of ten.

The second should not grow at all: a round reads ten clients' examples. What does grow is the store, whose bytes per
client are listed, the examples apart from the tables that say whose they are.
"""

import dataclasses
import statistics
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import fedjax_fair as ff
from benchmarks.speed import common, report

FEATURES, EXAMPLES, BATCH = 20, 8, 4


@dataclasses.dataclass
class Options:
    """Round time against the cohort (1 to 1,000) and against the federation (100 to 1,000,000 clients)."""

    cohorts: tuple[int, ...] = (1, 3, 10, 30, 100, 300, 1000)
    """Cohorts, out of 1,000 clients."""
    clients: tuple[int, ...] = (100, 1_000, 10_000, 100_000, 1_000_000)
    """Federations, cohort 10."""
    repeats: int = 15
    """Timed calls of each program, in turn."""
    rounds: int = 200
    """Rounds per timed call."""
    out: Path | None = None
    """Folder for the results."""
    quick: bool = False
    """Small sizes: to see that it runs."""


def federation(clients: int) -> ff.FederatedData:
    """Random examples, a few per client."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((clients, EXAMPLES, FEATURES), np.float32)
    return common.equal_federation(x, rng.integers(0, 10, (clients, EXAMPLES)).astype(np.int32))


def simulate(data: ff.FederatedData, cohort: int, rule: ff.Aggregator) -> ff.Simulation:
    """Softmax regression, two small steps: as little work of the clients' own as can be."""
    return ff.simulation(
        ff.models.logistic_regression(),
        data,
        aggregator=rule,
        selector=ff.uniform(cohort),
        trainer=ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=BATCH),
        evaluate=("train",),
    )


def measure(sims: dict[Any, ff.Simulation], options: Options) -> dict[Any, list[float]]:
    """Seconds per round of each call, all in turn: a slow minute does not pass for a large federation."""
    programs = {name: common.rounds_of(sim, options.rounds) for name, sim in sims.items()}
    states = {name: sim.init(jax.random.key(0)) for name, sim in sims.items()}
    return common.interleaved(programs, states, options.repeats, options.rounds)


def size_of(tree: Any) -> int:
    """Bytes of all arrays."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def main() -> None:
    """Both tables, and the plot of both."""
    import tyro

    options = tyro.cli(Options)
    if options.quick:
        options = dataclasses.replace(options, cohorts=(1, 10), clients=(100, 1000), repeats=1, rounds=2)
    data = federation(max(1000, *options.cohorts))
    times = measure({cohort: simulate(data, cohort, ff.fedavg()) for cohort in options.cohorts}, options)
    by_cohort = [{"cohort": cohort, "round_s": times[cohort]} for cohort in options.cohorts]
    federations = {clients: federation(clients) for clients in options.clients}
    rules = {"fedavg": ff.fedavg(), "fedmaba": ff.fedmaba()}
    sims = {(name, n): simulate(data, 10, rule) for n, data in federations.items() for name, rule in rules.items()}
    times = measure(sims, options)
    by_clients: list[dict] = []
    for clients, data in federations.items():
        entry: dict = {"clients": clients, "examples_bytes": size_of((data.x, data.y))}
        entry["tables_bytes"] = size_of(data) - entry["examples_bytes"]
        by_clients.append({**entry, **{name: times[name, clients] for name in rules}})

    first = [
        [
            f"{e['cohort']:,}",
            common.spread(e["round_s"]),
            f"{statistics.median(e['round_s']) / e['cohort'] * 1e6:.3g}",
        ]
        for e in by_cohort
    ]
    second = [
        [
            f"{e['clients']:,}",
            common.spread(e["fedavg"]),
            common.spread(e["fedmaba"]),
            *(f"{e[part] / e['clients']:.0f}" for part in ("examples_bytes", "tables_bytes")),
        ]
        for e in by_clients
    ]
    notes = (
        f"Softmax regression {FEATURES}-10, {EXAMPLES} examples per client, {EXAMPLES // BATCH} steps of {BATCH}; "
        f"{options.repeats} calls of {options.rounds} rounds; median [lowest – highest]. FedMABA keeps a number "
        "per client and reads the losses. First table: of 1,000 clients; second: a cohort of 10."
    )
    tables = [
        (("cohort", "round, ms", "per client, µs"), first),
        (("clients", "FedAvg, ms", "FedMABA, ms", "bytes per client: examples", "tables"), second),
    ]
    out = common.folder(options.out, quick=options.quick)
    numbers = {"by_cohort": by_cohort, "by_clients": by_clients}
    common.write(out, "growth", "How a round's time grows", notes, tables, numbers)
    plot(by_cohort, by_clients, out / "growth.png")


def plot(by_cohort: list[dict], by_clients: list[dict], path: Path) -> None:
    """Two panels on logarithmic axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", sharey=True)
    blue, orange = report.COLOURS["ours"], report.COLOURS["torch_loop"]
    line(left, [e["cohort"] for e in by_cohort], [e["round_s"] for e in by_cohort], "FedAvg", blue, "o")
    clients = [e["clients"] for e in by_clients]
    line(right, clients, [e["fedavg"] for e in by_clients], "FedAvg", blue, "o")
    line(right, clients, [e["fedmaba"] for e in by_clients], "FedMABA", orange, "s")
    left.set(xlabel="clients per round, of 1,000", ylabel="ms per round")
    right.set(xlabel="clients in the federation, 10 per round")
    for axis in (left, right):
        axis.set(xscale="log", yscale="log")
        axis.grid(alpha=0.3)
        axis.legend()
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def line(axis: Any, x: list[int], times: list[list[float]], label: str, colour: str, marker: str) -> None:
    """Medians, and a band from lowest to highest."""
    axis.plot(x, [statistics.median(t) * 1e3 for t in times], color=colour, marker=marker, label=label)
    axis.fill_between(x, [min(t) * 1e3 for t in times], [max(t) * 1e3 for t in times], color=colour, alpha=0.2)


if __name__ == "__main__":
    main()

"""How long every client's Shapley share takes, beside the same coalitions trained one after another by ``ff.run``.

A hundred clients and 200 permutations on softmax regressions. The separate runs are timed on a sample of the
coalitions: as a loop would make them, each a simulation that is compiled, and again with all compiled already.
"""

import dataclasses
import statistics
import time
from pathlib import Path

import numpy as np
import optax
import tyro

import fedjax_fair as ff
from benchmarks.speed import common


@dataclasses.dataclass
class Options:
    """Time ff.contribution, and separate runs of a sample of its coalitions."""

    settings: tuple[str, ...] = ("synthetic", "fashion-mnist")
    """Of these two; the second needs prepared data."""
    permutations: int = 200
    separate: int = 6
    """Coalitions that are run separately."""
    out: Path | None = None
    """Folder for the results."""
    quick: bool = False
    """Small: to see that it runs."""


ROUNDS = {"synthetic": 50, "fashion-mnist": 20}
"""Of every training."""


def synthetic() -> ff.FederatedData:
    """A hundred clients of very different sizes: 60 features, 10 classes, 610 parameters."""
    return ff.data.synthetic(n_clients=100, alpha=1.0, beta=1.0, seed=0)


def fashion_mnist() -> ff.FederatedData:
    """A hundred clients with 60 examples of about two classes each, 12 of them for the test: 7,850 parameters."""
    everything = ff.data.load("fashion_mnist", partition=ff.partition.iid(2))
    rows = np.random.default_rng(0).choice(len(everything.y), 6000, replace=False)
    x, y = (np.asarray(part)[rows] for part in (everything.x, everything.y))
    return ff.FederatedData.from_arrays(x, y, partition=ff.partition.shards(100, 2), split=(0.8, 0, 0.2))


def build(data: ff.FederatedData, **settings) -> ff.Simulation:
    """Ten clients a round, five local steps of ten examples."""
    return ff.simulation(
        ff.models.logistic_regression(),
        data,
        aggregator=ff.fedavg("uniform"),
        selector=ff.uniform(10),
        trainer=ff.local_sgd(optax.sgd(0.1), steps=5, batch_size=10),
        **settings,
    )


def separately(data: ff.FederatedData, rounds: int, count: int) -> tuple[float, float]:
    """Median seconds of ``ff.run`` of a coalition: with its compilation, and without."""
    draws, cold, warm = np.random.default_rng(0), [], []
    for size in np.linspace(10, data.n_clients, count).astype(int):
        members = np.isin(np.arange(data.n_clients), draws.permutation(data.n_clients)[:size])
        begun = time.perf_counter()
        sim = build(data, available=ff.availability.trace(members[None]))
        for times in (cold, warm):
            ff.run(sim, 0, rounds, eval_every=rounds, progress=False)
            times.append(time.perf_counter() - begun)
            begun = time.perf_counter()
    return statistics.median(cold), statistics.median(warm)


def main() -> None:
    """Every setting by every variant, and the separate runs."""
    options = tyro.cli(Options)
    if options.quick:
        options = dataclasses.replace(options, settings=("synthetic",), permutations=4, separate=2)
    federations = {"synthetic": synthetic, "fashion-mnist": fashion_mnist}
    variants: dict[str, dict] = {
        "shapley": {"permutations": options.permutations},
        "shapley of accuracy, cut off at .05": {
            "permutations": options.permutations,
            "measures": ["accuracy"],
            "tolerance": 0.05,
        },
        "federated-shapley": {"method": "federated-shapley"},
    }
    rows, numbers = [], {}
    for setting in options.settings:
        data, rounds = federations[setting](), 2 if options.quick else ROUNDS[setting]
        cold, warm = separately(data, rounds, options.separate)
        numbers[setting] = {"separate, compiling": cold, "separate, compiled": warm}
        for variant, settings in variants.items():
            begun = time.perf_counter()
            found = ff.contribution(build, data, rounds=rounds, progress=False, **settings)
            seconds = time.perf_counter() - begun
            print(f"{setting}, {variant}: {seconds:.1f} s\n{found}\n", flush=True)
            told = {"seconds": seconds, "coalitions": found.coalitions, "cut": found.cut, "gain": found.gain}
            told["shares"] = {measure: each.tolist() for measure, each in found.shares.items()}
            told["error"] = {measure: float(np.mean(error)) for measure, error in found.errors.items()}
            numbers[setting][variant] = told
            separate = ["–", "–"]
            if found.method == "shapley":
                separate = [f"{found.coalitions * cold / 3600:.1f} h", f"{found.coalitions * warm / 60:.1f} min"]
            counts = [str(rounds), variant, f"{found.coalitions:,}", str(found.cut)]
            rows.append([setting, *counts, f"{seconds / 60:.1f} min", *separate])
    columns = ("setting", "rounds", "method", "coalitions", "cut off", "together", "separate", "separate, compiled")
    notes = (
        f"A hundred clients, ten a round, softmax regressions; shapley by {options.permutations} permutations; "
        f"federated-shapley exact in every round. Separate: the coalitions times the median of {options.separate} "
        "of them by ff.run, each with its compilation; then as if all were compiled already."
    )
    place = common.folder(options.out, quick=options.quick)
    common.write(place, "contribution", "Contribution", notes, [(columns, rows)], numbers)


if __name__ == "__main__":
    main()

"""Are personal models fairer than a fair global one, and do the two add up?

    fedjax-fair reproduce personalised [--quick]

Fashion-MNIST, then CIFAR-10, dealt to 100 clients in shards (two classes each), 10 a round, an MLP of one hidden
layer, one local epoch in batches of 50. Ditto keeps a model for every client beside the global one, which FedAvg or
FedMABA makes; FedPer keeps the last layer. Beside them the global model tuned by every client for five steps, and
every client alone (Ditto with lam = 0). A replicate is a partition and a training seed, the same for all.
"""

from pathlib import Path

import numpy as np
import optax

import fedjax_fair as ff
from benchmarks.papers.common import play, spread
from benchmarks.papers.runs import Row
from fedjax_fair.engine.files import to_json, write_atomically
from fedjax_fair.metrics.significance import paired
from fedjax_fair.results.folder import about

CLIENTS, COHORT, HIDDEN = 100, 10, 100
DATASETS = {"Fashion-MNIST": ("fashion_mnist", 0.1), "CIFAR-10": ("cifar10", 0.01)}
"""And their rates: at .1 the MLP learns nothing of CIFAR-10, nor does a client alone."""
RULES = {
    "FedAvg": (lambda: ff.fedavg("uniform"), ("test", "test@tuned")),
    "FedMABA": (lambda: ff.fedmaba(alpha=0.5, eta_b=0.5), ("test", "test@tuned")),
    "alone": (lambda: ff.ditto(0.0, aggregator=ff.fedavg("uniform")), ("test@personal",)),
    "Ditto, lam = 1": (lambda: ff.ditto(1.0, aggregator=ff.fedavg("uniform")), ("test@personal",)),
    "Ditto, lam = .1": (lambda: ff.ditto(0.1, aggregator=ff.fedavg("uniform")), ("test@personal",)),
    "FedMABA + Ditto, lam = 1": (lambda: ff.ditto(1.0, aggregator=ff.fedmaba(0.5, 0.5)), ("test@personal",)),
    "FedMABA + Ditto, lam = .1": (lambda: ff.ditto(0.1, aggregator=ff.fedmaba(0.5, 0.5)), ("test@personal",)),
    "FedPer": (lambda: ff.fedper(aggregator=ff.fedavg("uniform")), ("test@personal",)),
}
QUICK = ("FedAvg", "Ditto, lam = 1", "FedMABA + Ditto, lam = 1")
MEASURES = {"accuracy": ("acc %", 1), "variance": ("var %²", 0), "worst10": ("worst 10 %", 1), "gini": ("Gini", 3)}
BASELINE = "FedAvg; test"


def row(dataset: str, name: str) -> Row:
    """A rule on the replicate's own partition, judged in all its ways."""
    rule, splits = RULES[name]
    source, lr = DATASETS[dataset]
    tune = ff.local_sgd(optax.sgd(lr), steps=5, batch_size=50)
    judged = [ff.fine_tune(tune) if split == "test@tuned" else split for split in splits]

    def build(seed: int) -> ff.Simulation:
        return ff.simulation(
            ff.models.mlp((HIDDEN,)),
            ff.data.load(source, partition=ff.partition.shards(CLIENTS, 2), seed=seed),
            aggregator=rule(),
            selector=ff.uniform(COHORT),
            trainer=ff.local_sgd(optax.sgd(lr), epochs=1, batch_size=50),
            evaluate=judged,
        )

    return Row(f"{dataset}, {name}", build)


def measured(history: ff.History, split: str) -> dict[str, float]:
    """Mean over the last ten evaluations, in per cent."""
    found = ff.metrics.summary(history.scores[split].accuracy[-10:])
    return {name: float(np.mean(found[name])) for name in MEASURES}


def table(found: dict[str, dict[str, list[float]]]) -> str:
    """Mean ± standard deviation over the replicates, and paired differences from FedAvg's global model."""
    heads = [heading for heading, _ in MEASURES.values()]
    lines = ["| | " + " | ".join([*heads, "acc - FedAvg", "worst 10 % - FedAvg"]) + " |"]
    lines.append("|---" * (3 + len(heads)) + "|")
    for name, of in found.items():
        cells = [spread(of[measure], digits) for measure, (_, digits) in MEASURES.items()]
        for measure in ("accuracy", "worst10"):
            if name == BASELINE or len(of[measure]) < 2:
                cells.append("")
                continue
            pair = paired(np.array(of[measure]), np.array(found[BASELINE][measure]))
            cells.append(f"{pair.mean:+.1f} [{pair.low:.1f}, {pair.high:.1f}]")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def run(quick: bool, out: Path) -> None:
    seeds, rounds = (2, 30) if quick else (5, 200)
    names, datasets = (QUICK, ("Fashion-MNIST",)) if quick else (tuple(RULES), tuple(DATASETS))
    rows = [row(dataset, name) for dataset in datasets for name in names]
    _, histories = play(rows, out / "personalised.parts", seeds=seeds, rounds=rounds, measure=lambda history: {})
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for dataset in datasets:
        found[dataset] = {}
        for name in names:
            for split in RULES[name][1]:
                of_seeds = [measured(history, split) for history in histories[f"{dataset}, {name}"]]
                found[dataset][f"{name}; {split}"] = {m: [one[m] for one in of_seeds] for m in MEASURES}
    out.mkdir(parents=True, exist_ok=True)
    rates = {dataset: lr for dataset, (_, lr) in DATASETS.items()}
    settings = {"quick": quick, "seeds": seeds, "rounds": rounds, "lr": rates, "hidden": HIDDEN}
    header = about(f"fedjax-fair reproduce personalised{' --quick' if quick else ''}")
    write_atomically(out / "personalised.json", to_json({**header, **settings, "rows": found}, indent=1))
    tables = "\n".join(f"{dataset}\n\n{table(of)}" for dataset, of in found.items())
    note = "Mean ± standard deviation over the replicates; differences are paired, with 95 % intervals."
    text = f"{tables}\n{note}\n"
    write_atomically(out / "personalised.md", text)
    print(text)

"""PG-FFL's Table I, and its Figures 1, 3, 4 and 5 on Fashion-MNIST.

Stated: 5 clients that all take part, a four-layer MLP, on CIFAR a CNN, one local epoch for FedAvg and five for
FedProx, partitions IID, Case II (4 of the 20 blocks each) and Case III (2 of the 10 blocks each: disjoint labels),
about 1,000 rounds. Not stated: rates (.1 here), batch sizes (50), mu (.1), widths (200), the policy's step (Adam,
.001). The number of rounds here is 100 in the table and Figure 5, 300 in Figures 1 and 4: what a CPU affords. A
round on CIFAR takes some half a minute of a core, FedProx's two or three: a CPU trains FedAvg's rows of it from one
seed, a GPU all rows from three. FedProx's, with as many local steps as FedAvg's, are a study of their own.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import fedjax_fair as ff
from benchmarks.papers.common import Column, Found, keep, play, table, tabulate
from benchmarks.papers.runs import Row, fixed
from fedjax_fair import plot
from fedjax_fair.plot.style import style

COLUMNS = {"accuracy": Column("acc", 3), "gini": Column("Gini", 3), "best_accuracy": Column("acc, best", 3)} | {
    "best_gini": Column("Gini there", 3)
}


def cases(classes: int) -> dict[str, Any]:
    """Partitions for five clients; the numbers of blocks, stated for ten classes, grow with the classes."""
    overlapping, disjoint = (ff.partition.blocks(5, blocks * classes // 10) for blocks in (4, 2))
    return {"IID": ff.partition.iid(5), "Case II": overlapping, "Case III": disjoint}


CASES = cases(10)
FEDAVG = ("FedAvg", "PGF-FedAvg")
FEDPROX = ("FedProx", "PGF-FedProx")
CASE_I = ff.partition.blocks(100, 20)
PRINTED = {  # accuracy and Gini: IID, Case II, Case III
    "FedAvg": ((0.869, 0.032), (0.850, 0.063), (0.737, 0.074)),
    "PGF-FedAvg": ((0.884, 0.021), (0.874, 0.024), (0.796, 0.033)),
    "FedProx": ((0.879, 0.021), (0.851, 0.045), (0.828, 0.037)),
    "PGF-FedProx": ((0.883, 0.017), (0.854, 0.031), (0.836, 0.020)),
}

PRINTED_CIFAR = {
    "cifar10": {
        "FedAvg": ((0.675, 0.098), (0.612, 0.102), (0.454, 0.161)),
        "PGF-FedAvg": ((0.683, 0.042), (0.665, 0.049), (0.488, 0.053)),
        "FedProx": ((0.708, 0.107), (0.595, 0.110), (0.422, 0.154)),
        "PGF-FedProx": ((0.689, 0.073), (0.608, 0.037), (0.453, 0.031)),
    },
    "cifar100": {
        "FedAvg": ((0.493, 0.130), (0.468, 0.133), (0.316, 0.151)),
        "PGF-FedAvg": ((0.502, 0.093), (0.491, 0.068), (0.337, 0.093)),
        "FedProx": ((0.509, 0.133), (0.467, 0.143), (0.299, 0.164)),
        "PGF-FedProx": ((0.514, 0.084), (0.483, 0.079), (0.331, 0.085)),
    },
}


def fractions(history: ff.History) -> dict[str, float]:
    """Of the last ten evaluations, and of the best, as the paper writes them: in [0, 1]."""
    from benchmarks.papers.common import last_ten

    found = last_ten(history)
    return {n: value / 100 if n.endswith("accuracy") else value for n, value in found.items() if n in COLUMNS}


def keep_drawn(
    figure: Any, out: Path, name: str, settings: dict[str, Any], rows: list[Row], found: Found, caption: str
) -> None:
    """Write a figure, the table of its rows, and the study's JSON."""
    plot.save(figure, out / f"{name}.png")
    keep(out, name, settings, rows, found, f"{table(rows, found, COLUMNS)}\n![{caption}]({name}.png)\n")


def system(name: str, data: ff.FederatedData, cohort: int) -> Any:
    """FedAvg or FedProx, with the policy's weights for PGF-."""
    prox = name.endswith("FedProx")
    rule = ff.pg_ffl() if name.startswith("PGF") else ff.fedavg()
    trainer = ff.local_sgd(
        optax.sgd(0.1),
        epochs=5 if prox else 1,
        batch_size=50,
        objective=ff.proximal(0.1) if prox else ff.erm,
    )
    grey = data.x.shape[-1] == 1
    model = ff.models.mlp((200, 200, 200)) if grey else ff.models.cnn(classes=int(data.y.max()) + 1)
    return fixed(lambda: ff.simulation(model, data, aggregator=rule, trainer=trainer, selector=ff.uniform(cohort)))


def table1(quick: bool, out: Path) -> None:
    """Accuracy and Gini of four systems on three partitions."""
    lengths = (1, 10) if quick else (3, 100)
    columns("pgffl-table1", "fashion_mnist", FEDAVG if quick else tuple(PRINTED), lengths, quick, out)


def table1_cifar10(quick: bool, out: Path) -> None:
    """The same on CIFAR-10; on a CPU of FedAvg with and without the policy, from one seed."""
    cifar("cifar10", quick, out)


def table1_cifar100(quick: bool, out: Path) -> None:
    """The same on CIFAR-100."""
    cifar("cifar100", quick, out)


def table1_cifar10_fedprox(quick: bool, out: Path) -> None:
    """FedProx's rows in 20 rounds of five epochs: as many local steps as FedAvg's 100 of one."""
    fedprox("cifar10", quick, out)


def table1_cifar100_fedprox(quick: bool, out: Path) -> None:
    """The same on CIFAR-100."""
    fedprox("cifar100", quick, out)


def fedprox(dataset: str, quick: bool, out: Path) -> None:
    """From one seed, which a CPU affords."""
    columns(f"pgffl-table1-{dataset}-fedprox", dataset, FEDPROX, (1, 1 if quick else 20), quick, out)


def cifar(dataset: str, quick: bool, out: Path) -> None:
    """As many rows and seeds as the machine affords."""
    slow = quick or jax.default_backend() == "cpu"
    lengths = (1, 1) if quick else (1 if slow else 3, 100)
    systems = FEDAVG if slow else tuple(PRINTED)
    note = f"\nFedProx's rows of 100 rounds need a GPU; `pgffl-table1-{dataset}-fedprox` has 20.\n" * slow
    columns(f"pgffl-table1-{dataset}", dataset, systems, lengths, quick, out, note)


def columns(
    name: str,
    dataset: str,
    systems: tuple[str, ...],
    lengths: tuple[int, int],
    quick: bool,
    out: Path,
    note: str = "",
) -> None:
    """The columns of Table I that are of one data set; ``lengths``: seeds and rounds."""
    printed = PRINTED_CIFAR.get(dataset, PRINTED)
    rows = []
    for i, (case, partition) in enumerate(cases(100 if dataset == "cifar100" else 10).items()):
        data = ff.data.load(dataset, partition=partition, seed=0)
        for each in systems:
            values = dict(zip(("accuracy", "gini"), printed[each][i]))
            rows.append(Row(f"{case}: {each}", system(each, data, 5), values))
    settings = {"quick": quick, "seeds": lengths[0], "rounds": lengths[1]}
    tabulate(rows, out, name, COLUMNS, settings, note, eval_every=max(1, lengths[1] // 20), measure=fractions)


def fig1(quick: bool, out: Path) -> None:
    """Lorenz curves of FedAvg on 100 clients, 10 a round: IID against Case I (20 of 2,000 blocks each)."""
    seeds, rounds = (1, 50) if quick else (3, 300)
    kinds = {"IID": ff.partition.iid(100), "non-IID (Case I)": CASE_I}
    rows = [
        Row(kind, system("FedAvg", ff.data.load("fashion_mnist", partition=partition, seed=0), 10))
        for kind, partition in kinds.items()
    ]
    place = out / "pgffl-fig1.parts"
    found, histories = play(rows, place, seeds=seeds, rounds=rounds, measure=fractions)
    last = {kind: np.stack([h.accuracy[-1] for h in runs]) for kind, runs in histories.items()}
    settings = {"quick": quick, "seeds": seeds, "rounds": rounds}
    keep_drawn(plot.lorenz(last), out, "pgffl-fig1", settings, rows, found, "Lorenz curves")


@plot.paper()
def fig4(quick: bool, out: Path) -> None:
    """Accuracy and Gini over the rounds: Case I, 100 clients, 10 a round, with and without the plug-in."""
    from matplotlib.figure import Figure

    seeds, rounds = (1, 50) if quick else (3, 300)
    data = ff.data.load("fashion_mnist", partition=CASE_I, seed=0)
    rows = [Row(name, system(name, data, 10)) for name in (FEDAVG if quick else PRINTED)]
    found, histories = play(rows, out / "pgffl-fig4.parts", seeds=seeds, rounds=rounds, measure=fractions)
    figure = Figure((2 * plot.WIDTH, 2.4), layout="constrained")
    measures = {"Mean accuracy (%)": lambda a: 100 * a.mean(1), "Gini coefficient": ff.metrics.gini}
    for ax, (name, measure) in zip(figure.subplots(1, 2), measures.items()):
        curves = {n: (h[0].rounds, np.stack([measure(run.accuracy) for run in h])) for n, h in histories.items()}
        plot.over_rounds(curves, name, ax=ax)
        ax.get_legend().remove()
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False, fontsize=7)
    settings = {"quick": quick, "seeds": seeds, "rounds": rounds}
    keep_drawn(figure, out, "pgffl-fig4", settings, rows, found, "Accuracy and Gini over rounds")


@plot.paper()
def fig5(quick: bool, out: Path) -> None:
    """Case I with 10, 25, 50 and 75 of 100 clients a round: mean accuracy, and its spread over the clients."""
    from matplotlib.figure import Figure

    seeds, rounds = (1, 20) if quick else (3, 100)
    data = ff.data.load("fashion_mnist", partition=CASE_I, seed=0)
    cohorts = (10, 50) if quick else (10, 25, 50, 75)
    rows = [Row(f"{name}, {cohort} %", system(name, data, cohort)) for cohort in cohorts for name in FEDAVG]
    place, every = out / "pgffl-fig5.parts", max(1, rounds // 20)
    found, histories = play(rows, place, seeds=seeds, rounds=rounds, eval_every=every, measure=fractions)
    figure = Figure((2 * plot.WIDTH, 2.2), layout="constrained")
    for ax, cohort in zip(figure.subplots(1, len(cohorts), sharey=True), cohorts):
        for i, name in enumerate(FEDAVG):
            runs = histories[f"{name}, {cohort} %"]
            mean, spread = (
                100 * np.mean([of(run.accuracy, 1) for run in runs], axis=0) for of in (np.mean, np.std)
            )
            ax.plot(runs[0].rounds, mean, label=name, **style(i))
            ax.fill_between(
                runs[0].rounds, mean - spread, mean + spread, color=style(i)["color"], alpha=0.15, linewidth=0
            )
        ax.set(title=f"{cohort} of 100", xlabel="Round")
    figure.axes[0].set_ylabel("Accuracy (%)")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False, fontsize=7)
    settings = {"quick": quick, "seeds": seeds, "rounds": rounds}
    caption = "Participation; bands: one standard deviation over the clients"
    keep_drawn(figure, out, "pgffl-fig5", settings, rows, found, caption)


@plot.paper()
def fig3(quick: bool, out: Path) -> None:
    """The three partitions as pictures: how many training images of each class every client holds."""
    from matplotlib.figure import Figure

    figure = Figure((2 * plot.WIDTH, 2.2), layout="constrained")
    for ax, (case, partition) in zip(figure.subplots(1, 3, sharey=True), CASES.items()):
        plot.partition(ff.data.load("fashion_mnist", partition=partition, seed=0), ax=ax)
        ax.get_legend().remove()
        ax.set(title=case, ylabel="" if ax is not figure.axes[0] else ax.get_ylabel())
    figure.legend(*ax.get_legend_handles_labels(), title="class", loc="outside right center", frameon=False)
    plot.save(figure, out / "pgffl-fig3.png")
    settings = {"quick": quick, "seeds": 0, "rounds": 0}
    keep(out, "pgffl-fig3", settings, [], {}, "![Partitions](pgffl-fig3.png)\n")

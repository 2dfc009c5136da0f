"""PG-FFL's Table I and Figures 1, 3, 4 and 5, on Fashion-MNIST.

Stated: 5 clients that all take part, a four-layer MLP, one local epoch for FedAvg and five for FedProx, partitions
IID, Case II (4 of the 20 blocks each) and Case III (2 of the 10 blocks each: disjoint labels), about 1,000 rounds.
Not stated: rates (.1 here), batch sizes (50), mu (.1), widths (200), the policy's step (Adam, .001). The number of
rounds here is 100 in the table and Figure 5, 300 in Figures 1 and 4: what a CPU affords.
"""

from pathlib import Path
from typing import Any

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
CASES = {"IID": ff.partition.iid(5), "Case II": ff.partition.blocks(5, 4), "Case III": ff.partition.blocks(5, 2)}
CASE_I = ff.partition.blocks(100, 20)
PRINTED = {  # accuracy and Gini: IID, Case II, Case III
    "FedAvg": ((0.869, 0.032), (0.850, 0.063), (0.737, 0.074)),
    "PGF-FedAvg": ((0.884, 0.021), (0.874, 0.024), (0.796, 0.033)),
    "FedProx": ((0.879, 0.021), (0.851, 0.045), (0.828, 0.037)),
    "PGF-FedProx": ((0.883, 0.017), (0.854, 0.031), (0.836, 0.020)),
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
    return fixed(
        lambda: ff.simulation(
            ff.models.mlp((200, 200, 200)), data, aggregator=rule, trainer=trainer, selector=ff.uniform(cohort)
        )
    )


def table1(quick: bool, out: Path) -> None:
    """Accuracy and Gini of four systems on three partitions."""
    seeds, rounds = (1, 10) if quick else (3, 100)
    systems = ("FedAvg", "PGF-FedAvg") if quick else tuple(PRINTED)
    rows = []
    for i, (case, partition) in enumerate(CASES.items()):
        data = ff.data.load("fashion_mnist", partition=partition, seed=0)
        for name in systems:
            printed = dict(zip(("accuracy", "gini"), PRINTED[name][i]))
            rows.append(Row(f"{case}: {name}", system(name, data, 5), printed))
    settings = {"quick": quick, "seeds": seeds, "rounds": rounds}
    tabulate(rows, out, "pgffl-table1", COLUMNS, settings, eval_every=max(1, rounds // 20), measure=fractions)


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
    rows = [Row(name, system(name, data, 10)) for name in (("FedAvg", "PGF-FedAvg") if quick else PRINTED)]
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
    names = ("FedAvg", "PGF-FedAvg")
    rows = [Row(f"{name}, {cohort} %", system(name, data, cohort)) for cohort in cohorts for name in names]
    place, every = out / "pgffl-fig5.parts", max(1, rounds // 20)
    found, histories = play(rows, place, seeds=seeds, rounds=rounds, eval_every=every, measure=fractions)
    figure = Figure((2 * plot.WIDTH, 2.2), layout="constrained")
    for ax, cohort in zip(figure.subplots(1, len(cohorts), sharey=True), cohorts):
        for i, name in enumerate(names):
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

"""The fairness-accuracy frontier: all rules on Fashion-MNIST, 100 clients of two labels, 10 a round.

Logistic regression, one local epoch in batches of 50 at rate .1, 500 rounds; the statistic is the mean over the
last ten evaluations, the cross a 95 % confidence interval over seeds (Student's t). Rules have their default
settings: this figure compares starting points, and ``notebooks/03`` tunes.
"""

from pathlib import Path

import numpy as np
import optax

import fedjax_fair as ff
from benchmarks.papers.common import ACCURACY, Row, fixed, keep, play, table
from fedjax_fair import plot, registry

LR = 0.1
T975 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}  # Student's t, two-sided 95 %, by the number of seeds


def interval(values: list[float]) -> tuple[float, float]:
    """Mean and half the width of its 95 % confidence interval."""
    if len(values) == 1:
        return values[0], 0.0
    return float(np.mean(values)), float(T975[len(values)] * np.std(values, ddof=1) / np.sqrt(len(values)))


@plot.paper()
def run(quick: bool, out: Path) -> None:
    from matplotlib.figure import Figure

    seeds, rounds = (1, 100) if quick else (5, 500)
    data = ff.data.load("fashion_mnist", partition=ff.partition.shards(100, 2), seed=0)
    names = [name for name in registry.AGGREGATORS if name != "aaggff_s"]  # which needs every client every round
    names = ["fedavg", "qfedavg", "fedmaba"] if quick else names

    def row(name: str) -> Row:
        settings = {"weighting": "uniform"} if name in ("fedavg", "fedprox", "fedsgd", "term", "propfair") else {}
        rule = registry.make_rule(name, settings, learning_rate=LR)

        def build() -> ff.Simulation:
            return ff.simulation(
                ff.models.logistic_regression(),
                data,
                aggregator=rule,
                selector=ff.uniform(10),
                trainer=ff.local_sgd(optax.sgd(LR), epochs=1, batch_size=50),
            )

        return Row(name, fixed(build))

    rows = [row(name) for name in names]
    found, _ = play(rows, out / "frontier.parts", seeds=seeds, rounds=rounds)
    figure = Figure((2 * plot.WIDTH, 3.6), layout="constrained")
    ax = figure.subplots()
    for i, name in enumerate(names):
        (x, dx), (y, dy) = (interval([seed[m] for seed in found[name]]) for m in ("accuracy", "variance"))
        ax.errorbar(
            x,
            y,
            dy,
            dx,
            color=plot.COLOURS[i % 7],
            marker=plot.MARKERS[i % 6],
            markersize=5,
            linestyle="none",
            elinewidth=0.7,
            label=name,
        )
    ax.set(xlabel="Mean client accuracy (%)", ylabel="Variance over clients (%²)", yscale="log")
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=7)
    plot.save(figure, out / "frontier.png")
    text = table(rows, found, ACCURACY) + "\n![Frontier](frontier.png)\n"
    keep(out, "frontier", {"quick": quick, "seeds": seeds, "rounds": rounds}, rows, found, text)

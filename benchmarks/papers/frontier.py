"""The fairness-accuracy frontier: eighteen rules on Fashion-MNIST, 100 clients of two labels, 10 a round.

Logistic regression, one local epoch in batches of 50 at rate .1, 500 rounds; the statistic is the mean over the
last ten evaluations, the cross a 95 % confidence interval over seeds (Student's t). Rules have their default
settings, but for uniform weights (all clients are of one size): this figure compares starting points, and
``notebooks/03`` tunes.
"""

from pathlib import Path

import numpy as np
import optax

import fedjax_fair as ff
from benchmarks.papers.common import ACCURACY, keep, plain_log, play, table
from benchmarks.papers.runs import Row, fixed
from fedjax_fair import plot, registry

LR = 0.1
ALIKE = {"fedavg": "size_softmax", "loss_proportional": "reweighted", "loss_softmax": "fedeba"}
"""With default settings and clients of one size the second gives what the first does: one point for both."""
RULES = (
    *("fedavg", "fedsgd", "fedprox", "qfedavg", "qfedsgd", "afl", "term", "fedmgda_plus", "fedfv", "propfair"),
    *("fedmaba", "aaggff_d", "pg_ffl", "loss_proportional", "loss_softmax"),
)
"""Later ones are in ``tuned-shelf``."""


@plot.paper()
def run(quick: bool, out: Path) -> None:
    from matplotlib.figure import Figure

    seeds, rounds = (1, 100) if quick else (5, 500)
    data = ff.data.load("fashion_mnist", partition=ff.partition.shards(100, 2), seed=0)
    names = ("fedavg", "qfedavg", "fedmaba") if quick else RULES

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

        return Row(f"{name}, {ALIKE[name]}" if name in ALIKE else name, fixed(build))

    rows = [row(name) for name in names]
    found, histories = play(rows, out / "frontier.parts", seeds=seeds, rounds=rounds)
    figure = Figure((2 * plot.WIDTH, 3.6), layout="constrained")
    points = {name: np.stack([history.accuracy[-10:] for history in runs]) for name, runs in histories.items()}
    ax = plot.frontier(points, ax=figure.subplots())
    ax.get_legend().remove()
    plain_log(ax)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside right center", frameon=False)
    plot.save(figure, out / "frontier.png")
    text = table(rows, found, ACCURACY) + "\n![Frontier](frontier.png)\n"
    keep(out, "frontier", {"quick": quick, "seeds": seeds, "rounds": rounds}, rows, found, text)

"""UCB-CS's Figure 3: selection of 3 of 100 clients on Fashion-MNIST, Dirichlet .3 and 2.

An MLP with two hidden layers, 100 local steps of 64 examples, rate .005 halved after round 150. Not stated: the
layers' widths (200 each here), the number of rounds (300), d and gamma (tuned by the authors; 2m and .7 here),
seeds.
"""

from pathlib import Path

import numpy as np
import optax

import fedjax_fair as ff
from benchmarks.papers.common import Column, Found, Measured, keep, play, table
from benchmarks.papers.runs import Row, fixed
from benchmarks.papers.strategies import STRATEGIES
from fedjax_fair import plot

COLUMNS = {"accuracy": Column("acc %"), "worst10": Column("worst 10 %"), "train_loss": Column("training loss", 3)}


def measure(history: ff.History) -> Measured:
    """Mean over the last ten evaluations: pooled over clients of equal size."""
    rows = ff.metrics.summary(history.accuracy[-10:])
    loss = np.asarray(history.scores["train"].loss[-10:]).mean()
    return {name: float(np.mean(rows[name])) for name in ("accuracy", "worst10")} | {"train_loss": float(loss)}


@plot.paper()
def fig3(quick: bool, out: Path) -> None:
    """Test accuracy and training loss over rounds."""
    from matplotlib.figure import Figure

    seeds, rounds, alphas = (1, 60, (0.3,)) if quick else (3, 300, (0.3, 2.0))
    trainer = ff.local_sgd(optax.sgd(0.005), steps=100, batch_size=64, schedule=lambda r: 0.5 ** (r >= 150))
    data = {a: ff.data.load("fashion_mnist", partition=ff.partition.dirichlet(100, a), seed=0) for a in alphas}

    def row(name: str, alpha: float) -> Row:
        def build() -> ff.Simulation:
            return ff.simulation(
                ff.models.mlp((200, 200)),
                data[alpha],
                aggregator=ff.fedavg("uniform"),
                selector=STRATEGIES[name](3),
                trainer=trainer,
                evaluate=("test", "train"),
            )

        return Row(f"{name}, Dirichlet {alpha:g}", fixed(build))

    rows = [row(name, alpha) for alpha in alphas for name in STRATEGIES]
    found: Found
    found, histories = play(rows, out / "ucbcs-fig3.parts", seeds=seeds, rounds=rounds, measure=measure)
    figure = Figure((2 * plot.WIDTH, 2.2 * len(alphas) + 0.4), layout="constrained")
    panels = figure.subplots(len(alphas), 2, squeeze=False)
    for (left, right), alpha in zip(panels, alphas):
        runs = {name: histories[f"{name}, Dirichlet {alpha:g}"] for name in STRATEGIES}
        accuracy = {n: (h[0].rounds, 100 * np.stack([r.accuracy.mean(1) for r in h])) for n, h in runs.items()}
        loss = {n: (h[0].rounds, np.stack([r.scores["train"].loss.mean(1) for r in h])) for n, h in runs.items()}
        for ax, curves, label in ((left, accuracy, "Test accuracy (%)"), (right, loss, "Training loss (nats)")):
            plot.over_rounds(curves, label, band="std", ax=ax)
            ax.get_legend().remove()
            ax.set_title(f"Dirichlet {alpha:g}")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False, fontsize=7)
    plot.save(figure, out / "ucbcs-fig3.png")
    text = table(rows, found, COLUMNS) + "\n![Accuracy and loss over rounds](ucbcs-fig3.png)\n"
    keep(out, "ucbcs-fig3", {"quick": quick, "seeds": seeds, "rounds": rounds}, rows, found, text)

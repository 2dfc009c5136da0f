"""FedMABA's Tables II and III and Figures 1 and 2: 100 clients with two shards of different labels each.

Stated: two shards a client, SGD at rate .1 decaying by .999 a round, batches of 50, one local epoch (10 steps),
1,000 rounds on Fashion-MNIST, 2,000 on CIFAR, 3 seeds, an MLP with two hidden layers and a CNN with two
convolutions. Not stated: the number of clients, how many take part, the layers' widths, which accuracy is reported.
K = 10 steps of 50 make 500 examples a client, hence 100 clients; full participation fits Table II (a lead found by
trial), and so do an MLP 784-200-200-10 and pixels in [0, 1]. On a CPU the CIFAR tables are of one seed.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import fedjax_fair as ff
from benchmarks.papers.common import ACCURACY, Column, keep, plain_log, play, table, tabulate
from benchmarks.papers.runs import Row, fixed
from fedjax_fair import plot
from fedjax_fair.types import Objective

LR, DECAY = 0.1, 0.999
Printed = tuple[float, float, float, float]

# variance, accuracy, worst 5 %, best 5 %: Fashion-MNIST, CIFAR-10
TABLE2: dict[str, tuple[Any, Printed, Printed]] = {
    "FedAvg": (ff.fedavg("uniform"), (50.14, 85.66, 70.3, 96.7), (72.12, 68.41, 50.2, 83.67)),
    "FedSGD": (ff.fedsgd("uniform"), (47.89, 85.42, 69.8, 96.2), (70.66, 67.95, 48.78, 82.85)),
    "q-FFL, q = .005": (
        ff.qfedavg(0.005, lipschitz=lambda t: 1 / (LR * DECAY**t)),
        (47.65, 85.52, 69.8, 97.4),
        (71.19, 68.62, 50.4, 82.25),
    ),
    "FedMGDA+, eta = 1": (
        ff.fedmgda_plus(epsilon=0.1),
        (52.37, 85.67, 69.6, 99.0),
        (77.27, 68.25, 48.93, 84.07),
    ),
    "FedMGDA+, eta = .1": (
        ff.fedmgda_plus(epsilon=0.1),
        (76.61, 85.52, 64.8, 98.4),
        (69.69, 68.73, 51.0, 85.4),
    ),
    "TERM, t = .1": (ff.term(t=0.1, weighting="uniform"), (317.82, 69.41, 25.6, 92.4), (199.3, 30.77, 1.8, 59.0)),
    "AFL, .05": (ff.afl(lr=0.05), (49.97, 85.63, 69.2, 96.6), (64.54, 66.39, 50.8, 82.08)),
    "AFL, .5": (ff.afl(lr=0.5), (56.69, 85.79, 67.8, 98.33), (68.92, 68.12, 51.8, 83.0)),
    "PropFair, M = 5": (
        ff.propfair(M=5.0, epsilon=0.2, weighting="uniform"),
        (89.72, 83.42, 58.6, 95.8),
        (79.64, 65.82, 43.8, 81.0),
    ),
    "FedProx, mu = .1": (
        ff.fedprox(mu=0.1, weighting="uniform"),
        (49.89, 85.15, 70.4, 97.2),
        (66.05, 68.29, 51.94, 83.2),
    ),
    "FedMABA, alpha = .5": (
        ff.fedmaba(alpha=0.5, eta_b=0.5),
        (34.54, 86.02, 71.98, 95.88),
        (62.52, 68.58, 52.08, 82.74),
    ),
    "FedMABA, alpha = .8": (
        ff.fedmaba(alpha=0.8, eta_b=0.5),
        (31.43, 85.88, 72.6, 95.6),
        (60.84, 68.43, 52.27, 82.47),
    ),
}
# Table III: CIFAR-100
TABLE3: dict[str, Printed] = {
    "FedAvg": (25.49, 56.95, 45.16, 67.59),
    "q-FFL, q = .005": (24.58, 56.49, 44.69, 67.42),
    "FedProx, mu = .1": (23.47, 56.56, 46.05, 65.97),
    "FedMGDA+, eta = 1": (23.72, 56.08, 45.6, 66.54),
    "AFL, .05": (22.73, 55.59, 45.56, 65.23),
    "FedMABA, alpha = .5": (22.27, 56.47, 47.29, 67.61),
}
DRAWN = ("FedAvg", "AFL, .5", "FedMABA, alpha = .5")
"""The rules of Figure 1."""
BEST = {f"best_{name}": Column(f"{column.heading}, best", column.digits) for name, column in ACCURACY.items()}
COLUMNS = ACCURACY | {name: BEST[name] for name in ("best_accuracy", "best_variance")}


def trainer(objective: Objective = ff.erm, decay: float = DECAY) -> Any:
    return ff.local_sgd(optax.sgd(LR), epochs=1, batch_size=50, schedule=lambda t: decay**t, objective=objective)


def federation(dataset: str) -> ff.FederatedData:
    """100 clients of two labels each, 500 images to train on: with 100 of their own to test on Fashion-MNIST, where
    600 are there, and with the official test images on CIFAR."""
    deal = ff.partition.shards(100, 2)
    if dataset == "fashion_mnist":
        return ff.data.load(dataset, partition=deal, seed=0, split=(5 / 6, 0.0, 1 / 6))
    return ff.data.load(dataset, partition=deal, seed=0, split=(1.0, 0.0, 0.0), test="official")


def row(
    name: str,
    rule: Any,
    data: ff.FederatedData,
    cohort: int,
    printed: Printed | tuple[()] = (),
    *,
    model: Any = None,
    decay: float = DECAY,
) -> Row:
    """A rule on a federation: where no model is given, an MLP for grey images, a CNN for colour."""
    if model is None:
        grey = data.x.shape[-1] == 1
        model = ff.models.mlp((200, 200)) if grey else ff.models.cnn(classes=int(data.y.max()) + 1)
    server = optax.sgd(0.1 if name.endswith("eta = .1") else 1.0)

    def build() -> ff.Simulation:
        return ff.simulation(
            model,
            data,
            aggregator=rule,
            trainer=trainer(decay=decay),
            selector=ff.uniform(cohort),
            server_optimizer=server,
        )

    return Row(name, fixed(build), dict(zip(("variance", "accuracy", "worst5", "best5"), printed)))


def study(name: str, rows: list[Row], quick: bool, out: Path, seeds: int, rounds: int, of: int = 0) -> None:
    """Train, and write the table; ``of``: how many rounds the paper makes, where these are fewer."""
    settings = {"quick": quick, "seeds": seeds, "rounds": rounds, "lr": LR, "decay": DECAY}
    made = f"{rounds:,} rounds from {seeds} {'seed' if seeds == 1 else 'seeds'}"
    note = f"\n{made}; the paper's figures are after {of:,} rounds, from 3.\n" if of > rounds or seeds < 3 else ""
    tabulate(rows, out, name, COLUMNS, settings, note)


def cifar_lengths(quick: bool) -> tuple[int, int, int]:
    """Seeds, rounds, and the paper's rounds."""
    if quick:
        return 1, 10, 2000
    return (1 if jax.default_backend() == "cpu" else 3), 2000, 2000


def some(quick: bool) -> tuple[str, ...]:
    return DRAWN if quick else tuple(TABLE2)


def table2_fmnist(quick: bool, out: Path) -> None:
    """Table II, Fashion-MNIST, full participation."""
    data = federation("fashion_mnist")
    rows = [row(n, TABLE2[n][0], data, 100, TABLE2[n][1]) for n in some(quick)]
    study("fedmaba-table2-fmnist", rows, quick, out, *((1, 100) if quick else (3, 1000)), of=1000)


def table2_cifar10(quick: bool, out: Path) -> None:
    """Table II, CIFAR-10, 10 of 100 clients a round (as the same group's FedEBA+ does)."""
    data = federation("cifar10")
    rows = [row(n, TABLE2[n][0], data, 10, TABLE2[n][2]) for n in some(quick)]
    study("fedmaba-table2-cifar10", rows, quick, out, *cifar_lengths(quick))


def table3_cifar100(quick: bool, out: Path) -> None:
    """Table III, CIFAR-100."""
    data = federation("cifar100")
    rows = [row(n, TABLE2[n][0], data, 10, TABLE3[n]) for n in TABLE3 if not quick or n in some(quick)]
    study("fedmaba-table3-cifar100", rows, quick, out, *cifar_lengths(quick))


@plot.paper()
def fig1(quick: bool, out: Path) -> None:
    """Variance over rounds on Fashion-MNIST, with all clients, and with 10 of 100."""
    data = federation("fashion_mnist")
    seeds, rounds = (1, 100) if quick else (3, 1000)
    rows, found, sides = [], {}, {}
    for cohort in (100, 10):
        some = [row(n, TABLE2[n][0], data, cohort) for n in DRAWN]
        place = "fedmaba-table2-fmnist.parts" if cohort == 100 else "fedmaba-fig1.parts"  # the table's runs serve
        measured, sides[f"{cohort} of 100 clients a round"] = play(some, out / place, seeds=seeds, rounds=rounds)
        rows += [one._replace(name=f"{one.name}, {cohort} a round") for one in some]
        found |= {f"{name}, {cohort} a round": values for name, values in measured.items()}
    draw_variance(sides, out / "fedmaba-fig1.png")
    text = table(rows, found, COLUMNS) + "\n![Variance over rounds](fedmaba-fig1.png)\n"
    keep(out, "fedmaba-fig1", {"quick": quick, "seeds": seeds, "rounds": rounds}, rows, found, text)


@plot.paper()
def fig1_cifar10(quick: bool, out: Path) -> None:
    """Variance over rounds on CIFAR-10, the paper's right half; 10 of 100 clients a round, of the table's runs."""
    name, data, (seeds, rounds, _) = "fedmaba-fig1-cifar10", federation("cifar10"), cifar_lengths(quick)
    rows = [row(n, TABLE2[n][0], data, 10, TABLE2[n][2]) for n in DRAWN]
    found, histories = play(rows, out / "fedmaba-table2-cifar10.parts", seeds=seeds, rounds=rounds)
    over = 1 if quick else 10
    draw_variance({"CIFAR-10, 10 of 100 clients a round": histories}, out / f"{name}.png", over)
    text = table(rows, found, COLUMNS) + f"\n![Variance over rounds]({name}.png)\n"
    text += f"\nA point of the figure is the mean of {over} evaluations in a row.\n" * (over > 1)
    keep(out, name, {"quick": quick, "seeds": seeds, "rounds": rounds}, rows, found, text)


def draw_variance(sides: dict[str, dict[str, list[ff.History]]], path: Path, over: int = 1) -> None:
    """A panel per title: the variance of the clients' accuracies over the rounds by some rules; a point is the mean
    of ``over`` evaluations in a row, the last of them in its round."""
    from matplotlib.figure import Figure

    def in_a_row(values: Any) -> Any:
        return np.convolve(values, np.full(over, 1 / over), "valid")

    figure = Figure((len(sides) * plot.WIDTH, 2.4), layout="constrained")
    for ax, (title, histories) in zip(figure.subplots(1, len(sides), squeeze=False)[0], sides.items()):
        curves = {
            name: (runs[0].rounds[over - 1 :], np.stack([in_a_row(ff.metrics.variance(h.accuracy)) for h in runs]))
            for name, runs in histories.items()
        }
        plot.over_rounds(curves, "Variance (%²)", ax=ax)
        ax.get_legend().remove()
        ax.set_title(title)
        plain_log(ax)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False, fontsize=7)
    plot.save(figure, path)


def fig2(quick: bool, out: Path) -> None:
    """The ablation: eta_b at alpha = .5, and alpha at eta_b = .5, Fashion-MNIST."""
    data = federation("fashion_mnist")
    steps = (0.1, 1.0) if quick else (0.1, 0.3, 0.5, 0.7, 1.0)
    shares = (0.1, 0.9) if quick else (0.1, 0.3, 0.5, 0.7, 0.9)
    rows = [row("FedAvg", ff.fedavg("uniform"), data, 100)]
    rows += [row(f"eta_b = {e:g}, alpha = 0.5", ff.fedmaba(alpha=0.5, eta_b=e), data, 100) for e in steps]
    rows += [
        row(f"eta_b = 0.5, alpha = {a:g}", ff.fedmaba(alpha=a, eta_b=0.5), data, 100) for a in shares if a != 0.5
    ]
    study("fedmaba-fig2", rows, quick, out, *((1, 60) if quick else (3, 300)))


def choices(quick: bool, out: Path) -> None:
    """CIFAR-10's setting changed in one thing at a time, with an MLP and few rounds: which change moves most?"""
    data = federation("cifar10")
    deal = ff.partition.dirichlet(100, 0.3)
    usual = {"data": data, "cohort": 10, "model": ff.models.mlp((200, 200))}
    ways: dict[str, dict[str, Any]] = {"as here": {}, "hidden layers of 400": {"model": ff.models.mlp((400, 400))}}
    if not quick:
        dealt = ff.data.load("cifar10", partition=deal, seed=0, split=(1.0, 0.0, 0.0), test="official")
        ways |= {
            "no decay": {"decay": 1.0},
            "Dirichlet .3 in the place of shards": {"data": dealt},
            "all clients a round": {"cohort": 100},
        }
    rules = {name: TABLE2[name][0] for name in ("FedAvg", "FedMABA, alpha = .5")}
    rows = [
        row(f"{way}: {n}", rule, **{**usual, **change}) for way, change in ways.items() for n, rule in rules.items()
    ]
    settings = {"quick": quick, "seeds": 1 if quick else 2, "rounds": 10 if quick else 200, "lr": LR}
    tabulate(rows, out, "fedmaba-choices", COLUMNS, settings)

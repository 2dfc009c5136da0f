"""UCB-CS's Table I and Figures 1 and 2: selection on Synthetic(1, 1), judged by the clients' training losses.

30 clients of power-law sizes, logistic regression, 30 local steps of 50 examples, rate .05 halved after rounds 300
and 600, d = 2m, gamma = .7. Not stated: the number of rounds (800 here), how the sizes are drawn (capped at 20,000
here), seeds.
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax

import fedjax_fair as ff
from benchmarks.papers.common import NOTE, Found, Measured, keep, play, spread
from benchmarks.papers.runs import Row
from benchmarks.papers.strategies import STRATEGIES
from fedjax_fair import plot

COHORTS = (1, 2, 3)
# Table I: Jain's index of the losses at m = 1, 2, 3
PRINTED = {"rand": (0.43, 0.29, 0.66), "pow-d": (0.75, 0.89, 0.91)} | {
    "rpow-d": (0.32, 0.52, 0.39),
    "UCB-CS": (0.61, 0.61, 0.65),
}
ROUNDS = 800


def measure(history: ff.History, sizes: np.ndarray) -> Measured:
    """Jain's index and mean (by sizes) of the clients' training losses over the last ten evaluations."""
    loss = history.loss[-10:]
    weighted = loss @ (sizes / sizes.sum())
    jain = float(np.mean(np.asarray(ff.metrics.jain(loss))))
    return {"jain": jain, "loss": float(weighted.mean()), "last_jain": float(ff.metrics.jain(loss[-1]))}


def halved(round: jnp.ndarray) -> jnp.ndarray:
    """Factor on the learning rate: 1, then 1/2 from round 300, 1/4 from 600."""
    return 0.5 ** ((round >= 300).astype(float) + (round >= 600))


def federation(seed: int) -> ff.FederatedData:
    return ff.data.synthetic(n_clients=30, alpha=1.0, beta=1.0, seed=seed, max_size=20_000)


def trained(quick: bool, out: Path) -> tuple[list[Row], Found, dict[str, list[ff.History]], dict[str, object]]:
    """All strategies at all cohort sizes; the three studies share what is computed."""
    seeds, rounds = (2, 300) if quick else (10, ROUNDS)
    data = [federation(seed) for seed in range(seeds)]
    trainer = ff.local_sgd(optax.sgd(0.05), steps=30, batch_size=50, schedule=halved)

    def row(name: str, m: int, printed: float) -> Row:
        def build(seed: int) -> ff.Simulation:
            return ff.simulation(
                ff.models.logistic_regression(),
                data[seed],
                aggregator=ff.fedavg("uniform"),
                selector=STRATEGIES[name](m),
                trainer=trainer,
                evaluate=("train",),
            )

        return Row(f"{name}, m = {m}", build, {"jain": printed})

    rows = [row(name, m, PRINTED[name][m - 1]) for m in COHORTS for name in STRATEGIES]
    found: Found = {row.name: [] for row in rows}
    _, histories = play(rows, out / "ucbcs.parts", seeds=seeds, rounds=rounds, measure=lambda h: {})
    for name, runs in histories.items():
        found[name] = [measure(history, data[seed].sizes) for seed, history in enumerate(runs)]
    return rows, found, histories, {"quick": quick, "seeds": seeds, "rounds": rounds}


def table1(quick: bool, out: Path) -> None:
    """Fairness: Jain's index of the clients' losses."""
    rows, found, _, settings = trained(quick, out)
    head = "| strategy | " + " | ".join(f"m = {m}" for m in COHORTS)
    lines = [f"{head} | loss, m = 1 | loss, m = 2 | loss, m = 3 |", "|---" * 7 + "|"]
    for name in STRATEGIES:
        of = {m: found[f"{name}, m = {m}"] for m in COHORTS}
        jain = [f"{spread([r['jain'] for r in of[m]], 2)} [{PRINTED[name][m - 1]:.2f}]" for m in COHORTS]
        loss = [spread([r["loss"] for r in of[m]], 3) for m in COHORTS]
        lines.append(f"| {name} | " + " | ".join(jain + loss) + " |")
    keep(out, "ucbcs-table1", settings, rows, found, "\n".join(lines) + "\n" + NOTE)


@plot.paper()
def fig1(quick: bool, out: Path) -> None:
    """Global training loss over rounds, a panel for every m."""
    from matplotlib.figure import Figure

    rows, found, histories, settings = trained(quick, out)
    figure = Figure((2 * plot.WIDTH, 2.6), layout="constrained")
    for ax, m in zip(figure.subplots(1, 3, sharey=True), COHORTS):
        curves = {}
        for name in STRATEGIES:
            runs = histories[f"{name}, m = {m}"]
            shares = [federation(seed).sizes / federation(seed).sizes.sum() for seed in range(len(runs))]
            losses = np.stack([history.loss @ share for history, share in zip(runs, shares)])
            curves[name] = (runs[0].rounds, losses)
        plot.over_rounds(curves, "Global loss (nats)" if m == 1 else "", band="none", ax=ax)
        ax.get_legend().remove()
        ax.set(title=f"m = {m}", yscale="log", yticks=[0.3, 0.5, 1, 2, 3])
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False, fontsize=7)
    plot.save(figure, out / "ucbcs-fig1.png")
    text = "![Global loss over rounds](ucbcs-fig1.png)\n"
    keep(out, "ucbcs-fig1", settings, rows, found, text)


@plot.paper()
def fig2(quick: bool, out: Path) -> None:
    """Histogram of the clients' losses after the last round, m = 1, all seeds together."""
    from matplotlib.figure import Figure

    rows, found, histories, settings = trained(quick, out)
    figure = Figure((plot.WIDTH, 2.4), layout="constrained")
    ax = figure.subplots()
    edges = np.linspace(0, 1.5, 16)
    for i, name in enumerate(STRATEGIES):
        last = np.concatenate([history.loss[-1] for history in histories[f"{name}, m = 1"]])
        counts = np.histogram(np.minimum(last, 1.49), edges)[0] / settings["seeds"]
        ax.stairs(counts, edges, label=name, color=plot.COLOURS[i], linestyle=plot.DASHES[i], linewidth=1.2)
    ax.set(xlabel="Client's training loss (nats; last bin: all above)", ylabel="Clients")
    ax.legend(frameon=False)
    plot.save(figure, out / "ucbcs-fig2.png")
    keep(out, "ucbcs-fig2", settings, rows, found, "![Histogram of the clients' losses](ucbcs-fig2.png)\n")

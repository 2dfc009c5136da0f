"""FedMABA's open question: what becomes of the honest clients when others inflate their losses?

    fedjax-fair reproduce when-clients-lie [--quick]

Real Fashion-MNIST dealt to 100 clients in shards (two classes each), 10 a round, logistic regression, one local
epoch in batches of 50. Liars report ten times their loss; at every larger share they are the same and more. Every
rule that hears losses runs with and without a defence that clips them at three times the cohort's median.
"""

from pathlib import Path

import numpy as np
import optax

import fedjax_fair as ff
from benchmarks.papers.common import play, spread
from benchmarks.papers.runs import Row, fixed
from fedjax_fair.engine.files import to_json, write_atomically
from fedjax_fair.plot import COLOURS, MARKERS, paper, save
from fedjax_fair.results.folder import about

CLIENTS, COHORT, LR, FACTOR, CLIP = 100, 10, 0.1, 10.0, 3.0
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4)
RULES = {
    "FedAvg": lambda: ff.fedavg("uniform"),
    "q-FedAvg, q = 1": lambda: ff.qfedavg(1.0, lipschitz=1 / LR),
    "AFL, lr = .01": lambda: ff.afl(lr=0.01),
    "FedMABA": lambda: ff.fedmaba(alpha=0.5, eta_b=0.5),
    "AAggFF-D": lambda: ff.aaggff_d(),
}
DEFENCES = {"as reported": lambda rule: rule, "losses clipped": lambda rule: ff.defences.clip_losses(rule, CLIP)}


def row(name: str, data: ff.FederatedData, rule: ff.Aggregator | ff.Method, liars: np.ndarray) -> Row:
    """A rule among liars."""

    def build() -> ff.Simulation:
        return ff.simulation(
            ff.models.logistic_regression(),
            data,
            aggregator=rule,
            selector=ff.uniform(COHORT),
            trainer=ff.local_sgd(optax.sgd(LR), epochs=1, batch_size=50),
            faults=[ff.faults.inflate_loss(liars, FACTOR)],
        )

    return Row(name, fixed(build))


def judged(history: ff.History, honest: np.ndarray) -> dict[str, float]:
    """Accuracy (%) and Gini coefficient of the honest, mean over the last ten evaluations."""
    measured = ff.metrics.summary(history.accuracy[-10:, honest])
    return {name: float(np.mean(measured[name])) for name in ("accuracy", "gini")}


def table(results: dict[str, dict[str, list]], shares: tuple[float, ...]) -> str:
    """Mean over the seeds ± standard deviation, as Markdown."""
    lines = ["| rule | measure | " + " | ".join(f"{share:.0%} lie" for share in shares) + " |"]
    lines.append("|---" * (2 + len(shares)) + "|")
    for name, by_measure in results.items():
        for measured, digits, heading in (("accuracy", 1, "acc %"), ("gini", 3, "Gini")):
            cells = [spread(values, digits) for values in by_measure[measured]]
            lines.append(f"| {name} | {heading} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(results: dict[str, dict[str, list]], shares: tuple[float, ...], path: Path) -> None:
    """Honest clients' accuracy and Gini against the share of liars, in two columns of a paper's width."""
    from matplotlib.figure import Figure

    with paper():
        figure = Figure((7.0, 3.0), layout="constrained")
        axes = figure.subplots(1, 2)
        for ax, measured, label in zip(axes, ("accuracy", "gini"), ("honest clients' accuracy (%)", "their Gini")):
            for name, by_measure in results.items():
                rule, defence = name.split("; ")
                i = list(RULES).index(rule)
                values = np.array(by_measure[measured])
                clipped = defence == "losses clipped"
                ax.errorbar(
                    100 * np.array(shares) + 0.4 * (i - 2),
                    values.mean(1),
                    values.std(1, ddof=1),
                    color=COLOURS[i],
                    marker=MARKERS[i],
                    markersize=4,
                    markerfacecolor="white" if clipped else COLOURS[i],
                    linestyle="--" if clipped else "-",
                    linewidth=1,
                    elinewidth=0.6,
                    label=name if clipped else rule,
                )
            ax.set(xlabel="clients that report ten times their loss (%)", ylabel=label)
            ax.spines[["top", "right"]].set_visible(False)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
        save(figure, path)


def run(quick: bool, out: Path) -> None:
    seeds, rounds, shares = (2, 50, (0.0, 0.4)) if quick else (3, 300, SHARES)
    data = ff.data.load("fashion_mnist", partition=ff.partition.shards(CLIENTS, 2), seed=0)
    among = {share: ff.faults.some(CLIENTS, share, seed=0) for share in shares}
    names = [
        (rule, defence)
        for rule in (("FedAvg", "AFL, lr = .01", "FedMABA") if quick else RULES)
        for defence in DEFENCES
        if rule != "FedAvg" or defence == "as reported"  # FedAvg hears no losses
    ]
    rows = {
        (rule, defence, share): row(
            f"{rule}; {defence}; {share:.0%}", data, DEFENCES[defence](RULES[rule]()), among[share]
        )
        for rule, defence in names
        for share in shares
    }
    place = out / "when-clients-lie.parts"
    _, histories = play([*rows.values()], place, seeds=seeds, rounds=rounds, measure=lambda h: {})
    results = {
        f"{rule}; {defence}": {
            measured: [
                [judged(history, ~among[share])[measured] for history in histories[rows[rule, defence, share].name]]
                for share in shares
            ]
            for measured in ("accuracy", "gini")
        }
        for rule, defence in names
    }
    out.mkdir(parents=True, exist_ok=True)
    settings = {"quick": quick, "seeds": seeds, "rounds": rounds, "factor": FACTOR, "clip": CLIP, "lr": LR}
    header = about(f"fedjax-fair reproduce when-clients-lie{' --quick' if quick else ''}")
    kept = {**header, **settings, "shares": shares, "rows": results}
    write_atomically(out / "when-clients-lie.json", to_json(kept, indent=1))
    draw(results, shares, out / "when-clients-lie.png")
    text = table(results, shares) + "\n![Honest clients among liars](when-clients-lie.png)\n"
    write_atomically(out / "when-clients-lie.md", text)
    print(text)

"""FedMABA's open question: what becomes of the honest clients when others inflate their losses?

    python -m benchmarks.papers.when_clients_lie [--quick]

Real Fashion-MNIST dealt to 100 clients in shards (two classes each), 10 a round, logistic regression, one local
epoch in batches of 50. Liars report ten times their loss; at every larger share they are the same and more. Every
rule that hears losses runs with and without a defence that clips them at three times the cohort's median.
"""

import argparse
import json
from pathlib import Path

import jax
import numpy as np
import optax

import fedjax_fair as ff
from fedjax_fair.plot import COLOURS, MARKERS, save

HERE = Path(__file__).parent
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


def measure(data: ff.FederatedData, rule, liars: np.ndarray, seeds: int, rounds: int) -> dict[str, list[float]]:
    """Per seed: accuracy (%) and Gini coefficient of the honest, mean over the last ten evaluations."""

    def build() -> ff.Simulation:
        return ff.simulation(
            ff.models.logistic_regression(),
            data,
            aggregator=rule,
            selector=ff.uniform(COHORT),
            trainer=ff.local_sgd(optax.sgd(LR), epochs=1, batch_size=50),
            faults=[ff.faults.inflate_loss(liars, FACTOR)],
        )

    (histories,) = ff.sweep(build, {}, seeds=seeds, rounds=rounds, eval_every=10).histories
    rows = [ff.metrics.summary(history.accuracy[-10:, ~liars]) for history in histories]
    return {name: [float(np.mean(row[name])) for row in rows] for name in ("accuracy", "gini")}


def table(results: dict[str, dict[str, list]], shares: tuple[float, ...]) -> str:
    """Mean over the seeds ± standard deviation, as Markdown."""
    lines = ["| rule | measure | " + " | ".join(f"{share:.0%} lie" for share in shares) + " |"]
    lines.append("|---" * (2 + len(shares)) + "|")
    for name, by_measure in results.items():
        for measured, digits, heading in (("accuracy", 1, "acc %"), ("gini", 3, "Gini")):
            cells = [f"{np.mean(v):.{digits}f} ± {np.std(v, ddof=1):.{digits}f}" for v in by_measure[measured]]
            lines.append(f"| {name} | {heading} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(results: dict[str, dict[str, list]], path: Path) -> None:
    """Honest clients' accuracy and Gini against the share of liars, in two columns of a paper's width."""
    import matplotlib.pyplot as plt

    with plt.rc_context({"font.size": 8}):
        figure, axes = plt.subplots(1, 2, figsize=(7.0, 3.0), layout="constrained")
        for ax, measured, label in zip(axes, ("accuracy", "gini"), ("honest clients' accuracy (%)", "their Gini")):
            for name, by_measure in results.items():
                rule, defence = name.split("; ")
                i = list(RULES).index(rule)
                values = np.array(by_measure[measured])
                clipped = defence == "losses clipped"
                ax.errorbar(
                    100 * np.array(SHARES) + 0.4 * (i - 2),
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
        plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Honest clients among liars.")
    parser.add_argument("--quick", action="store_true", help="2 seeds, 50 rounds, less of all; writes nothing")
    quick = parser.parse_args().quick
    seeds, rounds, shares = (2, 50, (0.0, 0.4)) if quick else (3, 300, SHARES)
    data = ff.data.load("fashion_mnist", partition=ff.partition.shards(CLIENTS, 2), seed=0)
    results: dict[str, dict[str, list]] = {}
    for rule, make in RULES.items():
        if quick and rule not in ("FedAvg", "AFL, lr = .01", "FedMABA"):
            continue
        for defence, defended in DEFENCES.items():
            if rule == "FedAvg" and defended is not DEFENCES["as reported"]:
                continue  # it hears no losses
            found = results.setdefault(f"{rule}; {defence}", {"accuracy": [], "gini": []})
            for share in shares:
                liars = ff.faults.some(CLIENTS, share, seed=0)
                for name, values in measure(data, defended(make()), liars, seeds, rounds).items():
                    found[name].append(values)
            print(f"{rule}; {defence}: {[round(float(np.mean(v)), 1) for v in found['accuracy']]}", flush=True)
    print(table(results, shares))
    if not quick:
        (HERE / "results").mkdir(exist_ok=True)
        about = {"rounds": rounds, "seeds": seeds, "factor": FACTOR, "clip": CLIP, "lr": LR, "jax": jax.__version__}
        (HERE / "results" / "when_clients_lie.json").write_text(
            json.dumps({**about, "shares": SHARES, "runs": results}, indent=1) + "\n"
        )
        (HERE / "results" / "when_clients_lie.md").write_text(table(results, shares))
        draw(results, HERE / "results" / "when_clients_lie.png")


if __name__ == "__main__":
    main()

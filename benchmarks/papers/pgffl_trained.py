"""Is PG-FFL fair once its policy has learnt from many federations?

    fedjax-fair reproduce pgffl-trained [--quick]

The paper's agent learns on the one federation that it weighs. Here it is trained on 24 federations of a case side
by side, and judged, without learning on, on ten that it has never seen: other clients, of other images.
Fashion-MNIST's training images are dealt in two halves that share none, to be trained on and to be held out; of a
half each federation takes 12,000 (30,000 in Case I) and deals them by its own seed. Softmax regression, one local
epoch in batches of 50 at rate .1, 50 rounds; all five clients of Cases II and III a round, 10 of 100 in Case I.
Beside the trained policy stand FedAvg and PG-FFL as printed; means of the last ten evaluations, two rounds apart,
on the official test images.
"""

from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import optax

import fedjax_fair as ff
from benchmarks.papers.pgffl import CASE_I, CASES
from fedjax_fair import plot
from fedjax_fair.engine.files import to_json, write_atomically
from fedjax_fair.plot.style import style
from fedjax_fair.results.folder import about

NAME = "pgffl-trained"
PARTITIONS = {"Case II": CASES["Case II"], "Case III": CASES["Case III"], "Case I": CASE_I}
COHORTS = {"Case II": 5, "Case III": 5, "Case I": 10}
IMAGES = {"Case II": 12_000, "Case III": 12_000, "Case I": 30_000}
"""Of a federation: all of a half where there are a hundred clients."""
MEASURES = {"accuracy": 2, "worst10": 2, "gini": 4}
"""Digits of the differences in points, points, and Gini coefficients."""


@cache
def half(held_out: bool, count: int) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """``count`` training images of one half with their labels, and all test images."""
    whole = ff.data.load("fashion_mnist", partition=ff.partition.iid(2), seed=0)
    x, y = np.asarray(whole.x), np.asarray(whole.y)
    test = np.unique(np.asarray(whole.test.rows))
    training = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(len(y)), test))
    middle = len(training) // 2
    mine = (training[middle:] if held_out else training[:middle])[:count]
    return (x[mine], y[mine]), (x[test], y[test])


def federation(case: str, held_out: bool, seed: int) -> ff.FederatedData:
    """A federation to train the policy on, or one that is held out."""
    (x, y), test = half(held_out, IMAGES[case])
    return ff.FederatedData.from_arrays(x, y, partition=PARTITIONS[case], seed=seed, split=(0.9, 0.1, 0), test=test)


def build(case: str, rule: ff.Aggregator, data: ff.FederatedData) -> ff.Simulation:
    """The study's federation around a rule."""
    return ff.simulation(
        ff.models.logistic_regression(),
        data,
        aggregator=rule,
        selector=ff.uniform(COHORTS[case]),
        trainer=ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=50),
    )


def policy_of(case: str, quick: bool, rounds: int, place: Path) -> ff.Policy:
    """The trained policy; read where an earlier call has finished it."""
    path = place / f"{case.replace(' ', '_')}.npz"
    if path.exists():
        print(f"{path.name}: kept", flush=True)
        return ff.load_policy(path)
    policy = ff.train_policy(
        partial(build, case),
        partial(federation, case, False),
        federations=4 if quick else 24,
        episodes=2 if quick else 24,
        rounds=rounds,
        checkpoint=place / path.stem,
    )
    ff.save_policy(policy, path)
    print(f"{case}: mean reward {policy.rewards[0]:.3f} to {policy.rewards[-1]:.3f}", flush=True)
    return policy


def judged(case: str, policy: ff.Policy, replicates: int, rounds: int, place: Path) -> ff.Comparison:
    """FedAvg, PG-FFL as printed and the trained policy on the same held-out federations."""
    rules = {
        "FedAvg": ff.fedavg("uniform"),
        "PG-FFL as printed": ff.pg_ffl(),
        "PG-FFL trained": ff.pg_ffl(policy=policy),
    }
    return compared(case, rules, replicates, rounds, place / f"{case.replace(' ', '_')}-held-out")


def compared(
    case: str, rules: dict[str, ff.Aggregator], replicates: int, rounds: int, checkpoint: Path
) -> ff.Comparison:
    """Rules on the same held-out federations; an interrupted comparison goes on."""
    return ff.compare(
        rules,
        partial(build, case),
        federation=partial(federation, case, True),
        replicates=replicates,
        rounds=rounds,
        eval_every=2,
        last=10,
        references=False,
        checkpoint=checkpoint,
        every=rounds,
    )


def keep(
    out: Path,
    name: str,
    quick: bool,
    replicates: int,
    rounds: int,
    found: dict[str, ff.Comparison],
    figure: str = "",
    **more: Any,
) -> None:
    """A study's comparisons, and what more it has to tell, as JSON beside the table and its ``figure``."""
    header = about(f"fedjax-fair reproduce {name}{' --quick' if quick else ''}")
    settings = {"quick": quick, "seeds": replicates, "rounds": rounds}
    rows = {case: comparison.to_json() for case, comparison in found.items()}
    write_atomically(out / f"{name}.json", to_json({**header, **settings, **more, "rows": rows}, indent=1))
    write_atomically(out / f"{name}.md", table(found) + figure)


@plot.paper()
def draw(policies: dict[str, ff.Policy], found: dict[str, ff.Comparison], out: Path) -> None:
    """Above, the rewards of the training; below, differences from FedAvg on held-out federations."""
    from matplotlib.figure import Figure

    figure = Figure((2 * plot.WIDTH, 4.4), layout="constrained")
    learning, differing = figure.subplots(2, len(found), squeeze=False)
    for above, below, (case, comparison) in zip(learning, differing, found.items()):
        rewards = policies[case].rewards
        above.plot(np.arange(1, len(rewards) + 1), rewards, **style(1))
        above.set(title=case, xlabel="Episode", ylabel="Mean reward" if case == next(iter(found)) else "")
        plot.paired_frontier(comparison.differences(), "FedAvg's", y="gini", ax=below)
        below.get_legend().remove()
        below.set(xlabel="Accuracy (points)", ylabel="Gini" if case == next(iter(found)) else "")
    handles, labels = differing[0].get_legend_handles_labels()
    figure.legend(handles, [f"{name}, minus FedAvg" for name in labels], loc="outside lower center", ncols=2)
    plot.save(figure, out / f"{NAME}.png")


def table(found: dict[str, ff.Comparison]) -> str:
    """Markdown: a line per case and rule, the differences from FedAvg with intervals and p."""
    lines = [
        "| | accuracy % | Gini | | accuracy, points | worst 10 %, points | Gini | p of Gini |",
        "|---" * 8 + "|",
    ]
    for case, comparison in found.items():
        means = {rule: {m: v.mean() for m, v in of.items()} for rule, of in comparison.measures().items()}
        usual = means["FedAvg"]
        lines.append(f"| {case}: FedAvg | {usual['accuracy']:.1f} | {usual['gini']:.4f} | | | | | |")
        for rule, compared in comparison.differences().items():
            cells = []
            for measure, digits in MEASURES.items():
                mean, low, high = compared[measure].difference[:3]
                cells.append(f"{mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]")
            own = f"{means[rule]['accuracy']:.1f} | {means[rule]['gini']:.4f}"
            lines.append(
                f"| {case}: {rule} | {own} | | {' | '.join(cells)} | {compared['gini'].difference.p:.2g} |"
            )
    return "\n".join(lines) + "\n"


def run(quick: bool, out: Path) -> None:
    """Train, then judge, case by case; an interrupted study goes on. The quick form has Case II alone."""
    replicates, rounds = (2, 6) if quick else (10, 50)
    place = out / f"{NAME}.parts"
    policies: dict[str, ff.Policy] = {}
    found: dict[str, ff.Comparison] = {}
    for case in ("Case II", "Case III")[:1] if quick else PARTITIONS:
        policies[case] = policy_of(case, quick, rounds, place)
        found[case] = judged(case, policies[case], replicates, rounds, place)
        print(f"{case}\n{found[case].table()}\n", flush=True)
    draw(policies, found, out)
    rewards = {case: policy.rewards.tolist() for case, policy in policies.items()}
    figure = f"\n![Training, and differences from FedAvg]({NAME}.png)\n"
    keep(out, NAME, quick, replicates, rounds, found, figure, rewards=rewards)
    print(table(found))

"""What could any policy of PG-FFL reach? Constant weights of five clients, tried on a grid of the simplex.

    fedjax-fair reproduce pgffl-reachable [--quick]

Fashion-MNIST in the paper's Cases II and III: five clients that all take part, one local epoch in batches of 50 at
rate .1. The paper's four-layer MLP is too slow to try all weights with; here are a softmax regression and an MLP
with one hidden layer of 32. All weights of a grid train side by side, on the same batches; 60 rounds, and the means
of the last ten evaluations, two rounds apart. The grid has all weights in tenths (of the MLP in ninths) of which
none is 0: 127 (71) points with the uniform ones. A replicate is a partition and a training seed.
"""

import io
import itertools
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedjax_fair as ff
from benchmarks.papers.pgffl import CASES, PRINTED
from fedjax_fair import plot
from fedjax_fair.engine.files import to_json, write_atomically
from fedjax_fair.engine.run import play
from fedjax_fair.numerics.solvers import normalize
from fedjax_fair.plot.style import style
from fedjax_fair.results.folder import about
from fedjax_fair.types import Aggregator

NAME = "pgffl-reachable"
CLIENTS, EVALUATIONS, GAP = 5, 10, 2
BLOCK = 32
"""Points that train side by side, at most; a study that is cut off loses what its last block has trained."""
NAMES = ("Case II", "Case III")


class Setting(NamedTuple):
    """A model, its grid, and how often it is tried."""

    model: Any
    parts: int
    """Weights are multiples of one over this."""
    seeds: int


SETTINGS = {
    "softmax regression": Setting(ff.models.logistic_regression(), 10, 2),
    "MLP": Setting(ff.models.mlp((32,)), 9, 1),
}
ALLOWED = 0.01
"""Of mean accuracy: what a fairer model may cost."""


class Reached(NamedTuple):
    """One replicate of one case: clients' accuracies, means of the last evaluations, f[..., 5]."""

    test: np.ndarray
    """[P, 5], of the grid's points."""
    validation: np.ndarray
    pg_ffl: np.ndarray
    """[5], on test."""


Found = dict[tuple[str, str], list[Reached]]
"""By model and case, of each partition."""


def constant(weights: Any) -> Aggregator:
    """The rule that gives client k always ``weights[k]``, scaled to sum to 1 over who is there."""

    def weigh(state: Any, report: ff.Report, key: Any) -> tuple[Any, Any]:
        return normalize(jnp.asarray(weights, report.n.dtype)[report.ids], report.active), state

    return Aggregator(lambda sizes, key=None: (), weigh)


def grid(parts: int) -> np.ndarray:
    """f64[P, 5]: weights of five clients, positive multiples of 1 / ``parts``; before them FedAvg's."""
    counts = itertools.product(range(1, parts), repeat=CLIENTS - 1)
    rows = [[*some, parts - sum(some)] for some in counts if sum(some) < parts]
    return np.concatenate([np.full((1, CLIENTS), 1 / CLIENTS), np.array(rows) / parts])


def build(model: Any, rule: Aggregator, data: ff.FederatedData) -> ff.Simulation:
    """The study's federation; one client after another, with all weights side by side."""
    return ff.simulation(
        model,
        data,
        aggregator=rule,
        trainer=ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=50),
        evaluate=("test", "validation"),
        client_block=1,
    )


@cache
def federation(case: str, seed: int) -> ff.FederatedData:
    """The paper's partition of Fashion-MNIST."""
    return ff.data.load("fashion_mnist", partition=CASES[case], seed=seed)


def trained(weights: Any, key: Any, model: Any, data: ff.FederatedData, rounds: int) -> dict[str, Any]:
    """Accuracies f[5] of one grid point; mapped over the weights, all share the batches."""
    sim = build(model, constant(weights), data)
    of_sim = partial(play, data=data, step=sim.step, evaluate=sim.evaluate, deploy=sim.deploy)
    state, _ = of_sim(sim.init(key), evaluations=1, every=rounds - EVALUATIONS * GAP)
    _, (_, scores) = of_sim(state, evaluations=EVALUATIONS, every=GAP)
    return {split: scores[split].accuracy.mean(0) for split in ("test", "validation")}


def reach(name: str, case: str, seed: int, points: np.ndarray, rounds: int, place: Path) -> Reached:
    """Train every point of the grid, a block at a time, and PG-FFL; what an earlier call has trained is read."""
    model, data = SETTINGS[name].model, federation(case, seed)
    all_points = jax.jit(jax.vmap(partial(trained, model=model, data=data, rounds=rounds), in_axes=(0, None)))

    def block(mine: np.ndarray) -> dict[str, np.ndarray]:
        return jax.device_get(all_points(jnp.asarray(mine, jnp.float32), jax.random.key(seed)))

    def pg_ffl() -> dict[str, np.ndarray]:
        _, history = ff.run(build(model, ff.pg_ffl(), data), seed, rounds, eval_every=GAP, progress=False)
        return {"test": history.accuracy[-EVALUATIONS:].mean(0)}

    called = f"{name}, {case}, seed-{seed}".replace(" ", "_")
    blocks = np.array_split(points, -(-len(points) // BLOCK))
    found = [
        once(place / f"{called},_{i}.npz", partial(block, mine), {"rounds": rounds, "points": mine})
        for i, mine in enumerate(blocks)
    ]
    own = once(place / f"{called},_pg_ffl.npz", pg_ffl, {"rounds": rounds})
    jax.clear_caches()
    return Reached(*(np.concatenate([of[split] for of in found]) for split in ("test", "validation")), own["test"])


def once(path: Path, train: Callable[[], dict[str, np.ndarray]], asked: dict[str, Any]) -> dict[str, np.ndarray]:
    """What ``train`` gives; from the file where an earlier call has written it.

    Raises:
      ValueError: the file is of something else that was asked for.
    """
    if path.exists():
        with np.load(path) as kept:
            if any(not np.array_equal(kept[name], value) for name, value in asked.items()):
                raise ValueError(f"{path} is of other rounds or another grid: remove it to train again")
            return dict(kept)
    found = train()
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **asked, **found)
    write_atomically(path, buffer.getvalue())
    print(f"{path.stem}: trained", flush=True)
    return found


def frontier_of(accuracy: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """The points that none beats in both, by falling accuracy."""
    order = np.lexsort((spread, -accuracy))
    best = np.minimum.accumulate(spread[order])
    return order[np.concatenate([[True], spread[order][1:] < best[:-1]])]


def judged(reached: Reached, points: np.ndarray) -> dict[str, Any]:
    """Accuracy and Gini, on test, of FedAvg, of PG-FFL and of what the grid has."""
    mean, spread = reached.test.mean(1), ff.metrics.gini(reached.test)
    fair, own = ff.metrics.gini(reached.validation), reached.validation.mean(1)

    def lowest(ginis: np.ndarray, accuracies: np.ndarray) -> int:
        return int(np.where(accuracies >= accuracies[0] - ALLOWED, ginis, np.inf).argmin())

    def told(accuracy: float, gini: float, weights: np.ndarray | None = None) -> dict[str, Any]:
        found = {"accuracy": float(accuracy), "gini": float(gini)}
        return found if weights is None else {**found, "weights": weights.tolist()}

    def at(i: int) -> dict[str, Any]:
        return told(mean[i], spread[i], points[i])

    return {
        "FedAvg": at(0),
        "PG-FFL as printed": told(reached.pg_ffl.mean(), ff.metrics.gini(reached.pg_ffl)),
        "lowest Gini within a point of FedAvg's accuracy, chosen on validation": at(lowest(fair, own)),
        "lowest Gini within a point of FedAvg's accuracy, chosen on test": at(lowest(spread, mean)),
        "lowest Gini of all, chosen on test": at(int(spread.argmin())),
        "highest accuracy of all, chosen on test": at(int(mean.argmax())),
        "frontier": [at(int(i)) for i in frontier_of(mean, spread)],
    }


@plot.paper()
def draw(found: Found, out: Path) -> None:
    """Accuracy against Gini: every point of the grids, and who stands where."""
    from matplotlib.figure import Figure

    models = [*dict.fromkeys(model for model, _ in found)]
    figure = Figure((2 * plot.WIDTH, 0.5 + 2.2 * len(models)), layout="constrained")
    axes = figure.subplots(len(models), len(NAMES), sharex="col", squeeze=False)
    for ax, (model, case) in zip(axes.ravel(), found):
        for seed, reached in enumerate(found[model, case]):
            mean, spread = 100 * reached.test.mean(1), ff.metrics.gini(reached.test)
            edge, colour = frontier_of(mean, spread), style(seed)["color"]
            ax.plot(mean, spread, ".", color=colour, alpha=0.4, label=f"constant weights, partition {seed}")
            ax.step(mean[edge], spread[edge], where="post", color=colour, linewidth=0.8)
            drawn = ("FedAvg", "PG-FFL, as printed") if seed == 0 else (None, None)
            own = 100 * reached.pg_ffl.mean(), ff.metrics.gini(reached.pg_ffl)
            for mark, place, label in zip("os", ((mean[0], spread[0]), own), drawn):
                ax.plot(*place, mark, color=colour, markeredgecolor="black", markersize=5, label=label)
        for name, mark in (("FedAvg", "o"), ("PGF-FedAvg", "s")):
            accuracy, gini = PRINTED[name][[*CASES].index(case)]
            ax.plot(
                100 * accuracy, gini, mark, color="white", markeredgecolor="black", label=f"{name}, the paper's"
            )
        ax.set(title=f"{case}, {model}", ylim=(0, None))
    for ax in axes[-1]:
        ax.set_xlabel("Mean accuracy (%)")
    for ax in axes[:, 0]:
        ax.set_ylabel("Gini coefficient")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=7)
    plot.save(figure, out / f"{NAME}.png")


def table(rows: dict[str, list[dict[str, Any]]]) -> str:
    """Markdown: accuracy and Gini of every replicate, and the paper's."""
    lines: list[str] = []
    for case, replicates in rows.items():
        heads = " | ".join(f"partition {seed}" for seed in range(len(replicates)))
        lines += [
            f"**{case}**: accuracy %, Gini",
            "",
            f"| | {heads} | paper |",
            "|---" * (len(replicates) + 2) + "|",
        ]
        printed = {"FedAvg": "FedAvg", "PG-FFL as printed": "PGF-FedAvg"}
        for name in [name for name in replicates[0] if name != "frontier"]:
            cells = [f"{100 * of[name]['accuracy']:.1f}, {of[name]['gini']:.3f}" for of in replicates]
            paper = PRINTED[printed[name]][[*CASES].index(case.split(", ")[0])] if name in printed else None
            cells.append("" if paper is None else f"{100 * paper[0]:.1f}, {paper[1]:.3f}")
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def write(found: Found, rounds: int, quick: bool, runs: str | None, out: Path) -> None:
    """The figure, the JSON and the table of what has been trained; ``runs`` says how much that is, until all is."""
    rows = {
        f"{case}, {name}": [judged(reached, grid(settings_of(name, quick).parts)) for reached in replicates]
        for (name, case), replicates in found.items()
    }
    draw(found, out)
    names = [*dict.fromkeys(name for name, _ in found)]
    seeds = {name: settings_of(name, quick).seeds for name in names}
    points = {name: len(grid(settings_of(name, quick).parts)) for name in names}
    settings = {"quick": quick, "seeds": seeds, "rounds": rounds, "points": points}
    settings |= {} if runs is None else {"runs": runs}
    header = about(f"fedjax-fair reproduce {NAME}{' --quick' if quick else ''}")
    write_atomically(out / f"{NAME}.json", to_json({**header, **settings, "rows": rows}, indent=1))
    lines = [table(rows), *([] if runs is None else [f"{runs} runs.", ""])]
    write_atomically(
        out / f"{NAME}.md", "\n".join([*lines, f"![Accuracy and Gini of constant weights]({NAME}.png)\n"])
    )


def settings_of(name: str, quick: bool) -> Setting:
    """The model's, or those of the quick form."""
    return SETTINGS[name]._replace(parts=6, seeds=1) if quick else SETTINGS[name]


def run(quick: bool, out: Path) -> None:
    """Both models on both cases; the quick form has the softmax regression alone.

    What has been trained is written after every replicate, and not trained again.
    """
    rounds = 22 if quick else 60
    names = [*SETTINGS][:1] if quick else [*SETTINGS]
    seeds = {name: settings_of(name, quick).seeds for name in names}
    turns = [(name, case, seed) for name in names for seed in range(seeds[name]) for case in NAMES]
    found: Found = {}
    for i, (name, case, seed) in enumerate(turns):
        points = grid(settings_of(name, quick).parts)
        reached = reach(name, case, seed, points, rounds, out / f"{NAME}.parts")
        found.setdefault((name, case), []).append(reached)
        if not i % len(NAMES):
            continue  # the other case of the pair comes next
        done = i + 1 == len(turns)
        write(found, rounds, quick, None if done else f"{i + 1} of {len(turns)}", out)
    print((out / f"{NAME}.md").read_text())

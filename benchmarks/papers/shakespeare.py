"""Who speaks like nobody else? Next characters of Shakespeare's roles, by three rules.

    python -m benchmarks.papers.leaf_shakespeare ROLES.npz FOLDER        # or LEAF's own preprocess.sh
    LEAF_DATA_DIR=FOLDER fedjax-fair reproduce shakespeare [--quick]

Roles with at least 40 windows of 80 characters, 10 roles a round, a GRU of 64 units that predicts after every
character of a window the next one, one local epoch in batches of 10 at rate 1, gradients clipped to norm 1. A
replicate deals every role's windows anew to training and test and has a training seed of its own, both the same for
all rules. Nothing is tuned: q-FedAvg has q = 1 and L = 1 / rate, FedMABA the paper's middle setting.
"""

from pathlib import Path

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import optax

import fedjax_fair as ff
from benchmarks.papers.common import play, spread
from benchmarks.papers.runs import Row
from fedjax_fair.data.sources.published import ALPHABET
from fedjax_fair.engine.files import to_json, write_atomically
from fedjax_fair.metrics.significance import paired
from fedjax_fair.results.folder import about

LEAST, COHORT, HIDDEN, LR = 40, 10, 64, 1.0
RULES = {
    "FedAvg": lambda: ff.fedavg("uniform"),
    "q-FedAvg, q = 1": lambda: ff.qfedavg(q=1.0, lipschitz=1 / LR),
    "FedMABA, alpha = .5": lambda: ff.fedmaba(alpha=0.5, eta_b=0.5),
}
MEASURES = {"accuracy": ("acc %", 1), "variance": ("var %²", 1), "worst10": ("worst 10 %", 1), "gini": ("Gini", 4)}
LAST = 3
"""Evaluations that a figure is the mean of."""
SHOWN = 5
"""Roles at each end of the table."""


def federation(seed: int) -> ff.FederatedData:
    """The roles, split anew: y i32[80] is the character that follows each of the window's."""
    data = ff.data.load("shakespeare", seed=seed, split=(0.8, 0.0, 0.2), min_examples=LEAST)
    return data._replace(y=jnp.concatenate([data.x[:, 1:].astype(jnp.int32), data.y[:, None]], axis=1))


def row(name: str) -> Row:
    """A rule on the replicate's own split."""

    def build(seed: int) -> ff.Simulation:
        model = nn.Sequential([nn.Embed(len(ALPHABET), 8), nn.RNN(nn.GRUCell(HIDDEN)), nn.Dense(len(ALPHABET))])
        data, optimizer = federation(seed), optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(LR))
        return ff.simulation(
            model,
            data,
            aggregator=RULES[name](),
            selector=ff.uniform(min(COHORT, data.n_clients)),
            trainer=ff.local_sgd(optimizer, epochs=1, batch_size=10),
        )

    return Row(name, build)


def by_rule(found: dict[str, dict[str, list[float]]]) -> str:
    """Mean ± standard deviation over the replicates, and paired differences from FedAvg."""
    heads = [heading for heading, _ in MEASURES.values()]
    lines = ["| | " + " | ".join([*heads, "acc - FedAvg", "worst 10 % - FedAvg"]) + " |", "|---" * 7 + "|"]
    baseline = next(iter(found.values()))
    for name, of in found.items():
        cells = [spread(of[measure], digits) for measure, (_, digits) in MEASURES.items()]
        for measure in ("accuracy", "worst10"):
            if of is baseline or len(of[measure]) < 2:
                cells.append("")
                continue
            pair = paired(np.array(of[measure]), np.array(baseline[measure]))
            cells.append(f"{pair.mean:+.2f} [{pair.low:.2f}, {pair.high:.2f}]")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def by_role(accuracies: dict[str, np.ndarray], roles: tuple[str, ...], windows: np.ndarray) -> str:
    """The roles that FedAvg serves worst and best: mean accuracy in per cent over the replicates, f[N] per rule."""
    order = np.argsort(next(iter(accuracies.values())), kind="stable")
    ends = order if len(order) <= 2 * SHOWN else [*order[:SHOWN], *order[-SHOWN:]]
    lines = ["| role | training windows | " + " | ".join(accuracies) + " |", "|---" * (2 + len(accuracies)) + "|"]
    for k in ends:
        cells = " | ".join(f"{100 * of[k]:.1f}" for of in accuracies.values())
        lines.append(f"| {roles[k]} | {windows[k]} | {cells} |")
    return "\n".join(lines) + "\n"


def run(quick: bool, out: Path) -> None:
    seeds, rounds = (2, 10) if quick else (5, 100)
    data = federation(0)  # before anything is trained: a sentence where LEAF's files are missing
    roles = data.clients or tuple(map(str, range(data.n_clients)))
    rows = [row(name) for name in RULES]
    _, histories = play(
        rows, out / "shakespeare.parts", seeds=seeds, rounds=rounds, eval_every=5 if quick else 10, measure=_last
    )
    found, accuracies = {}, {}
    for name, of_seeds in histories.items():
        measured = [_last(history) for history in of_seeds]
        found[name] = {measure: [one[measure] for one in measured] for measure in MEASURES}
        accuracies[name] = np.mean([history.accuracy[-LAST:].mean(0) for history in of_seeds], axis=0)
    out.mkdir(parents=True, exist_ok=True)
    settings = {"quick": quick, "seeds": seeds, "rounds": rounds, "lr": LR, "hidden": HIDDEN, "clients": len(roles)}
    header = about(f"fedjax-fair reproduce shakespeare{' --quick' if quick else ''}")
    kept = {name: dict(zip(roles, of.tolist())) for name, of in accuracies.items()}
    whole = {**header, **settings, "rows": found, "roles": kept}
    write_atomically(out / "shakespeare.json", to_json(whole, indent=1))
    note = (
        f"{len(roles)} roles, {seeds} replicates (splits and training seeds), {rounds} rounds; mean over the last "
        f"evaluations. Differences are paired, with 95 % intervals. Accuracy is of characters, %."
    )
    text = f"{by_rule(found)}\n{by_role(accuracies, roles, data.sizes)}\n{note}\n"
    write_atomically(out / "shakespeare.md", text)
    print(text)


def _last(history: ff.History) -> dict[str, float]:
    """Mean over the last evaluations."""
    rows = ff.metrics.summary(history.accuracy[-LAST:])
    return {name: float(np.mean(rows[name])) for name in MEASURES}

"""What a rule costs above FedAvg when 100 clients take part: the signals it reads, and the rule itself.

Every rule is measured beside FedAvg with the same signals forced to be computed: an aggregator that reads them and
multiplies them by a zero which the compiler cannot know, since it is carried in the state. The difference between
the two is the rule's own arithmetic (and that of its objective and server transform). The two, and FedAvg without
the signals, are called right after one another, so that a slow minute does not pass for a slow rule.
"""

import dataclasses
import statistics
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

import fedjax_fair as ff
from benchmarks.speed import common, ours, workloads
from fedjax_fair.numerics.batch_sum import over_clients
from fedjax_fair.registry import AGGREGATORS, make_rule
from fedjax_fair.types import as_method

FREE = ("n",)  # there anyway
KEPT = {"message": "train_loss"}
"""What stands for messages: updates are kept where anything of training is read; to make messages is the rule's."""
MADE = {"fedlf": ("gram",)}
"""What a rule makes of the updates itself, in the engine's place: FedLF's inner products, layer by layer."""
SIZES = {
    "lr": workloads.WORKLOADS["lr-synthetic"]._replace(
        name="lr-100",
        title="softmax regression 60-10; all of 100 clients, one epoch in batches of 50",
        clients=100,
        cohort=100,
        epochs=1,
    ),
    "mlp": workloads.WORKLOADS["mlp-fmnist-all"],
}
SIZES["skewed"] = SIZES["lr"]._replace(
    name="lr-skewed",
    title="softmax regression 60-10 on Synthetic(1, 1); all of 100 clients, one epoch in batches of 50",
)
SIZES["lone"] = SIZES["lr"]._replace(
    name="lr-lone",
    title="softmax regression 60-10 on one client of 17,000 examples and 29 of 20; all of them, batches of 50",
    clients=30,
    cohort=30,
)
LONE = np.array([17_000] + [20] * 29)
"""Training and validation examples of each client."""


@dataclasses.dataclass
class Options:
    """The cost of every rule of the registry above FedAvg, at 100 clients, all taking part."""

    model: str = "lr"
    """lr (610 parameters), mlp (159,010); lr on clients of very different sizes: skewed (44 to some thousands of
    examples) or lone (one of 17,000 beside 29 of 20)."""
    rules: tuple[str, ...] = tuple(AGGREGATORS)
    """Which rules."""
    rounds: int = 0
    """Rounds per timed call; 0 chooses."""
    repeats: int = 9
    """Timed calls of each program, in turn."""
    out: Path | None = None
    """Folder for the results."""
    quick: bool = False
    """Few rounds: to see that it runs."""


def forced(signals: tuple[str, ...]) -> ff.Method:
    """Uniform FedAvg that reads ``signals`` and adds nothing of them; updates in the server's step, once."""
    coefficients = tuple(signal for signal in signals if signal != "updates")

    def init(sizes: Array, key: Array | None = None) -> Array:
        return jnp.zeros((), sizes.dtype)

    def weigh(zero: Array, report: ff.Report, key: Array) -> tuple[Array, Array]:
        seen = sum((jnp.nan_to_num(getattr(report, name)).sum() for name in coefficients), jnp.zeros(()))
        return report.active / jnp.maximum(report.active.sum(), 1) + zero * seen, zero

    def update(g: Any, zero: Array, params: Any = None, *, report: ff.Report, **_: object) -> tuple[Any, Array]:
        return jax.tree.map(lambda old, u: old + zero * over_clients(u), g, report.updates), zero

    read = optax.GradientTransformationExtraArgs(lambda params: jnp.zeros(()), update)
    return ff.Method(ff.Aggregator(init, weigh), transform=(lambda n, m: read) if "updates" in signals else None)


def federation(work: workloads.Workload) -> ff.FederatedData:
    """The workload's data, a tenth of it for validation; the skewed clients' are Synthetic(1, 1)."""
    if work.name == "lr-skewed":
        return ff.data.synthetic(work.clients, 1.0, 1.0, seed=0)
    sizes = LONE if work.name == "lr-lone" else np.full(work.clients, work.examples)
    x, y = workloads.make_data(work._replace(clients=1, examples=int(sizes.sum())))
    owner = np.repeat(np.arange(work.clients), sizes)
    return ff.FederatedData.from_arrays(
        x.reshape(-1, *work.shape), y.reshape(-1), client_id=owner, split=(0.9, 0.1, 0), normalizer=None
    )


def difference(times: list[float], base: list[float]) -> float:
    """Median of the differences of calls that came soon after one another: what slows both drops out."""
    return statistics.median(t - b for t, b in zip(times, base))


def main() -> None:
    """One process; the programs take turns, so that a slow minute hits all of them."""
    import tyro

    options = tyro.cli(Options)
    work = SIZES[options.model]
    rounds = options.rounds or {"lr": 20, "mlp": 2, "skewed": 25, "lone": 50}[options.model]
    rounds, repeats = (2, 1) if options.quick else (rounds, options.repeats)
    data = federation(work)
    trainer = ff.local_sgd(optax.sgd(work.lr), epochs=work.epochs, batch_size=work.batch)

    def simulate(rule: ff.Aggregator | ff.Method) -> ff.Simulation:
        everybody = ff.uniform(work.cohort)
        return ff.simulation(
            ours.model(work), data, aggregator=rule, selector=everybody, trainer=trainer, evaluate=("train",)
        )

    rules = {name: as_method(make_rule(name, learning_rate=work.lr)) for name in options.rules}
    reads = {name: tuple(s for s in ff.reads(rule) if s not in FREE) for name, rule in rules.items()}
    beside = {}  # FedSGD's local work is not FedAvg's: its baseline shares it
    for name, rule in rules.items():
        reads_or_makes = (*reads[name], *MADE.get(name, ()))
        signals = tuple(dict.fromkeys(KEPT.get(signal, signal) for signal in reads_or_makes))
        beside[name] = ("FedAvg, same local work", name if rule.local and rule.memory is None else "", signals)
    plain = {name: (*key[:2], ()) for name, key in beside.items()}
    sims = {name: simulate(rule) for name, rule in rules.items()}
    for name, rule in rules.items():
        for key in (beside[name], plain[name]):
            if key not in sims:
                sims[key] = simulate(forced(key[2])._replace(local=rule.local if key[1] else None))
    programs = {key: common.rounds_of(sim, rounds) for key, sim in sims.items()}
    starts = {key: sim.init(jax.random.key(0)) for key, sim in sims.items()}
    rows, numbers = [], []
    for name in rules:
        three = {"rule": name, "beside": beside[name], "plain": plain[name]}
        own_programs = {part: programs[key] for part, key in three.items()}
        own_starts = {part: starts[key] for part, key in three.items()}
        times = common.interleaved(own_programs, own_starts, repeats, rounds)
        numbers.append(
            {
                "rule": name,
                "reads": reads[name],
                "round_s": times["rule"],
                "fedavg_s": times["plain"],
                "fedavg_with_signals_s": times["beside"],
            }
        )
        signals, own = difference(times["beside"], times["plain"]), difference(times["rule"], times["beside"])
        base = statistics.median(times["plain"])
        shown = [f"{value:.3g}" for value in (base * 1e3, signals * 1e3, own * 1e3, 100 * own / base)]
        rows.append([f"`{name}`", ", ".join(reads[name]) or "–", common.spread(times["rule"]), *shown])
    columns = ("rule", "reads", "round, ms", "FedAvg, ms", "signals, ms", "rule itself, ms", "itself, % of FedAvg")
    notes = (
        f"{work.title}, a part of each client's data kept for validation. For each rule {repeats} calls of "
        f"{rounds} rounds of three programs in turn; medians, also of differences. FedAvg here is uniform, with "
        "the rule's own local work (FedSGD's is one full batch; what clients that remember do more is the rule's "
        "own). Signals: FedAvg that is forced to compute what the rule reads (updates are checked and read once; "
        "messages are the rule's; FedLF's inner products of layers count as a Gram matrix), less FedAvg. Rule "
        "itself: the rule less that; small differences of either sign are noise."
    )
    out = common.folder(options.out, quick=options.quick)
    common.write(out, f"rules-{options.model}", "What a rule costs", notes, [(columns, rows)], numbers)


if __name__ == "__main__":
    main()

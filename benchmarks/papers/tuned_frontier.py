"""Is any rule fairer than tuned FedAvg? Rules with twelve settings each on Fashion-MNIST, paired.

Eight classical rules are the study ``tuned-frontier``, ten later ones ``tuned-shelf``.

100 clients of two labels, 10 a round, logistic regression, one local epoch in batches of 50, as in the study
``frontier``; there every rule has its default settings and FedAvg's rate. Here each gets the same budget: the grid
of its papers times learning rates around .1. The setting with the best validation accuracy of the worst tenth of
clients is chosen, over five replicates (partition and training seed), and quoted on test: means of the last ten
evaluations.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import optax

import fedjax_fair as ff
from benchmarks.papers.common import about
from benchmarks.papers.sharing import workers
from fedjax_fair import plot
from fedjax_fair.engine.files import to_json, write_atomically
from fedjax_fair.registry.grids import GRIDS, rates
from fedjax_fair.types import Aggregator, Method

LR = 0.1
POINTS = 12
RULES: dict[str, Callable[..., Aggregator | Method]] = {
    "fedavg": lambda: ff.fedavg("uniform"),
    "qfedavg": lambda q, lr: ff.qfedavg(q=q, lipschitz=1 / lr),
    "afl": lambda afl_lr: ff.afl(lr=afl_lr),
    "term": lambda t: ff.term(t=t, weighting="uniform"),
    "fedmgda_plus": lambda epsilon: ff.fedmgda_plus(epsilon=epsilon),
    "propfair": lambda M: ff.propfair(M=M, weighting="uniform"),
    "fedmaba": lambda alpha, eta_b: ff.fedmaba(alpha=alpha, eta_b=eta_b),
    "fedeba": lambda tau: ff.fedeba(tau=tau),
}
SHELF: dict[str, Callable[..., Aggregator | Method]] = {
    "fedavg": RULES["fedavg"],
    "fedeba_plus": lambda tau, alpha: ff.fedeba_plus(tau=tau, alpha=alpha),
    "superquantile": lambda theta: ff.superquantile(theta=theta),
    "gifair": lambda coeff: ff.gifair(coeff=coeff),
    "drfl": lambda: ff.drfl(),
    "drfa": lambda drfa_lr: ff.drfa(lr=drfa_lr),
    "adafed": lambda gamma: ff.adafed(gamma=gamma),
    "fedmdfg": lambda theta: ff.fedmdfg(theta=theta),
    "fairmoo": lambda prefer: ff.fairmoo(prefer=prefer),
    "fedlf": lambda: ff.fedlf(),
    "fedheal": lambda threshold, beta: ff.fedheal(threshold=threshold, beta=beta),
}


def grids(rules: Iterable[str], points: int) -> dict[str, dict[str, list[Any]]]:
    """Per rule its papers' grid and as many learning rates as make ``points`` settings."""
    found: dict[str, dict[str, list[Any]]] = {}
    for rule in rules:
        own = {f"{rule}_lr" if name == "lr" else name: list(v) for name, v in GRIDS.get(rule, {}).items()}
        tried = 1
        for values in own.values():
            tried *= len(values)
        found[rule] = {**own, "lr": rates(LR, points // tried)}
    return found


def build(rule: Aggregator | Method, data: ff.FederatedData, lr: Any = LR) -> ff.Simulation:
    """The study's federation around a rule."""
    return ff.simulation(
        ff.models.logistic_regression(),
        data,
        aggregator=rule,
        selector=ff.uniform(10),
        trainer=ff.local_sgd(optax.sgd(lr), epochs=1, batch_size=50),
        evaluate=("test", "validation"),
    )


def federation(seed: int) -> ff.FederatedData:
    """100 clients of two labels."""
    return ff.data.load("fashion_mnist", partition=ff.partition.shards(100, 2), seed=seed)


def run(quick: bool, out: Path) -> None:
    """The classical rules. The quick form has few rounds and three rules."""
    tuned("tuned-frontier", RULES, ("fedavg", "qfedavg", "afl"), quick, out)


def shelf(quick: bool, out: Path) -> None:
    """The later ones."""
    tuned("tuned-shelf", SHELF, ("fedavg", "superquantile", "gifair"), quick, out)


def tuned(study: str, rules: dict[str, Callable[..., Any]], few: tuple[str, ...], quick: bool, out: Path) -> None:
    """Tune and compare; an interrupted study goes on. The quick form has few rounds and few rules."""
    replicates, rounds, points = (2, 20, 4) if quick else (5, 500, POINTS)
    names = few if quick else tuple(rules)
    found = ff.compare(
        {name: rules[name] for name in names},
        build,
        federation=federation,
        replicates=replicates,
        rounds=rounds,
        tune=grids(names, points),
        choose="worst10",
        last=10,
        checkpoint=out / f"{study}.parts",
        every=max(1, rounds // 2),
        **workers(),
    )
    plot.save(plot.paired_frontier(found.differences(), found.baseline), out / f"{study}.png")
    settings = {"quick": quick, "seeds": replicates, "rounds": rounds}
    header = about(f"fedjax-fair reproduce {study}{' --quick' if quick else ''}")
    write_atomically(out / f"{study}.json", to_json({**header, **settings, **found.to_json()}, indent=1))
    text = f"```\n{found.table()}\n```\n\n![Paired differences]({study}.png)\n"
    write_atomically(out / f"{study}.md", text)
    print(text)

"""Compare rules: the same replicates for all, settings chosen on validation, differences paired."""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_fair.checks import check_choice, check_count
from fedjax_fair.data import FederatedData
from fedjax_fair.engine.grid import label, numbered
from fedjax_fair.engine.history import History
from fedjax_fair.engine.run import check_keeping
from fedjax_fair.engine.sweep import sweep
from fedjax_fair.results.compare_arguments import check_build, check_rules, draw, grids_of, maker_of
from fedjax_fair.results.comparison import Comparison, measured
from fedjax_fair.types import Aggregator, Method, Simulation

CRITERIA = ("accuracy", "worst10", "gini", "variance", "accuracy_if_worst10")
"""How settings are chosen. The last: accuracy, of those whose worst 10 % are no lower than the baseline's."""

Rule = Aggregator | Method


class Task(NamedTuple):
    """One rule on one federation."""

    rule: str
    data: FederatedData
    seeds: list[int]
    folder: Path | None


def compare(
    rules: Mapping[str, Rule | Callable[..., Rule]],
    build: Callable[..., Simulation],
    *,
    federation: FederatedData | Callable[[int], FederatedData],
    replicates: int = 5,
    rounds: int = 100,
    eval_every: int = 10,
    last: int = 5,
    baseline: str | None = None,
    tune: Mapping[str, Mapping[str, Iterable[Any]]] | None = None,
    choose: str = "accuracy",
    split: str = "test",
    threads: int = 1,
    checkpoint: str | Path | None = None,
) -> Comparison:
    """Play every rule on the same replicates, and say how they differ.

    Replicate r is the federation drawn from seed r, trained from seed r: all rules see the same clients, initial
    model and batches, and the same cohorts where selection asks nobody, so that their differences are paired. Where
    a rule is tuned, every point of its grid is played, one is chosen by its mean on the validation split, and only
    that one is read on ``split``.

    .. code-block:: python

       def build(rule, data, lr=0.1):
           return ff.simulation(ff.models.logistic_regression(), data, aggregator=rule, selector=ff.uniform(10),
                                trainer=ff.local_sgd(optax.sgd(lr), batch_size=50), evaluate=("test", "validation"))

       found = ff.compare({"fedavg": ff.fedavg(), "qfedavg": lambda q: ff.qfedavg(q=q, lipschitz=10.0)}, build,
                          federation=lambda seed: ff.data.synthetic(30, 1.0, 1.0, seed=seed), rounds=200,
                          tune={"fedavg": {"lr": [.03, .1, .3]}, "qfedavg": {"q": [.1, 1., 5.]}})
       print(found)

    Args:
      rules: per name a rule, or a factory of one that takes the settings tuned for it (floats as tracers, as in
        ``ff.sweep``).
      build: ``(rule, data, **settings) -> ff.simulation(...)``; settings of its own, such as ``lr``, may be tuned
        for any rule. It must evaluate ``split``, and "validation" where something is tuned.
      federation: ``seed -> FederatedData``; or one federation, and then the replicates differ by the training seed.
      replicates: how many; differences need two.
      rounds: of every run.
      eval_every: rounds between evaluations.
      last: a measure is the mean over so many last evaluations; of all, where there are fewer.
      baseline: the rule that the others are compared with; by default the first.
      tune: per rule ``{setting: values}``; all combinations are tried. A factory that needs settings must be tuned.
      choose: "accuracy", "worst10", "variance" or "gini" of the validation split, or "accuracy_if_worst10": the
        best accuracy among the points whose worst 10 % are no lower than the baseline's, or the best of these where
        there is none. A setting of which a run failed is never chosen.
      split: the one that is quoted.
      threads: rules compiled and played at the same time, each in a thread of its own, to which JAX's context
        managers (such as ``jax.enable_x64``) do not reach; with ``checkpoint`` one after another.
      checkpoint: a folder to keep all runs in; the same comparison goes on from it.

    Raises:
      ValueError: an argument that does not fit, before anything is compiled.
      CheckpointError: a ValueError; the folder holds another comparison.
    """
    for name, value in (("replicates", replicates), ("last", last), ("threads", threads)):
        check_count(name, value)
    check_keeping(checkpoint, None, check_count("eval_every", eval_every), check_count("rounds", rounds))
    check_rules(rules)
    baseline = check_choice("baseline", next(iter(rules)) if baseline is None else baseline, rules)
    check_choice("choose", choose, CRITERIA)
    grids = grids_of(rules, build, tune or {})
    datas = draw(federation, replicates)
    makers = {rule: maker_of(build, given) for rule, given in rules.items()}
    wanted = {split, "validation"} if any(grids.values()) else {split}
    for rule, make in makers.items():
        check_build(rule, make(datas[0]), datas[0], grids[rule], wanted)
    fixed = isinstance(federation, FederatedData)
    tasks = _tasks(list(rules), datas, replicates, checkpoint)

    def play(task: Task) -> list[list[History]]:
        settings: dict[str, Any] = {"seeds": task.seeds, "rounds": rounds, "eval_every": eval_every}
        make = makers[task.rule](task.data)
        return sweep(make, grids[task.rule], checkpoint=task.folder, progress=False, **settings).histories

    if threads == 1 or checkpoint is not None:  # here, where Ctrl-C is heard
        played = [play(task) for task in tasks]
    else:
        with ThreadPoolExecutor(threads) as pool:
            played = list(pool.map(play, tasks))
    histories: dict[str, list[list[History]]] = {rule: [[] for _ in _points(grids[rule])] for rule in rules}
    for task, points in zip(tasks, played):  # per rule and point, a history per replicate
        for kept, new in zip(histories[task.rule], points):
            kept.extend(new)
    tried = {
        rule: [measured(runs, "validation", last) for runs in histories[rule]]
        for rule, grid in grids.items()
        if grid
    }
    chosen = _choose(histories, tried, baseline, choose, last) if tried else dict.fromkeys(rules, 0)
    tuned = [rule for rule, grid in grids.items() if grid]
    return Comparison(
        runs={rule: histories[rule][chosen[rule]] for rule in rules},
        baseline=baseline,
        split=split,
        last=min(last, len(next(iter(histories.values()))[0][0].rounds)),
        examples=[
            np.asarray(getattr(data, split.partition("@")[0]).size)
            for data in (datas * replicates if fixed else datas)
        ],
        fixed=fixed,
        choose=choose,
        settings={rule: _points(grids[rule])[chosen[rule]] for rule in tuned},
        grids={rule: grids[rule] for rule in tuned},
        tried={rule: dict(zip(numbered([label(p) for p in _points(grids[rule])]), tried[rule])) for rule in tuned},
    )


def _tasks(rules: list[str], datas: list[FederatedData], replicates: int, place: Any) -> list[Task]:
    """One task for every rule and federation, replicate by replicate."""
    seeds = [list(range(replicates))] if len(datas) < replicates else [[r] for r in range(replicates)]
    names = {
        rule: f"{re.sub(r'[^a-zA-Z0-9]+', '_', rule)}-{sha256(rule.encode()).hexdigest()[:8]}" for rule in rules
    }

    def folder(rule: str, mine: list[int]) -> Path | None:
        return None if place is None else Path(place) / names[rule] / f"replicate-{mine[0]}"

    return [Task(rule, data, mine, folder(rule, mine)) for data, mine in zip(datas, seeds) for rule in rules]


def _points(grid: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """All combinations, in the order of ``ff.sweep``."""
    return [dict(zip(grid, values)) for values in itertools.product(*grid.values())]


def _choose(
    histories: Mapping[str, list[list[History]]],
    tried: Mapping[str, list[dict[str, np.ndarray]]],
    baseline: str,
    choose: str,
    last: int,
) -> dict[str, int]:
    """Per rule the place of the chosen point: the best by its mean on validation, the first of equals."""
    up = 1 if histories[baseline][0][0].metric.higher_is_better else -1
    sign = {"accuracy": up, "worst10": up, "gini": -1, "variance": -1}

    def scores(rule: str, measure: str) -> np.ndarray:
        of = np.array([sign[measure] * point[measure].mean() for point in tried[rule]])
        return np.where(np.isnan(of), -np.inf, of)  # a setting of which a run failed is never chosen

    chosen = dict.fromkeys(histories, 0)
    if choose != "accuracy_if_worst10":
        return chosen | {rule: int(np.argmax(scores(rule, choose))) for rule in tried}
    if baseline in tried:
        chosen[baseline] = int(np.argmax(scores(baseline, "accuracy")))
    floor = up * measured(histories[baseline][chosen[baseline]], "validation", last)["worst10"].mean()
    for rule in [rule for rule in tried if rule != baseline]:
        fair = scores(rule, "worst10") >= floor  # where none is fair enough, the fairest
        chosen[rule] = int(
            np.argmax(np.where(fair, scores(rule, "accuracy"), -np.inf if fair.any() else scores(rule, "worst10")))
        )
    return chosen

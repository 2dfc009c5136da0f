"""Compare rules: the same replicates for all, settings chosen on validation, differences paired."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_fair.checks import check_choice, check_count
from fedjax_fair.data import FederatedData
from fedjax_fair.engine.grid import label
from fedjax_fair.engine.history import History
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
    threads: int = 2,
    checkpoint: str | Path | None = None,
) -> Comparison:
    """Play every rule on the same replicates, and say how they differ.

    Replicate r is the federation drawn from seed r, trained from seed r: all rules see the same clients, initial
    model, cohorts and batches, so that their differences are paired. Where a rule is tuned, every point of its grid
    is played, one is chosen by its mean on the validation split, and only that one is read on ``split``.

    .. code-block:: python

       def build(rule, data, lr=0.1):
           return ff.simulation(ff.models.logistic_regression(), data, aggregator=rule, selector=ff.uniform(10),
                                trainer=ff.local_sgd(optax.sgd(lr), batch_size=50), evaluate=("test", "validation"))

       found = ff.compare({"fedavg": ff.fedavg(), "qfedavg": lambda q: ff.qfedavg(q=q, lipschitz=10.0)}, build,
                          federation=lambda seed: ff.data.synthetic(30, 1.0, 1.0, seed=seed), rounds=200,
                          tune={"fedavg": {"lr": [.03, .1, .3]}, "qfedavg": {"q": [.1, 1., 5.]}})
       print(found)

    Args:
      rules: per name a rule, or a factory of one that takes the settings tuned for it.
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
        best accuracy among the points whose worst 10 % are no lower than the baseline's.
      split: the one that is quoted.
      threads: programs compiled and played at the same time.
      checkpoint: a folder to keep all runs in; the same comparison goes on from it.

    Raises:
      ValueError: an argument that does not fit, before anything is compiled.
      CheckpointError: a ValueError; the folder holds another comparison.
    """
    for name, value in (("replicates", replicates), ("rounds", rounds), ("last", last), ("threads", threads)):
        check_count(name, value)
    check_rules(rules)
    baseline = check_choice("baseline", next(iter(rules)) if baseline is None else baseline, rules)
    check_choice("choose", choose, CRITERIA)
    grids = grids_of(rules, build, tune or {})
    datas = draw(federation, replicates)
    makers = {rule: maker_of(build, given) for rule, given in rules.items()}
    for rule, make in makers.items():
        check_build(rule, make(datas[0]), grids[rule], {split, "validation"} if any(grids.values()) else {split})
    fixed = isinstance(federation, FederatedData)
    tasks = _tasks(list(rules), datas, replicates, checkpoint)

    def play(task: Task) -> list[list[History]]:
        settings: dict[str, Any] = {"seeds": task.seeds, "rounds": rounds, "eval_every": eval_every}
        make = makers[task.rule](task.data)
        return sweep(make, grids[task.rule], checkpoint=task.folder, progress=False, **settings).histories

    # With a checkpoint in the main thread, which hears Ctrl-C and saves.
    with ThreadPoolExecutor(1 if checkpoint else threads) as pool:
        played = [play(task) for task in tasks] if checkpoint else list(pool.map(play, tasks))
    histories: dict[str, list[list[History]]] = {rule: [[] for _ in _points(grids[rule])] for rule in rules}
    for task, points in zip(tasks, played):  # per rule and point, a history per replicate
        for kept, new in zip(histories[task.rule], points):
            kept.extend(new)
    tried = {
        rule: [measured(runs, "validation", last) for runs in histories[rule]]
        for rule, grid in grids.items()
        if grid
    }
    chosen = _choose(histories, tried, baseline, choose, last)
    tuned = [rule for rule, grid in grids.items() if grid]
    return Comparison(
        runs={rule: histories[rule][chosen[rule]] for rule in rules},
        baseline=baseline,
        split=split,
        last=min(last, len(next(iter(histories.values()))[0][0].rounds)),
        examples=[np.asarray(getattr(data, split).size) for data in (datas * replicates if fixed else datas)],
        fixed=fixed,
        choose=choose,
        settings={rule: _points(grids[rule])[chosen[rule]] for rule in tuned},
        grids={rule: grids[rule] for rule in tuned},
        tried={rule: dict(zip(map(label, _points(grids[rule])), tried[rule])) for rule in tuned},
    )


def _tasks(rules: list[str], datas: list[FederatedData], replicates: int, place: Any) -> list[Task]:
    """One task for every rule and federation, replicate by replicate."""
    seeds = [list(range(replicates))] if len(datas) < replicates else [[r] for r in range(replicates)]
    return [
        Task(
            rule,
            data,
            mine,
            None if place is None else Path(place) / rule.replace("/", "_") / f"replicate-{mine[0]}",
        )
        for data, mine in zip(datas, seeds)
        for rule in rules
    ]


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
    floor = -np.inf
    chosen = dict.fromkeys(histories, 0)
    if choose == "accuracy_if_worst10" and tried:
        if baseline in tried:
            chosen[baseline] = int(np.argmax([of["accuracy"].mean() for of in tried[baseline]]))
        floor = float(measured(histories[baseline][chosen[baseline]], "validation", last)["worst10"].mean())
    for rule, points in tried.items():
        if choose == "accuracy_if_worst10":
            scores = [of["accuracy"].mean() if of["worst10"].mean() >= floor else -np.inf for of in points]
            if not np.isfinite(scores).any():  # none is fair enough: the fairest
                scores = [of["worst10"].mean() for of in points]
        else:
            sign = -1 if choose in ("gini", "variance") else 1
            scores = [sign * of[choose].mean() for of in points]
        chosen[rule] = int(np.argmax(np.where(np.isnan(scores), -np.inf, scores)))
    return chosen

"""A comparison laid out: arguments checked, federations drawn, runs grouped by program; nothing is trained."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_fair.checks import check_choice, check_count
from fedjax_fair.data import FederatedData
from fedjax_fair.data.alike import Alike, alike
from fedjax_fair.engine.checkpoint import place_of
from fedjax_fair.engine.cluster import Cluster
from fedjax_fair.engine.grid import Point, points_of
from fedjax_fair.engine.joining import Run, alone, runs_of
from fedjax_fair.engine.keeping import check_keeping
from fedjax_fair.engine.made_alike import made_alike
from fedjax_fair.engine.tasks import Task, threads_for
from fedjax_fair.metrics.kind import ACCURACY, Metric
from fedjax_fair.results.compare_arguments import (
    check_build,
    check_clients,
    check_rules,
    draw,
    grids_of,
    maker_of,
    named,
    settings_of_build,
    settings_of_rule,
)
from fedjax_fair.results.compare_runs import Course, Form, Work, rules_work
from fedjax_fair.results.generations import generations
from fedjax_fair.results.reference_runs import references_work
from fedjax_fair.types import Simulation

CRITERIA = ("accuracy", "worst10", "gini", "variance", "accuracy_if_worst10")
"""How settings are chosen. The last: accuracy, of those whose worst 10 % are no lower than the baseline's."""


class Asked(NamedTuple):
    """The arguments of ``ff.compare``, which tells what they are."""

    rules: Mapping[str, Any]
    build: Callable[..., Simulation]
    federation: FederatedData | Callable[[int], FederatedData]
    replicates: int
    rounds: int
    eval_every: int
    last: int
    baseline: str | None
    tune: Mapping[str, Mapping[str, Iterable[Any]]] | None
    choose: str
    split: str
    references: bool
    clients: Any
    side_by_side: int | str | None
    threads: int | None
    progress: bool | str | None
    checkpoint: str | Path | None
    every: int | None
    cluster: Cluster | None
    first_seed: int = 0
    generations: list[int] | None = None
    """How many replicates each call on this checkpoint has added; what the first process found."""


class Plan(NamedTuple):
    """What is to be done."""

    asked: Asked
    """With the baseline's name, and lists of what is tuned."""
    grids: dict[str, dict[str, list[Any]]]
    """Per rule, ``{}`` where it is not tuned."""
    points: dict[str, list[Point]]
    datas: list[FederatedData]
    """Of every replicate."""
    alikes: list[Form]
    judge: str
    """The split by which settings are chosen."""
    clients: np.ndarray | None
    metric: Metric
    course: Course
    first: list[Run]
    """The baseline's."""
    works: list[Work]
    """The rules', and the references' where their settings are known before the rules are played."""

    def references(self, point: int) -> Work:
        """The references with the settings of the baseline's point."""
        return references_work(self.first[point], self.asked.build, self.alikes, self.course)


def is_tuned(grids: Mapping[str, Mapping[str, list[Any]]]) -> bool:
    """Whether there is anything to choose: grids of one value each give the settings."""
    return any(len(values) > 1 for grid in grids.values() for values in grid.values())


def plan(asked: Asked, begun: bool = False, within: Callable[[str], AbstractContextManager[None]] = named) -> Plan:
    """Lay a comparison out. ``begun``: by a process that another one has asked for a part of it.

    ``within`` says of which rule something is raised.

    Raises:
      ValueError: an argument that does not fit.
    """
    rules, build, split = asked.rules, asked.build, asked.split
    counts = {"replicates": asked.replicates, "last": asked.last}
    for name, value in (counts | ({} if asked.threads is None else {"threads": asked.threads})).items():
        check_count(name, value)
    start, rounds = check_count("first_seed", asked.first_seed, low=0), check_count("rounds", asked.rounds)
    asked = asked._replace(first_seed=start, rounds=rounds)
    gap = min(check_count("eval_every", asked.eval_every), rounds)
    chunk = check_keeping(asked.checkpoint, asked.every, gap, None)
    check_rules(rules)
    first_rule = next(iter(rules))
    baseline = check_choice("baseline", first_rule if asked.baseline is None else asked.baseline, rules)
    check_choice("choose", asked.choose, CRITERIA)
    grids = grids_of(rules, build, asked.tune or {})
    folder = None if asked.checkpoint is None else place_of(asked.checkpoint)
    added = asked.generations or generations(folder, asked.replicates)
    asked = asked._replace(baseline=baseline, tune={rule: grid for rule, grid in grids.items() if grid})
    asked = asked._replace(checkpoint=folder, generations=added)
    drawn = draw(asked.federation, sum(added), asked.first_seed)
    if isinstance(asked.federation, FederatedData):
        drawn = drawn * asked.replicates
        parts = [Alike(drawn[0], drawn)]
    else:
        ends = np.cumsum(added)
        parts = [alike(drawn[end - count : end]) for count, end in zip(added, ends)]
    datas, of = drawn[: asked.replicates], parts[0]
    judge = "validation" + "".join(split.partition("@")[1:])  # of personal models where these are quoted
    splits = {split, judge} if is_tuned(grids) else {split}
    made: dict[str, Simulation] = {}
    for rule, given in rules.items():
        with within(rule):
            make, known = maker_of(build, given)(of.largest), [*made.values()]
            made[rule] = check_build(rule, make, of.largest, grids[rule], splits, known)
    metric = next(iter(made.values())).metric or ACCURACY
    if asked.choose == "gini" and is_tuned(grids) and metric.range[0] < 0:
        raise ValueError(f'choose="gini" needs a metric of values from 0, got {metric.name}, which may be below')
    who = check_clients(asked.clients, datas[0].n_clients)
    course = Course(
        asked.rounds,
        gap,
        asked.last,
        _threads(asked.threads, made),
        asked.side_by_side,
        folder,
        asked.every,
        chunk,
        asked.progress,
        asked.cluster,
        begun,
        asked.first_seed,
    )
    points = {rule: points_of(grids[rule]) for rule in rules}
    takes = {rule: {*settings_of_rule(given)} for rule, given in rules.items()}
    runs = runs_of(rules, points, takes, {*settings_of_build(build)})
    firsts = [next(run for run in runs if run.variant.rule == rule) for rule in rules]
    alikes = forms(firsts, build, drawn, parts, [made[rule] for rule in rules], asked.replicates)
    first = [run for run in runs if run.variant.rule == baseline]
    laid = Plan(asked, grids, points, datas, alikes, judge, who, metric, course, first, [])
    works = [rules_work(runs, build, alikes, course, made)]
    if asked.references and not grids[baseline]:  # else once it is known with which settings
        works.append(laid.references(0))
    return laid._replace(works=works)


def play_task(shared: bytes, i: int) -> tuple[str, Any, int]:
    """The i-th task of ``shared``, a pickled ``(asked, point of the references or None)``, on this machine.

    With its name, and the rounds that this process played of it."""
    task = _tasks(shared)[i]
    told: list[int] = []  # the first are those that were kept
    found = task.work(lambda: False, told.append, lambda: None)
    return task.name, found, sum(told[1:])


@lru_cache(maxsize=1)  # what is laid out once compiles each program once, however many tasks come
def _tasks(shared: bytes) -> list[Task]:
    import pickle

    (asked, point), _ = pickle.loads(shared)
    laid = plan(asked, begun=True)
    return [task for work in (laid.works if point is None else [laid.references(point)]) for task in work.tasks]


def forms(
    runs: list[Run],
    build: Callable[..., Simulation],
    datas: Sequence[FederatedData],
    parts: Sequence[Alike],
    sims: Sequence[Simulation],
    replicates: int,
) -> list[Form]:
    """The first ``replicates`` of the federations by which can share programs: those of one of the ``parts``.

    ``sims`` are what ``build`` makes on the first part's ``largest``, a run of each rule. Where it makes the same
    of all of a part's federations, one form serves the part; else each federation has its own. Of the first rule
    all federations are looked at, of each of the others another one.
    """
    found: list[Form] = []
    first = 0
    for of in parts:
        made = sims if of is parts[0] else [alone(run, build, of.largest) for run in runs]
        different = [*{id(data): data for data in of.each if data is not of.largest}.values()]
        pairs = [(0, data) for data in different]
        pairs += [(i, different[i % len(different)]) for i in range(1, len(runs))] if different else []
        same = all(
            made_alike(_without_data(made[i]), _without_data(alone(runs[i], build, data))) for i, data in pairs
        )
        asked = [r for r in range(first, first + len(of.each)) if r < replicates]
        found += [Form(of, asked)] if same else [Form(Alike(datas[r], [datas[r]]), [r]) for r in asked]
        first += len(of.each)
    return found


def _without_data(sim: Simulation) -> Any:
    return {name: value for name, value in (sim.arguments or {"sim": sim}).items() if name != "data"}


def _threads(threads: int | None, made: Mapping[str, Simulation]) -> int:
    """Of simulations whose clients are shared out over devices, one: two would wait for each other's devices."""
    shared = any((sim.arguments or {}).get("devices", 1) != 1 for sim in made.values())
    return 1 if shared else threads_for(threads)

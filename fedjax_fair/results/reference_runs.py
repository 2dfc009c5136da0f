"""The work of a comparison's reference rows: every client alone, and one with all examples, with checkpoints."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_fair.data.alike import with_union
from fedjax_fair.data.federated import FederatedData
from fedjax_fair.engine.history import History
from fedjax_fair.engine.joining import Run, alone
from fedjax_fair.engine.keys import as_key
from fedjax_fair.engine.tasks import Task
from fedjax_fair.results import references
from fedjax_fair.results.compare_runs import Course, Form, Work
from fedjax_fair.results.reference_store import Kept, Traced, kept_at
from fedjax_fair.types import Simulation


class Row(NamedTuple):
    """One row's trainings on one replicate."""

    name: str
    """"local" or "pooled"."""
    training: references.Reference
    key: Any
    clients: Sequence[int]
    lengths: np.ndarray
    """Rounds before each of the last evaluations, of every training."""
    data: FederatedData


def references_work(run: Run, build: Callable[..., Simulation], alikes: list[Form], course: Course) -> Work:
    """Local training and pooled training with the settings of ``run``; a history of each replicate."""
    tasks: list[Task] = []
    made: list[tuple[Row, Simulation]] = []
    for of, members in alikes:
        sim, n_clients = alone(run, build, of.largest), of.largest.n_clients
        whole = references.reference(sim, with_union(of.largest))
        local = references.reference(sim, of.largest) if references.needs_its_own(sim) else whole
        traced: Traced = {}
        for r, data in zip(members, of.each):
            union, here = with_union(data), sim._replace(data=data)
            kinds = (
                ("local", local, range(n_clients), references.rounds_alone(here, course.rounds)),
                ("pooled", whole, [n_clients], references.rounds_pooled(here, course.rounds)),
            )
            for name, training, clients, rounds in kinds:
                gap = max(1, round(rounds * course.gap / course.rounds))
                lengths = references.stretches(rounds, gap, course.last)
                key, on = as_key(course.first_seed + r), union if training is whole else data
                row = Row(name, training, key, clients, lengths, on)
                place = partial(_place, row, course, traced)
                opened = None if course.begun else place()
                kept = 0 if opened is None else len(opened.load()) * rounds
                work = partial(_trainings, row, course, opened, place)
                call = (key, clients[0], lengths, course.rounds, on)
                trace = None if kept else partial(training.trained.trace, *call)
                name = f"{name} of replicate {r}"
                tasks.append(Task(training, work, rounds * len(clients), name, kept, trace))
                made.append((row, here))

    def collect(played: list[Any]) -> dict[str, list[History]]:
        found: dict[str, list[History]] = {"local": [], "pooled": []}
        for (row, sim), results in zip(made, played):
            found[row.name].append(references.as_history(results, row.lengths, sim))
        return found

    return Work(tasks, collect)


def _place(row: Row, course: Course, traced: Traced) -> Kept | None:
    if course.checkpoint is None:
        return None
    call = (row.key, row.clients[0], row.lengths, course.rounds, row.data)
    return kept_at(course.checkpoint, row.name, row.training.trained, call, traced)


def _trainings(
    row: Row,
    course: Course,
    opened: Kept | None,
    place: Callable[[], Kept | None],
    stop: Callable[[], bool],
    advance: Callable[[int], None],
    compiled: Callable[[], None],
) -> list[references.Scores]:
    """The results of each training: every client's, [L, N], or of one that trains alone its own, [L]."""
    kept, rounds = place() if course.begun else opened, int(row.lengths.sum())
    found = [] if kept is None else kept.load()
    written, often = len(found), course.every or -(-len(row.clients) * rounds // 10)
    advance(written * rounds)
    try:
        for client in row.clients[written:]:
            if stop():
                raise KeyboardInterrupt(f"stopped; what is trained is kept in {course.checkpoint}")
            scores = row.training.train(row.key, client, row.lengths, course.rounds, row.data, compiled)
            found.append(jax.tree.map(partial(_own, client), scores) if row.name == "local" else scores)
            if kept is not None and (len(found) - written) * rounds >= often:
                kept.save(found)
                written = len(found)
            advance(rounds)  # may end the work
    finally:
        if kept is not None and len(found) > written:
            kept.save(found)
    return found


def _own(client: int, everybodys: np.ndarray) -> np.ndarray:
    return everybodys[:, client].copy()  # or a view would keep everybody's

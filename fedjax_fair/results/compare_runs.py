"""The work of a comparison: runs grouped by program, replicate by replicate, in threads, with checkpoints."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

from fedjax_fair.data.alike import Alike
from fedjax_fair.engine import watch
from fedjax_fair.engine.checkpoint import Keeper
from fedjax_fair.engine.cluster import Cluster, Piece, counted, kept_of, on_cluster
from fedjax_fair.engine.grid import label, numbered
from fedjax_fair.engine.history import History, told
from fedjax_fair.engine.joining import Group, Run, called, group
from fedjax_fair.engine.keys import as_key, stacked
from fedjax_fair.engine.program_run import keeper_of, train
from fedjax_fair.engine.programs import Program, program_of
from fedjax_fair.engine.progress import asked_to_stop, bar, beyond
from fedjax_fair.engine.run import chunks
from fedjax_fair.engine.sharing import rule_of
from fedjax_fair.engine.tasks import Task, in_threads
from fedjax_fair.metrics.kind import check_values, described
from fedjax_fair.types import Evaluation, Simulation, as_method


class Course(NamedTuple):
    """How long runs are, and how they go."""

    rounds: int
    gap: int
    """Rounds between evaluations."""
    last: int
    """Evaluations that are quoted."""
    threads: int
    side_by_side: int | str | None
    checkpoint: Path | None
    every: int | None
    """Rounds between checkpoints."""
    chunk: int | None
    """Evaluations per compiled call; None for about a tenth of the run."""
    progress: bool | str | None
    cluster: Cluster | None = None
    """Who does the work, if not this process."""
    begun: bool = False
    """Whether the checkpoints are in use by now, by this process and others: each opens its own task's alone."""
    first_seed: int = 0
    """Of replicate 0."""


class Form(NamedTuple):
    """Federations that share programs."""

    of: Alike
    replicates: list[int]


class Work(NamedTuple):
    """Tasks, and what becomes of their results."""

    tasks: list[Task]
    """Each takes ``stop() -> bool``, ``advance(rounds)``, called first with those that were kept, and the function
    that a ``Task`` tells of."""
    collect: Callable[[list[Any]], Any]
    programs: str = ""
    """Which rules share one, where there are several."""


class Job(NamedTuple):
    """The runs of one program on one federation."""

    program: Program
    name: str
    replicate: int
    runs: list[int]
    """Their places among all runs of the comparison."""
    reads: list[tuple[str, ...]]
    """What the rule of each reads."""
    known: str
    """By which its checkpoints are found."""
    room: int
    """Training examples that all replicates of its program have room for."""


def do(
    works: list[Work],
    course: Course,
    far: Callable[[bytes, int], tuple[str, Any, int]],
    shared: Any,
    remark: str | None = None,
    beside: Callable[[], object] = lambda: None,
) -> list[Any]:
    """What each work comes to; the tasks of all share the threads, or the cluster.

    There ``far(shared, i)``, which gets ``shared`` pickled, does and names what the i-th of all tasks is here.
    ``remark`` is what the tasks are: the cluster begins with it, and this process where some of it is kept.
    ``beside`` several tasks of this process, once their programs are traced, it gets ready what comes after.
    """
    tasks = [task for work in works for task in work.tasks]
    pieces = [Piece(task.name, task.rounds, task.kept) for task in tasks]
    if remark is not None:
        _begin([work.programs for work in works if work.programs], pieces, course, remark)
    rounds, halted = [task.rounds for task in tasks], Event()
    kept = course.checkpoint is not None and course.cluster is None
    with asked_to_stop(kept) as stop, bar(course.progress, sum(rounds), lines=course.cluster is None) as shown:

        def advance(rounds: int) -> None:
            if halted.is_set():  # another task failed, or was interrupted
                raise KeyboardInterrupt("stopped")
            shown(rounds)

        if course.cluster is None:
            advance(sum(task.kept for task in tasks))
            here = [task._replace(work=partial(task.work, stop, beyond(task.kept, advance))) for task in tasks]
            ready = [Task("beside", lambda compiled: None, trace=beside)] * (len(here) > 1)
            results = iter(in_threads([*here, *ready], course.threads, halted))
        else:
            results = iter(on_cluster(course.cluster, far, shared, pieces, shown, remark))
    return [work.collect([next(results) for _ in work.tasks]) for work in works]


def _begin(programs: list[str], pieces: list[Piece], course: Course, remark: str) -> None:
    """Say which rules share a program, where progress is shown, and here what need not be trained."""
    if course.cluster is not None or bar(course.progress, 0).shown:
        print(*programs, sep="\n", end="\n" * len(programs), file=sys.stderr, flush=True)
    if course.cluster is None and (kept := kept_of(pieces)):
        print(f"{remark}{kept}", file=sys.stderr, flush=True)


def _shared(runs: list[Run], groups: list[Group], forms: int) -> str:
    """Which rules share a program, in a line; nothing of one rule alone."""
    if len({run.variant.rule for run in runs}) == 1:
        return ""
    named = (", ".join(dict.fromkeys(called(runs[i].variant) for i in each.runs)) for each in groups)
    each = f" for each of {forms} groups of replicates" if forms > 1 else ""
    return f"{counted(len(groups), 'program')}{each}: {' | '.join(named)}"


def rules_work(
    runs: list[Run],
    build: Callable[..., Simulation],
    alikes: list[Form],
    course: Course,
    made: Mapping[str, Simulation],
) -> Work:
    """Per run a history of each replicate, trained from its seed. ``made``: the simulations of rules that are not
    tuned, on the largest of the federations."""
    jobs: list[Job] = []
    tasks: list[Task] = []
    first = next(chunks(course.rounds, course.gap, course.chunk))
    for of, members in alikes:
        groups = group(runs, build, of.largest, made if len(alikes) == 1 else {}, course.side_by_side != 1)
        bases = [_program(joined, of, course) for joined in groups]
        known = numbered([_known(joined, base) for joined, base in zip(groups, bases)])
        room = int(of.largest.sizes.sum())
        for place, (joined, base) in enumerate(zip(groups, bases)):
            for r, data in zip(members, of.each):
                program = base._replace(sim=base.sim._replace(data=data), keys=_seeds(course.first_seed + r, base))
                jobs.append(
                    Job(program, f"{place}: {joined.name}", r, joined.runs, joined.reads, known[place], room)
                )
                opened = None if course.begun else _keeper(jobs[-1], course)
                work = partial(_play, jobs[-1], opened, course)
                name = f"{jobs[-1].name}, runs {joined.runs} of replicate {r}"
                kept = 0 if opened is None else opened.played() * len(joined.runs)
                trace = None if kept else partial(program.trace, *first)
                tasks.append(Task(joined.build, work, course.rounds * len(joined.runs), name, kept, trace))

    def collect(played: list[Any]) -> list[list[History]]:
        found: list[list[History]] = [[] for _ in runs]
        for job, results in sorted(zip(jobs, played), key=lambda pair: pair[0].replicate):
            for i, reads, history, still in zip(job.runs, job.reads, *results):
                others = [runs[other] for other in job.runs]
                if "loss" not in reads:  # another rule's of the program
                    history = history._replace(received_loss=None)
                found[i].append(_heard(runs[i], others, job.program.sim, history, still))
        return found

    return Work(tasks, collect, _shared(runs, groups, len(alikes)))


def _program(joined: Group, of: Alike, course: Course) -> Program:
    points, names, first = [*enumerate(joined.points)], tuple(joined.points[0]), stacked([as_key(0)])
    kept, width = course.checkpoint is not None, course.side_by_side
    program = program_of(joined.build, (), points, names, first, width, None, digested=kept, sim=joined.sim)
    return program._replace(other=any(data is not program.sim.data for data in of.each))


def _seeds(seed: int, program: Program) -> Any:
    return stacked([as_key(seed)] * len(program.keys))


def _play(
    job: Job,
    opened: Keeper | None,
    course: Course,
    stop: Callable[[], bool],
    advance: Callable[[int], None],
    compiled: Callable[[], None],
) -> tuple[list[History], list[bool]]:
    if stop():
        raise KeyboardInterrupt(f"stopped; what is trained is kept in {course.checkpoint}")
    keeper = _keeper(job, course) if course.begun else opened
    cuts = partial(chunks, course.rounds, course.gap, course.chunk)
    seen = partial(_check_values, job.program.sim)
    return train(job.program, keeper, cuts, course.every or 1, stop, advance, seen=seen, compiled=compiled)


def _check_values(sim: Simulation, scores: Mapping[str, Evaluation]) -> None:
    """Refuse values that no table takes, before the rest is trained."""
    for score in scores.values():
        check_values("the metric's values", score.accuracy, described(sim.metric))


def _known(joined: Group, program: Program) -> str:
    """A program by its runs, not by its place, which moves where a rule is added before it."""
    runs = range(len(program.owners))
    points = "; ".join(label({name: values[i] for name, values in program.values.items()}) for i in runs)
    return f"{joined.name}: {points}"


def _keeper(job: Job, course: Course) -> Keeper | None:
    """A folder for each program and replicate."""
    if course.checkpoint is None:
        return None
    known = sha256(job.known.encode()).hexdigest()[:12]
    # The replicates share a program, in which every client has the room of the largest of them.
    room = {"the room for all replicates' examples": job.room}
    settings = {"rounds": course.rounds, "eval_every": course.gap, **room}
    return keeper_of(job.program, course.checkpoint / f"{known}-replicate-{job.replicate}", settings)


def _heard(run: Run, others: list[Run], sim: Simulation, history: History, stayed: bool) -> History:
    """The history with what it is of, after what it has to say of itself."""
    if not _takes_positive(run) and any(_takes_positive(other) for other in others):
        sim = sim._replace(positive_losses=False)  # it is another rule of the program that does
    watch.say(watch.below_zero(sim, history) or watch.unused(sim, history, stayed))
    return told(history, sim)


def _takes_positive(run: Run) -> bool:
    rule = as_method(rule_of(run.variant.make(**run.variant.fixed, **run.point)))
    return getattr(rule.aggregator.weigh, "positive_losses", False)

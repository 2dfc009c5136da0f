"""What ``run`` and ``sweep`` do once everything is checked: train, write, print."""

import json
import math
import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from fedjax_fair.cli.experiment import Experiment, source_of
from fedjax_fair.cli.judging import reading_of
from fedjax_fair.cli.plan import Grid, Ground, Plan
from fedjax_fair.engine.history import History
from fedjax_fair.engine.progress import lines
from fedjax_fair.engine.run import run
from fedjax_fair.engine.sweep import sweep
from fedjax_fair.results.folder import about, files_of, write, write_frontier, write_plots
from fedjax_fair.results.table import left_out, table

Runs = dict[str, list[History]]


def train(plan: Plan, folder: Path, command: list[str]) -> None:
    """Run every rule on every seed; what is finished is on disk before the next rule starts."""
    experiment: Any = plan.ground.experiment
    notes, header = notes_of(plan.ground, plan.cohort), header_of(plan.ground, plan.cohort, command)
    seeds, keep = experiment.seeds, experiment.checkpoint
    first = jax.process_index() == 0  # of several processes
    runs: Runs = {}
    for rule, sim in plan.simulations.items():
        start, histories = time.perf_counter(), []
        done = said_of_seeds(experiment, rule)
        for i, seed in enumerate(seeds_of(experiment)):
            place = keep and keep / re.sub(r"[^\w.,=@-]+", "_", f"{len(runs)}-{rule}") / f"seed-{seed}"
            _, history = run(
                sim,
                seed,
                experiment.rounds,
                eval_every=experiment.eval_every,
                progress=progress_of(experiment, f"{rule}, seed {i + 1} of {seeds}"),
                checkpoint=place,
                every=experiment.checkpoint_every,
            )
            histories.append(history)
            done(1)
        runs[rule] = histories
        if not first:
            continue
        write(folder, files_of(runs, header, plan.ground.honest))
        seconds = time.perf_counter() - start
        notes.print(f"{rule}: {seeds} x {experiment.rounds} rounds in {seconds:.1f} s{left_out(histories)}")
    if first:
        finish(plan, folder, runs, notes)


def train_grid(plan: Grid, folder: Path, command: list[str]) -> None:
    """Play every point of the grid from every seed, together."""
    experiment: Any
    experiment, notes, start = plan.ground.experiment, notes_of(plan.ground, plan.cohort), time.perf_counter()
    points, seeds = math.prod(map(len, plan.points.values())), experiment.seeds
    swept = sweep(
        plan.build,
        plan.points,
        seeds=seeds_of(experiment),
        rounds=experiment.rounds,
        eval_every=experiment.eval_every,
        progress=progress_of(experiment, f"{points} points x {seeds} seeds"),
        devices=experiment.devices,
        checkpoint=experiment.checkpoint,
        every=experiment.checkpoint_every,
        workers=experiment.workers,
        scheduler=experiment.scheduler,
    )
    header = header_of(plan.ground, plan.cohort, command)
    write(folder, files_of(swept.runs, header, plan.ground.honest, points=swept.points))
    seconds = time.perf_counter() - start
    notes.print(f"{points} points x {seeds} seeds x {experiment.rounds} rounds in {seconds:.1f} s")
    for point, histories in swept.runs.items():
        if failed := left_out(histories):
            notes.print(f"{point}{failed}")
    finish(plan, folder, swept.runs, notes)


def seeds_of(experiment: Any) -> list[int]:
    """Of the runs of a rule, or of a point."""
    return [experiment.first_seed + i for i in range(experiment.seeds)]


def said_of_seeds(experiment: Any, rule: str) -> Callable[[int], None]:
    """Called after each seed: in a job's log, where every seed has lines of its own, one for each tenth of them."""
    told = experiment.seeds > 1 and not experiment.quiet and jax.process_index() == 0 and not sys.stderr.isatty()
    return lines(f"{rule}, seeds", experiment.seeds) if told else lambda seeds: None


def listed(words: Sequence[str], most: int = 20) -> str:
    """The words, of many the first.

    >>> listed(("age", "sex=f", "sex=m")), listed("abcd", most=2)
    ('3: age, sex=f, sex=m', '4: a, b, ...')
    """
    return f"{len(words)}: {', '.join([*words[:most], *['...'] * (len(words) > most)])}"


def notes_of(ground: Ground, cohort: int | str, whose: str = "") -> Console:
    """Where remarks go; the first says what is trained on, and ``whose`` examples it counts."""
    experiment, data = ground.experiment, ground.data
    notes = Console(stderr=True, highlight=False, soft_wrap=True, quiet=experiment.quiet or jax.process_index() > 0)
    notes.print(
        f"{source_of(experiment)}: {data.n_clients} clients, {cohort} a round, {int(data.sizes.sum())} "
        f"training examples{whose}, {ground.model_name}, {getattr(ground.loss, '__name__', 'a loss of your own')}"
    )
    if data.names is not None and data.names.features:
        notes.print(f"features, {listed(data.names.features)}")
    if remark := reading_of(experiment, data):
        notes.print(remark)
    return notes


def progress_of(experiment: Experiment, label: str) -> str | bool | None:
    """A bar where somebody is there to see it, and lines in a job's log; nothing where it is to be quiet."""
    return False if experiment.quiet else label


def header_of(ground: Ground, cohort: int | str, command: list[str]) -> dict[str, Any]:
    """What a reader needs to repeat the results."""
    settings = {"model": ground.model_name, "cohort": cohort}
    return about(shlex.join(command)) | settings | {"precision": ground.experiment.precision}


def finish(plan: Plan | Grid, folder: Path, runs: Runs, notes: Console) -> None:
    """Print the table, or the summary as JSON; draw the figures."""
    experiment, honest = plan.ground.experiment, plan.ground.honest
    if experiment.json:
        print(json.dumps({"folder": str(folder), **json.loads((folder / "summary.json").read_text())}, indent=2))
    else:
        print(table(runs, honest))
    if honest is not None and not (experiment.json or experiment.quiet):
        print(f"Judged by the {int(honest.sum())} honest clients; {int((~honest).sum())} do {experiment.fault}.")
    write_plots(folder, runs, honest)
    if isinstance(plan, Grid):
        write_frontier(folder, runs, honest)
    notes.print(f"Results in {folder}")
    if experiment.evaluate == "validation" and isinstance(plan, Grid):
        chosen = f"{shlex.quote(str(folder / 'config.toml'))} --grid NAME=VALUE ..."
        notes.print(f"To quote the test split of a point: fedjax-fair sweep {chosen} --evaluate test --out FOLDER")

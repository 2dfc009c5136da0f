"""``--dry-run``: what a call would train, counted before anybody pays for it."""

import json
from typing import Any

import jax

from fedjax_fair.cli.comparing import Contest, lay_out
from fedjax_fair.cli.plan import Grid, Plan
from fedjax_fair.cli.train import notes_of
from fedjax_fair.engine.cluster import counted
from fedjax_fair.engine.grid import floats_of, groups, points_of


def say(plan: Plan | Grid | Contest) -> None:
    """Print the counts of runs, programs and pieces, as sentences or as JSON; remarks go to standard error."""
    if jax.process_index() > 0:  # of several, the first one says it
        return
    experiment, notes = plan.ground.experiment, notes_of(plan.ground, plan.cohort)
    shared = ""
    if isinstance(plan, Contest):
        for remark in plan.remarks:
            notes.print(remark)
        counts, shared = counts_of_comparison(plan)
    else:
        counts = counts_of_sweep(plan) if isinstance(plan, Grid) else counts_of_run(plan)
    if experiment.json:
        print(json.dumps(counts, indent=2))
        return
    programs = counted(counts["programs"], "program")
    print(f"{counted(counts['runs'], 'run')} of {counts['rounds']} rounds, in {shared or programs}")
    if "pieces" in counts:
        pieces, rows = counts["pieces"], counts.get("reference_pieces", 0)
        order = "and" if counts.get("at_once", 0) > max(pieces, rows) else "and after them"
        more = f", {order} {rows} of the rows (local) and (pooled)" * (rows > 0)
        print(f"{counted(pieces, 'piece')} for --workers or --scheduler{more}")
    notes.print("Nothing was trained: leave out --dry-run to begin")


def counts_of_run(plan: Plan) -> dict[str, int]:
    """Every rule is a program, and plays its seeds one after another."""
    rules = len(plan.simulations)
    experiment: Any = plan.ground.experiment
    return {"runs": rules * experiment.seeds, "rounds": experiment.rounds, "programs": rules}


def counts_of_sweep(plan: Grid) -> dict[str, int]:
    """A piece has the points of one program from one seed."""
    points = points_of(plan.points)
    experiment: Any = plan.ground.experiment
    programs = len(groups(points, floats_of(plan.points)))
    runs, pieces = (many * experiment.seeds for many in (len(points), programs))
    return {"runs": runs, "rounds": experiment.rounds, "programs": programs, "pieces": pieces}


def counts_of_comparison(contest: Contest) -> tuple[dict[str, int], str]:
    """A piece has the runs of one program on one replicate; with which rules share a program.

    ``at_once``: the most pieces that workers can share; those of the references come later where they have the
    chosen setting of a tuned baseline.
    """
    laid = contest.laid or lay_out(contest)
    asked, work = laid.asked, laid.works[0]
    rows = 2 * asked.replicates * asked.references
    counts = {
        "runs": sum(map(len, laid.points.values())) * asked.replicates,
        "rounds": asked.rounds,
        "programs": len({task.program for task in work.tasks}),
        "pieces": len(work.tasks),
        "reference_pieces": rows,
        "at_once": max(sum(len(each.tasks) for each in laid.works), rows),
    }
    return counts, work.programs

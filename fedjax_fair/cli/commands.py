"""The command line: ``fedjax-fair list | run | compare | sweep | report | reproduce``."""

import contextlib
import re
import shlex
import sys
import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fedjax_fair.cli import several
from fedjax_fair.cli.arguments import Listing, Reporting, Reproduction, read_command
from fedjax_fair.cli.process import collect_seldom, end_at_once, flushed, hear_interrupts, keep_programs, split_cpu
from fedjax_fair.cli.resuming import resumed, with_home


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. A wrong call ends in one sentence on standard error and exit status 2."""
    alone = arguments is None  # a process of its own, whose JAX nobody else has settled
    try:
        if alone:
            hear_interrupts()
            keep_programs()
            collect_seldom()
        act(sys.argv[1:] if arguments is None else list(arguments), alone)
    except KeyboardInterrupt as stop:
        last = f"fedjax-fair: {str(stop) or 'stopped'}"
        if alone:
            end_at_once(130, last)
        else:
            print(last, file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # "fedjax-fair list | head": the reader has seen enough
        flushed()
        sys.exit(1)
    if not flushed():
        sys.exit(1)


def act(given: list[str], alone: bool = False) -> None:
    """Do what the words of the command line say; a wrong one ends in a sentence and exit status 2."""
    experiment: Any = None
    claimed = False  # whether the checkpoint's folder is this call's
    try:
        words, going_on = resumed(given)
        claimed = going_on
        experiment, rules = read_command(words)
        experiment = with_home(experiment)
        if isinstance(experiment, Listing):
            show_list(experiment)
            return
        if isinstance(experiment, Reporting):
            write_report(experiment)
            return
        if isinstance(experiment, Reproduction):
            reproduce(experiment)
            return
        several.checked(experiment)
        if alone:
            split_cpu(-(-experiment.devices // (getattr(experiment, "processes", None) or 1)))
        experiment = several.joined(experiment)
        from fedjax_fair.cli.comparing import train_comparison
        from fedjax_fair.cli.train import train, train_grid

        if several.is_shared(experiment):
            several.check_same(experiment, rules, going_on)
        if experiment.dry_run:
            count_only(experiment, rules, words[0])
            return
        acts: dict[str, Any] = {"run": train, "compare": train_comparison, "sweep": train_grid}
        with contextlib.ExitStack() as during:
            plan, folder = set_up(experiment, rules, during, going_on, words[0])
            claimed = True
            acts[words[0]](plan, folder, ["fedjax-fair", *given])
    except ValueError as error:
        from fedjax_fair.cli.worded import in_flags

        print(f"fedjax-fair: {in_flags(str(error))}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk, a file that may not be read
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"fedjax-fair: {where}{error.strerror or str(error) or type(error).__name__}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        again = "" if experiment is None else goes_on_with(experiment, words[0], claimed)
        if not again:
            raise
        raise KeyboardInterrupt(f"{str(stop) or 'stopped'}; go on with: {again}") from None


def goes_on_with(experiment: Any, command: str, claimed: bool) -> str:
    """The call that goes on from what an interrupted one has kept; empty where nothing is kept."""
    if isinstance(experiment, Reproduction):
        return "the same command"
    kept = getattr(experiment, "checkpoint", None)
    if kept is None or not claimed:  # what lies there may be another call's
        return ""
    flags = [("--resume", kept), *((f"--{by}", getattr(experiment, by, None)) for by in ("workers", "scheduler"))]
    words = [str(word) for flag, value in flags if value is not None for word in (flag, value)]
    return f"fedjax-fair {command} {shlex.join(words)}"


def set_up(
    experiment: Any,
    rules: tuple[str, ...],
    during: contextlib.ExitStack,
    going_on: bool = False,
    command: str = "run",
) -> tuple[Any, Path]:
    """Check everything, build the simulations, claim the results folder and that of the checkpoints ``during`` the
    work."""
    from fedjax_fair.cli.folders import claim_folders
    from fedjax_fair.engine.processes import told_by_first

    plan = prepared(experiment, rules, command)
    claim = partial(claim_folders, experiment, rules, going_on, command, plan, during)
    return plan, told_by_first(claim) if several.is_shared(experiment) else claim()


def prepared(experiment: Any, rules: tuple[str, ...], command: str) -> Any:
    """Check everything but the folders, and build the simulations."""
    from fedjax_fair.cli.comparing import prepare_comparison
    from fedjax_fair.cli.plan import prepare, prepare_sweep
    from fedjax_fair.engine.cluster import cluster_of

    cluster_of(getattr(experiment, "workers", None), getattr(experiment, "scheduler", None))
    if command == "sweep":
        return prepare_sweep(experiment, experiment.aggregator, experiment.grid)
    return (prepare_comparison if command == "compare" else prepare)(experiment, rules)


def count_only(experiment: Any, rules: tuple[str, ...], command: str) -> None:
    """Do what ``--dry-run`` says."""
    from fedjax_fair.cli.dry_run import say
    from fedjax_fair.cli.folders import check_checkpoint
    from fedjax_fair.cli.unused import say_unused
    from fedjax_fair.results.folder import check_free

    plan = prepared(experiment, rules, command)
    check_checkpoint(experiment.checkpoint, False, command)
    if experiment.checkpoint is not None:
        check_free(experiment.checkpoint, True, "checkpoint")
    if experiment.out is not None:
        check_free(experiment.out, experiment.overwrite)
    say_unused(experiment, rules, plan.points if command == "sweep" else (), plan.ground.model_name)
    say(plan)


def show_list(listing: Listing) -> None:
    """Print the cards of the registry: what each factory does, optimises, reads, its settings and its source; then
    the names of data sets, losses and metrics.

    Raises:
      ValueError: a name that is neither in the registry nor that of a rule of the user's own.
    """
    from rich.console import Console

    from fedjax_fair.checks import check_choice
    from fedjax_fair.cli.components import DATASETS
    from fedjax_fair.registry import LOSSES, METRICS, cards
    from fedjax_fair.registry.plugins import NAMED, is_own

    if listing.markdown:
        if listing.names:
            raise ValueError(f"markdown prints every table and takes no names, got {' '.join(listing.names)}")
        print(cards.as_markdown(), end="")
        return
    known = [name for group in cards.GROUPS.values() for name in group]
    mine = [name for name in listing.names if is_own(name) or name.endswith(".py")]
    for name in listing.names:
        stock, own_rule = re.match(r"(\w+)[:@]", name), NAMED.match(name)
        if (stock and stock[1] in known) or (own_rule and own_rule.end() < len(name)):
            raise ValueError(f"list takes names alone, without settings or selectors, got {name!r}")
        if name not in mine:
            check_choice("name", name, known)
    own = [cards.own_card(name) for name in mine]
    width = min(Console().width, 110)
    for title, group in cards.GROUPS.items():
        asked = [factory for name, factory in group.items() if not listing.names or name in listing.names]
        if asked:
            print(f"{title}\n" + "\n".join(cards.as_text(cards.card(factory), width) for factory in asked) + "\n")
    if own:
        print("Rules of your own\n" + "\n".join(cards.as_text(card, width) for card in own) + "\n")
    named = {"Datasets": DATASETS, "Losses": LOSSES, "Metrics": METRICS}
    for title, words in named.items() if not listing.names else ():
        print(textwrap.fill(f"{title}: {', '.join(words)}", width, subsequent_indent="  "))


def write_report(asked: Reporting) -> None:
    """Write the page of a results folder.

    Raises:
      ValueError: no folder named, no results in it, or a page that cannot be written.
    """
    from fedjax_fair.results.report import figures_beside, report

    if not asked.folder:
        raise ValueError("report takes a folder of results, such as one under runs/, got nothing")
    page = report(Path(asked.folder).expanduser(), asked.out, asked.figures)
    print(f"Report in {page}")
    if asked.figures is not None:
        print(f"Figures in {figures_beside(page)}")


def reproduce(asked: Reproduction) -> None:
    """Repeat a study of ``benchmarks/papers``, or list them all.

    Raises:
      ValueError: no checkout to take it from, an unknown study, or data that it lacks.
    """
    from fedjax_fair.checks import check_choice
    from fedjax_fair.engine.cluster import cluster_of

    roots = [Path(__file__).parents[2], Path.cwd()]
    root = next((root for root in roots if (root / "benchmarks" / "papers" / "studies.py").exists()), None)
    if root is None:
        raise ValueError("reproduce needs a checkout of the project: there is no benchmarks/papers here")
    sys.path.insert(0, str(root))
    from benchmarks.papers.studies import STUDIES, listing
    from benchmarks.papers.studies import reproduce as repeat

    if asked.list:
        print(listing())
        return
    if not asked.study:
        raise ValueError("reproduce takes a study, such as fmnist3, got nothing; --list names them all")
    check_choice("study", asked.study, STUDIES)
    if asked.out.exists() and not asked.out.is_dir():
        raise ValueError(f"out must be a folder, got the file {asked.out}")
    cluster = cluster_of(asked.workers, asked.scheduler)
    print(f"Results in {repeat(asked.study, asked.quick, asked.out, cluster)}", file=sys.stderr)

"""``fedjax-fair compare``: from settings to the arguments of ``ff.compare``, and what is left behind."""

import dataclasses
import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_fair import plot
from fedjax_fair.checks import check_choice, check_count
from fedjax_fair.cli import components as parts
from fedjax_fair.cli.experiment import Experiment
from fedjax_fair.cli.folders import say_what_was_chosen
from fedjax_fair.cli.plan import Ground, cohort_of, lay_ground, rule_of, simulate_rule
from fedjax_fair.cli.remarks import on_choice, on_names, on_own_rules, on_rates, on_weights, rows_of
from fedjax_fair.cli.rule_syntax import Entry, parse_rule, row_name, with_rate
from fedjax_fair.cli.train import header_of, notes_of, progress_of
from fedjax_fair.data import FederatedData
from fedjax_fair.data.alike import equal
from fedjax_fair.engine.cluster import cluster_of
from fedjax_fair.engine.sharing import rule_of as rule_of_pair
from fedjax_fair.registry.grids import GRIDS, POINTS, rates
from fedjax_fair.registry.plugins import blamed
from fedjax_fair.results.compare import played
from fedjax_fair.results.compare_arguments import check_name
from fedjax_fair.results.compare_plan import CRITERIA, Asked, Plan, plan
from fedjax_fair.results.comparison import Comparison
from fedjax_fair.results.folder import files_of, write, write_plots
from fedjax_fair.types import Simulation


class Contest(NamedTuple):
    """A comparison ready to run: the arguments of ``ff.compare``."""

    ground: Ground
    """Of the first federation."""
    cohort: int
    rules: dict[str, Any]
    build: Callable[..., Simulation]
    federation: Callable[[int], FederatedData] | FederatedData
    tune: dict[str, dict[str, list[Any]]]
    remarks: list[str]
    """What to know before it begins."""
    rows: dict[str, str]
    """By row what its name does not say."""
    rule_names: dict[str, str]
    """By row the rule's name."""
    laid: Plan | None = None
    """Where no checkpoint is kept: else it waits until the checkpoint's folder is this call's."""


def prepare_comparison(experiment: Any, texts: tuple[str, ...]) -> Contest:
    """Build the first federation and model, and what makes a simulation of a rule.

    Raises:
      ValueError: whatever does not fit, in one sentence.
    """
    if not texts:
        raise ValueError("algorithms needs at least one rule, such as fedavg")
    names = [row_name(text) for text in texts]
    for name in names:
        check_name(name)
    if doubles := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"algorithms names {doubles[0]!r} twice")
    for name in ("replicates", "last"):
        check_count(name, getattr(experiment, name))
    if experiment.baseline is not None:
        check_choice("baseline", experiment.baseline, names)
    check_choice("choose", experiment.choose, CRITERIA)
    rated = {name: with_rate(parse_rule(text)) for name, text in zip(names, texts)}
    entries = {name: entry for name, (entry, _) in rated.items()}
    fixed = experiment.data_seed is not None
    start = check_count("first_seed", experiment.first_seed, low=0)
    first = dataclasses.replace(experiment, data_seed=experiment.data_seed if fixed else start)
    ground = lay_ground(first, list(entries.values()))
    judge = "validation" + "".join(first.evaluate.partition("@")[1:])
    splits = (first.evaluate, judge) if experiment.tune else (first.evaluate,)
    if experiment.tune and not ground.data.validation.rows.shape[0]:
        raise ValueError("tune chooses by the validation split, got none: --split 0.6 0.2 0.2 gives it a fifth")

    def build(made: Any, data: FederatedData, lr: Any = first.lr) -> Simulation:
        rule = rule_of_pair(made)
        selector = None if rule is made else made[1]
        here = dataclasses.replace(first, lr=lr)
        return simulate_rule(ground._replace(data=data), here, rule, selector, tuple(dict.fromkeys(splits)))

    def federation(seed: int) -> FederatedData:
        if seed == start:
            return ground.data
        drawn = ground.draw(seed)
        if equal(drawn.x, ground.data.x):  # of natural clients the split alone is another one
            drawn = drawn._replace(x=ground.data.x)  # held once
        return parts.with_liars(first, drawn, ground.honest)

    makers = {text: maker_of(first, entry, cohort_of(first, ground.data)) for text, entry in entries.items()}
    given = {text: {} if rate is None else {"lr": rate} for text, (_, rate) in rated.items()}
    grids = {text: grid_of(first, entry) for text, entry in entries.items()} if experiment.tune else {}
    rates_given = {text: {name: [rate] for name, rate in own.items()} for text, own in given.items()}
    tune = {text: grid for text, own in rates_given.items() if (grid := grids.get(text, {}) | own)}
    on = ground.data if fixed else federation
    remarks = [
        *on_names(texts),
        *on_rates(texts, first.lr, first.tune),
        *on_weights(first, entries, ground.data.sizes),
        *on_choice(first),
        *on_own_rules(entries, grids),
    ]
    rows, rules = rows_of(first, texts), {text: entry.rule for text, entry in entries.items()}
    contest = Contest(ground, cohort_of(first, ground.data), makers, build, on, tune, remarks, rows, rules)
    if experiment.checkpoint is None:
        return contest._replace(laid=lay_out(contest))
    for text, entry in entries.items():
        with blamed(entry.rule):
            build(makers[text](**given[text]), ground.data, **given[text])
    return contest


def lay_out(contest: Contest, kept: bool = False) -> Plan:
    """Check everything and group the runs; ``kept`` in the checkpoint's folder, which is this call's by then."""
    asked = Asked(contest.rules, contest.build, **arguments_of(contest, kept))
    return plan(asked, within=lambda row: blamed(contest.rule_names[row]))


def maker_of(experiment: Experiment, entry: Entry, cohort: int) -> Callable[..., Any]:
    """A factory of the entry's rule, of its own settings and of the clients' learning rate; with the selector that
    the entry names, where it names one."""
    own = own_names(experiment, entry)

    def make(lr: Any = experiment.lr, **given: Any) -> Any:
        settings = {name: given[key] for key, name in own.items() if key in given}
        mine = entry._replace(settings=entry.settings | settings)
        rule = rule_of(dataclasses.replace(experiment, lr=lr), mine)
        return rule if entry.selector is None else (rule, parts.build_selector(experiment, cohort, entry))

    kind = inspect.Parameter.KEYWORD_ONLY
    given = [inspect.Parameter(name, kind, default=None) for name in own]
    rate = inspect.Parameter("lr", kind, default=experiment.lr)
    make.__signature__ = inspect.Signature([rate, *given])  # type: ignore[attr-defined]
    return make


def own_names(experiment: Experiment, entry: Entry) -> dict[str, str]:
    """The rule's settings that a grid names, by what they are called beside the clients' ``lr``.

    Without those that are given, by the entry or by an option of the rule's: they are not tuned.
    """
    usual = parts.settings_of_factory(type(experiment)(), entry.rule)
    options = parts.settings_of_factory(experiment, entry.rule)
    given = set(entry.settings) | {name for name, value in options.items() if value != usual.get(name)}
    return {
        f"{entry.rule}_lr" if name == "lr" else name: name
        for name in GRIDS.get(entry.rule, {})
        if name not in given
    }


def with_flag_names(found: Comparison) -> Comparison:
    """The comparison with a rule's own learning rate by the name of its flag, as ``afl.lr``: what was tuned and
    the labels of the points that were tried."""
    inner = {f"{rule}_lr": f"{rule}.lr" for rule, grid in GRIDS.items() if "lr" in grid}

    def named(of_rules: dict[str, dict[str, Any]], rename: Callable[[str], str]) -> dict[str, Any]:
        return {rule: {rename(key): value for key, value in of.items()} for rule, of in of_rules.items()}

    def in_label(point: str) -> str:
        return re.sub(rf"\b({'|'.join(inner)})\b", lambda match: inner[match[0]], point)

    return found._replace(
        settings=named(found.settings, lambda name: inner.get(name, name)),
        grids=named(found.grids, lambda name: inner.get(name, name)),
        tried=named(found.tried, in_label),
        tried_runs=named(found.tried_runs, in_label),
    )


def grid_of(experiment: Experiment, entry: Entry) -> dict[str, list[Any]]:
    """What is tried of a rule: its papers' grid without what is given, and rates around the experiment's."""
    own = {key: list(GRIDS[entry.rule][name]) for key, name in own_names(experiment, entry).items()}
    tried = int(np.prod([len(values) for values in own.values()])) if own else 1
    return {**own, "lr": rates(experiment.lr, POINTS // tried)}


def arguments_of(contest: Contest, kept: bool) -> dict[str, Any]:
    """What is asked for beside the rules and ``build``."""
    experiment: Any = contest.ground.experiment
    return {
        "federation": contest.federation,
        "replicates": experiment.replicates,
        "first_seed": experiment.first_seed,
        "rounds": experiment.rounds,
        "eval_every": experiment.eval_every,
        "last": experiment.last,
        "baseline": experiment.baseline,
        "tune": contest.tune,
        "choose": experiment.choose,
        "split": experiment.evaluate,
        "references": experiment.references,
        "clients": contest.ground.honest,
        "side_by_side": 1 if experiment.devices > 1 else "auto",
        "threads": 1 if experiment.devices > 1 else None,
        "progress": progress_of(experiment, f"{len(contest.rules)} rules x {experiment.replicates} replicates"),
        "checkpoint": experiment.checkpoint if kept else None,
        "every": experiment.checkpoint_every if kept else None,
        "cluster": cluster_of(experiment.workers, experiment.scheduler),
    }


def train_comparison(contest: Contest, folder: Path, command: list[str]) -> None:
    """Play all rules, write what they leave, print the table."""
    experiment: Any = contest.ground.experiment
    drawn = callable(contest.federation) and experiment.replicates > 1
    notes = notes_of(contest.ground, contest.cohort, " in the first replicate" * drawn)
    for remark in contest.remarks:
        notes.print(remark)
    found = played(contest.laid or lay_out(contest, kept=True))
    found = with_flag_names(found)._replace(rows=contest.rows)
    if found.settings:
        say_what_was_chosen(folder, found)
    header = header_of(contest.ground, contest.cohort, command)
    write(folder, files_of(found.runs, header, contest.ground.honest, found))
    finish(contest, folder, found, notes)
    if experiment.plots:
        write_plots(folder, found.runs, contest.ground.honest, found.last)
        if experiment.replicates > 1 and len(found.runs) > 1:
            drawn = plot.paired_frontier(found.differences(), found.baseline, rules=found.runs)
            plot.save(drawn, folder / "paired.png")


def finish(contest: Contest, folder: Path, found: Comparison, notes: Any) -> None:
    """Print the tables, or the summary as JSON."""
    experiment, honest = contest.ground.experiment, contest.ground.honest
    if experiment.json:
        print(json.dumps({"folder": str(folder), **json.loads((folder / "summary.json").read_text())}, indent=2))
    else:
        print(found.table())
    if honest is not None and not (experiment.json or experiment.quiet):
        print(f"Judged by the {int(honest.sum())} honest clients; {int((~honest).sum())} do {experiment.fault}.")
    notes.print(f"Results in {folder}; figures and tables on one page: fedjax-fair report {folder}")

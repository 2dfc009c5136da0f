"""Settings that have no effect: those that were given, and those that a configuration need not hold."""

import dataclasses
import sys
from collections.abc import Collection
from typing import Any

from fedjax_fair import registry
from fedjax_fair.cli.experiment import Experiment, factories, settings_for, source_of
from fedjax_fair.cli.plan import SWEPT, rule_of
from fedjax_fair.cli.rule_syntax import Entry, parse, parse_rule
from fedjax_fair.data.sources.published import PUBLISHED
from fedjax_fair.data.sources.tfds import IMAGES
from fedjax_fair.reads import reads

LOSSES = {"loss", "train_loss", "train_loss_std"}
OF_LOSSES = {"inflate_loss", "clip_losses"}
"""The fault, and the defence, that change what is said of losses and nothing else."""
DEAF = {"uniform", "size_proportional"}
"""Selectors that ask for no loss."""


def without_effect(
    experiment: Experiment, rules: tuple[str, ...], points: Collection[str] = ()
) -> list[tuple[str, str]]:
    """Settings that differ from their defaults but are not used, each with the reason; ``points`` varies some."""
    entries = [parse_rule(rule) for rule in rules]
    natural, images = _of_clients(experiment)
    default, found = type(experiment)(), []
    for group in _groups_without_use(experiment, rules):
        before = dataclasses.asdict(getattr(default, group))
        for name, value in settings_for(experiment, group).items():
            if value != before[name]:
                found.append((f"{group}.{name}", f"this run has no {group}"))
    for point in points:
        group = "" if point in SWEPT else entries[0].rule
        given, usual = (getattr(settings, group, None) if group else settings for settings in (experiment, default))
        name = point.removeprefix(f"{group}.")
        if given is not None and getattr(given, name) != getattr(usual, name):
            found.append((f"{group}.{name}".lstrip("."), "the grid varies it"))
    for place in _of_rows(experiment, rules, ()):
        group, _, name = place.partition(".")
        if getattr(getattr(experiment, group), name) != getattr(getattr(default, group), name):
            found.append((place, f"every row of {group} sets its own"))
    for setting in ("fault",) if experiment.liars == 0 else ():
        if getattr(experiment, setting) != getattr(default, setting):
            found.append((setting, "this run has no liars"))
    found += _unheard(experiment, entries)
    if not images and experiment.partition != default.partition:
        found.append(("partition", f"{source_of(experiment)} has clients of its own"))
    if natural and experiment.clients != default.clients:
        found.append(("clients", f"{source_of(experiment)} has clients of its own"))
    return found


def _unheard(experiment: Experiment, entries: list[Entry]) -> list[tuple[str, str]]:
    """A fault or a defence of losses alone, where no rule and no selector of the run reads any."""
    asked = {"fault": experiment.fault if experiment.liars else "", "defence": experiment.defence}
    named = {setting: value.partition(":")[0] for setting, value in asked.items()}
    if not OF_LOSSES.intersection(named.values()):
        return []
    selectors = {entry.selector or parse(experiment.selector, "selector")[0] for entry in entries}
    own = any(":" in entry.rule for entry in entries)  # what it reads is known of its own federation and model
    if own or not selectors <= DEAF or any(_hears(rule_of(experiment, entry)) for entry in entries):
        return []
    rules = " and ".join(dict.fromkeys(entry.rule for entry in entries))
    verb = "reads" if len({entry.rule for entry in entries}) == 1 else "read"
    return [
        (setting, f"{name} is about losses, of which {rules} {verb} none")
        for setting, name in named.items()
        if name in OF_LOSSES
    ]


def _hears(rule: Any) -> bool:
    """Whether a rule goes by its clients' losses; one that takes a second look asks for them itself."""
    return getattr(rule, "revise", None) is not None or not LOSSES.isdisjoint(reads(rule))


def say_unused(experiment: Experiment, rules: tuple[str, ...], points: Collection[str], model: str) -> None:
    """Tell, on standard error, which settings were given in vain; ``model`` is the one that "auto" became."""
    settled = dataclasses.replace(experiment, model=model)
    for setting, reason in () if experiment.quiet else without_effect(settled, rules, points):
        print(f"fedjax-fair: {setting} has no effect: {reason}", file=sys.stderr)


def needless(experiment: Experiment, rules: tuple[str, ...], points: Collection[str] = ()) -> set[str]:
    """Settings and groups of them that say nothing of this run: groups without use that are as by default, and,
    as ``qfedavg.q``, what every row that could use it sets for itself, or the grid ``points`` varies."""
    default, names = type(experiment)(), {*_groups_without_use(experiment, rules)}
    if _of_clients(experiment)[0]:
        names |= {"partition", "clients"} | ({"dataset"} if experiment.data is not None else set())
    alike = {name for name in names if getattr(experiment, name) == getattr(default, name)}
    return alike | {name for name in _of_rows(experiment, rules, points) if name.partition(".")[0] not in alike}


def _of_rows(experiment: Experiment, rules: tuple[str, ...], points: Collection[str]) -> set[str]:
    """Settings of rules and selectors, as ``qfedavg.q``, that every row which has the rule or selector gives."""
    given: dict[str, list[set[str]]] = {}
    for entry in map(parse_rule, rules):
        varied = {point.removeprefix(f"{entry.rule}.") for point in points if point not in SWEPT}
        given.setdefault(entry.rule, []).append({*entry.settings} | varied)
        named = (
            (entry.selector, entry.selector_settings) if entry.selector else parse(experiment.selector, "selector")
        )
        given.setdefault(named[0], []).append({*named[1]})
    fields = {name: getattr(experiment, name) for name in given if hasattr(experiment, name)}
    return {
        f"{name}.{key}"
        for name, group in fields.items()
        for key in set.intersection(*given[name])
        if dataclasses.is_dataclass(group) and hasattr(group, key)
    }


def _of_clients(experiment: Experiment) -> tuple[bool, bool]:
    """Whether the data have clients of their own, and whether they are images to be dealt."""
    natural = experiment.data is not None or experiment.dataset in PUBLISHED
    return natural, experiment.dataset in IMAGES and not natural


def _groups_without_use(experiment: Experiment, rules: tuple[str, ...]) -> list[str]:
    """Rules, selectors, models and the like, with settings, that this run has none of."""
    entries, (natural, images) = [parse_rule(rule) for rule in rules], _of_clients(experiment)
    used = {entry.rule for entry in entries} | {
        entry.selector or parse(experiment.selector, "selector")[0] for entry in entries
    }
    used |= {experiment.objective} | (set() if natural else {experiment.dataset})
    used |= {experiment.partition} if images else set()
    used |= set(registry.MODELS) if experiment.model == "auto" else {experiment.model}
    fields = (field.name for field in dataclasses.fields(experiment))
    return [group for group in fields if group in factories() and group not in used]

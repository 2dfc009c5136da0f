"""Settings that were given and have no effect."""

import dataclasses
from collections.abc import Collection

from fedjax_fair import registry
from fedjax_fair.cli.experiment import Experiment, factories, settings_for, source_of
from fedjax_fair.cli.plan import SWEPT
from fedjax_fair.cli.rule_syntax import parse, parse_rule
from fedjax_fair.data.sources.published import PUBLISHED
from fedjax_fair.data.sources.tfds import IMAGES


def without_effect(
    experiment: Experiment, rules: tuple[str, ...], points: Collection[str] = ()
) -> list[tuple[str, str]]:
    """Settings that differ from their defaults but are not used, each with the reason; ``points`` varies some."""
    natural = experiment.data is not None or experiment.dataset in PUBLISHED
    entries = [parse_rule(rule) for rule in rules]
    used = {entry.rule for entry in entries} | {
        entry.selector or parse(experiment.selector, "selector")[0] for entry in entries
    }
    images = experiment.dataset in IMAGES and not natural
    used |= {experiment.objective} | (set() if natural else {experiment.dataset})
    used |= {experiment.partition} if images else set()
    used |= set(registry.MODELS) if experiment.model == "auto" else {experiment.model}
    default, found = type(experiment)(), []
    for group in (field.name for field in dataclasses.fields(experiment) if field.name in factories()):
        before = dataclasses.asdict(getattr(default, group))
        for name, value in settings_for(experiment, group).items():
            if group not in used and value != before[name]:
                found.append((f"{group}.{name}", f"this run has no {group}"))
    for point in points:
        group = "" if point in SWEPT else entries[0].rule
        given, usual = (getattr(settings, group, None) if group else settings for settings in (experiment, default))
        name = point.removeprefix(f"{group}.")
        if given is not None and getattr(given, name) != getattr(usual, name):
            found.append((f"{group}.{name}".lstrip("."), "the grid varies it"))
    for setting in ("fault",) if experiment.liars == 0 else ():
        if getattr(experiment, setting) != getattr(default, setting):
            found.append((setting, "this run has no liars"))
    if not images and experiment.partition != default.partition:
        found.append(("partition", f"{source_of(experiment)} has clients of its own"))
    if natural and experiment.clients != default.clients:
        found.append(("clients", f"{source_of(experiment)} has clients of its own"))
    return found

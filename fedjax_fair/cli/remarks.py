"""What ``fedjax-fair compare`` remarks on before it begins."""

from typing import Any

import numpy as np

from fedjax_fair.cli import components as parts
from fedjax_fair.cli.rule_syntax import Entry, own_rate, parse_rule, row_name
from fedjax_fair.results.rows import call, has

UNEVEN = 1.2
"""Times the smallest client's examples that the largest has, from where weights by size are worth a word."""


def on_names(texts: tuple[str, ...]) -> list[str]:
    """What rows with a name of the user's are: tables call them by the name alone."""
    named = [
        f"{row_name(text)} is {text.removeprefix(row_name(text) + '=')}" for text in texts if row_name(text) != text
    ]
    return [f"rows: {'; '.join(named)}"] if named else []


def on_rates(texts: tuple[str, ...], lr: Any, tuned: bool = False) -> list[str]:
    """What an ``lr`` is of a rule that has one of its own: of other rules it is their clients' learning rate."""
    found = []
    for text in texts:
        entry = parse_rule(text)
        mine = own_rate(entry)
        if mine and "lr" in entry.settings and mine not in entry.settings:
            rate = f"{entry.settings['lr']}"
            both = f"--lr {lr}; {mine}={rate},lr={lr} in its place gives both"
            theirs = f"tuned around --lr {lr}" if tuned else both
            found.append(f"{row_name(text)}: lr={rate} is the rule's own step, and its clients' rate is {theirs}")
    return found


def rows_of(experiment: Any, texts: tuple[str, ...]) -> dict[str, str]:
    """By row what its name does not say, for the legend: its rule, and the settings that were given."""
    found = {}
    for text in texts:
        name, entry = row_name(text), parse_rule(text)
        usual = parts.settings_of_factory(type(experiment)(), entry.rule)
        options = parts.settings_of_factory(experiment, entry.rule)
        flags = {key: value for key, value in options.items() if value != usual.get(key)}
        given = entry.settings
        if ("lr" in flags or "lr" in given) and (mine := own_rate(entry)):  # its flag is --afl.lr, too
            flags = {mine if key == "lr" else key: value for key, value in flags.items()}
            given = given if mine in given else {mine if key == "lr" else key: v for key, v in given.items()}
        selector = f", clients by {call(entry.selector, entry.selector_settings)}" if entry.selector else ""
        if name != text:
            found[name] = f"is {call(entry.rule, flags | given)}{selector}"
        elif more := has({key: value for key, value in flags.items() if key not in given}):
            found[name] = more
    return found


def on_weights(experiment: Any, entries: dict[str, Entry], sizes: np.ndarray) -> list[str]:
    """A remark where the baseline is FedAvg by size, sizes differ, and FedAvg of equal weights is no row."""
    weightings = {
        name: (parts.settings_of_factory(experiment, "fedavg") | entry.settings).get("weighting", "size")
        for name, entry in entries.items()
        if entry.rule == "fedavg"
    }
    by_size = weightings.get(experiment.baseline or next(iter(entries))) == "size"
    if (
        not by_size
        or "uniform" in weightings.values()
        or len(entries) == len(weightings)
        or max(sizes) < UNEVEN * min(sizes)
    ):
        return []
    return [
        f"clients have {min(sizes)} to {max(sizes)} training examples, and the baseline weighs them by size: most "
        "rules start from equal weights. A row uniform=fedavg:weighting=uniform tells what these alone do"
    ]


def on_choice(experiment: Any) -> list[str]:
    """A remark on a criterion where nothing is tuned."""
    idle = experiment.choose != type(experiment)().choose and not experiment.tune
    return [f"--choose {experiment.choose} chooses settings that --tune tries; nothing is tuned"] if idle else []


def on_own_rules(entries: dict[str, Entry], tune: dict[str, dict[str, list[Any]]]) -> list[str]:
    """A remark on rules of the user's own, which have no grid in the registry."""
    own = [name for name in tune if ":" in entries[name].rule]
    told = "settings of your own rule are tuned in Python, by tune="
    return [f"--tune tries learning rates alone of {', '.join(own)}: {told}"] if own else []

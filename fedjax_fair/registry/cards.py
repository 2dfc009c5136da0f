"""What the docstrings say of every factory, gathered for ``fedjax-fair list`` and for the tables of the docs."""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import docstring_parser

from fedjax_fair import registry
from fedjax_fair.reads import reads
from fedjax_fair.registry.grids import GRIDS, POINTS, rates
from fedjax_fair.registry.plugins import blamed
from fedjax_fair.types import Selector

MARKED = re.compile(r"^(Optimises|Source): (.*?)(?:\n\n|\Z)", re.DOTALL | re.MULTILINE)
GROUPS: dict[str, Mapping[str, Callable[..., Any]]] = {
    "Rules": registry.AGGREGATORS,
    "Selectors": registry.SELECTORS,
    "Objectives": registry.OBJECTIVES,
    "Models": registry.MODELS,
    "Partitions": registry.PARTITIONS,
    "Faults": registry.FAULTS,
    "Defences": registry.DEFENCES,
}


class Card(NamedTuple):
    """One factory, in words without markup."""

    name: str
    summary: str
    optimises: str  # "" for what is not a rule
    reads: tuple[str, ...]  # signals of the report; for a selector those that it observes
    settings: dict[str, tuple[str, str]]  # default and meaning, with the papers' ranges
    source: str  # "" where there is no paper


def own_card(name: str) -> Card:
    """The card of a rule of the user's own, ``file.py:rule`` or ``module:rule``.

    Raises:
      ValueError: no such rule, or one that fails when it is made with its defaults or traced.
    """
    factory = registry.rule_factory(name)
    needs = [key for key, value in registry.settings_of(factory).items() if value.default is value.empty]
    signals: tuple[str, ...] = ()
    if not {*needs} - {"lipschitz"}:  # else there is no rule to trace
        with blamed(name):
            signals = reads(registry.make_rule(name, learning_rate=0.1))
    found = _read(factory, signals)
    return found._replace(name=name, summary=found.summary or "it has no docstring")


def card(factory: Callable[..., Any]) -> Card:
    """Read the docstring and signature of a registered factory; find what a rule reads by tracing it."""
    return _read(factory, _signals(factory))


def _read(factory: Callable[..., Any], signals: tuple[str, ...]) -> Card:
    text = inspect.getdoc(factory) or ""
    said = {title: registry.plain(" ".join(body.split())) for title, body in MARKED.findall(text)}
    meaning = argument_help(factory)
    settings = {
        name: (_default(parameter), meaning.get(name, ""))
        for name, parameter in registry.settings_of(factory).items()
    }
    return Card(
        factory.__name__,
        registry.summary(factory),
        said.get("Optimises", ""),
        signals,
        settings,
        said.get("Source", ""),
    )


def argument_help(factory: Callable[..., Any]) -> dict[str, str]:
    """The ``Args:`` section of a docstring, by argument."""
    parsed = docstring_parser.parse(inspect.getdoc(factory) or "")
    return {p.arg_name: registry.plain((p.description or "").replace("\n", " ")) for p in parsed.params}


def cards() -> dict[str, list[Card]]:
    """Every card of the registry, by group."""
    return {title: [card(factory) for factory in group.values()] for title, group in GROUPS.items()}


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return "required"
    return str(getattr(parameter.default, "__name__", parameter.default))


def _signals(factory: Callable[..., Any]) -> tuple[str, ...]:
    if factory.__name__ in registry.AGGREGATORS:
        return reads(registry.make_rule(factory.__name__, learning_rate=0.1))
    if factory.__name__ in registry.SELECTORS:
        selector: Selector = factory(2)
        nothing = registry.make_rule("fedavg", {"weighting": "uniform"}, learning_rate=0.1)
        return reads(nothing, selector, n_clients=8, cohort=2)
    return ()


def as_text(card: Card, width: int) -> str:
    """One card for a terminal: what it does, what it optimises and reads, its settings, where it comes from."""
    import textwrap

    rows = [("optimises", card.optimises), ("reads", ", ".join(card.reads))]
    rows += [(f"{name} = {default}", meaning) for name, (default, meaning) in card.settings.items()]
    rows.append(("source", card.source))
    if card.name in GRIDS:
        rows.append(("with --tune", "; ".join(f"{name}: {values}" for name, values in _tried(card.name)[:-1])))
    lines = textwrap.wrap(f"{card.name}: {card.summary}", width, break_long_words=False, break_on_hyphens=False)
    for label, text in rows:
        if text or " = " in label:  # a setting of a user's rule may be without words
            indent = " " * 18
            gap = ":" if text and len(label) > 15 else ""  # no column to set it off from its text
            lines += textwrap.wrap(
                f"  {label + gap:<15} {text}", width, subsequent_indent=indent, break_long_words=False
            )
    return "\n".join(lines)


def as_markdown() -> str:
    """The tables of the docs page on rules, selectors, objectives, models and partitions."""
    parts = ["# What is in it", "", "Written by `fedjax-fair list --markdown`; the text is that of the docstrings."]
    for title, group in cards().items():
        columns = {
            "name": [f"`{c.name}`" for c in group],
            "what it does": ["<br>".join(_deeds(c)) for c in group],
            "settings": ["<br>".join(_setting(*item) for item in c.settings.items()) for c in group],
            "source": [c.source for c in group],
        }
        kept = {heading: cells for heading, cells in columns.items() if any(cells)}
        parts += ["", f"## {title}", "", _row(kept), _row(["---"] * len(kept)), *map(_row, zip(*kept.values()))]
    return "\n".join([*parts, *_grids()]) + "\n"


def _tried(rule: str) -> list[tuple[str, str]]:
    """What ``--tune`` tries of a rule: settings and values in words, the learning rates last."""
    grid = GRIDS.get(rule, {})
    points = math.prod(map(len, grid.values()))
    of = {**grid, "learning rates": rates(0.1, POINTS // points)}
    return [(name, ", ".join(v if isinstance(v, str) else f"{v:g}" for v in values)) for name, values in of.items()]


def _grids() -> list[str]:
    """The table of what ``--tune`` tries."""
    said = f"What `--tune` tries: {POINTS} points of every rule, around `--lr`, here 0.1."
    heads = [_row(["rule", "its settings", "learning rates"]), _row(["---"] * 3)]
    lines = ["", "## Tuning grids", "", said, "", *heads]
    for rule in [None, *GRIDS]:
        *own, (_, tried) = _tried(rule or "")
        name = f"`{rule}`" if rule else "any other, also one of your own"
        lines.append(_row([name, "; ".join(f"`{key}`: {values}" for key, values in own) or "none", tried]))
    return lines


def _deeds(card: Card) -> list[str]:
    optimises = [f"*Optimises* {card.optimises}"] if card.optimises else []
    reads = [f"*Reads* {', '.join(f'`{signal}`' for signal in card.reads)}."] if card.reads else []
    return [card.summary, *optimises, *reads]


def _setting(name: str, value: tuple[str, str]) -> str:
    default, meaning = value
    return f"`{name}` ({default}): {meaning}" if meaning else f"`{name}` ({default})"


def _row(cells: Any) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"

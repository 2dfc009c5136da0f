"""``name:setting=value,...``: how rules, selectors, faults and defences are named on the command line."""

import ast
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from fedjax_fair import registry
from fedjax_fair.checks import check_choice, lookup
from fedjax_fair.own import NAMED


class Entry(NamedTuple):
    """What ``rule:setting=value,...@selector:setting=value,...`` names; the second half may be missing."""

    rule: str
    settings: dict[str, Any]
    selector: str | None
    selector_settings: dict[str, Any]


def parse_rule(text: str) -> Entry:
    """Read ``name`` or ``name:setting=value,...``, either followed by ``@selector`` of the same form or not.

    A rule of the user's own is ``file.py:name`` or ``module:name`` instead of ``name``.

    Raises:
      ValueError: not of this form.
    """
    rule, at, selector = text.partition("@")
    if at and not (rule and selector and "@" not in selector):
        raise ValueError(f"algorithms takes rule@selector, got {text!r}")
    mine = NAMED.match(rule)
    if mine and mine["place"] not in registry.AGGREGATORS:
        settings = parse(f"{mine['rule']}{rule[mine.end() :]}")[1]
        return Entry(mine[0], settings, *(parse(selector) if at else (None, {})))
    return Entry(*parse(rule), *(parse(selector) if at else (None, {})))


def parse(text: str, flag: str = "algorithms") -> tuple[str, dict[str, Any]]:
    """Read ``name`` or ``name:setting=value,...``."""
    name, colon, rest = text.partition(":")
    settings = {}
    for piece in rest.split(",") if colon else ():
        key, equals, value = piece.partition("=")
        if not (equals and key.strip() and value.strip()):
            raise ValueError(f"{flag} takes name or name:setting=value,..., got {text!r}")
        if key.strip().replace("-", "_") in settings:
            raise ValueError(f"{flag} gives {key.strip()!r} twice, in {text!r}")
        settings[key.strip().replace("-", "_")] = literal(value.strip())
    return name, settings


def literal(text: str) -> Any:
    """A Python number, truth value or None; else the word itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # a word, such as weibull


def named(flag: str, text: str, table: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """``name:setting=value,...`` of a table's factory; a first argument that is no setting the experiment gives."""
    name, settings = parse(text, flag)
    known = [s for s in registry.settings_of(lookup(flag, name, table)) if s not in ("who", "rule", "data")]
    for setting in settings:
        if not known:
            raise ValueError(f"{name} takes no settings, got {setting!r}")
        check_choice(f"setting of {name}", setting, known)
    return name, settings


def parse_axis(text: str, rule: str, others: Collection[str]) -> tuple[str, list[Any]]:
    """Read ``setting=value,value,...`` of a grid: a setting of the rule, or one of ``others``.

    Where both have it, the rule's is ``rule.setting``, as among the flags: ``afl.lr``.

    Raises:
      ValueError: not of this form, or no such setting.
    """
    name, equals, rest = text.partition("=")
    name, values = name.strip().replace("-", "_"), [piece.strip() for piece in rest.split(",")]
    if not (name and equals and all(values)):
        raise ValueError(f"grid takes setting=value,value,..., got {text!r}")
    mine = registry.settings_of(registry.rule_factory(rule))
    if not (name.startswith(f"{rule}.") and name.removeprefix(f"{rule}.") in mine):
        check_choice("setting in grid", name, [*mine, *others])
    return name, [literal(value) for value in values]

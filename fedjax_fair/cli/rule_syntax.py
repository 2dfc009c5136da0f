"""``name:setting=value,...``: how rules, selectors, faults and defences are named on the command line."""

import ast
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from fedjax_fair import registry
from fedjax_fair.checks import check_choice, lookup
from fedjax_fair.registry.plugins import NAMED

ROW = re.compile(r"(?P<name>[^:@=,/\\]*[^:@=,/\\\s][^:@=,/\\]*)=")
"""A name and ``=``, before the rule of its row."""

NAMES = "the name of a row is a word without : @ = , / and \\"
"""As :data:`ROW` reads them; ``./a=b/my_rules.py:rule`` is a path."""


class Entry(NamedTuple):
    """What ``rule:setting=value,...@selector:setting=value,...`` names; the second half may be missing."""

    rule: str
    settings: dict[str, Any]
    selector: str | None
    selector_settings: dict[str, Any]


def row_name(text: str) -> str:
    """What the row of a rule is called: ``mild`` of ``mild=qfedavg:q=.1``, else the rule as it is written.

    >>> row_name("mild=qfedavg:q=.1"), row_name("qfedavg:q=.1")
    ('mild', 'qfedavg:q=.1')
    """
    named = ROW.match(text)
    return text if named is None else named["name"].strip()


def check_unnamed(text: str) -> None:
    """Raise ValueError for a rule with a name of its row, where there is one row."""
    if ROW.match(text):
        path = "; a path with = in it begins with ./" if ".py:" in text else ""
        raise ValueError(
            f"aggregator takes a rule alone, and compare one with a name of its row, got {text!r}{path}"
        )


def parse_rule(text: str) -> Entry:
    """Read ``name`` or ``name:setting=value,...``, either followed by ``@selector`` of the same form or not; before
    it may stand the name of its row, and ``=``.

    A rule of the user's own is ``file.py:name`` or ``module:name`` instead of ``name``.

    Raises:
      ValueError: not of this form.
    """
    named = ROW.match(text)
    rule, at, selector = (text if named is None else text[named.end() :].strip()).partition("@")
    if at and not (rule and selector and "@" not in selector):
        raise ValueError(f"algorithms takes rule@selector, got {text!r}")
    mine = None if rule.partition(":")[0] in registry.AGGREGATORS else own_name(rule)
    if mine is None and "=" in rule.partition(":")[0]:
        raise ValueError(f"algorithms takes rule or name=rule, and {NAMES}, got {text!r}")
    return Entry(*(mine or parse(rule)), *(parse(selector) if at else (None, {})))


def with_rate(entry: Entry) -> tuple[Entry, Any]:
    """The entry without the learning rate of its clients, and that rate; None where it names none.

    The rate is ``lr``. Of a rule with an ``lr`` of its own it is so only beside ``RULE.lr``, the rule's, as in
    ``afl:afl.lr=.01,lr=.1``, which a tuned comparison prints; alone, ``lr`` is the rule's.
    """
    settings, mine = dict(entry.settings), own_rate(entry)
    rate = None if mine and mine not in settings else settings.pop("lr", None)
    if mine in settings:
        settings["lr"] = settings.pop(mine)
    return entry._replace(settings=settings), rate


def own_rate(entry: Entry) -> str:
    """What the entry's rule calls a rate of its own beside its clients', such as "afl.lr"; empty without one."""
    owned = "lr" in registry.settings_of(registry.rule_factory(entry.rule))
    return f"{entry.rule.rpartition(':')[2]}.lr" if owned else ""


def own_name(text: str, flag: str = "algorithms") -> tuple[str, dict[str, Any]] | None:
    """Read ``file.py:name`` or ``module:name``, with ``:setting=value,...`` or not; None for another form.

    Raises:
      ValueError: a file of Python alone, or settings of another form.
    """
    mine = NAMED.match(text)
    if mine is not None:
        return mine[0], parse(f"{mine['rule']}{text[mine.end() :]}", flag)[1]
    if text.endswith(".py") and flag != "algorithms":
        raise ValueError(f"{flag} {text} needs the name of a function in it, as {text}:name, got nothing")
    return None


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

    Where both have it, the rule's is ``rule.setting``, as among the flags: ``afl.lr``; else ``rule.`` is dropped.

    Raises:
      ValueError: not of this form, no such setting, or a value twice.
    """
    name, equals, rest = text.partition("=")
    words = [word.strip() for word in rest.split(",")]
    if not (name.strip() and equals and all(words)):
        raise ValueError(f"grid takes setting=value,value,..., got {text!r}")
    owner, dot, setting = name.strip().rpartition(".")
    setting, mine = setting.replace("-", "_"), registry.settings_of(registry.rule_factory(rule))
    known = [*others, *(f"{rule}.{key}" if key in others else key for key in mine)]
    if dot:
        qualified = f"{owner}.{setting}"
        setting = setting if owner == rule and setting in mine and setting not in others else qualified
    values = [literal(word) for word in words]
    doubles = [word for word, value in zip(words, values) if values.count(value) > 1]
    if doubles:
        raise ValueError(f"grid gives {setting} the value {doubles[0]} twice, in {text!r}")
    return check_choice("setting in grid", setting, known), values


def check_flagged(setting: str, value: str, choices: Collection[str]) -> str:
    """The value, or ValueError unless it is one of the choices, whose settings have flags of their own."""
    name, _, given = value.partition(":")
    if given and name in choices:
        first = given.split(",")[0].partition("=")[0]
        raise ValueError(f"{setting} {name} takes its settings by flags, --{name}.{first}, got {value!r}")
    return check_choice(setting, value, choices)

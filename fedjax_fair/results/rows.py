"""What a row of a comparison is, where its name does not say it: the rule, and the settings that it was given."""

import inspect
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from fedjax_fair import registry
from fedjax_fair.engine.grid import label
from fedjax_fair.engine.joining import is_made
from fedjax_fair.types import Aggregator, Method


def rows_of(
    rules: Mapping[str, Any], tuned: Mapping[str, Collection[str]], given: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """By name what is said of a row, such as "is qfedavg(q=5)" or "has q=5"; nothing of those that say it.

    ``tuned`` names the settings of each rule that are chosen, and told elsewhere; ``given`` has the one point of a
    rule that is not. A rule that is made does not tell what it was made with.
    """
    given = given or {}
    said = {
        name: _of_factory(name, rule, tuned.get(name, ()), dict(*given.get(name, [{}])))
        for name, rule in rules.items()
    }
    return {name: words for name, words in said.items() if words}


def _of_factory(name: str, rule: Any, tuned: Collection[str], given: Mapping[str, Any]) -> str:
    if is_made(rule):
        return has(given)
    made = rule if isinstance(rule, partial) else partial(rule)
    own = inspect.signature(made.func)
    bound = own.bind_partial(*made.args, **made.keywords).arguments
    rest = [key for key, p in own.parameters.items() if p.kind is p.VAR_KEYWORD and key in bound]
    bound |= {key: value for name in rest for key, value in bound.pop(name).items()}
    stock = any(made.func is factory for factory in registry.AGGREGATORS.values())
    usual = {} if stock else {key: p.default for key, p in own.parameters.items() if p.default is not p.empty}
    settings = {key: value for key, value in (usual | bound | {**given}).items() if key not in tuned}
    called = getattr(made.func, "__name__", "<lambda>")
    if called in (name, "<lambda>") or not (settings or stock):
        return has(settings)
    return f"is {call(called, settings)}"


def call(rule: str, settings: Mapping[str, Any]) -> str:
    """A rule with what it was given.

    >>> call("qfedavg", {"q": 5.0}), call("fedavg", {})
    ('qfedavg(q=5)', 'fedavg')
    """
    return f"{rule}({_words(settings)})" if settings else rule


def has(settings: Mapping[str, Any]) -> str:
    """The settings of a row that tells its rule; empty without any.

    >>> has({"q": 5.0}), has({})
    ('has q=5', '')
    """
    return f"has {_words(settings)}" if settings else ""


def _words(settings: Mapping[str, Any]) -> str:
    plain = {key: _named(value) for key, value in settings.items()}
    return " ".join(label(plain).replace(",", ", ").split())  # on one line, also of an array


def _named(value: Any) -> Any:
    """What stands for a setting that is a rule or a factory of one; other values as they are."""
    if isinstance(value, Aggregator | Method):
        return "a rule"
    if isinstance(value, partial):
        return call(value.func.__name__, value.keywords)
    return getattr(value, "__name__", value)

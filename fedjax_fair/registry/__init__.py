"""The catalogue: every factory by name, what its docstring says, a user's own rules, and their contract."""

from fedjax_fair.registry.names import (
    AGGREGATORS,
    DEFENCES,
    FAULTS,
    LOSSES,
    METRICS,
    MODELS,
    OBJECTIVES,
    PARTITIONS,
    SELECTORS,
    defaults,
    make,
    make_rule,
    plain,
    rule_factory,
    settings_of,
    summary,
)

__all__ = [
    "AGGREGATORS",
    "DEFENCES",
    "FAULTS",
    "LOSSES",
    "METRICS",
    "MODELS",
    "OBJECTIVES",
    "PARTITIONS",
    "SELECTORS",
    "defaults",
    "make",
    "make_rule",
    "plain",
    "rule_factory",
    "settings_of",
    "summary",
]

"""Names of the factories: what the command line, the contract tests and the tables of the docs go by."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from jax import Array

from fedjax_fair import aggregators, methods, models, selectors
from fedjax_fair.checks import check_choice, lookup
from fedjax_fair.data import partition
from fedjax_fair.local import objectives
from fedjax_fair.models import losses
from fedjax_fair.registry.plugins import is_own, own_factory
from fedjax_fair.robustness import defences, faults
from fedjax_fair.types import Aggregator, Method, Objective, Selector


def _table(*factories: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {factory.__name__: factory for factory in factories}


AGGREGATORS: dict[str, Callable[..., Aggregator | Method]] = _table(
    aggregators.fedavg,
    aggregators.fedsgd,
    aggregators.fedprox,
    aggregators.qfedavg,
    aggregators.qfedsgd,
    aggregators.afl,
    aggregators.term,
    aggregators.fedmgda_plus,
    aggregators.fedfv,
    aggregators.propfair,
    aggregators.fedmaba,
    aggregators.aaggff_s,
    aggregators.aaggff_d,
    aggregators.pg_ffl,
    aggregators.fedeba,
    aggregators.loss_proportional,
    aggregators.loss_softmax,
    aggregators.size_softmax,
    aggregators.reweighted,
    aggregators.fednova,
    aggregators.fedmdfg,
    aggregators.gifair,
    aggregators.superquantile,
    aggregators.adafed,
    aggregators.fairmoo,
    aggregators.drfl,
    aggregators.fedlf,
    aggregators.fedheal,
    methods.scaffold,
    methods.feddyn,
    methods.ditto,
    methods.apfl,
    methods.fedper,
    methods.fedrep,
    methods.drfa,
    methods.fedeba_plus,
)

SELECTORS: dict[str, Callable[..., Selector]] = _table(
    selectors.uniform,
    selectors.size_proportional,
    selectors.pow_d,
    selectors.cpow_d,
    selectors.rpow_d,
    selectors.ucb_cs,
)

OBJECTIVES: dict[str, Callable[..., Objective]] = _table(
    objectives.proximal, objectives.tilted, objectives.propfair_objective
)
"""Besides ``erm``, which has no settings."""

MODELS: dict[str, Callable[..., models.Model]] = _table(models.logistic_regression, models.mlp, models.cnn)

PARTITIONS: dict[str, Callable[..., partition.Partition]] = _table(
    partition.iid,
    partition.shards,
    partition.dirichlet,
    partition.blocks,
    partition.power_law,
    partition.log_normal,
)


FAULTS: dict[str, Callable[..., Any]] = _table(
    faults.inflate_loss, faults.scale_update, faults.noisy_update, faults.not_finite, faults.flip_labels
)

DEFENCES: dict[str, Callable[..., Any]] = _table(
    defences.clip_losses, defences.clip_updates, defences.median, defences.trimmed_mean, defences.clip_and_noise
)


LOSSES: dict[str, Callable[..., Any]] = _table(
    losses.softmax_cross_entropy,
    losses.sigmoid_cross_entropy,
    losses.squared_error,
    losses.absolute_error,
)
"""Losses, which are no factories."""

METRICS: dict[str, Callable[..., Any]] = {
    name: getattr(losses, name)
    for name in (
        *("accuracy", "binary_accuracy", "token_accuracy", "balanced_accuracy", "auroc"),
        *("f1", "f1_macro", "f1_micro", "rmse", "r2", "perplexity", "calibration_error", *LOSSES),
    )
}
"""Metrics, which are no factories."""


def settings_of(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The hyper-parameters of a factory, by name, with their defaults."""
    return dict(inspect.signature(factory).parameters)


def defaults(factory: Callable[..., Any]) -> str:
    """The hyper-parameters of a factory and their defaults, for a table.

    >>> defaults(AGGREGATORS["fedprox"])
    'mu=0.1, weighting=size'
    """
    given = settings_of(factory).items()
    return ", ".join(
        name if p.default is p.empty else f"{name}={getattr(p.default, '__name__', p.default)}" for name, p in given
    )


def make_rule(
    name: str, settings: Mapping[str, Any] | None = None, *, learning_rate: float | Callable[[Array], Any]
) -> Aggregator | Method:
    """Build the rule ``name``, of the registry or the user's own as ``file.py:rule`` (:func:`own_factory`).

    An ``aggregator`` that is a name, as in ``ditto:aggregator=fedmaba``, is that rule with its default settings. A
    Lipschitz constant that is not among ``settings`` is 1 / learning_rate, of every round where the rate is a
    function of the round (i32, from 0).

    Raises:
      ValueError: an unknown name or setting (with the nearest match), a setting that is missing, or a value that
        the rule refuses.
    """
    factory = rule_factory(name)
    known, given = settings_of(factory), dict(settings or {})
    for setting in given:
        check_choice(f"setting of {name}", setting, known)
        if isinstance(known[setting].default, bool) and not isinstance(given[setting], bool):
            raise ValueError(f"{setting} must be True or False, got {given[setting]!r}")
        if isinstance(known[setting].default, int | float) and isinstance(given[setting], str):
            raise ValueError(f"{factory.__name__}.{setting} must be a number, got {given[setting]!r}")
    if "lipschitz" in known and given.get("lipschitz") is None:
        given["lipschitz"] = (lambda r: 1 / learning_rate(r)) if callable(learning_rate) else 1 / learning_rate
    if isinstance(inner := given.get("aggregator"), str):
        given["aggregator"] = make_rule(inner, learning_rate=learning_rate)
    for needed, parameter in known.items():
        if parameter.default is parameter.empty and needed not in given:
            raise ValueError(f"{name} needs {needed}, as {name}:{needed}=value, got nothing")
    return make(factory, **given)


def rule_factory(name: str) -> Callable[..., Any]:
    """The factory of a rule, of the registry or the user's own."""
    if name.endswith(".py"):
        raise ValueError(f"rule {name} needs the name of a rule in it, as {name}:rule, got nothing")
    return own_factory(name) if is_own(name) else lookup("algorithm", name, AGGREGATORS)


def make(factory: Callable[..., Any], *settled: Any, **settings: Any) -> Any:
    """``factory(...)``; a complaint about a setting says whose it is: ``fedmaba.alpha must be ...``."""
    try:
        return factory(*settled, **settings)
    except ValueError as error:
        owned = str(error).split(" ")[0] in settings
        raise ValueError(f"{factory.__name__}.{error}" if owned else str(error)) from error


def summary(factory: Callable[..., Any]) -> str:
    """The first line of a factory's docstring, without markup."""
    return plain((inspect.getdoc(factory) or "").partition("\n")[0])


def plain(text: str) -> str:
    """Docstring text for a terminal: roles and backquotes removed."""
    return re.sub(r"(:\w+:)?(`+)(.*?)\2", r"\3", text)

"""--loss and --metric: what clients minimise, what they are judged by, and how many outputs a model then has."""

import functools
import math
from typing import Any

import numpy as np

from fedjax_fair import registry
from fedjax_fair.checks import check_choice
from fedjax_fair.cli.experiment import Experiment
from fedjax_fair.cli.rule_syntax import own_name
from fedjax_fair.data import FederatedData
from fedjax_fair.data.sources.synthetic import CLASSES
from fedjax_fair.metrics.kind import Metric, named
from fedjax_fair.models import losses
from fedjax_fair.registry.plugins import own_factory

NUMBERS = ("squared_error", "absolute_error")
"""Losses of a regression, whose labels are numbers also where they are whole."""

FEW = 10
"""Different labels of decimal numbers, all whole, up to which they may be classes."""
MANY = 100
"""Classes from which labels may be numbers."""


def check_judging(experiment: Experiment) -> None:
    """Raise ValueError unless the loss and the metrics are ones that there are."""
    if own(experiment.loss, "loss") is None:
        check_choice("loss", experiment.loss, ("auto", *registry.LOSSES))
    if experiment.metric is not None:
        metrics_of(experiment)


def is_regression(experiment: Experiment) -> bool:
    """Whether whole numbers among the labels are numbers, not classes."""
    return experiment.regression or experiment.loss in NUMBERS


def loss_of(experiment: Experiment, data: FederatedData) -> Any:
    """The loss; by default of what the labels are.

    Raises:
      ValueError: one of classes, for labels that are none; a regression of classes that have names.
    """
    words = None if data.names is None else data.names.labels
    if is_regression(experiment) and words:  # class 3 may be called 90
        few = ", ".join(words[:3])
        raise ValueError(f"labels must be numbers for a regression, got {len(words)} classes, such as {few}")
    if (mine := own(experiment.loss, "loss")) is not None:
        return mine
    name, got = experiment.loss, f"{data.y.dtype}{list(data.y.shape)}"
    whole = np.issubdtype(data.y.dtype, np.integer)
    if name == "auto":
        several = whole and data.y.ndim == 2 and int(data.y.min()) >= 0 and int(data.y.max()) <= 1
        numbers = not whole or is_regression(experiment)
        name = "squared_error" if numbers else "sigmoid_cross_entropy" if several else "softmax_cross_entropy"
    if name == "softmax_cross_entropy" and not whole:
        raise ValueError(f"labels must be classes for {name}, got targets {got}: name a loss such as squared_error")
    return getattr(losses, name)


def metrics_of(experiment: Experiment) -> Any:
    """What ``ff.simulation`` takes: None for what the loss asks for, one metric, or several by name."""
    found = {}
    for text in experiment.metric or ():
        mine = own(text, "metric")
        if mine is None:
            check_choice("metric", text, registry.METRICS)
        name = text if mine is None else _called(mine, text)
        if name in found:
            raise ValueError(f"metric names {name} twice")
        found[name] = registry.METRICS[text] if mine is None else mine
    if experiment.metric is not None and not found:
        raise ValueError("metric needs at least one metric, such as accuracy, got none")
    if len(found) != 1:
        return found or None
    ((name, only),) = found.items()
    if isinstance(only, Metric):
        return only._replace(name=name)
    return only if name in registry.METRICS else found  # a function alone would be called accuracy


def _called(mine: Any, text: str) -> str:
    """What a metric of the user's own goes by: the name that it has, else that of what it is kept in."""
    if isinstance(mine, Metric) and mine.name:
        return mine.name
    own = named(mine.fn if isinstance(mine, Metric) else mine)
    return own_name(text, "metric")[0].rpartition(":")[2] if own == "metric" else own  # type: ignore[index]


def reading_of(experiment: Experiment, data: FederatedData) -> str:
    """A remark where labels may have been meant otherwise: few whole numbers as decimals, or very many classes."""
    if experiment.loss != "auto" or experiment.regression or data.y.ndim != 1:
        return ""
    y = np.asarray(data.y)
    if np.issubdtype(y.dtype, np.floating):
        values = np.unique(y)
        if len(values) > FEW or not np.array_equal(values, np.round(values)):
            return ""
        return (
            f"labels {', '.join(f'{value:g}' for value in values)} are decimal numbers, so this is a regression; "
            "for classes write whole numbers or words"
        )
    words = None if data.names is None else data.names.labels  # of whole numbers too, but 0, ..., C - 1
    if (classes := len(np.unique(y))) <= MANY or not (words is None or any(word.isdecimal() for word in words)):
        return ""
    return f"labels have {classes} values, so this is a classification; for a regression pass --regression"


def own(text: str, kind: str) -> Any:
    """The function that ``file.py:name`` names, with its settings; None for another form."""
    named = own_name(text, kind)
    if named is None:
        return None
    (name, settings), function = named, own_factory(named[0], kind)
    if not settings:
        return function
    known = [*registry.settings_of(function)][2:] if callable(function) else []
    for setting in settings:
        if not known:
            raise ValueError(f"{name} takes no settings, got {setting!r}")
        check_choice(f"setting of {name}", setting, known)
    return functools.partial(function, **settings)


def outputs_of(experiment: Experiment, data: FederatedData) -> int:
    """How many outputs a model has: one for every target or label that is judged by a sign, else one per class.

    >>> import types
    >>> outputs_of(Experiment(), types.SimpleNamespace(y=np.zeros(9, np.float32), names=None))
    1
    """
    loss = loss_of(experiment, data)
    if not np.issubdtype(data.y.dtype, np.integer) or is_regression(experiment):
        return math.prod(data.y.shape[1:])
    if loss is losses.sigmoid_cross_entropy:
        return math.prod(data.y.shape[1:])
    labels = None if data.names is None else data.names.labels
    drawn = experiment.dataset == "synthetic" and experiment.data is None  # another seed may draw higher labels
    return max(int(np.asarray(data.y).max()) + 1, len(labels or ()), CLASSES if drawn else 0)

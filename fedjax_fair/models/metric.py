"""A metric's direction, unit and range where ``simulation`` is given a plain function."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array

from fedjax_fair.metrics.kind import Metric, check_metric, named
from fedjax_fair.models import losses
from fedjax_fair.models.client_metrics import Whole

STOCK = {
    losses.softmax_cross_entropy: Metric(None, False, "nats", (0.0, np.inf), "cross-entropy"),
    losses.sigmoid_cross_entropy: Metric(None, False, "nats", (0.0, np.inf), "cross-entropy"),
    losses.squared_error: Metric(None, False, "", (0.0, np.inf), "squared error"),
    losses.absolute_error: Metric(None, False, "", (0.0, np.inf), "absolute error"),
    losses.auroc: Metric(None, True, "", (0.0, 1.0), "AUROC"),
    losses.f1: Metric(None, name="F1"),
    losses.f1_macro: Metric(None, name="macro F1"),
    losses.f1_micro: Metric(None, name="micro F1"),
    losses.balanced_accuracy: Metric(None, name="balanced accuracy"),
    losses.r2: Metric(None, True, "", (-np.inf, 1.0), "R2"),
    losses.rmse: Metric(None, False, "", (0.0, np.inf), "RMSE"),
    losses.perplexity: Metric(None, False, "", (1.0, np.inf), "perplexity"),
    losses.token_accuracy: Metric(None, name="token accuracy"),
    losses.calibration_error: Metric(None, False, name="calibration error"),
}


def as_metric(metric: Any, loss: Callable[..., Any]) -> tuple[Metric, Callable[[Array, Array], Array]]:
    """One door for metrics, an ``ff.Metric`` or a function of outputs and labels: what it is, and the function.

    A function is taken for an accuracy: higher is better, from 0 to 1, in per cent; one of whole clients keeps its
    name. But of a loss, one of ``ff.losses`` or the simulation's own, lower is better, also under ``jit`` or
    ``partial``.

    Raises:
      ValueError: what is neither, or a Metric of which a field is not of its kind.
    """
    kind = metric if isinstance(metric, Metric) else _kind(metric, loss)
    if isinstance(kind.fn, Metric):
        raise ValueError("metric must hold a function of outputs and labels, got one ff.Metric in another")
    kind = check_metric(kind)
    if isinstance(kind.fn, Whole):
        kind = kind._replace(for_everybody=False)
    return kind, kind.fn  # type: ignore[return-value]


def _kind(function: Any, loss: Any) -> Metric:
    """What a plain function is taken for."""
    origin = _origin(function)
    if origin in STOCK:
        return STOCK[origin]._replace(fn=function)
    if callable(function) and origin is not None and origin is _origin(loss):
        return Metric(function, False, "", (-np.inf, np.inf), named(origin))
    return Metric(function, name=named(function) if isinstance(function, Whole) else "accuracy")


def _origin(function: Any) -> Any:
    """The function inside ``partial`` and ``jit``; None for what cannot be looked up."""
    while isinstance(function, functools.partial) or (hasattr(function, "__wrapped__") and not _is_stock(function)):
        function = function.func if isinstance(function, functools.partial) else function.__wrapped__
    return function if _hashes(function) else None


def _is_stock(function: Any) -> bool:
    return _hashes(function) and function in STOCK


def _hashes(function: Any) -> bool:
    try:
        hash(function)
    except TypeError:
        return False
    return True


def check_accuracy(metric: Metric) -> None:
    """A rule that reads ``report.accuracy`` wants it high, and none below 0: PG-FFL's reward takes its Gini.

    Raises:
      ValueError: a metric of which lower is better, that can be negative, or that is no mean over examples.
    """
    if isinstance(metric.fn, Whole):
        raise ValueError(
            f"metric must be a mean over examples where the rule reads accuracy, such as ff.losses.accuracy, got "
            f"{metric.name}, which is of a whole client"
        )
    if metric.higher_is_better and metric.range[0] >= 0:
        return
    low, high = metric.range
    got = f"{metric.name} in [{low:g}, {high:g}], of which {'higher' if metric.higher_is_better else 'lower'}"
    raise ValueError(
        f"metric must be one of which higher is better, and none below 0, where the rule reads accuracy (as PG-FFL "
        f"does for its reward), got {got} is better"
    )

"""What a metric is: its direction, its unit and its range, for everything that prints, plots or compares it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

SLACK = 1e-5
"""How far, relative to the bound, a float32 mean may round out of its range."""


@jax.tree_util.register_static  # a history of it is a pytree of arrays alone
class Metric(NamedTuple):
    """A metric and what its numbers mean: ``ff.simulation(..., metric=ff.Metric(error, higher_is_better=False))``.

    Direction, unit and range go with the history to tables, summaries, plots, early stopping and reports: "worst"
    are the least favoured clients, "best" the most.
    """

    fn: Callable[[Any, Any], Any] | None
    """``(outputs [B, ...], y [B, ...]) -> f[B]``, one number per example, or an ``ff.losses.whole(...)``, one per
    client; a history's has none."""
    higher_is_better: bool = True
    """False for an error, a loss, a distance."""
    unit: str = "%"
    """ "%" prints fractions times 100; any other unit, such as "°C" or "", prints the numbers as they are."""
    range: tuple[float, float] = (0.0, 1.0)
    """The lowest and the highest value there can be, such as ``(0, float("inf"))``; others are refused."""
    name: str = ""
    """In headings and labels; by default the function's own."""
    for_everybody: bool = True
    """False for one that has no value for some clients, as AUROC for one with a single class: their NaN is then no
    failure, and they are left out of every measure."""

    @property
    def scale(self) -> float:
        """What numbers are multiplied by to be printed in the unit."""
        return 100.0 if self.unit == "%" else 1.0

    @property
    def label(self) -> str:
        """The name, and the unit in brackets: "accuracy (%)"."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @property
    def squared(self) -> str:
        """The unit of a variance, in brackets: " (%²)"; empty without a unit."""
        return f" ({self.unit}²)" if self.unit else ""


ACCURACY = Metric(None, name="accuracy")
"""What a plain function is taken for: higher is better, from 0 to 1, printed in per cent."""


def described(metric: Any) -> Metric:
    """The metric without its function; accuracy for None."""
    return ACCURACY if metric is None else metric._replace(fn=None)


def check_metric(metric: Metric) -> Metric:
    """The metric with its name and its range as two floats.

    Raises:
      ValueError: a field that is not of its kind.
    """
    if not callable(metric.fn):
        raise ValueError(f"metric must be a function of outputs and labels, got {metric.fn!r}")
    return named_metric(metric)


def named_metric(metric: Any) -> Metric:
    """The same of a metric that may lack the function."""
    if not isinstance(metric, Metric):
        raise ValueError(f"metric must be an ff.Metric, such as a history's metric, got {metric!r}")
    fn, higher, unit, bounds, name, for_everybody = metric
    for field, flag in (("higher_is_better", higher), ("for_everybody", for_everybody)):
        if not isinstance(flag, bool | np.bool_):
            raise ValueError(f"metric's {field} must be True or False, got {flag!r}")
    for field, text in (("unit", unit), ("name", name)):
        if not isinstance(text, str):
            raise ValueError(f"metric's {field} must be a text, got {text!r}")
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        low = high = np.nan
    if not low < high:
        raise ValueError(f"metric's range must be its lowest and its highest value, such as (0, 1), got {bounds!r}")
    return Metric(fn, bool(higher), unit, (low, high), name or named(fn), bool(for_everybody))


def named(function: Any) -> str:
    """A function's name in words, also inside a ``partial`` or an ``ff.losses.whole``; "metric" for one without."""
    while not hasattr(function, "__name__") and (inner := getattr(function, "func", getattr(function, "fn", None))):
        function = inner
    name = getattr(function, "__name__", "<lambda>")
    return "metric" if name == "<lambda>" else name.strip("_").replace("_", " ")


def check_values(name: str, values: Any, metric: Metric = ACCURACY) -> None:
    """Raise ValueError where a value lies outside the metric's range; what is not finite is a failure, not a value.

    Only numbers are looked at: under a trace nothing is known.
    """
    if isinstance(values, jax.core.Tracer):
        return
    finite = np.asarray(values)[np.isfinite(values)]
    low, high = metric.range
    below, above = (bound - sign * SLACK * max(1, abs(bound)) for bound, sign in ((low, 1), (high, -1)))
    if not finite.size or (finite.min() >= below and finite.max() <= above):
        return
    kind = f"{metric.name} in [{low:g}, {high:g}]"
    hint = ", fractions and not per cent," if metric.unit == "%" else ","
    raise ValueError(
        f"{name} must hold {kind}{hint} got {finite.min():g} to {finite.max():g}: what has another range is "
        "metric=ff.Metric(function, higher_is_better=..., unit=..., range=...), or an error of ff.losses such as "
        "metric=ff.losses.absolute_error"
    )


def worst_first(values: np.ndarray, failed: np.ndarray, metric: Metric) -> np.ndarray:
    """What to sort clients [N] by, from the worst served to the best: those that failed come first, NaN last."""
    return np.where(failed, -np.inf, values if metric.higher_is_better else -values)

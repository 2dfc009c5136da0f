"""How rules differ from a baseline: paired differences in accuracy and in fairness, with their intervals."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_fair.checks import check_choice
from fedjax_fair.metrics.kind import ACCURACY, Metric
from fedjax_fair.plot.style import COLOURS, MARKERS, in_legend, legend_above, new_axes, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _axes(metric: Metric) -> dict[str, str]:
    """By measure what a difference is of, and in which unit."""
    unit = "points" if metric.unit == "%" else metric.unit
    said = [unit] * bool(unit) + ["lower is better"] * (not metric.higher_is_better)
    brackets = f" ({', '.join(said)})" if said else ""
    return {
        "accuracy": f"Mean client {metric.name}{brackets}",
        "worst10": f"Mean of the worst 10 % of clients{brackets}",
        "variance": f"Variance over clients{f' ({unit}²)' if unit else ''}",
        "gini": "Gini coefficient",
    }


@paper()
def paired_frontier(
    differences: Mapping[str, Mapping[str, Any]],
    baseline: str = "baseline",
    x: str = "accuracy",
    y: str = "worst10",
    ax: "Axes | None" = None,
    rules: Sequence[str] | Mapping[str, Any] | None = None,
    metric: Metric | None = None,
) -> "Axes":
    """Differences from the baseline, which lies at 0: one measure against another, crosses the 95 % intervals.

    A rule whose cross lies right of and above both lines is better in both; of an error, whose axes say that lower
    is better, one left of and below them. ``differences`` are ``comparison.differences()``; where an interval is
    not known, as of a run that failed, there is no cross. ``metric`` is theirs, or accuracy, unless it is given.

    A rule has the colour of its place among ``rules``, which other figures draw in this order, such as
    ``comparison.runs``; by default the baseline is the first of them.

    Raises:
      ValueError: no rule, a measure that is not compared, or ``rules`` that lack one.
    """
    if not isinstance(differences, Mapping) or not differences:
        got = "a Comparison: pass its differences" if hasattr(differences, "differences") else repr(differences)
        raise ValueError(f"differences must be comparison.differences(), got {got}")
    axes = _axes(getattr(differences, "metric", ACCURACY) if metric is None else metric)
    for name, measure in (("x", x), ("y", y)):
        check_choice(name, measure, axes)
    order = [baseline, *differences] if rules is None else [*rules]
    if lacking := [rule for rule in differences if rule not in order]:
        raise ValueError(f"rules must name every rule of differences, got {', '.join(order)} without {lacking[0]}")
    own, ax = ax is None, new_axes(ax, 2.6)
    for rule, measures in differences.items():
        i = order.index(rule)
        (u, du), (v, dv) = (_cross(measures[measure].difference) for measure in (x, y))
        style: dict[str, Any] = {
            "color": COLOURS[i % len(COLOURS)],
            "markersize": 5,
            "markerfacecolor": "none",  # rules may lie on each other
            "label": in_legend(rule) + " (no difference known)" * bool(np.isnan(u) or np.isnan(v)),
            "elinewidth": 0.7,
        }
        marker = MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]
        ax.errorbar(u, v, xerr=du, yerr=dv, fmt=marker, **style)
    ax.axhline(0, color="0.6", linewidth=0.7, zorder=0)
    ax.axvline(0, color="0.6", linewidth=0.7, zorder=0)
    against = f", minus {in_legend(baseline)}"
    ax.set_xlabel(textwrap.fill(axes[x] + against, 46, break_long_words=False))
    ax.set_ylabel(textwrap.fill(axes[y] + against, 34, break_long_words=False))
    legend_above(ax, own)
    return ax


def _cross(difference: Any) -> tuple[float, float | None]:
    reach = (difference.high - difference.low) / 2
    return difference.mean, None if np.isnan(reach) else reach

"""Fairness against accuracy."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedjax_fair import metrics
from fedjax_fair.metrics.kind import Metric
from fedjax_fair.plot.given import FORMS, kind_of, per_client
from fedjax_fair.plot.style import COLOURS, MARKERS, in_legend, legend_above, new_axes, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Student's t, two-sided 95 %, for 2, 3, ... 30 seeds; beyond, the first terms of its expansion, to .001.
# fmt: off
T975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
)
# fmt: on


def interval(values: ArrayLike) -> tuple[float, float]:
    """Mean of the seeds, and half the width of its 95 % confidence interval; NaN for a single seed."""
    v = np.asarray(values, float)
    if v.size == 1:
        return float(v.item()), float("nan")
    t = T975[v.size - 2] if v.size - 2 < len(T975) else 1.96 + 2.372 / (v.size - 1) + 2.82 / (v.size - 1) ** 2
    return float(v.mean()), float(t * v.std(ddof=1) / np.sqrt(v.size))


@paper()
def frontier(
    points: Mapping[str, Any], ax: "Axes | None" = None, metric: Metric | None = None, last: int = 1
) -> "Axes":
    """Mean accuracy against variance over clients, of ``{name: accuracies [seeds, N] or [seeds, T, N]}``.

    Of ``{name: histories, one per seed}``, such as a sweep's ``runs``, it takes the ``last`` evaluations: with
    ``last=found.last`` those of a comparison's table. With T evaluations a seed counts by their mean.

    The cross is a 95 % confidence interval over the seeds; where it is far wider than the points lie apart (two
    seeds), it ends at the frame. Runs that failed are named, not drawn.
    """
    own, seen, kind = ax is None, [], kind_of(points, metric)
    drawn = per_client(points, kind, last, FORMS[1])
    ax = new_axes(ax, 2.6)
    for i, (name, acc) in enumerate(drawn.items()):
        marker = MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]
        if not len(acc):
            ax.plot([], [], marker, color=COLOURS[i % len(COLOURS)], label=in_legend(name))
            continue
        mean = kind.scale * np.asarray(metrics.mean(acc))
        variance = (kind.scale / 100) ** 2 * np.asarray(metrics.variance(acc))
        (x, dx), (y, dy) = (interval(value.mean(1)) for value in (mean, variance))
        bars: dict[str, Any] = {} if np.isnan(dx) else {"xerr": dx, "yerr": dy, "elinewidth": 0.7}
        seen.append((x, y))
        ax.errorbar(x, y, fmt=marker, color=COLOURS[i % len(COLOURS)], markersize=5, label=in_legend(name), **bars)
    worse = "" if kind.higher_is_better else ", lower is better"
    ax.set(xlabel=f"Mean client {kind.label}{worse}", ylabel=f"Variance over clients{kind.squared}")
    (left, bottom), (right, top) = np.min(seen, 0), np.max(seen, 0)
    least = 5 if kind.unit == "%" else 0.1 * abs(right)
    room_x, room_y = least + 2 * (right - left), 0.1 * top + 2 * (top - bottom)
    (x0, x1), (y0, y1) = ax.get_xlim(), ax.get_ylim()
    lowest, highest = (kind.scale * bound for bound in kind.range)
    ax.set_xlim(max(x0, left - room_x, lowest), min(x1, right + room_x, highest + 0.02 * (x1 - x0)))
    ax.set_ylim(max(y0, bottom - room_y, 0), min(y1, top + room_y) or y1)  # where all are served alike, of 0 alone
    legend_above(ax, own)
    return ax

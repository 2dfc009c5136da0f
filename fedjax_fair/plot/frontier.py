"""Fairness against accuracy."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fedjax_fair import metrics
from fedjax_fair.plot.style import COLOURS, MARKERS, legend_above, named, new_axes, numbers, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Student's t, two-sided 95 %, for 2, 3, ... 30 seeds; beyond, the normal's.
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
    t = T975[v.size - 2] if v.size - 2 < len(T975) else 1.96
    return float(v.mean()), float(t * v.std(ddof=1) / np.sqrt(v.size))


@paper()
def frontier(points: Mapping[str, Any], ax: "Axes | None" = None) -> "Axes":
    """Mean accuracy against variance over clients, of ``{name: accuracies [seeds, N] or [seeds, T, N]}``.

    Of ``{name: histories, one per seed}``, such as a sweep's ``runs``, it takes the last evaluation. With T
    evaluations a seed counts by their mean. The cross is a 95 % confidence interval over the seeds; where it is far
    wider than the points lie apart (two seeds), it ends at the frame.
    """
    own, seen = ax is None, []
    ax = new_axes(ax, 2.6)
    for i, (name, given) in enumerate(named(points).items()):
        acc = numbers(name, given, "accuracies [seeds, N] or [seeds, T, N]")
        if acc.ndim not in (2, 3):
            raise ValueError(f"{name!r} must be accuracies [seeds, N] or [seeds, T, N], got {acc.shape}")
        acc = acc[:, None] if acc.ndim == 2 else acc
        (x, dx), (y, dy) = (
            interval(np.asarray(value).mean(1))
            for value in (100 * np.asarray(metrics.mean(acc)), metrics.variance(acc))
        )
        bars: dict[str, Any] = {} if np.isnan(dx) else {"xerr": dx, "yerr": dy, "elinewidth": 0.7}
        marker = MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]
        seen.append((x, y))
        ax.errorbar(x, y, fmt=marker, color=COLOURS[i % len(COLOURS)], markersize=5, label=name, **bars)
    ax.set(xlabel="Mean client accuracy (%)", ylabel="Variance over clients (%²)")
    (left, bottom), (right, top) = np.min(seen, 0), np.max(seen, 0)
    room_x, room_y = 5 + 2 * (right - left), 0.1 * top + 2 * (top - bottom)
    (x0, x1), (y0, y1) = ax.get_xlim(), ax.get_ylim()
    ax.set_xlim(max(x0, left - room_x, 0), min(x1, right + room_x, 100 + 0.02 * (x1 - x0)))
    ax.set_ylim(max(y0, bottom - room_y, 0), min(y1, top + room_y))
    legend_above(ax, own)
    return ax

"""Who contributes what: every client's share of accuracy and of fairness, with its interval."""

from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_fair.plot.style import COLOURS, WIDTH, in_legend, new_figure, paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELLED = 25
"""Clients up to which each has its bar and its name; more are points without."""
NAMES = {"variance": "Variance", "std": "Std", "gini": "Gini", "jain": "Jain"}
LOW = frozenset(["variance", "std", "gini"])
"""Measures that are fair where they are low."""


@paper()
def contribution(found: Any) -> "tuple[Axes, ...]":
    """Every client's share, a panel for each measure of ``found``, an ``ff.contribution(...)``; 95 % intervals.

    The clients stand in one order in all panels, from the highest share of the first measure to the lowest: of
    up to 25 a bar each, of more a point. Shares that make a federation fairer, or its model better, are blue, the
    others orange. Returns the Axes from top to bottom.

    Raises:
      ValueError: something else than a contribution.
    """
    if not hasattr(found, "shares") or not hasattr(found, "intervals"):
        raise ValueError(f"found must be an ff.contribution(...), got {type(found).__name__}")
    order, intervals = found.order(), found.intervals()
    few, places = len(order) <= LABELLED, np.arange(len(order))
    figure = new_figure(WIDTH, 0.45 + 1.0 * len(found.shares))
    axes = figure.subplots(len(found.shares), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (measure, shares) in zip(axes, found.shares.items()):
        mine, ends = shares[order], intervals[measure][:, order]
        good = mine * _sign(measure, found.metric) >= 0
        colours = np.where(good, COLOURS[0], COLOURS[1])
        if few:
            ax.bar(places, mine, 0.75, color=colours, alpha=0.85)
        else:
            ax.scatter(places, mine, 4, c=colours, linewidths=0, zorder=3)
        if found.permutations:
            ax.vlines(places, *ends, color="0.25" if few else colours, linewidth=0.8 if few else 0.6)
        ax.axhline(0, color="0.6", linewidth=0.6, zorder=0)
        ax.set_ylabel(_label(measure, found.metric))
        ax.margins(x=0.02)
    first = _name(next(iter(found.shares)), found.metric)
    axes[-1].set_xlabel(
        f"Client, by its share of {first}" if few else f"Clients, from the highest share of {first}"
    )
    if few:
        names = [str(k) if found.clients is None else in_legend(found.clients[k]) for k in order]
        axes[-1].set_xticks(places, names, rotation=90 if max(map(len, names)) > 3 else 0)
        for ax in axes:
            ax.tick_params("x", length=0)
    figure.align_ylabels(axes)
    return tuple(axes)


def _sign(measure: str, metric: Any) -> int:
    """1 where a share above 0 is a good one."""
    if measure in LOW:
        return -1
    return 1 if measure == "jain" or metric.higher_is_better else -1


def _name(measure: str, metric: Any) -> str:
    if measure == "accuracy":
        return metric.name
    for end in ("worst", "best"):
        if measure.startswith(end):
            return f"{end} {measure.removeprefix(end)} %"
    return NAMES[measure].lower() if measure == "std" else NAMES[measure]


def _label(measure: str, metric: Any) -> str:
    """The measure, and its unit on a line of its own."""
    points = "points" if metric.unit == "%" else metric.unit
    unit = {"gini": "", "jain": "", "variance": f"{points}²" if points else ""}.get(measure, points)
    name = _name(measure, metric)
    name = name[:1].upper() + name[1:]
    return f"{name}\n({unit})" if unit else name

"""Over the rounds: accuracy, fairness, regret."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_fair import metrics
from fedjax_fair.checks import check_choice
from fedjax_fair.plot.style import (
    MARKERS,
    WIDTH,
    Curves,
    check_accuracy,
    histories_of,
    legend_above,
    named,
    new_axes,
    new_figure,
    pair_of,
    paper,
    series_of,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@paper()
def over_rounds(
    curves: Curves, ylabel: str = "Accuracy (%)", band: str = "range", ax: "Axes | None" = None
) -> "Axes":
    """Draw ``{name: (rounds [T], values [T] or [seeds, T])}``: the mean over seeds, and a band around it.

    ``band`` is "range", from the smallest seed to the largest, "std", one standard deviation
    either side, or "none". ``ylabel`` must name the unit.
    """
    drawn = draw_rounds(curves, ylabel, band, ax)
    legend_above(drawn, grow=ax is None)
    return drawn


def draw_rounds(curves: Mapping[str, Any], ylabel: str, band: str, ax: "Axes | None") -> "Axes":
    """The lines and bands of :func:`over_rounds`, without a legend."""
    check_choice("band", band, ("range", "std", "none"))
    rules = {name: series_of(name, pair) for name, pair in named(curves).items()}
    ax = new_axes(ax, 2.2)
    for i, (name, (t, y)) in enumerate(rules.items()):
        centre, marker = y.mean(0), MARKERS[i % len(MARKERS)]
        every = max(1, len(t) // 5)  # about five markers a line, staggered
        ax.plot(t, centre, label=name, marker=marker, markevery=(i * every // len(rules), every), **style(i))
        if band != "none" and len(y) > 1:
            spread = y.std(0, ddof=1)
            low, high = (y.min(0), y.max(0)) if band == "range" else (centre - spread, centre + spread)
            ax.fill_between(t, low, high, color=style(i)["color"], alpha=0.12, linewidth=0)
    ax.set(xlabel="Round", ylabel=ylabel)
    ax.margins(x=0.02)
    return ax


@paper()
def accuracy_and_fairness(curves: Mapping[str, Any], band: str = "range") -> "tuple[Axes, Axes]":
    """Mean accuracy over variance, per round, of ``{name: (rounds [T], accuracy [seeds, T, N] or [T, N])}``.

    Of histories, ``{name: history}`` or ``{name: [one per seed]}``, such as a sweep's ``runs``, as well.
    Returns the Axes of the two panels, stacked on one figure; ``band`` as in :func:`over_rounds`.
    """
    means, variances = {}, {}
    for name, pair in named(curves).items():
        histories = histories_of(pair)
        stacked = histories and (histories[0].rounds, np.stack([history.accuracy for history in histories]))
        rounds, acc = pair_of(name, stacked or pair)
        if acc.ndim not in (2, 3):
            raise ValueError(f"{name!r} must have accuracies [T, N] or [seeds, T, N], got {acc.shape}")
        check_accuracy(name, acc)
        means[name] = rounds, 100 * np.asarray(metrics.mean(acc))
        variances[name] = rounds, np.asarray(metrics.variance(acc))
    above, below = new_figure(WIDTH, 3.7).subplots(2, sharex=True)
    draw_rounds(means, "Mean accuracy (%)", band, above).set_xlabel("")
    legend_above(above, grow=True)
    draw_rounds(variances, "Variance over clients (%²)", band, below)
    above.figure.align_ylabels()
    return above, below


@paper()
def regret(ledgers: Mapping[str, Any], ax: "Axes | None" = None) -> "Axes":
    """Regret over rounds of ``{name: ledger}`` (:func:`fedjax_fair.ledger`), each with its published bound, thin.

    The vertical axis is logarithmic: bounds are far above what happens.
    """
    ax = new_axes(ax, 2.4)
    for i, (name, account) in enumerate(named(ledgers).items()):
        ax.plot(account.rounds, np.maximum(account.regret, 1e-3), label=name, **style(i))
        ax.plot(account.rounds, account.bound, **{**style(i), "linewidth": 0.7}, label=f"{name}, bound")
    ax.set(xlabel="Round", ylabel="Regret (nats)", yscale="log")
    legend_above(ax, grow=True)
    return ax

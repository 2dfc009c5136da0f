"""Over the rounds: accuracy, fairness, regret."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_fair import metrics
from fedjax_fair.checks import check_choice
from fedjax_fair.engine.history import History
from fedjax_fair.metrics.kind import Metric, check_values
from fedjax_fair.plot.frontier import interval
from fedjax_fair.plot.given import check_accuracy, course_of, histories_of, kind_of
from fedjax_fair.plot.style import (
    MARKERS,
    WIDTH,
    Curves,
    in_legend,
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
    curves: Curves | Mapping[str, Any],
    ylabel: str | None = None,
    band: str = "range",
    ax: "Axes | None" = None,
    *,
    measure: str = "accuracy",
) -> "Axes":
    """Draw ``{name: (rounds [T], values [T] or [seeds, T])}``: the mean over seeds, and a band around it.

    Of histories, ``{name: history}`` or ``{name: [one per seed]}``, it draws a measure of
    :func:`fedjax_fair.metrics.summary`, such as "gini"; a line ends where a run has failed.

    ``band`` is "range", from the smallest seed to the largest, "std", one standard deviation either side,
    "interval", the 95 % confidence interval of the mean (Student's t), or "none". ``ylabel`` must name the unit; by
    default it names the measure.

    Raises:
      ValueError: an unknown measure or band, or histories beside arrays.
    """
    given = named(curves)
    histories = {name: histories_of(pair) for name, pair in given.items()}
    if not any(histories.values()):
        drawn = draw_rounds(given, ylabel or "Accuracy (%)", band, ax)
    elif not all(histories.values()):
        missing = next(name for name, listed in histories.items() if not listed)
        raise ValueError(f"curves must all be histories, or all pairs (rounds, values), unlike {missing!r}")
    else:
        kind = kind_of(curves, None)
        drawn = draw_rounds(measured(histories, measure, kind), ylabel or _called(measure, kind), band, ax)
    legend_above(drawn, grow=ax is None)
    return drawn


def measured(histories: Mapping[str, list[History]], measure: str, kind: Metric) -> dict[str, Any]:
    """``{label: (rounds [T], a measure of the clients' results [seeds, T])}``."""
    found = {}
    for name, listed in histories.items():
        label, rounds, acc, counts = course_of(name, listed)
        check_values(f"{name!r}", acc, kind)
        values = metrics.summary(acc, metric=kind, where=counts)
        found[label] = rounds, np.asarray(values[check_choice("measure", measure, values)])
    return found


def _called(measure: str, kind: Metric) -> str:
    """The measure, and its unit, as an axis names it."""
    own = {"accuracy": f"Mean {kind.label}", "variance": f"Variance over clients{kind.squared}"}
    unit = "points" if kind.unit == "%" else kind.unit
    own["std"] = f"Standard deviation over clients{f' ({unit})' if unit else ''}"
    part, share = re.fullmatch(r"(\D+)(\d*)", measure).groups()  # type: ignore[union-attr]
    words = part.replace("_", " ").capitalize()
    return own.get(measure, f"{words} {share} %: {kind.label}" if share else words)


def draw_rounds(curves: Mapping[str, Any], ylabel: str, band: str, ax: "Axes | None") -> "Axes":
    """The lines and bands of :func:`over_rounds`, without a legend."""
    check_choice("band", band, ("range", "std", "interval", "none"))
    rules = {name: series_of(name, pair) for name, pair in named(curves).items()}
    ax = new_axes(ax, 2.2)
    for i, (name, (t, y)) in enumerate(rules.items()):
        centre, marker = y.mean(0), MARKERS[i % len(MARKERS)]
        every = max(1, len(t) // 5)  # about five markers a line, staggered
        marked: dict[str, Any] = {"marker": marker, "markevery": (i * every // len(rules), every)}
        ax.plot(t, centre, label=in_legend(name), **marked, **style(i))
        if band != "none" and len(y) > 1:
            spread = y.std(0, ddof=1) if band == "std" else np.array([interval(seeds)[1] for seeds in y.T])
            low, high = (y.min(0), y.max(0)) if band == "range" else (centre - spread, centre + spread)
            ax.fill_between(t, low, high, color=style(i)["color"], alpha=0.12, linewidth=0)
    ax.set(xlabel="Round", ylabel=ylabel)
    ax.margins(x=0.02)
    return ax


@paper()
def accuracy_and_fairness(
    curves: Mapping[str, Any], band: str = "range", metric: Metric | None = None
) -> "tuple[Axes, Axes]":
    """Mean accuracy over variance, per round, of ``{name: (rounds [T], accuracy [seeds, T, N] or [T, N])}``.

    Of histories, ``{name: history}`` or ``{name: [one per seed]}``, such as a sweep's ``runs``, as well.
    They go by their metric, and runs that failed are named: a line ends where the model does. Arrays are
    accuracies, unless ``metric`` says otherwise. Returns the Axes of the two panels, stacked on one figure;
    ``band`` as in :func:`over_rounds`.
    """
    means, variances, kind = {}, {}, kind_of(curves, metric)
    for name, pair in named(curves).items():
        if histories := histories_of(pair):
            label, rounds, acc, counts = course_of(name, histories)
            check_values(f"{name!r}", acc, kind)
        else:
            label, (rounds, acc), counts = name, pair_of(name, pair), None
        if acc.ndim not in (2, 3):
            raise ValueError(f"{name!r} must have accuracies [T, N] or [seeds, T, N], got {acc.shape}")
        if counts is None:
            check_accuracy(name, acc, kind)
        means[label] = rounds, kind.scale * np.asarray(metrics.mean(acc, counts))
        variances[label] = rounds, (kind.scale / 100) ** 2 * np.asarray(metrics.variance(acc, counts))
    above, below = new_figure(WIDTH, 3.7).subplots(2, sharex=True)
    draw_rounds(means, f"Mean {kind.label}", band, above).set_xlabel("")
    legend_above(above, grow=True)
    draw_rounds(variances, f"Variance over clients{kind.squared}", band, below)
    above.figure.align_ylabels()
    return above, below


@paper()
def regret(ledgers: Mapping[str, Any], ax: "Axes | None" = None) -> "Axes":
    """Regret over rounds of ``{name: ledger}`` (:func:`fedjax_fair.ledger`), each with its published bound, thin.

    The vertical axis is logarithmic, for bounds are far above what happens. It has no place for a regret of 0 or
    less, of a learner that did better than the best fixed one: there the line is interrupted.
    """
    ax = new_axes(ax, 2.4)
    for i, (name, account) in enumerate(named(ledgers).items()):
        label, above = in_legend(name), np.where(account.regret > 0, account.regret, np.nan)
        marker = "." if len(account.rounds) == 1 else None  # one round is no line
        ax.plot(account.rounds, above, label=label, marker=marker, **style(i))
        thin = {**style(i), "linewidth": 0.7}
        ax.plot(account.rounds, account.bound, label=f"{label}, bound", marker=marker, **thin)
    ax.set(xlabel="Round", ylabel="Regret (nats)", yscale="log")
    legend_above(ax, grow=True)
    return ax

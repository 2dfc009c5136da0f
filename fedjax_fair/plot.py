"""Figures for a paper: one column wide, 8 pt, legible in grey and to the colour-blind.

Every function takes ``{name of the rule: its numbers}`` and gives back the Axes that it drew on: ``ax``, or
new ones sized for a column. The figure is ``ax.figure``; pyplot and its global state are never involved. A
rule keeps its colour, dash and marker in all figures if the dictionaries list the rules in one order.
Accuracies are fractions in [0, 1], NaN for a client without test examples; the axes show percent.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedjax_fair import metrics
from fedjax_fair.checks import check_choice, check_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 3.4  # one column, in inches
Curves = Mapping[str, tuple[ArrayLike, ArrayLike]]

# Okabe and Ito (2008), without the yellow that vanishes on white. 7 and 5 share no factor: 35 distinct lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P")

RC: dict[Any, Any] = {
    **dict.fromkeys(("font.size", "axes.labelsize"), 8),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize", "legend.title_fontsize"), 7),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "legend.handlelength": 2.4,
    "legend.labelspacing": 0.3,
    "legend.columnspacing": 1,
    "lines.linewidth": 1.2,
    "lines.markersize": 3,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedjax_fair",
}


@contextmanager
def _paper() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(RC):
        yield


def _axes(ax: "Axes | None", height: float) -> "Axes":
    from matplotlib.figure import Figure

    return Figure((WIDTH, height), layout="constrained").add_subplot() if ax is None else ax


def _style(i: int) -> dict[str, Any]:
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)]}


def _legend_above(ax: "Axes", grow: bool, title: str | None = None) -> None:
    """A legend over the top edge, in as many columns as the longest name leaves room for."""
    figure: Any = ax.get_figure(root=True)
    width, height = figure.get_size_inches()
    names = ax.get_legend_handles_labels()[1]
    columns = max(1, min(len(names), int((72 * width - 36) // (30 + 4.2 * max(map(len, names))))))
    ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=columns, borderaxespad=0.2, title=title)
    if grow:
        figure.set_figheight(height + 0.14 * -(-len(names) // columns))


def _named(curves: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(curves, Mapping) or not curves:
        raise ValueError(f"curves must be a dictionary with at least one rule, got {str(curves)[:30]}")
    return curves


def _check_accuracy(name: str, acc: NDArray[Any]) -> None:
    """NaN, a client without test examples, is welcome; a row of nothing else is not."""
    if not acc.size or np.isnan(acc).all(-1).any():
        raise ValueError(f"{name!r} must hold at least one client's accuracy in every row, got {acc.shape}")
    low, high = np.nanmin(acc), np.nanmax(acc)
    if low < 0 or high > 1:
        raise ValueError(f"{name!r} must hold accuracies in [0, 1], not percent, got {low:g} to {high:g}")


def _per_client(curves: Mapping[str, ArrayLike]) -> dict[str, NDArray[np.float64]]:
    """Every rule's accuracies as [seeds, N], checked."""
    rules = {name: np.asarray(acc, np.float64) for name, acc in _named(curves).items()}
    for name, acc in rules.items():
        if acc.ndim not in (1, 2):
            raise ValueError(f"{name!r} must be accuracies [N] or [seeds, N], got {acc.shape}")
        _check_accuracy(name, acc)
    return {name: np.atleast_2d(acc) for name, acc in rules.items()}


def _pair(name: str, pair: Any) -> tuple[NDArray[Any], NDArray[np.float64]]:
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise ValueError(f"{name!r} must be a pair (rounds, values), got {type(pair).__name__}")
    return np.asarray(pair[0]), np.asarray(pair[1], np.float64)


def _over_rounds(name: str, pair: Any) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """``rounds`` [T] and ``values`` [seeds, T], checked."""
    t, y = _pair(name, pair)
    if t.ndim != 1 or not t.size or y.ndim not in (1, 2) or y.shape[-1] != t.size:
        raise ValueError(f"{name!r} must be rounds [T], values [T] or [seeds, T], got {t.shape}, {y.shape}")
    return t, np.atleast_2d(y)


@_paper()
def lorenz(curves: Mapping[str, ArrayLike], ax: "Axes | None" = None) -> "Axes":
    """Lorenz curves of ``{name: accuracies [N] or [seeds, N]}``, the Gini coefficient in the legend.

    Over several seeds: the mean curve, and the mean and standard deviation of the Gini coefficient. Where all
    curves keep close to equality an inset magnifies how far below it they are.
    """
    rules, own = _per_client(curves), ax is None
    ax = _axes(ax, WIDTH)
    ax.plot([0, 100], [0, 100], color="0.6", linewidth=0.8, label="equality")
    gaps = []
    for i, (name, acc) in enumerate(rules.items()):
        gini = np.asarray(metrics.gini(acc))
        spread = f" ± {gini.std(ddof=1):.3f}" if len(acc) > 1 else ""
        grid = np.linspace(0, 1, acc.shape[1] + 1)
        points = [np.asarray(axis) for axis in metrics.lorenz(acc)]
        share = np.mean([np.interp(grid, p, held) for p, held in zip(*points)], 0)
        ax.plot(100 * grid, 100 * share, **_style(i), label=f"{name}: {gini.mean():.3f}{spread}")
        gaps.append((100 * grid, 100 * (grid - share)))
    if max(gap.max() for _, gap in gaps) < 10:
        inset = ax.inset_axes((0.6, 0.1, 0.38, 0.27))
        for i, gap in enumerate(gaps):
            inset.plot(*gap, **_style(i))
        inset.set_title("below equality (points)", fontsize=7, pad=3)
        inset.set(xlim=(0, 100), ylim=(0, None), xticks=(0, 50, 100))
    ax.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
    ax.set(xlabel="Clients, from the worst served (%)", ylabel="Share of the total accuracy (%)")
    names = ax.get_legend_handles_labels()[1]
    if 29 + 3.8 * max(map(len, names)) + 9.7 * (len(names) + 1) < 198:  # points: fits over the diagonal
        ax.legend(loc="upper left", title="Gini coefficient", alignment="left")
    else:
        _legend_above(ax, own, title="Gini coefficient")
    return ax


@_paper()
def client_histogram(curves: Mapping[str, ArrayLike], bins: int = 20, ax: "Axes | None" = None) -> "Axes":
    """Histograms of ``{name: accuracies [N] or [seeds, N]}``, a row per rule, all on the same bins and scale.

    An outline counts the clients per bin, on average over the seeds; its dot marks their mean accuracy.
    """
    rules, bins = _per_client(curves), check_count("bins", bins)
    every = np.concatenate([100 * x[np.isfinite(x)] for x in rules.values()])
    edges = np.histogram_bin_edges(every, bins) if np.ptp(every) else every[0] + np.linspace(-1, 1, bins + 1)
    counts = [np.histogram(100 * x[np.isfinite(x)], edges)[0] / len(x) for x in rules.values()]
    top = np.max(counts)
    rows = np.arange(len(rules))[::-1]  # the first rule on top
    ax = _axes(ax, 0.7 + 0.36 * max(2, len(rules)))
    for i, (row, count, x) in enumerate(zip(rows, counts, rules.values())):
        colour = _style(i)["color"]
        heights = row + 0.85 * count / top
        ax.stairs(heights, edges, baseline=row, fill=True, color=colour, alpha=0.25)
        ax.stairs(heights, edges, baseline=row, color=colour, linewidth=1)
        ax.axhline(row, color=colour, linewidth=0.6)
        ax.plot(100 * np.nanmean(x), row, "o", color=colour, clip_on=False)
    ax.set_yticks(rows, list(rules))
    ax.tick_params("y", length=0)
    scale = ax.secondary_yaxis("right")
    scale.set_yticks(np.ravel([rows, rows + 0.85]), [""] * len(rows) + [f"{top:.3g}"] * len(rows))
    scale.set_ylabel("Clients per bin")
    for spine in (ax.spines["left"], scale.spines["right"]):
        spine.set_visible(False)
    ax.set(ylim=(-0.08, len(rules)), xlabel="Client accuracy (%), dot: mean")
    return ax


@_paper()
def over_rounds(
    curves: Curves, ylabel: str = "Accuracy (%)", band: str = "range", ax: "Axes | None" = None
) -> "Axes":
    """Draw ``{name: (rounds [T], values [T] or [seeds, T])}``: the mean over seeds, and a band around it.

    ``band`` is "range", from the smallest seed to the largest, "std", one standard deviation
    either side, or "none". ``ylabel`` must name the unit.
    """
    drawn = _draw_rounds(curves, ylabel, band, ax)
    _legend_above(drawn, grow=ax is None)
    return drawn


def _draw_rounds(curves: Mapping[str, Any], ylabel: str, band: str, ax: "Axes | None") -> "Axes":
    check_choice("band", band, ("range", "std", "none"))
    rules = {name: _over_rounds(name, pair) for name, pair in _named(curves).items()}
    ax = _axes(ax, 2.2)
    for i, (name, (t, y)) in enumerate(rules.items()):
        centre, marker = y.mean(0), MARKERS[i % len(MARKERS)]
        every = max(1, len(t) // 5)  # about five markers a line, staggered
        ax.plot(t, centre, label=name, marker=marker, markevery=(i * every // len(rules), every), **_style(i))
        if band != "none" and len(y) > 1:
            spread = y.std(0, ddof=1)
            low, high = (y.min(0), y.max(0)) if band == "range" else (centre - spread, centre + spread)
            ax.fill_between(t, low, high, color=_style(i)["color"], alpha=0.12, linewidth=0)
    ax.set(xlabel="Round", ylabel=ylabel)
    ax.margins(x=0.02)
    return ax


@_paper()
def accuracy_and_fairness(curves: Curves, band: str = "range") -> "tuple[Axes, Axes]":
    """Mean accuracy over variance, per round, of ``{name: (rounds [T], accuracy [seeds, T, N] or [T, N])}``.

    Returns the Axes of the two panels, stacked on one figure; ``band`` as in :func:`over_rounds`.
    """
    from matplotlib.figure import Figure

    means, variances = {}, {}
    for name, pair in _named(curves).items():
        rounds, acc = _pair(name, pair)
        if acc.ndim not in (2, 3):
            raise ValueError(f"{name!r} must have accuracies [T, N] or [seeds, T, N], got {acc.shape}")
        _check_accuracy(name, acc)
        means[name] = rounds, 100 * np.asarray(metrics.mean(acc))
        variances[name] = rounds, np.asarray(metrics.variance(acc))
    above, below = Figure((WIDTH, 3.7), layout="constrained").subplots(2, sharex=True)
    _draw_rounds(means, "Mean accuracy (%)", band, above).set_xlabel("")
    _legend_above(above, grow=True)
    _draw_rounds(variances, "Variance over clients (%²)", band, below)
    above.figure.align_ylabels()
    return above, below


@_paper()
def regret(ledgers: Mapping[str, Any], ax: "Axes | None" = None) -> "Axes":
    """Regret over rounds of ``{name: ledger}`` (:func:`fedjax_fair.ledger`), each with its published bound, thin.

    The vertical axis is logarithmic: bounds are far above what happens.
    """
    ax = _axes(ax, 2.4)
    for i, (name, account) in enumerate(_named(ledgers).items()):
        ax.plot(account.rounds, np.maximum(account.regret, 1e-3), label=name, **_style(i))
        ax.plot(account.rounds, account.bound, **{**_style(i), "linewidth": 0.7}, label=f"{name}, bound")
    ax.set(xlabel="Round", ylabel="Regret (nats)", yscale="log")
    _legend_above(ax, grow=True)
    return ax


@_paper()
def save(drawn: "Figure | Axes | Sequence[Axes]", path: str | Path) -> Path:
    """Write a figure, given itself or Axes of it, in the format that the suffix of ``path`` names.

    PNG at 200 dpi; PDF and SVG as vectors, text as text. No date: a script writes the same bytes again.
    """
    from matplotlib.figure import Figure

    ax = drawn[0] if isinstance(drawn, Sequence) else drawn
    figure: Any = ax if isinstance(ax, Figure) else ax.get_figure(root=True)
    (path := Path(path)).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix))
    return path

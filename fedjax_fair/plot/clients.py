"""How the clients fare: Lorenz curves, histograms, sorted accuracies; and what they hold."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_fair import metrics
from fedjax_fair.checks import check_count
from fedjax_fair.data import FederatedData
from fedjax_fair.metrics.kind import Metric
from fedjax_fair.plot.given import kind_of, per_client
from fedjax_fair.plot.style import COLOURS, WIDTH, in_legend, in_lines, legend_above, new_axes, paper, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@paper()
def lorenz(
    curves: Mapping[str, Any], ax: "Axes | None" = None, metric: Metric | None = None, last: int = 1
) -> "Axes":
    """Lorenz curves of ``{name: accuracies [N], [seeds, N] or [seeds, T, N]}``, the Gini coefficient in the legend.

    Of ``{name: history}``, or a list of them, one per seed, this and the plots below take the ``last`` evaluations:
    with ``last=found.last`` those of a comparison's table. They name the runs that failed, and go by the histories'
    metric; arrays are accuracies, unless ``metric`` says otherwise, and are taken whole. With T evaluations a seed
    counts by their mean.

    Over several seeds: the mean curve, and the mean and standard deviation of the Gini coefficient. Where all
    curves keep close to equality an inset magnifies how far below it they are.
    """
    kind, own = kind_of(curves, metric), ax is None
    rules = per_client(curves, kind, last)
    if negative := [name for name, acc in rules.items() if (acc < 0).any()]:
        raise ValueError(
            f"curves must hold what is at least 0 for Lorenz curves, got negative values of {negative[0]}"
        )
    ax = new_axes(ax, WIDTH)
    ax.plot([0, 100], [0, 100], color="0.6", linewidth=0.8, label="equality")
    gaps = []
    for i, (name, acc) in enumerate(rules.items()):
        if not len(acc):
            ax.plot([], [], **style(i), label=in_legend(name))
            continue
        gini = np.asarray(metrics.gini(acc)).mean(1)
        spread = f" ± {gini.std(ddof=1):.3f}" if len(acc) > 1 else ""
        grid = np.linspace(0, 1, acc.shape[-1] + 1)
        points = [np.asarray(axis) for axis in metrics.lorenz(acc.reshape(-1, acc.shape[-1]))]
        share = np.mean([np.interp(grid, p, held) for p, held in zip(*points)], 0)
        ax.plot(100 * grid, 100 * share, **style(i), label=f"{in_legend(name)}: {gini.mean():.3f}{spread}")
        gaps.append((100 * grid, 100 * (grid - share)))
    if 1e-6 < max(gap.max() for _, gap in gaps) < 10:
        inset = ax.inset_axes((0.6, 0.1, 0.38, 0.27))
        for i, gap in enumerate(gaps):
            inset.plot(*gap, **style(i))
        inset.set_title("below equality (points)", fontsize=7, pad=3)
        inset.set(xlim=(0, 100), ylim=(0, None), xticks=(0, 50, 100))
    ax.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
    first = "worst" if kind.higher_is_better else "best"  # the smallest
    ax.set(xlabel=f"Clients, from the {first} served (%)", ylabel=f"Share of the total {kind.name} (%)")
    names = ax.get_legend_handles_labels()[1]
    if 29 + 3.8 * max(map(len, names)) + 9.7 * (len(names) + 1) < 198:  # points: fits over the diagonal
        ax.legend(loc="upper left", title="Gini coefficient", alignment="left")
    else:
        legend_above(ax, own, title="Gini coefficient")
    return ax


@paper()
def client_histogram(
    curves: Mapping[str, Any],
    bins: int = 20,
    ax: "Axes | None" = None,
    metric: Metric | None = None,
    last: int = 1,
) -> "Axes":
    """Histograms of ``{name: accuracies [N], [seeds, N] or [seeds, T, N]}``, a row per rule, on the same bins and
    scale.

    An outline counts the clients per bin, on average over the seeds (and evaluations); its dot marks their mean
    accuracy.
    """
    kind, bins = kind_of(curves, metric), check_count("bins", bins)
    given = per_client(curves, kind, last)
    rules = {name: kind.scale * x.reshape(-1, x.shape[-1]) for name, x in given.items()}
    every = np.concatenate([x[np.isfinite(x)] for x in rules.values()])
    different = np.ptp(every) > 1e-6 * np.abs(every).max()
    edges = np.histogram_bin_edges(every, bins) if different else every[0] + np.linspace(-1, 1, bins + 1)
    counts = [np.histogram(x[np.isfinite(x)], edges)[0] / max(1, len(x)) for x in rules.values()]
    top = np.max(counts)
    rows = np.arange(len(rules))[::-1]  # the first rule on top
    ax = new_axes(ax, 0.7 + 0.36 * max(2, len(rules)))
    for i, (row, count, x) in enumerate(zip(rows, counts, rules.values())):
        colour = style(i)["color"]
        heights = row + 0.85 * count / top
        ax.stairs(heights, edges, baseline=row, fill=True, color=colour, alpha=0.25)
        ax.stairs(heights, edges, baseline=row, color=colour, linewidth=1)
        ax.axhline(row, color=colour, linewidth=0.6)
        if len(x):
            ax.plot(np.nanmean(x, axis=1).mean(), row, "o", color=colour, clip_on=False)
    ax.set_yticks(rows, [in_lines(name, 18) for name in rules])
    ax.tick_params("y", length=0)
    scale = ax.secondary_yaxis("right")
    scale.set_yticks([rows[0], rows[0] + 0.85], ["0", f"{top:.3g}"])  # the same in every row
    scale.set_ylabel("Clients per bin")
    for spine in (ax.spines["left"], scale.spines["right"]):
        spine.set_visible(False)
    ax.set(ylim=(-0.08, len(rules)), xlabel=f"Client {kind.label}, dot: mean")
    return ax


@paper()
def sorted_accuracy(
    curves: Mapping[str, Any], ax: "Axes | None" = None, metric: Metric | None = None, last: int = 1
) -> "Axes":
    """Accuracy of ``{name: accuracies [N], [seeds, N] or [seeds, T, N]}`` from the worst served client to the best.

    Over several seeds: the mean of the seeds' sorted accuracies, and the range from the lowest to the highest.
    """
    kind, own = kind_of(curves, metric), ax is None
    rules = per_client(curves, kind, last)
    ax = new_axes(ax, 2.2)
    for i, (name, acc) in enumerate(rules.items()):
        if not len(acc):
            ax.plot([], [], label=in_legend(name), **style(i))
            continue
        held = [np.sort(row[np.isfinite(row)]) for row in kind.scale * acc.reshape(-1, acc.shape[-1])]
        held = held if kind.higher_is_better else [row[::-1] for row in held]
        share = np.linspace(0, 100, max(2, *map(len, held)))  # of one client a level line
        lines = np.stack([np.interp(share, np.linspace(0, 100, len(row)), row) for row in held])
        lines = lines.reshape(*acc.shape[:2], -1).mean(1)
        ax.plot(share, lines.mean(0), label=in_legend(name), **style(i))
        if len(lines) > 1:
            ax.fill_between(share, lines.min(0), lines.max(0), color=style(i)["color"], alpha=0.12, linewidth=0)
    ax.set(xlabel="Clients, from the worst served (%)", xlim=(0, 100))
    ax.set_ylabel(kind.label[:1].upper() + kind.label[1:])
    legend_above(ax, own)
    return ax


@paper()
def partition(data: FederatedData, ax: "Axes | None" = None) -> "Axes":
    """Training examples of each class that every client holds, stacked; classes by colour, then by hatching."""
    if not isinstance(data, FederatedData):
        raise ValueError(f"data must be a FederatedData, such as ff.data.synthetic(), got {type(data).__name__}")
    owner = np.asarray(data.train.owner)
    label = np.asarray(data.y)[np.asarray(data.train.rows)]
    if label.ndim != 1 or not np.issubdtype(label.dtype, np.integer):
        raise ValueError(
            f"data must have class labels to show, got targets of shape {label.shape[1:]} {label.dtype}"
        )
    counts = np.zeros((data.n_clients, int(np.max(data.y)) + 1), int)
    np.add.at(counts, (owner, label), 1)
    own, few = ax is None, data.n_clients <= 20
    words = None if data.names is None else data.names.labels
    ax = new_axes(ax, 2.2)
    below = np.zeros(data.n_clients)
    for label, held in enumerate(counts.T):
        colour, hatch = COLOURS[label % len(COLOURS)], ("", "////", "....")[label // len(COLOURS) % 3]
        look: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.4 if few else 0, "hatch_linewidth": 0.5}
        width = 0.85 if few else 1
        called = label if words is None else in_legend(words[label])
        ax.bar(range(data.n_clients), held, width, below, color=colour, hatch=hatch, label=called, **look)
        below += held
    ax.set(xlabel="Client", ylabel="Training examples", xlim=(-0.6, data.n_clients - 0.4))
    if few and data.clients is not None:
        turned = 90 if max(map(len, data.clients)) > 3 else 0
        ax.set_xticks(range(data.n_clients), [*map(in_legend, data.clients)], rotation=turned)
    elif data.n_clients == 1:
        ax.set_xticks([0])
    else:
        ax.locator_params("x", integer=True)
    if counts.shape[1] <= 20:
        legend_above(ax, own, title="class")
    return ax

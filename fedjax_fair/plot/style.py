"""What all figures share: size, colours, dashes, the checks of what they are given, and saving."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedjax_fair.engine.history import History

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
def paper() -> Iterator[None]:
    """Draw in a paper's sizes: ``with ff.plot.paper(): ...``, or ``@ff.plot.paper()`` on a function."""
    import matplotlib

    with matplotlib.rc_context(RC):
        yield


def new_figure(width: float, height: float) -> "Figure":
    """A figure outside pyplot that a notebook shows all the same."""
    from matplotlib.figure import Figure

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=150)
            return buffer.getvalue()

    return Shown((width, height), layout="constrained")


def new_axes(ax: "Axes | None", height: float) -> "Axes":
    """``ax``, or new ones as wide as a column."""
    return new_figure(WIDTH, height).add_subplot() if ax is None else ax


def style(i: int) -> dict[str, Any]:
    """Colour and dash of the i-th rule."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)]}


def legend_above(ax: "Axes", grow: bool, title: str | None = None) -> None:
    """A legend over the top edge, in as many columns as the longest name leaves room for."""
    figure: Any = ax.get_figure(root=True)
    width, height = figure.get_size_inches()
    names = ax.get_legend_handles_labels()[1]
    columns = max(1, min(len(names), int((72 * width - 36) // (30 + 4.2 * max(map(len, names))))))
    ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=columns, borderaxespad=0.2, title=title)
    if grow:
        figure.set_figheight(height + 0.14 * -(-len(names) // columns))


def named(curves: Mapping[str, Any]) -> Mapping[str, Any]:
    """``curves``, checked to be a dictionary that is not empty."""
    if not isinstance(curves, Mapping) or not curves:
        raise ValueError(f"curves must be a dictionary with at least one rule, got {str(curves)[:30]}")
    return curves


def check_accuracy(name: str, acc: NDArray[Any]) -> None:
    """NaN, a client without test examples, is welcome; a row of nothing else is not."""
    if not acc.size or np.isnan(acc).all(-1).any():
        raise ValueError(f"{name!r} must hold at least one client's accuracy in every row, got {acc.shape}")
    low, high = np.nanmin(acc), np.nanmax(acc)
    if low < 0 or high > 1:
        raise ValueError(f"{name!r} must hold accuracies in [0, 1], not percent, got {low:g} to {high:g}")


def histories_of(given: Any) -> list[History]:
    """The histories, where ``given`` is one or a list with one per seed, as a sweep's ``runs`` have; else none."""
    listed = [given] if isinstance(given, History) else given
    if not isinstance(listed, list) or not all(isinstance(history, History) for history in listed):
        return []
    if others := {history.accuracy.shape for history in listed} - {listed[0].accuracy.shape if listed else ()}:
        shapes = f"{listed[0].accuracy.shape} and {others.pop()}"
        raise ValueError(
            f"the histories of one name must be as long and of as many clients, got accuracies {shapes}"
        )
    return listed


def numbers(name: str, given: Any, form: str) -> NDArray[np.float64]:
    """``given`` as an array of numbers; of histories the accuracies after the last round, [seeds, N]."""
    if histories := histories_of(given):
        return np.stack([history.accuracy[-1] for history in histories]).astype(np.float64)
    try:
        return np.asarray(given, np.float64)
    except (TypeError, ValueError):
        inside = f" of {type(given[0]).__name__}" if isinstance(given, list) and given else ""
        got = f"a {type(given).__name__}{inside}"
        raise ValueError(f"{name!r} must be {form}, or a History for every seed, got {got}") from None


def per_client(curves: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    """Every rule's accuracies as [seeds, N], checked."""
    rules = {name: numbers(name, acc, "accuracies [N] or [seeds, N]") for name, acc in named(curves).items()}
    for name, acc in rules.items():
        if acc.ndim not in (1, 2):
            raise ValueError(f"{name!r} must be accuracies [N] or [seeds, N], got {acc.shape}")
        check_accuracy(name, acc)
    return {name: np.atleast_2d(acc) for name, acc in rules.items()}


def pair_of(name: str, pair: Any) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """``(rounds, values)`` as arrays."""
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise ValueError(f"{name!r} must be a pair (rounds, values), got {type(pair).__name__}")
    return np.asarray(pair[0]), np.asarray(pair[1], np.float64)


def series_of(name: str, pair: Any) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """``rounds`` [T] and ``values`` [seeds, T], checked."""
    t, y = pair_of(name, pair)
    if t.ndim != 1 or not t.size or y.ndim not in (1, 2) or y.shape[-1] != t.size:
        raise ValueError(f"{name!r} must be rounds [T], values [T] or [seeds, T], got {t.shape}, {y.shape}")
    return t, np.atleast_2d(y)


@paper()
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

"""What all figures share: size, colours, dashes, the checks of what they are given, and saving."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedjax_fair.engine.files import write_atomically

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


def in_legend(name: str) -> str:
    """A rule's name as it is: matplotlib reads ``$`` as mathematics, and lists nothing that begins with ``_``."""
    return ("\u200a" if name.startswith("_") else "") + name.replace("$", r"\$")


def in_lines(name: str, letters: int) -> str:
    """A rule's name in lines of so many letters, where its ``:``, ``,``, ``@`` and ``_`` let it.

    >>> in_lines("my_rules.py:by_rank:power=3", 20)
    'my_rules.py:by_rank:\\npower=3'
    """
    return folded(in_legend(name), letters)


def folded(name: str, letters: int) -> str:
    """A name as it is drawn, in lines of so many letters, as far as it has places to part it."""
    lines = [""]
    for piece in re.split(r"(?<=[:,@])", name):
        pieces = [piece] if len(piece) <= letters else re.split(r"(?<=_)", piece)
        for part in pieces:
            if lines[-1] and len(lines[-1] + part) > letters:
                lines.append("")
            lines[-1] += part if lines[-1] else part.lstrip()
    return "\n".join(lines)


def legend_above(ax: "Axes", grow: bool, title: str | None = None) -> None:
    """A legend over the top edge, in as many columns as the longest name leaves room for."""
    figure: Any = ax.get_figure(root=True)
    width, height = figure.get_size_inches()
    handles, names = ax.get_legend_handles_labels()
    columns = max(1, min(len(names), int((72 * width - 36) // (30 + 4.2 * max(map(len, names))))))
    names = [folded(name, int((72 * width - 66) / 3.8)) for name in names]
    place: dict[str, Any] = {"loc": "lower center", "bbox_to_anchor": (0.45, 1.0), "borderaxespad": 0.2}
    ax.legend(handles, names, ncols=columns, title=title, **place)
    if grow:
        lines = [1 + name.count("\n") for name in names]
        rows = sum(max(lines[row :: -(-len(names) // columns)]) for row in range(-(-len(names) // columns)))
        figure.set_figheight(height + 0.14 * rows)


def named(curves: Mapping[str, Any]) -> Mapping[str, Any]:
    """``curves``, checked to be a dictionary that is not empty."""
    if not isinstance(curves, Mapping) or not curves:
        raise ValueError(f"curves must be a dictionary with at least one rule, got {str(curves)[:30]}")
    return {str(name): curve for name, curve in curves.items()}


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
    """Write a figure, given itself or Axes of it, in the format that the suffix of ``path`` names; return the path.

    PNG at 200 dpi, also where there is no suffix, and then ``.png`` is appended; PDF and SVG as vectors, text as
    text. No date: a script writes the same bytes again. A call that is interrupted leaves what was there before.

    Raises:
      ValueError: a suffix that matplotlib has no format for.
    """
    from matplotlib.figure import Figure

    ax = drawn[0] if isinstance(drawn, Sequence) else drawn
    figure: Any = ax if isinstance(ax, Figure) else ax.get_figure(root=True)
    path = Path(path).expanduser()
    path = path if path.suffix else path.with_suffix(".png")
    undated, drawing = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}, io.BytesIO()
    figure.savefig(drawing, format=path.suffix[1:], metadata=undated.get(path.suffix))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, drawing.getvalue())
    return path

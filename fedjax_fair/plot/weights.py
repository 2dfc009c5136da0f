"""Who is heard: coefficients over the rounds, and how often clients are selected."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_fair.checks import check_count
from fedjax_fair.engine.history import History
from fedjax_fair.plot.style import in_legend, in_lines, legend_above, named, new_axes, new_figure, paper, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED, LETTERS = 20, 20
"""Clients that are shown by their names, and letters of a name."""
ROWS = 200
"""Of a heat map: thinner ones would not all be drawn."""


@paper()
def coefficients(
    history: History, n_clients: int | None = None, bins: int = 50, ax: "Axes | None" = None
) -> "Axes":
    """Heat map of every client's mean coefficient in the rounds it took part in; white where it took part in none.

    ``n_clients`` is the history's own by default. Rounds are gathered in at most ``bins`` columns, and more than
    200 clients in 200 rows of neighbours. Rules whose coefficients can be negative get a scale that has white at 0.
    """
    clients = _count(history, n_clients)
    mean = _over_rounds(history, history.coef, n_clients, bins)
    largest = 1.0 if np.isnan(mean).all() else np.nanmax(np.abs(mean))
    signed = bool(np.nanmin(mean, initial=0.0) < 0)
    scale = {"cmap": "RdBu", "vmin": -largest, "vmax": largest} if signed else {"cmap": "cividis", "vmin": 0}
    ax = new_axes(ax, 2.6)
    extent = (0, len(history.ids), clients - 0.5, -0.5)
    image = ax.imshow(mean, aspect="auto", interpolation="nearest", extent=extent, **scale)
    gathered = len(history.ids) > bins or clients > ROWS
    ax.figure.colorbar(image, ax=ax, label="Mean coefficient" if gathered else "Coefficient", pad=0.02)
    ax.set(xlabel="Round", ylabel="Client")
    _name_clients(ax, history, clients)
    return ax


@paper()
def coefficients_by_rule(
    histories: Mapping[str, History | list[History]],
    n_clients: int | None = None,
    bins: int = 50,
    columns: int = 3,
) -> "list[Axes]":
    r"""Heat maps of many rules side by side with one scale, for ``{name: history}``; one Axes a rule.

    Of a list of histories, as a comparison's ``runs`` hold, the first is drawn: others may be of other clients.

    A coefficient is drawn as a multiple of its round's mean size, :math:`c_k / \operatorname{mean}_j |c_j|`, which
    is 1 for an equal share whatever the rule's own step. The scale is logarithmic, from a quarter to four times;
    what lies outside, and what is below 0, has the colour of the nearer end. White: took no part. More than 200
    clients are gathered in 200 rows.

    Raises:
      ValueError: no rule, something else than histories, ``bins`` or ``columns`` below 1.
    """
    from matplotlib.colors import LogNorm

    firsts = {name: _first(name, given) for name, given in named(histories).items()}
    across, rows = min(check_count("columns", columns), len(firsts)), -(-len(firsts) // columns)
    most = max(_count(history, n_clients) for history in firsts.values())
    figure = new_figure(2.2 * across + 0.7, max(1.5, 0.13 * min(most, NAMED)) * rows + 0.4)
    grid = figure.subplots(rows, across, sharex=True, sharey=True, squeeze=False)
    drawn = list(grid.flat)[: len(firsts)]
    for ax in list(grid.flat)[len(firsts) :]:
        ax.remove()
    for ax, (name, history) in zip(drawn, firsts.items()):
        clients = _count(history, n_clients)
        size = np.abs(history.coef).sum(1, keepdims=True) / np.maximum(history.active.sum(1, keepdims=True), 1)
        multiple = np.divide(history.coef, size, out=np.zeros(history.coef.shape), where=size > 0)
        shown = _over_rounds(history, multiple, n_clients, bins)
        extent = (0, len(history.ids), clients - 0.5, -0.5)
        scale = {"cmap": "cividis", "norm": LogNorm(0.25, 4, clip=True)}
        image = ax.imshow(np.maximum(shown, 0.25), aspect="auto", interpolation="nearest", extent=extent, **scale)
        ax.set_title(in_lines(name, 24), fontsize=7)
        _name_clients(ax, history, clients)
    bar = figure.colorbar(image, ax=drawn, label="Multiple of the round's mean", pad=0.02, extend="both")
    bar.set_ticks([0.25, 0.5, 1, 2, 4], labels=["1/4", "1/2", "1", "2", "4"])
    bar.minorticks_off()
    figure.supxlabel("Round", fontsize=8)
    figure.supylabel("Client", fontsize=8)
    return drawn


def _first(name: str, given: Any) -> History:
    first = given[0] if isinstance(given, list) and given else given
    if not isinstance(first, History):
        raise ValueError(f"{name!r} must be a History, or a list with one per seed, got {type(given).__name__}")
    return first


def _name_clients(ax: "Axes", history: History, clients: int) -> None:
    """What the rows of a heat map are: names where they fit, else numbers from 0."""
    ax.locator_params("x", integer=True)
    if history.clients is None and clients == 1:
        ax.set_yticks([0])
    elif history.clients is None or clients > NAMED:
        ax.locator_params("y", integer=True)
    else:
        names = [name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…" for name in map(str, history.clients)]
        ax.set_yticks(range(clients), [*map(in_legend, names[:clients])], fontsize=6)


def _over_rounds(history: History, values: np.ndarray, n_clients: int | None, bins: int) -> np.ndarray:
    """f[R, C]: every client's mean of f[T, S] values over the rounds of each column; NaN where it took no part. Of
    many clients neighbours share a row."""
    clients, rounds = _count(history, n_clients), len(history.ids)
    rows, columns = min(clients, ROWS), min(check_count("bins", bins), rounds)
    row = history.ids.astype(int) * rows // clients
    column = np.broadcast_to((np.arange(rounds) * columns // rounds)[:, None], history.ids.shape)
    total, count = np.zeros((rows, columns)), np.zeros((rows, columns))
    heard = history.active
    np.add.at(total, (row[heard], column[heard]), values[heard])
    np.add.at(count, (row[heard], column[heard]), 1)
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)


def _count(history: History, n_clients: int | None) -> int:
    if not isinstance(history, History):
        raise ValueError(f"history must be the History of one run, got {type(history).__name__}")
    if n_clients is None:
        return int(history.accuracy.shape[1])
    return check_count("n_clients", n_clients, low=int(history.ids.max(initial=0)) + 1)


@paper()
def selections(histories: Mapping[str, History], n_clients: int | None = None, ax: "Axes | None" = None) -> "Axes":
    """In how many rounds each client took part, from the rarest to the most frequent, for ``{name: history}``.

    Who was selected but absent, or whose update was left out, took no part. Where the same clients took part in the
    same rounds, one line, in the colour of the first, is of all these.
    """
    own = ax is None
    ax = new_axes(ax, 2.2)
    alike: dict[bytes, list[tuple[int, str, np.ndarray]]] = {}
    for i, (name, history) in enumerate(named(histories).items()):
        count = _count(history, n_clients)
        rounds = np.bincount(history.ids[history.active], minlength=count)
        same = alike.setdefault(np.where(history.active, history.ids, -1).tobytes(), [])
        same.append((i, in_legend(name), np.sort(rounds)))
    for (i, label, rounds), *others in alike.values():
        label += f" and {len(others)} more, alike" if others else ""
        ax.step(np.arange(len(rounds) + 1), np.append(rounds, rounds[-1]), where="post", label=label, **style(i))
    ax.set(xlabel="Clients, from the rarest", ylabel="Rounds taken part in")
    ax.margins(x=0)
    ax.set_ylim(bottom=0)
    ax.locator_params(integer=True)
    legend_above(ax, own)
    return ax

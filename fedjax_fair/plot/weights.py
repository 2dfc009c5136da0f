"""Who is heard: coefficients over the rounds, and how often clients are selected."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedjax_fair.checks import check_count
from fedjax_fair.engine.history import History
from fedjax_fair.plot.style import legend_above, named, new_axes, paper, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@paper()
def coefficients(
    history: History, n_clients: int | None = None, bins: int = 50, ax: "Axes | None" = None
) -> "Axes":
    """Heat map of every client's mean coefficient in the rounds it took part in; white where it took part in none.

    ``n_clients`` is the history's own by default. Rounds are gathered in at most ``bins`` columns. Rules whose
    coefficients can be negative get a scale that has white at 0.
    """
    n_clients = _count(history, n_clients)
    rounds = len(history.ids)
    columns = min(check_count("bins", bins), rounds)
    column = np.broadcast_to((np.arange(rounds) * columns // rounds)[:, None], history.ids.shape)
    total, count = np.zeros((n_clients, columns)), np.zeros((n_clients, columns))
    heard = history.active
    np.add.at(total, (history.ids[heard], column[heard]), history.coef[heard])
    np.add.at(count, (history.ids[heard], column[heard]), 1)
    mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    largest = np.nanmax(np.abs(mean)) if count.any() else 1.0
    signed = bool(np.nanmin(mean, initial=0.0) < 0)
    scale = {"cmap": "RdBu", "vmin": -largest, "vmax": largest} if signed else {"cmap": "cividis", "vmin": 0}
    ax = new_axes(ax, 2.6)
    extent = (0, rounds, n_clients - 0.5, -0.5)
    image = ax.imshow(mean, aspect="auto", interpolation="nearest", extent=extent, **scale)
    ax.figure.colorbar(image, ax=ax, label="Mean coefficient", pad=0.02)
    ax.set(xlabel="Round", ylabel="Client")
    ax.locator_params(integer=True)
    return ax


def _count(history: History, n_clients: int | None) -> int:
    if not isinstance(history, History):
        raise ValueError(f"history must be the History of one run, got {type(history).__name__}")
    if n_clients is None:
        return int(history.accuracy.shape[1])
    return check_count("n_clients", n_clients, low=int(history.ids.max(initial=0)) + 1)


@paper()
def selections(histories: Mapping[str, History], n_clients: int | None = None, ax: "Axes | None" = None) -> "Axes":
    """In how many rounds each client took part, from the rarest to the most frequent, for ``{name: history}``.

    Who was selected but absent, or whose update was left out, took no part.
    """
    own = ax is None
    ax = new_axes(ax, 2.2)
    for i, (name, history) in enumerate(named(histories).items()):
        count = _count(history, n_clients)
        rounds = np.sort(np.bincount(history.ids[history.active], minlength=count))
        ax.step(np.arange(count + 1), np.append(rounds, rounds[-1]), where="post", label=name, **style(i))
    ax.set(xlabel="Clients, from the rarest", ylabel="Rounds taken part in")
    ax.margins(x=0)
    ax.set_ylim(bottom=0)
    ax.locator_params(integer=True)
    legend_above(ax, own)
    return ax

"""A picture per rule and selector, on one standard federation: ``python docs/draw_coefficients.py [NAME ...]``."""

import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import optax
from PIL import Image

import fedjax_fair as ff

FOLDER = Path(__file__).parent / "figures"
ROUNDS, SHOWN = 60, 10
RATE = 0.1


def history_of(rule: Any, clients: int, selector: ff.Selector | None = None) -> ff.History:
    """The run that a picture is of: softmax regression on Synthetic(1, 1), judged by the training losses."""
    data = ff.data.synthetic(n_clients=clients, alpha=1.0, beta=1.0, seed=4)
    sim = ff.simulation(
        ff.models.logistic_regression(),
        data,
        aggregator=rule,
        selector=selector,
        trainer=ff.local_sgd(optax.sgd(RATE), epochs=1, batch_size=50),
        evaluate=("train", "validation"),
    )
    _, history = ff.run(sim, 0, rounds=ROUNDS, eval_every=1, eval_first=True, progress=False)
    return history


def sizes_of(clients: int) -> np.ndarray:
    """n_k, the clients' training examples."""
    return np.asarray(ff.data.synthetic(n_clients=clients, alpha=1.0, beta=1.0, seed=4).sizes)


def draw_rule(name: str) -> None:
    """Ten clients, all of them in every round: coefficients against received losses, and over the rounds."""
    history = history_of(ff.registry.make_rule(name, learning_rate=RATE), 10)
    coef = np.empty_like(history.coef)
    np.put_along_axis(coef, history.ids, history.coef, axis=1)
    received = history.loss[SHOWN - 1]  # evaluated after round 9, received in round 10
    area = 120 * sizes_of(10) / sizes_of(10).max() + 8
    with ff.plot.paper():
        figure, (left, right) = plt.subplots(1, 2, figsize=(6.6, 2.4), layout="constrained", sharey=True)
        colours = plt.get_cmap("viridis_r")(np.argsort(np.argsort(received)) / 9)
        left.scatter(received, coef[SHOWN - 1], s=area, c=colours, edgecolors="black", linewidths=0.5, zorder=3)
        for k in np.argsort(received):
            right.plot(1 + np.arange(ROUNDS), coef[:, k], color=colours[k])
        right.axvline(SHOWN, color="grey", linewidth=0.6, zorder=0)
        for ax in (left, right):
            ax.axhline(0, color="grey", linewidth=0.6, zorder=0)
        if coef.max() > 10:  # coefficients that make up for short updates
            left.set_yscale("symlog")
            left.set_ylim(bottom=min(0.0, coef.min()))
        left.set(xlabel=f"Received loss in round {SHOWN}", ylabel="Coefficient")
        right.set(xlabel="Round", xlim=(1, ROUNDS))
    save(figure, name)


def draw_selector(name: str) -> None:
    """Thirty clients, five a round: how often each is selected, and when."""
    history = history_of(ff.fedavg("uniform"), 30, ff.registry.SELECTORS[name](5))
    sizes, times = sizes_of(30), np.bincount(history.ids.ravel(), minlength=30)
    order = np.argsort(sizes)
    rank = np.argsort(order)
    with ff.plot.paper():
        figure, (left, right) = plt.subplots(1, 2, figsize=(6.6, 2.4), layout="constrained")
        points = left.scatter(
            sizes, times, s=24, c=history.loss[-1], cmap="viridis_r", edgecolors="black", linewidths=0.5
        )
        left.axhline(ROUNDS * 5 / 30, color="grey", linewidth=0.6, zorder=0)
        left.set(
            xlabel="Training examples", ylabel=f"Selected, of {ROUNDS} rounds", xscale="log", ylim=(-2, ROUNDS + 2)
        )
        figure.colorbar(points, ax=left, label="Loss at the end", pad=0.02)
        rounds = np.repeat(1 + np.arange(ROUNDS), 5)
        right.scatter(rounds, rank[history.ids.ravel()] + 1, s=5, color="black", marker="s", linewidths=0)
        right.set(xlabel="Round", ylabel="Client, by size", xlim=(0, ROUNDS + 1), ylim=(0, 31))
    save(figure, name)


def save(figure: Any, name: str) -> None:
    """Write one picture, in 64 colours, and forget it."""
    place = ff.plot.save(figure, FOLDER / f"{name}.png")
    Image.open(place).convert("RGB").quantize(64).save(place, optimize=True)
    print(place, flush=True)
    plt.close(figure)


if __name__ == "__main__":
    for one in sys.argv[1:] or [*ff.registry.AGGREGATORS, *ff.registry.SELECTORS]:
        draw_selector(one) if one in ff.registry.SELECTORS else draw_rule(one)

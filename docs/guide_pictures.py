"""What the pictures of the guide show that no code on its pages draws; ``docs/draw_guide.py`` writes them."""

import contextlib
import json
import os
import re
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import fedjax_fair as ff
from fedjax_fair.engine.cluster import on_cluster
from fedjax_fair.results import compare_runs

ROUNDS = 5000


def partitions() -> Any:
    """Fashion-MNIST dealt to twenty clients by four laws."""
    laws = {
        "iid(20)": ff.partition.iid(20),
        "shards(20, 2)": ff.partition.shards(20, 2),
        "dirichlet(20, alpha=0.3)": ff.partition.dirichlet(20, alpha=0.3),
        "log_normal(20, sigma=1)": ff.partition.log_normal(20, sigma=1.0),
    }
    with ff.plot.paper():
        figure, grid = plt.subplots(2, 2, figsize=(6.6, 4.2), layout="constrained")
        for ax, (name, law) in zip(grid.flat, laws.items()):
            ff.plot.partition(ff.data.load("fashion_mnist", partition=law, seed=0), ax)
            ax.set_title(name, fontsize=8)
            if ax.get_legend():
                ax.get_legend().remove()
    return figure


def personal() -> Any:
    """Fashion-MNIST, twenty clients of two classes: one model for all, and Ditto's models of their own."""
    data = ff.data.load("fashion_mnist", partition=ff.partition.shards(20, 2), seed=0)
    curves = {}
    for name, rule in {"FedAvg": ff.fedavg(), "FedMABA": ff.fedmaba()}.items():
        sim = ff.simulation(
            ff.models.logistic_regression(),
            data,
            aggregator=ff.ditto(lam=0.1, aggregator=rule),
            trainer=ff.local_sgd(optax.sgd(0.1), steps=20, batch_size=50),
            selector=ff.uniform(10),
            evaluate=("test", "test@personal"),
        )
        _, history = ff.run(sim, 0, rounds=60, eval_every=60, progress=False)
        curves[f"{name}, the server's model"] = history.scores["test"].accuracy[-1]
        curves[f"{name}, Ditto's own models"] = history.scores["test@personal"].accuracy[-1]
    with ff.plot.paper():
        return ff.plot.sorted_accuracy(curves).get_figure(root=True)


def grid() -> Any:
    """The sweep of the page with a second setting and a third seed: two measures at every point, as maps."""
    data = ff.data.synthetic(n_clients=30, alpha=1.0, beta=1.0, seed=0)

    def build(alpha: Any, lr: Any) -> Any:
        return ff.simulation(
            ff.models.logistic_regression(),
            data,
            aggregator=ff.fedmaba(alpha=alpha),
            selector=ff.uniform(10),
            trainer=ff.local_sgd(optax.sgd(lr), batch_size=50),
            evaluate=("validation",),
        )

    alphas, rates = [0.0, 0.3, 0.6, 0.9], [0.01, 0.03, 0.1, 0.3, 1.0]
    swept = ff.sweep(build, {"alpha": alphas, "lr": rates}, seeds=3, rounds=50, progress=False)
    served = np.array([[100 * run.accuracy[-1] for run in seeds] for seeds in swept.histories])  # [20, 3, 30]
    maps = {
        "Accuracy (%)": ff.metrics.mean(served),
        "Worst 10 % (%)": ff.metrics.worst(served, 10),
    }
    with ff.plot.paper():
        figure, axes = plt.subplots(1, 2, figsize=(6.6, 2.3), layout="constrained", sharey=True)
        for ax, (name, values) in zip(axes, maps.items()):
            mean = np.asarray(values).mean(1).reshape(len(alphas), len(rates))
            ax.imshow(mean, cmap="viridis", aspect="auto", origin="lower")
            for (i, j), value in np.ndenumerate(mean):
                dark = value < (mean.min() + mean.max()) / 2
                best = value == mean.max()
                look = {"color": "white" if dark else "black", "weight": "bold" if best else "normal"}
                ax.text(j, i, f"{value:.1f}", ha="center", va="center", fontsize=8, **look)
                if best:
                    ax.add_patch(plt.Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, linewidth=2, color="#D55E00"))
            ax.set(xticks=range(len(rates)), xticklabels=rates, yticks=range(len(alphas)), yticklabels=alphas)
            ax.set(xlabel="lr", title=name)
            ax.title.set_fontsize(8)
        axes[0].set_ylabel("alpha")
    return figure


def contest() -> Any:
    """The simulation of the page about comparisons, trained longer: five rules against FedAvg, ten replicates."""

    def build(rule: Any, data: Any) -> Any:
        return ff.simulation(
            ff.models.logistic_regression(),
            data,
            aggregator=rule,
            selector=ff.uniform(10),
            trainer=ff.local_sgd(optax.sgd(0.1), batch_size=50),
        )

    rules = {
        "fedavg": ff.fedavg("uniform"),
        "qfedavg, q = 1": ff.qfedavg(q=1.0, lipschitz=10.0),
        "afl": ff.afl(lr=0.1),
        "term": ff.term(1.0),
        "propfair": ff.propfair(),
        "fedmaba": ff.fedmaba(),
    }
    clients = partial(ff.data.synthetic, 20, 1.0, 1.0)
    settings = {"federation": lambda seed: clients(seed=seed), "replicates": 10, "rounds": 200, "references": False}
    found = ff.compare(rules, build, progress=False, **settings)
    with ff.plot.paper():
        ax = ff.plot.paired_frontier(found.differences(), found.baseline, rules=found.runs)
        return ax.get_figure(root=True)


def figures() -> Any:
    """Four of the figures of the page about results, of FedAvg and of q-FedAvg."""
    data = ff.data.synthetic(n_clients=30, alpha=1.0, beta=1.0, seed=0)
    runs = {}
    for name, rule in {"FedAvg": ff.fedavg("uniform"), "q-FedAvg": ff.qfedavg(q=1.0, lipschitz=1 / 0.1)}.items():
        sim = ff.simulation(
            ff.models.logistic_regression(),
            data,
            aggregator=rule,
            selector=ff.uniform(10),
            trainer=ff.local_sgd(optax.sgd(0.1), batch_size=50),
        )
        runs[name] = [ff.run(sim, seed, rounds=100, eval_every=5, progress=False)[1] for seed in range(3)]
    last = {name: histories[0].accuracy[-1] for name, histories in runs.items()}
    worst = {
        name: (of[0].rounds, [ff.metrics.summary(run.accuracy)["worst10"] for run in of])
        for name, of in runs.items()
    }
    with ff.plot.paper():
        figure, ((lorenz, histogram), (curves, coefficients)) = plt.subplots(
            2, 2, figsize=(6.6, 5), layout="constrained"
        )
        ff.plot.lorenz(last, lorenz)
        ff.plot.client_histogram(last, ax=histogram)
        ff.plot.over_rounds(worst, "Worst 10 % of clients (%)", ax=curves)
        ff.plot.coefficients(runs["q-FedAvg"][0], ax=coefficients)
        titles = ("lorenz", "client_histogram", "over_rounds", "coefficients")
        for ax, title in zip((lorenz, histogram, curves, coefficients), titles):
            ax.set_title(f"ff.plot.{title}", fontsize=8, pad=18 if ax is curves else 6)  # above its legend
    return figure


def readings() -> Any:
    """AFL by the received loss, the minibatch loss and the loss after training: coefficients in the first of six
    federations of ten clients, and what all six come to."""
    federations = [ff.data.synthetic(n_clients=10, alpha=1.0, beta=1.0, seed=seed) for seed in (4, 0, 1, 2, 3, 5)]
    local, afl = ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=50), ff.afl(lr=0.1)

    def weigh(state: Any, report: Any, key: Any) -> Any:
        return afl.weigh(state, report._replace(loss=report.train_loss), key)

    def telling_the_loss_after(loss: Any, params: Any, client: Any, key: Any, round: Any) -> Any:
        trained, trace = local(loss, params, client, key, round)
        own = jnp.arange(client.rows.shape[0]) < client.size
        return trained, trace._replace(
            loss=loss(trained, ff.types.Batch(*client.take(client.rows), own), params)[1]
        )

    hears_the_trainer = ff.Aggregator(afl.init, weigh)
    ways = {
        "The received model's loss": (afl, local),
        "Minibatch losses in training": (hears_the_trainer, local),
        "Its own model's, after training": (hears_the_trainer, telling_the_loss_after),
    }
    accuracy = {}
    with ff.plot.paper():
        figure, grid = plt.subplots(2, 2, figsize=(6.6, 4.2), layout="constrained")
        for ax, (name, (rule, trainer)) in zip(grid.flat, ways.items()):
            histories = []
            for data in federations:
                sim = ff.simulation(ff.models.logistic_regression(), data, aggregator=rule, trainer=trainer)
                histories.append(ff.run(sim, 0, rounds=60, eval_every=60, progress=False)[1])
            history = histories[0]
            coef = np.empty_like(history.coef)
            np.put_along_axis(coef, history.ids, history.coef, axis=1)
            ax.plot(1 + np.arange(60), coef)
            ax.set(xlabel="Round", ylabel="Coefficient", ylim=(-0.03, 1.03))
            ax.set_title(name, fontsize=8)
            accuracy[name] = np.mean([np.sort(one.accuracy[-1]) for one in histories], axis=0)
        ff.plot.sorted_accuracy(accuracy, grid[1, 1])
        grid[1, 1].legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


def begun() -> Any:
    """Fashion-MNIST, twenty clients of some hundred images: a drawn model, a pretrained one, and its head alone."""
    images, labels, *_ = ff.data.load_arrays("fashion_mnist")
    public, private = slice(0, 300), slice(300, 2300)
    net, sgd = ff.models.mlp((100,)), ff.local_sgd(optax.sgd(0.05), epochs=1, batch_size=20)
    alone = ff.FederatedData.from_arrays(images[public], labels[public], partition=ff.partition.iid(1))
    one = ff.simulation(net, alone, aggregator=ff.fedavg(), trainer=sgd)
    state, _ = ff.run(one, 0, rounds=20, eval_every=20, progress=False)
    dealt = ff.partition.dirichlet(20, alpha=0.3)
    data = ff.FederatedData.from_arrays(images[private], labels[private], partition=dealt, split=(0.6, 0.0, 0.4))
    pretrained = {"params": state.params}
    ways = {
        "drawn at random": {},
        "pretrained": pretrained,
        "pretrained, only the head trains": pretrained | {"freeze": "Dense_0"},
    }
    accuracy, worst = {}, {}
    for name, start in ways.items():
        sim = ff.simulation(net, data, aggregator=ff.fedavg(), trainer=sgd, selector=ff.uniform(5), **start)
        found = ff.sweep(lambda sim=sim: sim, {}, seeds=3, rounds=60, eval_every=5, eval_first=True, progress=False)
        rounds = found.histories[0][0].rounds
        served = np.stack([100 * run.accuracy for run in found.histories[0]])
        accuracy[name] = rounds, ff.metrics.mean(served)
        worst[name] = rounds, ff.metrics.worst(served, 10)
    with ff.plot.paper():
        figure, axes = plt.subplots(1, 2, figsize=(6.6, 2.5), layout="constrained")
        ff.plot.over_rounds(accuracy, "Mean test accuracy (%)", ax=axes[0])
        ff.plot.over_rounds(worst, "Worst 10 % of the clients (%)", ax=axes[1])
        for ax in axes:
            ax.get_legend().remove()
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


def interrupted() -> Any:
    """The run of the page: as one, and stopped by an error ten rounds after a checkpoint, and called again."""
    sim = ff.simulation(
        ff.models.logistic_regression(),
        ff.data.synthetic(n_clients=30, alpha=1.0, beta=1.0, seed=0),
        aggregator=ff.afl(lr=0.1),
        selector=ff.uniform(10),
        trainer=ff.local_sgd(optax.sgd(0.05), batch_size=50),
    )
    length = {"rounds": 150, "eval_every": 2, "chunk": 5, "progress": False}
    _, whole = ff.run(sim, 0, **length)
    seen: list[Any] = []

    def dies(state: Any, history: Any) -> None:
        seen.append(history)
        if history.rounds[-1] == 70:
            raise RuntimeError("stopped")

    with tempfile.TemporaryDirectory() as folder:
        keep = {"checkpoint": folder, "every": 20}
        with contextlib.suppress(RuntimeError):
            ff.run(sim, 0, **length, **keep, on_chunk=dies)
        first, kept = seen[-1], len(seen)
        ff.run(sim, 0, **length, **keep, on_chunk=lambda state, history: seen.append(history))
    begins, again = len(seen[kept].rounds), seen[-1]  # what the second call finds on disk, and its end
    assert np.array_equal(whole.accuracy, again.accuracy)
    assert seen[kept].rounds[-1] == 60
    with ff.plot.paper():
        figure, ax = plt.subplots(figsize=(6.6, 2.5), layout="constrained")
        for colour, measure in (("#0072B2", ff.metrics.mean), ("#D55E00", lambda a: ff.metrics.worst(a, 10))):
            one, two, three = (100 * np.asarray(measure(h.accuracy)) for h in (whole, first, again))
            ax.plot(whole.rounds, one, color=colour, linewidth=0.8)
            ax.plot(first.rounds, two, "o", color=colour, markersize=4, markerfacecolor="none")
            ax.plot(again.rounds[begins:], three[begins:], "x", color=colour, markersize=4)
            ax.annotate("mean" if colour == "#0072B2" else "worst 10 %", (151, one[-1]), color=colour, va="center")
        for at, text, side in ((60, "checkpoint", "right"), (70, "stopped", "left")):
            ax.axvline(at, color="grey", linewidth=0.6, zorder=0)
            ax.annotate(text, (at, 1.01), xycoords=("data", "axes fraction"), ha=side)
        looks = {"uninterrupted": "k-", "first call": "ko", "second call": "kx"}
        for name, look in looks.items():
            ax.plot([], [], look, label=name, markersize=4, linewidth=0.8, markerfacecolor="none")
        ax.set(xlabel="Round", ylabel="Test accuracy (%)")
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.07), ncols=3)
    return figure


def of_rule(rule: Any, data: Any) -> Any:
    """The simulation of the page about clusters."""
    local = ff.local_sgd(optax.sgd(0.1), batch_size=50)
    return ff.simulation(
        ff.models.logistic_regression(), data, aggregator=rule, selector=ff.uniform(10), trainer=local
    )


def noted(work: Any, folder: str, shared: bytes, i: int) -> Any:
    """A piece of work, with a file of who did it from when to when."""
    start = time.time()
    name, result = work(shared, i)
    (Path(folder) / str(i)).write_text(json.dumps([name, os.getpid(), start, time.time()]))
    return name, result


def pieces() -> Any:
    """Four rules on four replicates by two workers: who did which piece, and when."""
    rules = {
        "fedavg": ff.fedavg("uniform"),
        "afl": ff.afl(lr=0.1),
        "fedmaba": ff.fedmaba(),
        "fedprox": ff.fedprox(0.1),
    }

    def federation(seed: int) -> Any:
        return ff.data.synthetic(n_clients=30, alpha=1.0, beta=1.0, seed=seed)

    def watched(cluster: Any, work: Any, *others: Any) -> Any:
        return on_cluster(cluster, partial(noted, work, folder), *others)

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(compare_runs, "on_cluster", watched):
        ff.compare(
            rules,
            of_rule,
            federation=federation,
            replicates=4,
            rounds=ROUNDS,
            eval_every=ROUNDS // 10,
            references=False,
            workers=2,
        )
        done = [json.loads(file.read_text()) for file in Path(folder).iterdir()]
    workers = sorted({process for _, process, _, _ in done})
    first = min(start for _, _, start, _ in done)
    with ff.plot.paper():
        figure, ax = plt.subplots(figsize=(6.6, 1.6), layout="constrained")
        for name, process, start, stop in sorted(done):
            program, runs, replicate = re.fullmatch(r"(\d+): (.*), runs .* of replicate (\d+)", name).groups()
            colour, y = ff.plot.COLOURS[int(program)], 1 - workers.index(process)
            label = runs.replace(" ", " and ")
            bar = ax.barh(
                y, stop - start, 0.7, start - first, color=colour, edgecolor="white", linewidth=1, label=label
            )
            ax.bar_label(bar, [replicate], label_type="center", color="white")
        ax.set(xlabel="Seconds", yticks=(1, 0), yticklabels=("worker 1", "worker 2"))
        shown = dict(zip(*ax.get_legend_handles_labels()[::-1]))
        ax.legend(shown.values(), shown.keys(), loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    return figure

"""The pictures of the user guide: what the code on its pages draws; ``python docs/draw_guide.py [PAGE ...]``."""

import re
import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import optax
from draw_coefficients import save

import fedjax_fair as ff

DOCS = Path(__file__).parent
DRAWN = {
    "start": "ff.plot.lorenz({'FedMABA': history.accuracy[-1]})",
    "own_rule": "ff.plot.coefficients(history)",
    "contribution": "ff.plot.contribution(found)[0]",
}
"""By page, what is drawn of the names that its code blocks leave behind."""
FIRST = {"own_rule": 2}
"""How many blocks of a page are run; of others all."""


def of_page(page: str) -> Any:
    """Run a page's Python, then draw."""
    scope: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    for block in blocks[: FIRST.get(page)]:
        exec(compile(block, page, "exec"), scope)
    return eval(DRAWN[page], scope).get_figure(root=True)


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


PICTURES = {**{page: lambda page=page: of_page(page) for page in DRAWN}, "data": partitions, "memory": personal}

if __name__ == "__main__":
    for one in sys.argv[1:] or PICTURES:
        save(PICTURES[one](), f"guide_{one}")

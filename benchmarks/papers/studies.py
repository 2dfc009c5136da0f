"""Every study by its name: what it is, what it costs on two cores, and the data that it needs."""

from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from benchmarks.papers.common import settings_of
from benchmarks.papers.sharing import CLUSTER
from fedjax_fair.engine.cluster import Cluster

RESULTS = Path(__file__).parent / "results"


class Study(NamedTuple):
    """A table or figure of a paper, or a question of our own."""

    function: str
    """``module.function`` in this folder, called with ``quick`` and the folder for results."""
    what: str
    cost: str
    """Of the full form on two cores."""
    data: str
    alone: bool = False
    """Whether it has no separate runs that other processes could train."""


STUDIES = {
    "fedmaba-table2-fmnist": Study("fedmaba.table2_fmnist", "FedMABA, Table II, left", "6 h", "fashion_mnist"),
    "fedmaba-table2-cifar10": Study(
        "fedmaba.table2_cifar10", "FedMABA, Table II, right", "5 to 12 h (one seed; 3 on a GPU)", "cifar10"
    ),
    "fedmaba-table3-cifar100": Study(
        "fedmaba.table3_cifar100", "FedMABA, Table III", "3 to 6 h (one seed; 3 on a GPU)", "cifar100"
    ),
    "fedmaba-fig1": Study("fedmaba.fig1", "FedMABA, Figure 1: fairness over rounds", "1.5 h", "fashion_mnist"),
    "fedmaba-fig1-cifar10": Study(
        "fedmaba.fig1_cifar10", "FedMABA, Figure 1, right", "with table 2, or 1 to 3 h", "cifar10"
    ),
    "fedmaba-fig2": Study("fedmaba.fig2", "FedMABA, Figure 2: eta_b and alpha", "2 h", "fashion_mnist"),
    "fedmaba-choices": Study("fedmaba.choices", "FedMABA, CIFAR-10: other settings", "45 min", "cifar10"),
    "fmnist3": Study(
        "fmnist3.run", "three clients of one class: AFL, q-FFL, FedFV, PG-FFL", "20 min", "fashion_mnist"
    ),
    "pgffl-table1": Study("pgffl.table1", "PG-FFL, Table I, Fashion-MNIST", "2 h", "fashion_mnist"),
    "pgffl-table1-cifar10": Study(
        "pgffl.table1_cifar10", "PG-FFL, Table I, CIFAR-10", "3 h (FedAvg, one seed; all on a GPU)", "cifar10"
    ),
    "pgffl-table1-cifar100": Study(
        "pgffl.table1_cifar100", "PG-FFL, Table I, CIFAR-100", "3 h (FedAvg, one seed; all on a GPU)", "cifar100"
    ),
    "pgffl-table1-cifar10-fedprox": Study(
        "pgffl.table1_cifar10_fedprox",
        "PG-FFL, Table I, CIFAR-10: FedProx",
        "3 to 7 h (20 rounds, one seed)",
        "cifar10",
    ),
    "pgffl-table1-cifar100-fedprox": Study(
        "pgffl.table1_cifar100_fedprox",
        "PG-FFL, Table I, CIFAR-100: FedProx",
        "3 to 7 h (20 rounds, one seed)",
        "cifar100",
    ),
    "pgffl-fig1": Study("pgffl.fig1", "PG-FFL, Figure 1: Lorenz curves", "5 min", "fashion_mnist"),
    "pgffl-fig3": Study("pgffl.fig3", "PG-FFL, Figure 3: its partitions", "1 min", "fashion_mnist", alone=True),
    "pgffl-fig4": Study("pgffl.fig4", "PG-FFL, Figure 4: Gini over rounds", "10 min", "fashion_mnist"),
    "pgffl-fig5": Study("pgffl.fig5", "PG-FFL, Figure 5: participation", "10 min", "fashion_mnist"),
    "pgffl-reachable": Study(
        "pgffl_reachable.run", "PG-FFL: what any constant weights reach", "15 min", "fashion_mnist", alone=True
    ),
    "pgffl-reweighted": Study(
        "pgffl_reweighted.run",
        "weights by losses, where PG-FFL's policy learns nothing",
        "5 min",
        "fashion_mnist",
        alone=True,
    ),
    "pgffl-carried": Study(
        "pgffl_carried.run",
        "PG-FFL's policies of five clients, on a hundred",
        "25 min (3 after pgffl-trained)",
        "fashion_mnist",
        alone=True,
    ),
    "pgffl-trained": Study(
        "pgffl_trained.run", "PG-FFL's policy, trained on many federations", "30 min", "fashion_mnist", alone=True
    ),
    "ucbcs-table1": Study("ucbcs_synthetic.table1", "UCB-CS, Table I: Jain of losses", "10 min", "none"),
    "ucbcs-fig1": Study("ucbcs_synthetic.fig1", "UCB-CS, Figure 1: global loss", "with table 1", "none"),
    "ucbcs-fig2": Study("ucbcs_synthetic.fig2", "UCB-CS, Figure 2: clients' losses", "with table 1", "none"),
    "ucbcs-fig3": Study("ucbcs_fmnist.fig3", "UCB-CS, Figure 3", "15 min", "fashion_mnist"),
    "aaggff-heart": Study(
        "aaggff_heart.run", "AAggFF on four hospitals, and on 100 devices", "30 min", "fashion_mnist", alone=True
    ),
    "qffl-synthetic": Study("qffl_synthetic.run", "q-FFL, Table 1, Synthetic(1, 1)", "15 min", "none"),
    "qffl-open-question": Study(
        "qffl_open_question.run", "q-FFL: ratio of sums or sum of ratios?", "5 min", "none", alone=True
    ),
    "when-clients-lie": Study(
        "when_clients_lie.run", "FedMABA's open question: when clients lie", "15 min", "fashion_mnist"
    ),
    "tuned-frontier": Study("tuned_frontier.run", "eight rules, tuned and paired", "15 min", "fashion_mnist"),
    "tuned-shelf": Study("tuned_frontier.shelf", "ten later rules, tuned and paired", "1 h", "fashion_mnist"),
    "frontier": Study("frontier.run", "fairness against accuracy, eighteen rules", "15 min", "fashion_mnist"),
    "personalised": Study("personalised.run", "personal models, fair rules, and both", "20 min", "fashion_mnist"),
    "shakespeare": Study("shakespeare.run", "roles of Shakespeare, next characters", "20 min", "shakespeare"),
}


def status(name: str) -> str:
    """What the committed results of a study are."""
    kept = settings_of(RESULTS / f"{name}.json")
    if kept is None or kept["quick"]:
        return "no full results yet"
    if "runs" in kept:
        return f"under way: {kept['runs']} runs"
    if not kept["rounds"]:
        return "drawn"
    seeds = _plain(kept["seeds"])
    return f"{seeds} seed{'s' if seeds != '1' else ''} x {_plain(kept['rounds'])} rounds"


def _plain(count: int | list[int] | dict[str, int]) -> str:
    """A number, or those of a study's parts."""
    numbers = count.values() if isinstance(count, dict) else count if isinstance(count, list) else [count]
    return " and ".join(map(str, numbers))


def listing() -> str:
    """A line per study."""
    rows = [("name", "what", "full form", "data", "committed results")]
    rows += [(name, study.what, study.cost, study.data, status(name)) for name, study in STUDIES.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def reproduce(name: str, quick: bool, out: Path, cluster: Cluster | None = None) -> Path:
    """Run one study; quick forms have a folder of their own, for results and for what a resumed run needs.

    A ``cluster`` trains the runs of studies that have separate ones.

    Raises:
      ValueError: a cluster for a study that has none.
    """
    if cluster is not None and STUDIES[name].alone:
        raise ValueError(f"{name} has no separate runs to share out: leave out --workers and --scheduler")
    module, function = STUDIES[name].function.split(".")
    place = out / "quick" if quick else out
    before = CLUSTER.set(cluster)
    try:
        getattr(import_module(f"benchmarks.papers.{module}"), function)(quick, place)
    finally:
        CLUSTER.reset(before)
    return place

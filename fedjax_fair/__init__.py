"""Fair federated learning, simulated fast. ``import fedjax_fair as ff``."""

from fedjax_fair import (
    availability,
    callbacks,
    data,
    defences,
    faults,
    losses,
    metrics,
    models,
    objectives,
    plot,
    registry,
)
from fedjax_fair.aggregators import (
    aaggff_d,
    aaggff_s,
    afl,
    fedavg,
    fedeba,
    fedfv,
    fedmaba,
    fedmgda_plus,
    fedprox,
    fedsgd,
    loss_proportional,
    loss_softmax,
    pg_ffl,
    propfair,
    qfedavg,
    qfedsgd,
    reweighted,
    size_softmax,
    term,
)
from fedjax_fair.averaging import average_iterates, averaged
from fedjax_fair.check_rule import check_rule
from fedjax_fair.data import FederatedData, partition
from fedjax_fair.history import History
from fedjax_fair.local import local_sgd
from fedjax_fair.objectives import erm, propfair_objective, proximal, tilted
from fedjax_fair.reads import reads
from fedjax_fair.regret import Ledger, ledger
from fedjax_fair.run import run
from fedjax_fair.selectors import cpow_d, pow_d, rpow_d, size_proportional, ucb_cs, uniform
from fedjax_fair.simulate import simulation
from fedjax_fair.sweep import Sweep, sweep
from fedjax_fair.tables import table
from fedjax_fair.types import (
    Aggregator,
    Batch,
    Client,
    Context,
    Evaluation,
    Info,
    Method,
    Report,
    Selector,
    SimState,
    Simulation,
    Trace,
)

__version__ = "0.1.0"

__all__ = [
    "Aggregator",
    "Batch",
    "Client",
    "Context",
    "Evaluation",
    "FederatedData",
    "History",
    "Info",
    "Ledger",
    "Method",
    "Report",
    "Selector",
    "SimState",
    "Simulation",
    "Sweep",
    "Trace",
    "aaggff_d",
    "aaggff_s",
    "afl",
    "availability",
    "average_iterates",
    "averaged",
    "callbacks",
    "check_rule",
    "cpow_d",
    "data",
    "defences",
    "erm",
    "faults",
    "fedavg",
    "fedeba",
    "fedfv",
    "fedmaba",
    "fedmgda_plus",
    "fedprox",
    "fedsgd",
    "ledger",
    "local_sgd",
    "loss_proportional",
    "loss_softmax",
    "losses",
    "metrics",
    "models",
    "objectives",
    "partition",
    "pg_ffl",
    "plot",
    "pow_d",
    "propfair",
    "propfair_objective",
    "proximal",
    "qfedavg",
    "qfedsgd",
    "reads",
    "registry",
    "reweighted",
    "rpow_d",
    "run",
    "simulation",
    "size_proportional",
    "size_softmax",
    "sweep",
    "table",
    "term",
    "tilted",
    "ucb_cs",
    "uniform",
]


def __dir__() -> list[str]:
    """Only the public names, for completion in a notebook."""
    return [*__all__, "__version__"]

"""Fair federated learning, simulated fast. ``import fedjax_fair as ff``."""

from fedjax_fair import data, losses, metrics, models, objectives, plot, registry
from fedjax_fair.aggregators import aaggff_d, aaggff_s, afl, fedavg, fedmaba, fedprox, fedsgd, qfedavg
from fedjax_fair.data import FederatedData, partition
from fedjax_fair.local import local_sgd
from fedjax_fair.objectives import erm, proximal
from fedjax_fair.reads import reads
from fedjax_fair.run import History, run
from fedjax_fair.selectors import size_proportional, uniform
from fedjax_fair.simulate import simulation
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
    "Method",
    "Report",
    "Selector",
    "SimState",
    "Simulation",
    "Trace",
    "aaggff_d",
    "aaggff_s",
    "afl",
    "data",
    "erm",
    "fedavg",
    "fedmaba",
    "fedprox",
    "fedsgd",
    "local_sgd",
    "losses",
    "metrics",
    "models",
    "objectives",
    "partition",
    "plot",
    "proximal",
    "qfedavg",
    "reads",
    "registry",
    "run",
    "simulation",
    "size_proportional",
    "uniform",
]

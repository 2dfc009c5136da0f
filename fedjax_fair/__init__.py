"""Fair federated learning, simulated fast. ``import fedjax_fair as ff``."""

import gc
import sys

_collecting = gc.isenabled()
gc.disable()  # what an import makes stays: looking through it for garbage took a seventh of the time

from fedjax_fair import data, metrics, models, plot, registry
from fedjax_fair.aggregators import (
    aaggff_d,
    aaggff_s,
    adafed,
    afl,
    drfl,
    fairmoo,
    fedavg,
    fedeba,
    fedfv,
    fedheal,
    fedlf,
    fedmaba,
    fedmdfg,
    fedmgda_plus,
    fednova,
    fedprox,
    fedsgd,
    gifair,
    loss_proportional,
    loss_softmax,
    pg_ffl,
    propfair,
    qfedavg,
    qfedsgd,
    reweighted,
    size_softmax,
    superquantile,
    term,
)
from fedjax_fair.aggregators.iterate_averaging import average_iterates, averaged
from fedjax_fair.aggregators.policy import Policy
from fedjax_fair.aggregators.regret import Ledger, ledger
from fedjax_fair.data import FederatedData, partition
from fedjax_fair.engine import callbacks
from fedjax_fair.engine.exporting import export, load_params
from fedjax_fair.engine.history import History
from fedjax_fair.engine.personal import fine_tune
from fedjax_fair.engine.predict import Prediction, confusion, predict
from fedjax_fair.engine.run import run
from fedjax_fair.engine.simulation import simulation
from fedjax_fair.engine.sweep import Sweep, sweep
from fedjax_fair.local import objectives
from fedjax_fair.local.objectives import erm, propfair_objective, proximal, tilted
from fedjax_fair.local.sgd import local_sgd
from fedjax_fair.methods import apfl, ditto, drfa, feddyn, fedeba_plus, fedper, fedrep, scaffold
from fedjax_fair.metrics.kind import Metric
from fedjax_fair.models import losses
from fedjax_fair.reads import reads
from fedjax_fair.registry.contract import check_rule
from fedjax_fair.results.clients import client_table
from fedjax_fair.results.compare import compare
from fedjax_fair.results.comparison import Comparison
from fedjax_fair.results.contribution import contribution
from fedjax_fair.results.policy_file import load_policy, save_policy
from fedjax_fair.results.run_table import run_table
from fedjax_fair.results.save import save
from fedjax_fair.results.shares import Contribution
from fedjax_fair.results.table import table
from fedjax_fair.results.train_policy import train_policy
from fedjax_fair.robustness import availability, defences, faults
from fedjax_fair.selectors import cpow_d, excluding, pow_d, rpow_d, size_proportional, ucb_cs, uniform
from fedjax_fair.types import (
    Aggregator,
    Batch,
    Client,
    Context,
    Evaluation,
    Info,
    Memory,
    Method,
    Report,
    Selector,
    SimState,
    Simulation,
    Trace,
)

if not gc.get_freeze_count():  # else somebody's frozen objects would thaw
    gc.freeze()
    gc.unfreeze()  # what was imported now counts as old: the next collections, of young objects, took .15 s for it
if _collecting:
    gc.enable()

__version__ = "0.1.0"

__all__ = [
    "Aggregator",
    "Batch",
    "Client",
    "Comparison",
    "Context",
    "Contribution",
    "Evaluation",
    "FederatedData",
    "History",
    "Info",
    "Ledger",
    "Memory",
    "Method",
    "Metric",
    "Policy",
    "Prediction",
    "Report",
    "Selector",
    "SimState",
    "Simulation",
    "Sweep",
    "Trace",
    "aaggff_d",
    "aaggff_s",
    "adafed",
    "afl",
    "apfl",
    "availability",
    "average_iterates",
    "averaged",
    "callbacks",
    "check_rule",
    "client_table",
    "compare",
    "confusion",
    "contribution",
    "cpow_d",
    "data",
    "defences",
    "ditto",
    "drfa",
    "drfl",
    "erm",
    "excluding",
    "export",
    "fairmoo",
    "faults",
    "fedavg",
    "feddyn",
    "fedeba",
    "fedeba_plus",
    "fedfv",
    "fedheal",
    "fedlf",
    "fedmaba",
    "fedmdfg",
    "fedmgda_plus",
    "fednova",
    "fedper",
    "fedprox",
    "fedrep",
    "fedsgd",
    "fine_tune",
    "gifair",
    "ledger",
    "load_params",
    "load_policy",
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
    "predict",
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
    "run_table",
    "save",
    "save_policy",
    "scaffold",
    "simulation",
    "size_proportional",
    "size_softmax",
    "superquantile",
    "sweep",
    "table",
    "term",
    "tilted",
    "train_policy",
    "ucb_cs",
    "uniform",
]


# The modules that a user names, such as fedjax_fair.losses, can be imported by that name wherever they live.
for _module in (availability, callbacks, defences, faults, losses, objectives, partition):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module
del _module, sys


def __dir__() -> list[str]:
    """Only the public names, for completion in a notebook."""
    return [*__all__, "__version__"]

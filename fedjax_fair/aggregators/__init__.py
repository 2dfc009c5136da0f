"""Server rules, one file each."""

from fedjax_fair.aggregators.aaggff_d import aaggff_d
from fedjax_fair.aggregators.aaggff_s import aaggff_s
from fedjax_fair.aggregators.afl import afl
from fedjax_fair.aggregators.fedavg import fedavg
from fedjax_fair.aggregators.fedmaba import fedmaba
from fedjax_fair.aggregators.fedprox import fedprox
from fedjax_fair.aggregators.fedsgd import fedsgd
from fedjax_fair.aggregators.qfedavg import qfedavg

__all__ = ["aaggff_d", "aaggff_s", "afl", "fedavg", "fedmaba", "fedprox", "fedsgd", "qfedavg"]

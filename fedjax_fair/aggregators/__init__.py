"""Server rules, one file each."""

from fedjax_fair.aggregators.aaggff_d import aaggff_d
from fedjax_fair.aggregators.aaggff_s import aaggff_s
from fedjax_fair.aggregators.adafed import adafed
from fedjax_fair.aggregators.afl import afl
from fedjax_fair.aggregators.drfl import drfl
from fedjax_fair.aggregators.fairmoo import fairmoo
from fedjax_fair.aggregators.fedavg import fedavg
from fedjax_fair.aggregators.fedeba import fedeba
from fedjax_fair.aggregators.fedfv import fedfv
from fedjax_fair.aggregators.fedheal import fedheal
from fedjax_fair.aggregators.fedlf import fedlf
from fedjax_fair.aggregators.fedmaba import fedmaba
from fedjax_fair.aggregators.fedmdfg import fedmdfg
from fedjax_fair.aggregators.fedmgda_plus import fedmgda_plus
from fedjax_fair.aggregators.fednova import fednova
from fedjax_fair.aggregators.fedprox import fedprox
from fedjax_fair.aggregators.fedsgd import fedsgd
from fedjax_fair.aggregators.gifair import gifair
from fedjax_fair.aggregators.loss_proportional import loss_proportional
from fedjax_fair.aggregators.loss_softmax import loss_softmax
from fedjax_fair.aggregators.pg_ffl import pg_ffl
from fedjax_fair.aggregators.propfair import propfair
from fedjax_fair.aggregators.qfedavg import qfedavg
from fedjax_fair.aggregators.qfedsgd import qfedsgd
from fedjax_fair.aggregators.reweighted import reweighted
from fedjax_fair.aggregators.size_softmax import size_softmax
from fedjax_fair.aggregators.superquantile import superquantile
from fedjax_fair.aggregators.term import term

__all__ = [
    "aaggff_d",
    "aaggff_s",
    "adafed",
    "afl",
    "drfl",
    "fairmoo",
    "fedavg",
    "fedeba",
    "fedfv",
    "fedheal",
    "fedlf",
    "fedmaba",
    "fedmdfg",
    "fedmgda_plus",
    "fednova",
    "fedprox",
    "fedsgd",
    "gifair",
    "loss_proportional",
    "loss_softmax",
    "pg_ffl",
    "propfair",
    "qfedavg",
    "qfedsgd",
    "reweighted",
    "size_softmax",
    "superquantile",
    "term",
]

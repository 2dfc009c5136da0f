"""Methods of clients that remember, one file each; every one trains around a rule of the server."""

from fedjax_fair.methods.apfl import apfl
from fedjax_fair.methods.ditto import ditto
from fedjax_fair.methods.feddyn import feddyn
from fedjax_fair.methods.fedper import fedper
from fedjax_fair.methods.fedrep import fedrep
from fedjax_fair.methods.scaffold import scaffold

__all__ = ["apfl", "ditto", "feddyn", "fedper", "fedrep", "scaffold"]

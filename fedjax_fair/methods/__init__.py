"""Methods that change what clients do, one file each; most train around a rule of the server."""

from fedjax_fair.methods.apfl import apfl
from fedjax_fair.methods.ditto import ditto
from fedjax_fair.methods.drfa import drfa
from fedjax_fair.methods.feddyn import feddyn
from fedjax_fair.methods.fedeba_plus import fedeba_plus
from fedjax_fair.methods.fedper import fedper
from fedjax_fair.methods.fedrep import fedrep
from fedjax_fair.methods.scaffold import scaffold

__all__ = ["apfl", "ditto", "drfa", "feddyn", "fedeba_plus", "fedper", "fedrep", "scaffold"]

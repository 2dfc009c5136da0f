"""Client-selection strategies, one file each."""

from fedjax_fair.selectors.cpow_d import cpow_d
from fedjax_fair.selectors.excluding import excluding
from fedjax_fair.selectors.pow_d import pow_d
from fedjax_fair.selectors.rpow_d import rpow_d
from fedjax_fair.selectors.size_proportional import size_proportional
from fedjax_fair.selectors.ucb_cs import ucb_cs
from fedjax_fair.selectors.uniform import uniform

__all__ = ["cpow_d", "excluding", "pow_d", "rpow_d", "size_proportional", "ucb_cs", "uniform"]

"""Client-selection strategies, one file each."""

from fedjax_fair.selectors.size_proportional import size_proportional
from fedjax_fair.selectors.uniform import uniform

__all__ = ["size_proportional", "uniform"]

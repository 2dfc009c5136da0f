"""Client selection as UCB-CS's figures compare it: d = 2m, and the paper's discount."""

from collections.abc import Callable

import fedjax_fair as ff

STRATEGIES: dict[str, Callable[[int], ff.Selector]] = {
    "rand": ff.size_proportional,
    "pow-d": ff.pow_d,
    "rpow-d": lambda m: ff.rpow_d(m, d=2 * m),
    "UCB-CS": ff.ucb_cs,
}

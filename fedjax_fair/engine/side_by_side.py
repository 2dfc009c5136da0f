"""How many runs of a program go side by side."""

from typing import Any

import jax

from fedjax_fair.checks import check_count
from fedjax_fair.types import Params, Simulation


def width_of(side_by_side: int | str | None, sim: Simulation, runs: int) -> int | None:
    """How many of ``runs`` go side by side on a device, as asked or as suits the model; None is all of them."""
    if side_by_side == "auto":
        params = jax.eval_shape(sim.init, jax.random.key(0)).params
        return 1 if jax.default_backend() == "cpu" and is_large(params) else None
    width = runs if side_by_side is None else check_count("side_by_side", side_by_side)
    return None if width >= runs else width


def given_width(side_by_side: Any, most: int) -> int | None:
    """How many of ``most`` go side by side, as asked: None is all of them; None where "auto" has to choose.

    Raises:
      ValueError: another word, or no whole number from 1.
    """
    if side_by_side is None:
        return most
    if side_by_side == "auto":
        return None
    if isinstance(side_by_side, str):
        raise ValueError(f'side_by_side must be "auto", None or a whole number, got {side_by_side!r}')
    return min(check_count("side_by_side", side_by_side), most)


def is_large(params: Params) -> bool:
    """Whether one run alone keeps a CPU busy: by its parameters, or by convolutions or attention.

    Their kernels have three axes or more in flax. A network of two small ``nn.Conv`` took 1.1 times as long side by
    side.
    """
    leaves = jax.tree.leaves(params)
    return sum(leaf.size for leaf in leaves) > LARGE or any(leaf.ndim >= 3 for leaf in leaves)


LARGE = 20_000
"""Parameters from which vmapped runs were slower than one by one on a CPU: an MLP 784-200-10 has 159,010."""

"""Whether what a server transform keeps of many models fits into memory."""

import jax

from fedjax_fair.numerics.model_size import bytes_of
from fedjax_fair.types import Params

LIMIT = 4 * 2**30
"""Bytes that a transform may keep."""


def check_room(rule: str, what: str, models: float, params: Params, instead: str) -> None:
    """Raise ValueError where so many ``models`` are more than LIMIT; ``what`` says why they are as many."""
    size = models * bytes_of(jax.eval_shape(lambda tree: tree, params))
    if size > LIMIT:
        raise ValueError(
            f"{rule} would remember {what}, {size / 2**30:.1f} GiB; the limit is {LIMIT / 2**30:g} GiB: {instead}"
        )

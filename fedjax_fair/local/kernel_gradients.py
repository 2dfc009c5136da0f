"""A kernel's gradient as a product of two matrices, where a batch has several axes: sentences, or images.

JAX derives the gradient of x W as a sum over all axes of x but the last. XLA makes a product of it after it has
laid out one of the two operands anew: with 800 rows that takes up to four times as long as the product of the same
rows as matrices.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax import Array

from fedjax_fair.numerics.bound import bind

NARROW, MANY = 64, 512
"""Outputs up to which, or rows from which, the gradient [in, out] of a kernel with more inputs than outputs is
made as [out, in] and transposed. With 1,024 rows and 256 x 64 entries it then takes .75 of the time, with 128 rows
of 512 x 128 1.1."""
BESIDE = 1_024


def most_rows(clients: int) -> float:
    """The rows up to which products of matrices pay, by how many clients train in one loop.

    With two clients, transformers of 16 and 32 units took .94 of the time with 800 rows, 1.02 with 1,600 and 1.05
    with 4,000. One client at a time gains as much with 10,000.
    """
    return BESIDE if clients > 1 else math.inf


def bind_product(step: Any, values: Sequence[Array], settings: Mapping[str, Any], most: float) -> list[Array]:
    """What an operation makes of values: of matrices where it is such a gradient, of up to ``most`` rows."""
    if not sums_rows(step.primitive.name, settings):
        return bind(step, values, settings)
    rows = math.prod(values[0].shape[: len(settings["dimension_numbers"][0][0])])
    return [_product(settings, *values)] if rows <= most else bind(step, values, settings)


def sums_rows(name: str, settings: Mapping[str, Any]) -> bool:
    """Whether an operation is a product summed over the first axes, two or more, of both its operands."""
    if name != "dot_general" or settings.get("out_sharding") is not None:
        return False
    (left, right), (aside, _) = settings["dimension_numbers"]
    return len(left) > 1 and not aside and tuple(left) == tuple(right) == tuple(range(len(left)))


def _product(settings: Mapping[str, Any], left: Array, right: Array) -> Array:
    """[a..., b...] of operands [rows..., a...] and [rows..., b...].

    JAX has the outputs' gradient on the left, and transposes what comes of it. Of the two products here one is
    transposed back, so that the two cancel; the other has longer rows where there are more inputs.
    """
    axes = len(settings["dimension_numbers"][0][0])
    a, b = left.shape[axes:], right.shape[axes:]
    outputs, inputs = math.prod(a), math.prod(b)
    rows = math.prod(left.shape[:axes])
    left, right = left.reshape(rows, outputs), right.reshape(rows, inputs)
    named = {name: settings[name] for name in ("precision", "preferred_element_type")}
    named["dimension_numbers"] = (((0,), (0,)), ((), ()))
    if outputs < inputs and (outputs <= NARROW or rows >= MANY):
        # Behind a barrier: else XLA makes the other product, since that one needs no transposition.
        return jax.lax.optimization_barrier(jax.lax.dot_general(left, right, **named)).reshape(*a, *b)
    return jax.lax.dot_general(right, left, **named).T.reshape(*a, *b)

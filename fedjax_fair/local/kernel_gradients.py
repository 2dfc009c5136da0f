"""A kernel's gradient as a product of two matrices, where a batch has several axes: sentences, or images.

JAX derives the gradient of x W as a sum over all axes of x but the last. XLA makes a product of it after it has
laid out one operand anew. With 1,024 rows, a product of the same rows as matrices takes .3 to .75 of the time.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax import Array

from fedjax_fair.numerics.bound import bind

NARROW = 64
"""Outputs up to which the gradient [in, out] of a kernel with more inputs is made as [out, in], and transposed."""
MANY = 512
"""Rows from which it is, whatever the outputs. With 1,024 rows and 256 x 64 entries that takes .75 of the time of
the other product, with 128 rows of 512 x 128 1.1."""
BESIDE = 1_024
"""Rows up to which matrices pay where two trainings share a loop. Transformers of 16 and 32 units took .94 of the
time with 800 rows, 1.02 with 1,600 and 1.05 to 1.07 with 4,000. One training at a time gains with 4,000, too."""


def most_rows(trainings: int) -> float:
    """The rows up to which matrices pay, by how many trainings share a loop."""
    return BESIDE if trainings > 1 else math.inf


def bind_product(step: Any, values: Sequence[Any], settings: Mapping[str, Any], most: float) -> list[Any]:
    """An operation's results; sums over several leading axes, of up to ``most`` rows, as products of matrices."""
    if sums_rows(step, values, settings, most):
        return [_product(step, settings, *values)]
    return bind(step, values, settings)


def sums_rows(step: Any, operands: Sequence[Any], settings: Mapping[str, Any], most: float) -> bool:
    """Whether an operation is a product summed over the first axes, two or more, of both its operands.

    With up to ``most`` entries in these axes, and no axis that an explicit mesh shards.
    """
    if step.primitive.name != "dot_general":
        return False
    (left, right), (aside, _) = settings["dimension_numbers"]
    if len(left) < 2 or aside or not tuple(left) == tuple(right) == tuple(range(len(left))):
        return False
    sharded = any(axis is not None for atom in (*step.invars, *step.outvars) for axis in atom.aval.sharding.spec)
    return not sharded and math.prod(operands[0].shape[: len(left)]) <= most


def _product(step: Any, settings: Mapping[str, Any], left: Array, right: Array) -> Array:
    """[a..., b...] of operands [rows..., a...] and [rows..., b...].

    JAX puts the outputs' gradient left, and transposes the result. ``right.T @ left`` is transposed here, which
    cancels that. ``left.T @ right`` has longer rows where there are more inputs than outputs.
    """
    axes = len(settings["dimension_numbers"][0][0])
    a, b = left.shape[axes:], right.shape[axes:]
    rows, outputs, inputs = math.prod(left.shape[:axes]), math.prod(a), math.prod(b)
    left, right = left.reshape(rows, outputs), right.reshape(rows, inputs)
    # The sharding is of other axes; without explicit meshes it says nothing.
    settings = {**settings, "dimension_numbers": (((0,), (0,)), ((), ())), "out_sharding": None}
    if outputs < inputs and (outputs <= NARROW or rows >= MANY):
        # Behind a barrier: else XLA makes the other product, since that one needs no transposition.
        return jax.lax.optimization_barrier(bind(step, [left, right], settings)[0]).reshape(*a, *b)
    if isinstance(settings["precision"], tuple):
        settings["precision"] = settings["precision"][::-1]
    return bind(step, [right, left], settings)[0].T.reshape(*a, *b)

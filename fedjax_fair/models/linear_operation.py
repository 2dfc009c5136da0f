"""Linear operations of our own for JAX; each module that makes some gives them their transposes."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

Form = Callable[..., tuple[int, ...]]
"""From the shape of an operand, and the operation's settings, to that of the result."""


def linear(name: str, function: Callable[..., Array], form: Form) -> Primitive:
    """An operation ``bind(x, **settings)`` on the last axes of an array, whatever axes are before them."""
    operation = Primitive(name)
    operation.def_impl(function)
    operation.def_abstract_eval(lambda aval, **settings: aval.update(shape=form(aval.shape, **settings)))
    mlir.register_lowering(operation, mlir.lower_fun(function, multiple_results=False))

    def batched(values: Any, places: Any, /, **settings: Any) -> tuple[Array, int]:
        return operation.bind(jnp.moveaxis(values[0], places[0], 0), **settings), 0

    batching.primitive_batchers[operation] = batched
    return operation

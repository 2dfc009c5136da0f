"""The first draw of a model's parameters: one program, compiled quickly, instead of a hundred operations."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from fedjax_fair.local.transposed import programs
from fedjax_fair.models import Model
from fedjax_fair.models.stock import is_stock
from fedjax_fair.numerics.xla_options import QUICK, compiled, is_concrete
from fedjax_fair.types import Key, Params


def drawer(net: Model, example: Any) -> Callable[[Key], Params]:
    """``key -> params``, of a model and the shapes of one example.

    The model is traced anew in every call, for a user's may read what changes between two, such as NumPy's random
    numbers; what is compiled is kept as long as the program stays the same.
    """
    kept: dict[str, Callable[..., list[Any]]] = {}

    def first(key: Key) -> Params:
        return net.init(key, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), example))

    def draw(key: Key) -> Params:
        if is_stock(net) or not is_concrete(key):  # a stock model's is compiled, and part of another program traced
            return first(key)
        # A function of its own: JAX keeps what it has traced of a function that it knows.
        program, shapes = jax.make_jaxpr(lambda key: first(key), return_shape=True)(key)
        text = str(program.jaxpr)
        if text not in kept or _has_constants(program):
            kept.clear()
            kept[text] = compiled(_played(program), [(QUICK, is_concrete)])
        made = kept[text](program.consts, key)
        return jax.tree.unflatten(jax.tree.structure(shapes), made)

    return draw


def _played(program: ClosedJaxpr) -> Callable[[list[Any], Key], list[Any]]:
    return lambda consts, key: jaxpr_as_fun(ClosedJaxpr(program.jaxpr, consts))(key)


def _has_constants(program: ClosedJaxpr) -> bool:
    """Whether there are arrays within it, which its text does not show."""
    return any(
        any(isinstance(value, Literal) and getattr(value.val, "ndim", 0) for value in step.invars)
        or any(part.consts or _has_constants(part) for part in programs(step))
        for step in program.jaxpr.eqns
    )

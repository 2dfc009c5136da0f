"""A model's forward pass, traced but not computed: the form of its outputs, and the operations in it."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import jax
from jax.extend.core import Jaxpr

from fedjax_fair.local.transposed import programs
from fedjax_fair.models import Model
from fedjax_fair.models.flax_modules import from_linen
from fedjax_fair.models.rewriting import fast
from fedjax_fair.models.stock import is_stock
from fedjax_fair.types import Params


class Forward(NamedTuple):
    """What a trace of a model for two examples shows."""

    outputs: Any
    """Their form, [2, ...]."""
    operations: frozenset[str]
    """The names of JAX's operations, those inside loops included."""


def forward(net: Model, params: Params, x: Any) -> Forward:
    """A model in evaluation, for parameters and inputs ``x`` [B, ...] given by their shapes."""
    two = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((2, *leaf.shape[1:]), leaf.dtype), x)
    return _seen(_traced, net, params, two)


def _seen(look: Callable[[Model, Params, Any], Any], net: Model, params: Params, x: Any) -> Any:
    """``look(net, params, x)``, once for a stock model and inputs of a form."""
    if not is_stock(net):
        return look(net, params, x)
    leaves, tree = jax.tree.flatten((params, x))
    return _of_stock(look, net.apply.module, tree, *((leaf.shape, leaf.dtype) for leaf in leaves))  # type: ignore


@lru_cache(maxsize=128)
def _of_stock(look: Callable[..., Any], module: Any, tree: Any, *leaves: Any) -> Any:
    """Equal modules have equal programs, which a user's, reading what may change, need not have."""
    params, x = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(*leaf) for leaf in leaves])
    return look(from_linen(module), params, x)


def _traced(net: Model, params: Params, x: Any) -> Forward:
    program, outputs = jax.make_jaxpr(lambda p, x: net.apply(p, x, None), return_shape=True)(params, x)
    return Forward(outputs, frozenset(_operations(program.jaxpr)))


def widest(net: Model, params: Params, x: Any) -> float:
    """Bytes that the largest array of a model's evaluation takes for every example."""
    return _seen(_widest, fast(net), params, x)


def _widest(net: Model, params: Params, x: Any) -> float:
    def arrays(batch: int) -> list[int]:
        some = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((batch, *leaf.shape[1:]), leaf.dtype), x)
        return list(_bytes(jax.make_jaxpr(lambda p, x: net.apply(p, x, None))(params, some).jaxpr))

    # Of two batches, so that what is made of the parameters alone does not count.
    return max((more - less for less, more in zip(arrays(2), arrays(3))), default=0)


def _bytes(program: Jaxpr) -> Iterator[int]:
    for step in program.eqns:
        avals: list[Any] = [v.aval for v in step.outvars]
        yield from (aval.size * getattr(aval.dtype, "itemsize", 0) for aval in avals)
        for inner in programs(step):
            yield from _bytes(inner.jaxpr)


def _operations(program: Jaxpr) -> Iterator[str]:
    for step in program.eqns:
        yield step.primitive.name
        for inner in programs(step):
            yield from _operations(inner.jaxpr)

"""Which of a model's parameters make its outputs: what "last" stands for."""

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import Jaxpr, Literal

from fedjax_fair.local.transposed import programs
from fedjax_fair.methods.layers import paths_of
from fedjax_fair.models import Model
from fedjax_fair.types import Memory, Method, Params

Origin = frozenset[int] | None
"""Of a value in a program: the parameters that it is made of, by their places; None where the inputs are in it."""


def with_head(method: Method, net: Model, params: Params, x: Any) -> Method:
    """The method whose memory, where it asks for that, is of the parameters that make the outputs."""
    memory = method.memory
    if not isinstance(memory, Memory) or memory.of_head is None:  # what is none is refused later
        return method
    head = head_or("last", net, params, x)
    return method if head == "last" else method._replace(memory=memory.of_head(head))


def head_or(asked: Any, net: Model, params: Params, x: Any) -> Any:
    """In the place of "last" a function of paths; "last" itself where names decide: no matrix, or one layer."""
    if not (isinstance(asked, str) and asked == "last"):
        return asked
    head, paths = head_of(net, params, x), paths_of(params)
    return {paths[place] for place in head}.__contains__ if 0 < len(head) < len(paths) else asked


def head_of(net: Model, params: Params, x: Any) -> list[int]:
    """Places of the leaves that an evaluation meets last: from the last matrix on, which is the head's.

    Args:
      net: the model.
      params: its parameters, or their shapes.
      x: inputs, or their shapes.

    Returns:
      Places among the leaves, ascending; none of a model without matrices.
    """
    program = jax.make_jaxpr(lambda params, x: net.apply(params, x, None))(params, x).jaxpr
    leaves = jax.tree.leaves(params)
    origins: list[Origin] = [frozenset([place]) for place in range(len(leaves))]
    met: list[frozenset[int]] = []
    _follow(program, origins + [None] * (len(program.invars) - len(leaves)), met)
    when = {place: at for at, places in enumerate(met) for place in places}
    last = max((at for place, at in when.items() if leaves[place].ndim > 1), default=len(met))
    return sorted(place for place, at in when.items() if at >= last)


def _follow(program: Jaxpr, origins: Sequence[Origin], met: list[frozenset[int]]) -> list[Origin]:
    """The outputs' origins; appended to ``met`` is, in the program's order, which parameters meet an input."""
    known: dict[Any, Origin] = dict(zip(program.invars, origins))

    def of(atom: Any) -> Origin:
        return frozenset() if isinstance(atom, Literal) else known.get(atom, frozenset())

    for step in program.eqns:
        given = [of(atom) for atom in step.invars]
        pure = frozenset[int]().union(*(origin for origin in given if origin is not None))
        made: list[Origin] = [pure] * len(step.outvars)
        if None in given:
            inner = [part.jaxpr for part in programs(step) if len(part.jaxpr.invars) == len(given)]
            if inner:  # a function, or a loop, whose turns are alike
                _follow(inner[0], given, met)
            elif pure:
                met.append(pure)
            made = [None] * len(step.outvars)
        known.update(zip(step.outvars, made))
    return [of(atom) for atom in program.outvars]

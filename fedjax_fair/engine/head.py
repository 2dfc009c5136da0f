"""Which of a model's parameters make its outputs: what "last" stands for."""

import re
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
MIXING = {"dot_general", "conv_general_dilated", "gather"}
"""Operations with a parameter that end the way back: what is before them makes features, not outputs."""


def with_head(method: Method, net: Model, params: Params, x: Any) -> Method:
    """The method whose memory, where it asks for that, is of the parameters that make the outputs."""
    memory = method.memory
    if not isinstance(memory, Memory) or memory.of_head is None:  # what is none is refused later
        return method
    head = head_or("last", net, params, x)
    return method if head == "last" else method._replace(memory=memory.of_head(head))


def head_or(asked: Any, net: Model, params: Params, x: Any) -> Any:
    """In the place of "last", also in a list, a pattern of paths; of a model that is all head its vectors."""
    if isinstance(asked, list | tuple):
        return [head_or(each, net, params, x) for each in asked]
    if not (isinstance(asked, str) and asked == "last"):
        return asked
    head, leaves, paths = head_of(net, params, x), jax.tree.leaves(params), paths_of(params)
    if len(head) == len(leaves):
        head = [place for place in head if leaves[place].ndim <= 1]
    return f"^({'|'.join(re.escape(paths[place]) for place in head)})$" if head else asked


def head_of(net: Model, params: Params, x: Any) -> list[int]:
    """Places of the leaves that an evaluation meets last on every way to its outputs.

    On each way back from the outputs these are the parameters up to, and with, the first that mixes features: that
    of a product, a convolution or a table. Of parallel heads it is all.

    Args:
      net: the model.
      params: its parameters, or their shapes.
      x: inputs, or their shapes.

    Returns:
      Places among the leaves, ascending.
    """
    program = jax.make_jaxpr(lambda params, x: net.apply(params, x, None))(params, x).jaxpr
    count = len(jax.tree.leaves(params))
    origins: list[Origin] = [frozenset([place]) for place in range(count)]
    head = set[int]()
    _back(program, origins + [None] * (len(program.invars) - count), [True] * len(program.outvars), head)
    return sorted(head)


def _back(program: Jaxpr, origins: Sequence[Origin], asked: Sequence[bool], head: set[int]) -> list[bool]:
    """Go back from the outputs that are ``asked`` for and add to ``head`` what is met; of each input whether the
    way goes on to it."""
    known: dict[Any, Origin] = dict(zip(program.invars, origins))

    def of(atom: Any) -> Origin:
        return frozenset() if isinstance(atom, Literal) else known.get(atom, frozenset())

    for step in program.eqns:
        given = [of(atom) for atom in step.invars]
        pure = frozenset[int]().union(*(origin for origin in given if origin is not None))
        known.update(dict.fromkeys(step.outvars, None if None in given else pure))

    way = {atom for atom, wanted in zip(program.outvars, asked) if wanted and not isinstance(atom, Literal)}
    for atom in way:
        head.update(of(atom) or ())
    for step in reversed(program.eqns):
        if way.isdisjoint(step.outvars) or of(step.outvars[0]) is not None:
            continue
        given = [of(atom) for atom in step.invars]
        met = {place for origin in given if origin is not None for place in origin}
        inner = _inside(step)
        if inner:
            loop = step.primitive.name in ("scan", "while")  # what one turn makes, the next may hand on
            wanted = [loop or atom in way for atom in step.outvars]
            goes_on = [_back(part, given[-len(part.invars) :], wanted, head) for part in inner]
            on = [False] * (len(given) - len(goes_on[0])) + [any(flags) for flags in zip(*goes_on)]
        else:
            head |= met
            on = [not (met and step.primitive.name in MIXING)] * len(given)
        way |= {
            atom
            for atom, origin, flag in zip(step.invars, given, on)
            if flag and origin is None and not isinstance(atom, Literal)
        }
    return [atom in way for atom in program.invars]


def _inside(step: Any) -> list[Jaxpr]:
    """The programs that an operation calls with its last inputs: a function, a loop's body, all branches."""
    parts = [part.jaxpr for part in programs(step)]
    if step.primitive.name == "while":
        return [step.params["body_jaxpr"].jaxpr]
    if step.primitive.name == "cond":
        return parts
    return [part for part in parts if len(part.invars) == len(step.invars)][:1]

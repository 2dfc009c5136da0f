"""A function's traced program, played with other operations; its variables' uses; an operation, applied again."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax import Array
from jax.extend.core import Jaxpr, Literal

Read = Callable[[Any], Array]
"""From a variable of a program to its value."""
INLINED = frozenset(["jit", "pjit", "closed_call", "core_call"])
"""Operations that only call a program."""


def replayed(function: Callable[..., Any], run: Callable[..., list[Any]]) -> Callable[..., Any]:
    """A function of arrays whose program ``run(program, consts, inputs) -> outputs`` plays its own way."""

    def played(*args: Any) -> Any:
        # A function of its own: JAX keeps what it has traced of one that it knows, and a model may read changes.
        program, shapes = jax.make_jaxpr(lambda *args: function(*args), return_shape=True)(*args)
        made = run(program.jaxpr, program.consts, jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(shapes), made)

    return played


def uses(program: Jaxpr) -> Counter[Any]:
    """How often each variable is read: by the program's operations, and as one of its results."""
    read = [atom for step in program.eqns for atom in step.invars] + list(program.outvars)
    return Counter(atom for atom in read if not isinstance(atom, Literal))


def bind(step: Any, values: Sequence[Any], settings: Mapping[str, Any] | None = None) -> list[Any]:
    """What the operation makes of other values, with its settings or with others."""
    named = step.primitive.get_bind_params(step.params if settings is None else settings)
    if isinstance(named, tuple):  # before JAX 0.10.2, with the functions beside them
        functions, named = named
        values = [*functions, *values]
    made = step.primitive.bind(*values, **named)
    return list(made) if step.primitive.multiple_results else [made]

"""A traced program, evaluated by NumPy: for a check of two or three examples, which is not worth a compilation.

The common operations are NumPy's own; any other, such as a loop or a convolution, is JAX's, called as it stands.
Floats of less than 32 bits are computed in float32.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from fedjax_fair.numerics.numpy_operations import OPERATIONS, wider


def evaluate(program: ClosedJaxpr, *inputs: Any) -> list[Any]:
    """The program's outputs, flat, for its flat inputs: NumPy arrays, or JAX's where NumPy has no such type."""
    with np.errstate(all="ignore"):
        return _run(program.jaxpr, program.consts, inputs)


def by_jax(program: ClosedJaxpr, *inputs: Any) -> list[Any]:
    """The same, all of it by JAX."""
    given = [jnp.asarray(value, var.aval.dtype) for value, var in zip(inputs, program.jaxpr.invars)]
    return [_wide(value) for value in jaxpr_as_fun(program)(*given)]


def is_concrete(program: ClosedJaxpr) -> bool:
    """Whether nothing that the program has closed over is traced, nor what would be made here."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in (*program.consts, jnp.zeros(())))


def _run(program: Jaxpr, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    known = dict(zip((*program.constvars, *program.invars), map(_wide, (*consts, *inputs))))

    def read(atom: Any) -> Any:
        literal = isinstance(atom, Literal)
        return _wide(np.asarray(atom.val, _type_of(atom))) if literal else known[atom]

    for step in _needed(program):
        known.update(zip(step.outvars, _step(step, [read(atom) for atom in step.invars])))
    return [read(atom) for atom in program.outvars]


def _needed(program: Jaxpr) -> list[Any]:
    """The steps that an output depends on: a module's first weights are often drawn, and then replaced."""
    alive, steps = {atom for atom in program.outvars if not isinstance(atom, Literal)}, []
    for step in reversed(program.eqns):
        if not alive.isdisjoint(step.outvars):
            steps.append(step)
            alive |= {atom for atom in step.invars if not isinstance(atom, Literal)}
    return steps[::-1]


def _step(step: Any, values: list[Any]) -> list[Any]:
    name, settings = step.primitive.name, step.params
    for inner in (settings.get(key) for key in ("jaxpr", "call_jaxpr", "fun_jaxpr")):
        if name in CALLS and inner is not None:
            program = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
            return _run(program.jaxpr, program.consts, values)
    try:
        if name in LOOPS:
            return LOOPS[name](values, **settings)
        if name in OPERATIONS and all(isinstance(value, np.ndarray | np.generic) for value in values):
            made = OPERATIONS[name](*values, **settings)
            made = made if isinstance(made, list) else [made]
            return [np.asarray(value, wider(var.aval.dtype)) for value, var in zip(made, step.outvars)]
    except (NotImplementedError, TypeError, ValueError):
        pass  # settings that are not known here, or keys of random numbers
    return _by_jax(step, values)


def _by_jax(step: Any, values: list[Any]) -> list[Any]:
    given = [jnp.asarray(value, _type_of(atom)) for value, atom in zip(values, step.invars)]
    settings = step.primitive.get_bind_params(step.params)
    if isinstance(settings, tuple):  # before JAX 0.10.2, with the functions beside them
        functions, settings = settings
        given = [*functions, *given]
    made = step.primitive.bind(*given, **settings)
    return [_wide(value) for value in (made if step.primitive.multiple_results else [made])]


def _scan(values: list[Any], *, jaxpr: Any, length: int, reverse: bool, **settings: Any) -> list[Any]:
    if not length:
        raise NotImplementedError
    consts, carried = settings["num_consts"], settings["num_consts"] + settings["num_carry"]
    carry, made = values[consts:carried], []
    for turn in reversed(range(length)) if reverse else range(length):
        now = [value[turn] for value in values[carried:]]
        done = _run(jaxpr.jaxpr, jaxpr.consts, [*values[:consts], *carry, *now])
        carry = done[: len(carry)]
        made.append(done[len(carry) :])
    stacked = [np.stack(each) for each in zip(*(made[::-1] if reverse else made))]
    return [*carry, *stacked]


def _cond(values: list[Any], *, branches: Any, **_: Any) -> list[Any]:
    taken = branches[int(np.clip(values[0], 0, len(branches) - 1))]
    return _run(taken.jaxpr, taken.consts, values[1:])


def _type_of(atom: Any) -> Any:
    return atom.aval.dtype


def _wide(value: Any) -> Any:
    """As NumPy can compute with it; keys of random numbers stay JAX's."""
    if jnp.issubdtype(getattr(value, "dtype", np.float32), jax.dtypes.extended):
        return value
    value = np.asarray(value)
    return value.astype(wider(value.dtype), copy=False)


LOOPS: dict[str, Callable[..., list[Any]]] = {"scan": _scan, "cond": _cond}
CALLS = frozenset(
    [
        "jit",
        "pjit",
        "closed_call",
        "core_call",
        "remat",
        "remat2",
        "checkpoint",
        "custom_jvp_call",
        "custom_vjp_call",
        "custom_vjp_call_jaxpr",
    ]
)

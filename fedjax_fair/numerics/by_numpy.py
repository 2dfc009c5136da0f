"""A traced program, evaluated by NumPy as far as it is known: what depends on a tracer is ``UNKNOWN``.

For checks of a few numbers before anything runs: XLA would compile each of a hundred operations for some
milliseconds, and under a trace (a sweep's) would compute nothing at all. The common operations are NumPy's own; any
other is JAX's, called as it stands. Floats of less than 32 bits are computed in float32. Random bits are the same
in every call, whatever the key: so two calls have the same noise.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun

from fedjax_fair.numerics.bound import bind
from fedjax_fair.numerics.numpy_operations import OPERATIONS, wider


class Unknown:
    """A value that depends on a tracer."""


UNKNOWN = Unknown()


def evaluate(program: ClosedJaxpr, *inputs: Any) -> list[Any]:
    """The program's outputs, flat, for its flat inputs: NumPy arrays, or ``UNKNOWN``."""
    with np.errstate(all="ignore"), jax.ensure_compile_time_eval():
        return _run(program.jaxpr, program.consts, inputs)


def by_jax(program: ClosedJaxpr, *inputs: Any) -> list[Any]:
    """The same, all of it by JAX, of a program that is concrete; random bits are those of the keys."""
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
    if name == "cond" and values[0] is not UNKNOWN:
        taken = settings["branches"][int(np.clip(values[0], 0, len(settings["branches"]) - 1))]
        return _run(taken.jaxpr, taken.consts, values[1:])
    if any(value is UNKNOWN for value in values):
        return [UNKNOWN] * len(step.outvars)
    if name.startswith(("random_", "threefry")) or any(_is_key(var.aval) for var in step.outvars):
        return [_drawn(var.aval) for var in step.outvars]
    try:
        if name == "scan":
            return _scan(values, **settings)
        if name in OPERATIONS:
            made = OPERATIONS[name](*values, **settings)
            made = made if isinstance(made, list) else [made]
            return [np.asarray(value, wider(var.aval.dtype)) for value, var in zip(made, step.outvars)]
    except (NotImplementedError, TypeError, ValueError, KeyError, AttributeError, OverflowError):
        pass  # settings that are not known here
    return _by_jax(step, values)


def _by_jax(step: Any, values: list[Any]) -> list[Any]:
    given = [jnp.asarray(value, _type_of(atom)) for value, atom in zip(values, step.invars)]
    return [_wide(value) for value in bind(step, given)]


def _scan(values: list[Any], *, jaxpr: Any, length: int, reverse: bool, **settings: Any) -> list[Any]:
    if not length:
        raise NotImplementedError
    if "ft_in" in settings:  # as JAX counts them from 0.11 on
        consts, carried = (len(part) for part in settings["ft_in"].unpack()[:2])
    else:
        consts, carried = settings["num_consts"], settings["num_carry"]
    carried += consts
    carry, made = values[consts:carried], []
    for turn in reversed(range(length)) if reverse else range(length):
        now = [value[turn] for value in values[carried:]]
        done = _run(jaxpr.jaxpr, jaxpr.consts, [*values[:consts], *carry, *now])
        carry = done[: len(carry)]
        made.append(done[len(carry) :])
    rows = list(zip(*(made[::-1] if reverse else made)))
    return [*carry, *(UNKNOWN if any(row is UNKNOWN for row in each) else np.stack(each) for each in rows)]


def _drawn(aval: Any) -> np.ndarray:
    """Bits; of a key nothing but its shape, for nobody reads it."""
    if _is_key(aval):
        return np.zeros(aval.shape)
    return np.random.default_rng(0).integers(0, np.iinfo(aval.dtype).max, aval.shape, aval.dtype)


def _is_key(aval: Any) -> bool:
    return jnp.issubdtype(getattr(aval, "dtype", np.float32), jax.dtypes.extended)


def _type_of(atom: Any) -> Any:
    return atom.aval.dtype


def _wide(value: Any) -> Any:
    """As NumPy can compute with it."""
    if isinstance(value, jax.core.Tracer):
        return UNKNOWN
    if value is UNKNOWN or _is_key(value):
        return value
    value = np.asarray(value)
    return value.astype(wider(value.dtype), copy=False)


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

"""A traced program, evaluated by NumPy as far as it is known: what depends on a tracer is ``UNKNOWN``.

For checks before anything runs, on a few numbers: XLA would compile each of a hundred operations for some
milliseconds, and under a trace (a sweep's) would compute nothing at all. Random bits are the same
in every call, whatever the key: so two calls have the same noise.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from fedjax_fair.numerics.numpy_operations import OPERATIONS


class Unknown:
    """A value that depends on a tracer."""


UNKNOWN = Unknown()


def evaluate(closed: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    """The outputs of a program for these inputs, each an array or ``UNKNOWN``."""
    with np.errstate(all="ignore"), jax.ensure_compile_time_eval():
        return _play(closed.jaxpr, closed.consts, args)


def _play(program: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    values = dict(zip([*program.constvars, *program.invars], map(_known, [*consts, *args])))

    def value(v: Any) -> Any:
        return _known(v.val) if isinstance(v, Literal) else values[v]

    for step in program.eqns:
        given = [value(v) for v in step.invars]
        values.update(zip(step.outvars, _apply(step, given)))
    return [value(v) for v in program.outvars]


def _known(value: Any) -> Any:
    return UNKNOWN if isinstance(value, jax.core.Tracer) else value


def _apply(step: Any, given: list[Any]) -> list[Any]:
    name, settings = step.primitive.name, step.params
    inner = settings.get("jaxpr", settings.get("call_jaxpr"))
    if name in ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call") and inner is not None:
        closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
        return _play(closed.jaxpr, closed.consts, given)
    if name == "cond" and given[0] is not UNKNOWN:
        branch = settings["branches"][int(np.clip(int(given[0]), 0, len(settings["branches"]) - 1))]
        return _play(branch.jaxpr, branch.consts, given[1:])
    if any(v is UNKNOWN for v in given):
        return [UNKNOWN] * len(step.outvars)
    if name.startswith(("random_", "threefry")) or any(_is_key(v.aval) for v in step.outvars):
        return [_drawn(v.aval) for v in step.outvars]
    if (made := _in_numpy(name, settings, given, step)) is not None:
        return made
    out = step.primitive.bind(*given, **settings)
    return list(out) if step.primitive.multiple_results else [out]


def _erf_inv(x: np.ndarray) -> np.ndarray:
    """To two per mille (Winitzki): random normal numbers are made with it."""
    log, a = np.log1p(-x * x), 0.147
    half = 2 / (np.pi * a) + log / 2
    return np.sign(x) * np.sqrt(np.sqrt(half * half - log / a) - half)


def _drawn(aval: Any) -> np.ndarray:
    """Bits; of a key nothing but its shape, for nobody reads it."""
    if _is_key(aval):
        return np.zeros(aval.shape)
    return np.random.default_rng(0).integers(0, np.iinfo(aval.dtype).max, aval.shape, aval.dtype)


def _is_key(aval: Any) -> bool:
    return jax.dtypes.issubdtype(getattr(aval, "dtype", None), jax.dtypes.extended)


def _in_numpy(name: str, settings: dict[str, Any], given: list[Any], step: Any) -> list[Any] | None:
    """The results by NumPy; None where it has no such operation."""
    arrays = [np.asarray(v) for v in given]
    try:
        made = _erf_inv(arrays[0]) if name == "erf_inv" else OPERATIONS[name](*arrays, **settings)
    except (KeyError, NotImplementedError, TypeError, ValueError):
        return None
    made = made if isinstance(made, list) else [made]
    return [np.asarray(value, var.aval.dtype) for value, var in zip(made, step.outvars)]

"""A traced program played with NumPy: nothing is compiled, and what depends on a tracer is unknown.

For checks before anything runs, on a few numbers: XLA would compile each of a hundred operations for some
milliseconds, and under a trace (a sweep's) would compute nothing at all. Random bits are the same
in every call, whatever the key: so two calls have the same noise.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal


class Unknown:
    """A value that depends on a tracer."""


UNKNOWN = Unknown()

_SIMPLE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "square": np.square,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "pow": np.power,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "is_finite": np.isfinite,
    "cos": np.cos,
    "sin": np.sin,
    "tanh": np.tanh,
    "expm1": np.expm1,
    "log1p": np.log1p,
    "floor": np.floor,
    "ceil": np.ceil,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "rem": np.fmod,
    "erf_inv": lambda x: _erf_inv(x),
    "stop_gradient": lambda x: x,
    "copy": lambda x: x,
}
"""Operations that NumPy has as they are; those that it has not are JAX's own, one by one."""
_REDUCING: dict[str, Callable[..., Any]] = {
    "reduce_sum": np.sum,
    "reduce_max": np.max,
    "reduce_min": np.min,
    "reduce_prod": np.prod,
    "reduce_and": np.all,
    "reduce_or": np.any,
}


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
    aval = step.outvars[0].aval
    made = _in_numpy(name, settings, given, aval) if len(step.outvars) == 1 else None
    if made is not None:
        return [np.asarray(made, aval.dtype)]
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


def _in_numpy(name: str, settings: dict[str, Any], given: list[Any], aval: Any) -> Any:
    """The result by NumPy; None where it has no such operation."""
    given = [np.asarray(v) for v in given]
    if name in _SIMPLE:
        return _SIMPLE[name](*given)
    if name == "div" and jax.dtypes.issubdtype(aval.dtype, np.inexact):
        return np.divide(*given)
    if name == "div":  # towards 0, through floats: of a toy's counts
        return np.trunc(given[0] / given[1])
    if name == "integer_pow":
        return given[0] ** np.asarray(settings["y"], given[0].dtype)
    if name == "convert_element_type":
        return given[0]
    if name == "select_n":
        return np.choose(np.broadcast_to(given[0], aval.shape).astype(int), given[1:]) if len(given) < 30 else None
    if name == "broadcast_in_dim" and len(given) == 1:
        spread = [1] * len(aval.shape)
        for place, size in zip(settings["broadcast_dimensions"], given[0].shape):
            spread[place] = size
        return np.broadcast_to(given[0].reshape(spread), aval.shape)
    if name == "reshape" and settings.get("dimensions") is None and len(given) == 1:
        return given[0].reshape(aval.shape)
    if name in _REDUCING and (given[0].dtype == bool or not name.endswith(("and", "or"))):
        return _REDUCING[name](given[0], axis=tuple(settings["axes"]))
    if name == "shift_right_logical" and np.issubdtype(aval.dtype, np.unsignedinteger):
        return np.right_shift(*given)
    if name == "bitcast_convert_type" and given[0].dtype.itemsize == aval.dtype.itemsize:
        return given[0].view(aval.dtype)
    if name == "sort" and len(given) == 1:
        return np.sort(given[0], settings["dimension"])
    if name == "squeeze":
        return given[0].reshape(aval.shape)
    if name == "concatenate":
        return np.concatenate(given, settings["dimension"])
    if name == "iota":
        count = np.arange(aval.shape[settings["dimension"]])
        return np.broadcast_to(
            np.expand_dims(count, [a for a in range(aval.ndim) if a != settings["dimension"]]), aval.shape
        )
    return None

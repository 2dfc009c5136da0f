"""Whether two things were made alike: functions by their code and what they close over, arrays by their numbers."""

import dataclasses
import functools
import types
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

JITTED = type(jax.jit(lambda: None))


def made_alike(one: Any, other: Any) -> bool:
    """Whether both do the same, as far as can be seen: False may also mean that it cannot be seen.

    Two calls of one factory with equal settings give functions that are alike, though they are not equal.
    """
    return _alike(one, other, set())


def _alike(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    if one is other or (id(one), id(other)) in seen:
        return True
    if type(one) is not type(other):
        return False
    seen.add((id(one), id(other)))  # a function may close over itself
    if isinstance(one, np.ndarray | np.generic | jax.Array):
        return _same_numbers(one, other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_alike(one[key], other[key], seen) for key in one)
    mine, theirs = _parts(one), _parts(other)
    if mine is not None and theirs is not None:
        return len(mine) == len(theirs) and all(_alike(a, b, seen) for a, b in zip(mine, theirs))
    same = one == other
    return same if isinstance(same, bool) else False


def _parts(thing: Any) -> list[Any] | None:
    """What a tuple, a function or a record is made of; None for anything else."""
    if isinstance(thing, tuple | list):
        return list(thing)
    if isinstance(thing, functools.partial):
        return [thing.func, thing.args, thing.keywords]
    if isinstance(thing, types.MethodType):
        return [thing.__func__, thing.__self__]
    if isinstance(thing, types.FunctionType):
        around = [*map(_content, thing.__closure__ or ()), *_globals(thing)]
        return [thing.__code__, thing.__defaults__, thing.__kwdefaults__, thing.__dict__, *around]
    if isinstance(thing, JITTED):
        return [getattr(thing, "__wrapped__", None)]
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return [getattr(thing, field.name, None) for field in dataclasses.fields(thing)]
    return None


def _globals(function: types.FunctionType) -> list[Any]:
    """What the names in its code stand for in its module, and those in functions inside it: two files may hold the
    same code, and other constants."""
    codes: list[types.CodeType] = [function.__code__]
    found: list[Any] = []
    for code in codes:
        found += [function.__globals__.get(name) for name in code.co_names]
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return found


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty: what it is for is not defined yet
        return None


def _same_numbers(one: Any, other: Any) -> bool:
    if any(isinstance(a, jax.core.Tracer) for a in (one, other)) or one.shape != other.shape:
        return False
    if one.dtype != other.dtype:
        return False
    if jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key):
        one, other = jax.random.key_data(one), jax.random.key_data(other)
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))

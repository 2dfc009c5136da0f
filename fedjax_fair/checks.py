"""Eager checks of what a user passes: one sentence that names the argument, what it got and what it accepts."""

import difflib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import optax

MANY = 40
"""Choices that are no longer listed where one is near what was given."""

T = TypeVar("T")
HOME = os.path.join(os.path.dirname(__file__), "")


def check_complete(name: str, array: Any, remedy: str = "fill it, or leave those examples out") -> None:
    """Raise ValueError for a masked array, or a list of them: what is below a mask would be taken for values."""
    rows = array if isinstance(array, list | tuple) else (array,)
    if any(isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row) for row in rows):
        raise ValueError(f"{name} must be complete, got a masked array: {remedy}")


def check_range(
    name: str,
    value: Any,
    low: float = -np.inf,
    high: float = np.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> None:
    """Raise ValueError unless ``low <= value <= high`` (strict where ``open_*``).

    Only Python and NumPy numbers are looked at: a JAX array may be a tracer (a swept hyper-parameter).
    """
    if isinstance(value, (bool, str)) or value is None:
        raise ValueError(f"{name} must be a number, got {value!r}")
    if not isinstance(value, (int, float, np.number)):
        return
    if np.isinf(value):
        raise ValueError(f"{name} must be finite, got {value}")
    too_low = value <= low if open_low else value < low
    too_high = value >= high if open_high else value > high
    if np.isnan(value) or too_low or too_high:
        raise ValueError(f"{name} must be {_interval(low, high, open_low, open_high)}, got {value}")


def check_known(name: str, value: Any) -> float:
    """Return ``value`` as a float, or raise ValueError where it is none yet: a swept setting under a trace."""
    try:
        return float(value)
    except TypeError as error:  # of which JAX's complaints about tracers are a kind
        raise ValueError(
            f"{name} must be a number that is known when the data are made, got {type(value).__name__}: data "
            "cannot depend on what JAX traces, such as a float that ff.sweep sweeps"
        ) from error


def warn(sentence: str, category: type[Warning] = UserWarning) -> None:
    """Warn in the line that called this package, however deep within it the reason was found."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(HOME):
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, category, stacklevel=level)


def said(error: Exception) -> str:
    """What a user's function raised, in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _interval(low: float, high: float, open_low: bool, open_high: bool) -> str:
    above, below = ("above" if open_low else "at least"), ("below" if open_high else "at most")
    if np.isinf(low) and np.isinf(high):
        return "a number"
    if np.isinf(high):
        return f"{above} {low:g}"
    if np.isinf(low):
        return f"{below} {high:g}"
    return f"in {'(' if open_low else '['}{low:g}, {high:g}{')' if open_high else ']'}"


def check_count(name: str, value: Any, low: int = 1, high: int | None = None) -> int:
    """Return ``value`` as an int, or raise ValueError unless it is a whole number from ``low`` to ``high``."""
    if isinstance(value, (bool, str)) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if value < low or (high is not None and value > high):
        wanted = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name} must be {wanted}, got {value}")
    return int(value)


def check_truth(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is True or False."""
    if not isinstance(value, bool | np.bool_):
        kind = getattr(value, "dtype", type(value).__name__)
        got = f"{kind}{list(value.shape)}" if getattr(value, "ndim", 0) else repr(value)
        raise ValueError(f"{name} must be True or False, got {got}")


def check_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return ``value``, or raise ValueError naming the nearest of ``choices``, of many in the place of all."""
    known = list(choices)
    if value in known:
        return value
    near = nearest(value, known)
    listed = f"{len(known)} names" if near and len(known) > MANY else ", ".join(known)
    raise ValueError(f"{name} must be one of {listed}, got {value!r}{near}")


def nearest(value: Any, choices: Iterable[str]) -> str:
    """The end of a sentence: which of ``choices`` was likely meant, or nothing where none is near."""
    folded = {choice.casefold(): choice for choice in choices}
    near = difflib.get_close_matches(str(value).casefold(), folded, n=1)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments by position."""
    try:
        accepted = inspect.signature(function)
    except ValueError:  # some that are not written in Python do not tell
        return True
    try:
        accepted.bind(*[None] * count)
    except TypeError:
        return False
    return True


def check_takes(name: str, function: Callable[..., Any], *arguments: str) -> None:
    """Raise ValueError unless a function can be called with so many arguments by position."""
    if not takes(function, len(arguments)):
        raise ValueError(f"{name} must take ({', '.join(arguments)}), got {inspect.signature(function)}")


def lookup(name: str, key: str, table: Mapping[str, T]) -> T:
    """``table[key]``, or ValueError naming the nearest key."""
    return table[check_choice(name, key, table)]


def check_optimizer(name: str, given: Any, example: str = "optax.sgd(.1)") -> None:
    """Raise ValueError for anything but an optimiser of optax."""
    if isinstance(given, optax.GradientTransformation):
        return
    simple = repr(given) if isinstance(given, bool | int | float | str) else type(given).__name__
    remedy = ": pass its .gradient_transformation()" if hasattr(given, "gradient_transformation") else ""
    got = getattr(given, "__name__", simple)
    raise ValueError(f"{name} must be an optax optimiser, such as {example}, got {got}{remedy}")

"""The grid of a sweep: its values, its points, and which of them share a program."""

import inspect
import itertools
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

Point = dict[str, Any]


def values_of(name: str, values: Iterable[Any]) -> list[Any]:
    """The values of one setting as a list of floats where all are numbers and one is a float."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"grid[{name!r}] must be a list of values, got {values!r}")
    found = [v.item() if isinstance(v, (np.generic, np.ndarray, jax.Array)) and v.ndim == 0 else v for v in values]
    if not found:
        raise ValueError(f"grid[{name!r}] must have at least one value, got an empty list")
    if odd := [v for v in found if not isinstance(v, Hashable)]:
        raise ValueError(f"grid[{name!r}] must have numbers, words or functions as values, got {odd[0]!r}")
    if doubles := [v for i, v in enumerate(found) if v in found[:i]]:
        raise ValueError(f"grid[{name!r}] must have every value once, got {doubles[0]!r} twice")
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in found)
    return [float(v) for v in found] if numbers and any(isinstance(v, float) for v in found) else found


def floats_of(axes: Mapping[str, list[Any]]) -> tuple[str, ...]:
    """The settings that are swept inside a program."""
    return tuple(name for name, values in axes.items() if all(isinstance(v, float) for v in values))


def points_of(axes: Mapping[str, list[Any]]) -> list[Point]:
    """All combinations, the last name varying fastest."""
    return [dict(zip(axes, combination)) for combination in itertools.product(*axes.values())]


def check_names(build: Callable, axes: Mapping[str, list[Any]]) -> None:
    """Refuse a grid whose names are not the arguments of ``build``."""
    try:
        inspect.signature(build).bind(**axes)
    except TypeError as error:
        takes = ", ".join(inspect.signature(build).parameters) or "nothing"
        raise ValueError(f"grid must name the arguments of build, {takes}, got {', '.join(axes)}") from error


def extremes(axes: Mapping[str, list[Any]]) -> list[Point]:
    """All combinations of what is no float; and of every float its smallest and its largest."""
    first = {name: values[0] for name, values in axes.items()}
    floats = [name for name, values in axes.items() if all(isinstance(v, float) for v in values)]
    others = [[(name, value) for value in values] for name, values in axes.items() if name not in floats]
    tried = [first | dict(combination) for combination in itertools.product(*others)]
    return tried + [
        first | {name: value} for name in floats for value in sorted({min(axes[name]), max(axes[name])})
    ]


def groups(points: list[Point], swept: tuple[str, ...]) -> list[tuple[tuple, list[int]]]:
    """The points that share a program: its fixed settings, and their places in ``points``."""
    found: dict[tuple, list[int]] = {}
    for i, point in enumerate(points):
        fixed = tuple((name, value) for name, value in point.items() if name not in swept)
        found.setdefault(fixed, []).append(i)
    return [*found.items()]


def label(point: Point) -> str:
    """A point in words, such as "alpha=0.5,eta_b=1"."""
    return ",".join(f"{name}={word(value)}" for name, value in point.items()) or "one point"


def readable(points: Mapping[str, Point]) -> dict[str, Point]:
    """The points, with what no file has a form for in words, such as functions."""

    def plain(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [plain(part) for part in value]
        return value if isinstance(value, bool | int | float | str | None) else word(value)

    return {name: {k: plain(v) for k, v in point.items()} for name, point in points.items()}


def numbered(names: list[str]) -> list[str]:
    """The names, with " #2", " #3" behind those that were there before.

    >>> numbered(["a", "a", "a #2", "a"])
    ['a', 'a #2', 'a #2 #2', 'a #3']
    """
    found: list[str] = []
    for name in names:
        others = (f"{name} #{i}" for i in itertools.count(2))
        found.append(next(free for free in itertools.chain([name], others) if free not in found))
    return found


def word(value: Any) -> str:
    """A value in words: a function by its name, a number by twelve digits.

    >>> word(0.1 + 0.2), word(partial(round, ndigits=2))
    ('0.3', 'round(ndigits=2)')
    """
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, partial):
        given = [word(each) for each in value.args] + [f"{name}={word(v)}" for name, v in value.keywords.items()]
        return f"{word(value.func)}({', '.join(given)})"
    where = r" at 0x[0-9a-f]+"  # differs from process to process
    return re.sub(where, "", str(getattr(value, "__name__", value)))

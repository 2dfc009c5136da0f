"""How numbers of tables are printed: as many digits as they carry."""

import math
import re
from collections.abc import Sequence

import numpy as np

from fedjax_fair.metrics.kind import Metric


def digits_of(key: str, metric: Metric) -> tuple[int, str]:
    """How a measure is printed: digits, and the form of Python's format."""
    if key in ("gini", "jain"):
        return 3, "f"
    if metric.unit == "%":
        return 1, "f"
    if not metric.unit and metric.range[0] >= -1 and metric.range[1] <= 1:
        return (4 if key == "variance" else 3), "f"
    return 4, "g"


def spread(values: np.ndarray, digits: int, form: str = "f") -> str:
    """Mean±std of the finite values; a dash where there is none. What rounds to nothing has no minus, ``z``."""
    values = values[np.isfinite(values)]
    if not len(values):
        return "–"
    numbers = [values.mean()] if len(values) == 1 else [values.mean(), values.std(ddof=1)]
    largest = np.abs(numbers).max()
    if form == "g" and len(numbers) > 1:
        digits, form = together(numbers, digits)
        if form == "f" and numbers[1] > 0:  # and a digit of the deviation
            digits = max(digits, min(-math.floor(math.log10(numbers[1])), 3))
    shown = [f"{number:z.{digits}{form}}" for number in numbers]
    fractions = digits >= 3 and largest < 1
    return "±".join(without_zero(number) if fractions else number for number in shown)


def together(numbers: Sequence[float], digits: int) -> tuple[int, str]:
    """How numbers of one cell are printed, to the same place after the point: the largest with so many digits."""
    largest = np.abs(numbers).max()
    if 1e-4 <= largest < 1e6:
        return max(digits - 1 - math.floor(math.log10(largest)), 0), "f"
    return digits, "g"


def signed(numbers: Sequence[float], digits: int, form: str) -> list[str]:
    """Differences, or the ends of their interval, with their signs."""
    fractions = form == "f" and digits >= 3
    if form == "g":
        digits, form = together(numbers, digits)
    shown = [f"{number:+z.{digits}{form}}" for number in numbers]
    return [without_zero(number) if fractions else number for number in shown]


def without_zero(number: str) -> str:
    """A fraction as it is printed.

    >>> without_zero("0.25"), without_zero("-0.25"), without_zero("+10.25")
    ('.25', '-.25', '+10.25')
    """
    return re.sub(r"^([+-]?)0\.", r"\1.", number)

"""Cells of a table that are words, and were meant to be numbers: a mark for a gap, a comma for a point."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
COMMAS = re.compile(r"\s*[+-]?[0-9][0-9.]*,[0-9][0-9.,]*\s*")
"""As a spreadsheet may write them: 20,5 or 1,000,000 or 1.000,5."""
DECIMAL_COMMA = re.compile(r"\s*[+-]?[0-9]+(,[0-9]+)?([eE][+-]?[0-9]+)?\s*")
THOUSANDS = re.compile(r"\s*[+-]?[1-9][0-9]{0,2},[0-9]{3}\s*")
GAPS = frozenset(["?", "-", "--", "."])
"""Marks that stand for a missing number where no other word is."""
NUMERIC = 0.9
"""From which share of a column's different cells numbers are what it is meant to hold."""


def with_decimal_commas(cells: Sequence[str | None]) -> list[float | None] | None:
    """Numbers with decimal commas, and whole ones; None where a cell is anything else, or all may be thousands.

    >>> with_decimal_commas(["1,5", "2", None]), with_decimal_commas(["1,500", "2"])
    ([1.5, 2.0, None], None)
    """
    words = [cell for cell in cells if cell is not None]
    commas = [word for word in words if "," in word]
    if not commas or all(map(THOUSANDS.fullmatch, commas)) or not all(map(DECIMAL_COMMA.fullmatch, words)):
        return None
    return [None if cell is None else float(cell.replace(",", ".")) for cell in cells]


def check_words(name: str, values: np.ndarray, remedy: str) -> None:
    """Raise ValueError for a column of numbers that a few cells make one of words.

    These are a tenth of its different cells at most; or a mark such as ``?``, which stands for a gap where no other
    word is.
    """
    listed, known, strange = _words(values)
    commas = {word for word in known if COMMAS.fullmatch(word)}
    if commas and len(commas) + _count(known) >= NUMERIC * len(known):
        _refuse_commas(f"column {name!r}", listed, commas, f", or {remedy}")
    if strange and strange != known and (_count(known) >= NUMERIC * len(known) or _is_gap(strange)):
        _refuse(f"column {name!r}", listed, strange, f"empty it (missing= fills gaps), {remedy}")


def check_labels(name: str, values: np.ndarray) -> None:
    """The same of labels, which may be whole numbers and words: ages from 0 to 17 and 18+ are classes.

    So numbers are meant where some are not whole; numbers with commas are, where most rows have another one.
    """
    listed, known, strange = _words(values)
    commas = {word for word in known if COMMAS.fullmatch(word)}
    if len(commas) + _count(known) >= NUMERIC * len(known) and len(commas) > len(listed) / 2:
        _refuse_commas(f"label {name!r}", listed, commas, "")
    decimal = any(not WHOLE.fullmatch(word) for word in known - strange)
    if strange and strange != known and (_is_gap(strange) or (decimal and _count(known) >= NUMERIC * len(known))):
        _refuse(f"label {name!r}", listed, strange, "or leave its row out")


def _words(values: np.ndarray) -> tuple[list[Any], set[str], set[str]]:
    """The cells, the different words among them, and those that are no numbers; nothing of a column of numbers."""
    listed = values.tolist() if values.dtype.kind == "O" else []
    known = {word for word in listed if word is not None}
    return listed, known, {word for word in known if not NUMBER.fullmatch(word)}


def _refuse_commas(what: str, listed: list[Any], commas: set[str], remedy: str) -> None:
    row = next(i for i, word in enumerate(listed) if word in commas)
    raise ValueError(
        f"{what} holds numbers with a comma, such as {listed[row]!r} in row {row}: write them with a decimal "
        f"point, and nothing between thousands{remedy}"
    )


def _refuse(what: str, listed: list[Any], strange: set[str], remedy: str) -> None:
    row = next(i for i, word in enumerate(listed) if word in strange)
    count = sum(word is not None and word not in strange for word in listed)
    raise ValueError(
        f"{what} is numeric in {count} of {len(listed)} rows, but row {row} holds {listed[row]!r}: correct it, "
        f"{remedy}"
    )


def _is_gap(strange: set[str]) -> bool:
    return len(strange) == 1 and strange <= GAPS


def _count(words: Iterable[str]) -> int:
    return sum(NUMBER.fullmatch(word) is not None for word in words)

"""Cells of a table that are words, and were meant to be numbers: a mark for a gap, a comma for a point."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
COMMAS = re.compile(r"\s*[+-]?[0-9][0-9.]*,[0-9][0-9.,]*\s*")
"""As a spreadsheet may write them: 20,5 or 1,000,000 or 1.000,5."""
NUMERIC = 0.9
"""From which share of a column's different cells numbers are what it is meant to hold."""

DECIMAL_COMMA = re.compile(rb'(?:^|;)"?\s*[+-]?[0-9]+,[0-9]+\s*"?(?=;|\r?$)', re.MULTILINE)
DECIMAL_POINT = re.compile(rb'(?:^|;)"?\s*[+-]?[0-9]*\.[0-9]+\s*"?(?=;|\r?$)', re.MULTILINE)


def point_of(data: bytes) -> str:
    """The decimal point of a CSV file whose columns are told apart by semicolons: "," where numbers have none else.

    >>> point_of(b"a;b\\n1,5;x\\n"), point_of(b"a;b\\n1.5;7,5\\n")
    (',', '.')
    """
    return "," if DECIMAL_COMMA.search(data) and not DECIMAL_POINT.search(data) else "."


def check_words(name: str, values: np.ndarray, remedy: str, kind: str = "column") -> None:
    """Raise ValueError for a column of numbers that a few cells make one of words.

    These are a tenth of its different cells at most; or any number of them without a letter or a digit, such as
    ``?``, which stand for a gap.
    """
    if values.dtype.kind != "O":
        return
    listed = values.tolist()
    known = {word for word in listed if word is not None}
    commas = {word for word in known if COMMAS.fullmatch(word)}
    if commas and len(commas) + _count(known) >= NUMERIC * len(known):
        row = next(i for i, word in enumerate(listed) if word in commas)
        raise ValueError(
            f"{kind} {name!r} holds numbers with a comma, such as {listed[row]!r} in row {row}: write them with a "
            "decimal point, and nothing between thousands"
        )
    strange = {word for word in known if not NUMBER.fullmatch(word)}
    marks = not any(letter.isalnum() for word in strange for letter in word)
    if not strange or strange == known or (_count(known) < NUMERIC * len(known) and not marks):
        return
    row = next(i for i, word in enumerate(listed) if word in strange)
    count = sum(word is not None and word not in strange for word in listed)
    raise ValueError(
        f"{kind} {name!r} is numeric in {count} of {len(listed)} rows, but row {row} holds {listed[row]!r}: "
        f"correct it, {remedy}"
    )


def _count(words: Iterable[Any]) -> int:
    return sum(NUMBER.fullmatch(word) is not None for word in words)

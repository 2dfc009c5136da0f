"""The columns of a table, and what their words and gaps become."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_fair.checks import warn
from fedjax_fair.data.sources.cells import check_words

REMEDY = "leave the column out of features, or number its cells as words by words='codes'"
COARSE = 0.01
"""Standard deviations between neighbouring numbers of 32 bits from which they are called coarse."""
MOST_WORDS = 100
"""Different words in a column that may become a column each."""


class Column(NamedTuple):
    """One column: numbers f64[E], NaN where one is missing, or words, None where one is missing."""

    values: np.ndarray
    whole: bool = False
    """Whole numbers, or truth values."""
    exact: np.ndarray | None = None
    """Whole numbers without a gap as integers [E]: beyond 2**53 ``values`` cannot tell them apart."""
    named: bool = False
    """Words that the table itself says are categories."""

    @property
    def apart(self) -> np.ndarray:
        """The values, so that different ones differ."""
        return self.values if self.exact is None else self.exact

    @property
    def missing(self) -> np.ndarray:
        """bool[E]."""
        if self.values.dtype.kind == "f":
            return np.isnan(self.values)
        return np.array([word is None for word in self.values], bool)


def word_columns(made: Any) -> list[str]:
    """The columns of a pyarrow table that hold words."""
    return [name for name, field in zip(made.column_names, made.schema) if _is_text(field.type)]


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def column_of(made: Any, name: str) -> Column:
    """One column of a pyarrow table; ValueError for what is neither numbers nor words."""
    import pyarrow
    from pyarrow import types

    values, kind = made.column(name), made.schema.field(name).type
    named = types.is_dictionary(kind)
    if named:
        values, kind = values.cast(kind.value_type), kind.value_type
    if types.is_decimal(kind) and kind.scale <= 0:  # as databases keep whole numbers
        try:
            values, kind = values.cast(pyarrow.int64()), pyarrow.int64()
        except pyarrow.ArrowInvalid:  # beyond 64 bits: words, which stay apart
            return Column(np.array([None if v is None else str(int(v)) for v in values.to_pylist()], object))
    whole = types.is_integer(kind) or types.is_boolean(kind)
    if types.is_null(kind):
        return Column(np.full(len(values), np.nan))
    if whole or types.is_floating(kind) or types.is_decimal(kind):
        numbers = values.cast(pyarrow.int8()) if types.is_boolean(kind) else values
        found = numbers.cast(pyarrow.float64(), safe=False).to_numpy()
        exact = numbers.to_numpy() if whole and not values.null_count else None
        if exact is not None and exact.max(initial=0) <= np.iinfo(np.int64).max:
            exact = exact.astype(np.int64)
        return Column(np.asarray(found, np.float64), whole, exact)
    if _is_text(kind):
        return Column(np.array(values.to_pylist(), object), named=named)
    raise ValueError(
        f"column {name!r} must hold numbers or words, got {kind}: leave it out of features, or convert it"
    )


def names_of(column: Column) -> np.ndarray:
    """The clients' names of a column: whole numbers as such, so that 10 comes after 9, else words.

    ``007`` is a word. Missing ones are None.
    """
    if column.values.dtype.kind != "f":
        words = column.values
        if all(word is not None and word.isdecimal() and str(int(word)) == word for word in words):
            numbers = [int(word) for word in words]
            return np.array(numbers) if max(numbers) < 2**62 else words.astype(str)
        return words if None in words.tolist() else words.astype(str)
    return column.values.astype(str) if column.exact is None else column.apart


def _check_range(name: str, columns: Sequence[Column]) -> None:
    for column in columns:
        if (large := abs(column.values) > np.finfo(np.float32).max).any():
            raise ValueError(
                f"column {name!r} must hold numbers of 32 bits, got {column.values[large][0]} in row "
                f"{int(large.argmax())}"
            )


def check_resolution(what: str, name: str, column: Column) -> None:
    """A UserWarning where 32 bits round away what tells a column's numbers apart."""
    values, known = column.values[~column.missing], column.apart[~column.missing]
    if not values.size or known.min() == known.max():
        return
    # Of integers the unsigned difference: it neither rounds, as beyond 2**53 they do, nor overflows.
    above = known - known.min() if known.dtype.kind == "f" else (known - known.min()).view(np.uint64)
    apart, spread = float(np.spacing(np.float32(abs(values).max()))), float(above.std())
    if apart > COARSE * spread:
        warn(
            f"{what} {name!r} holds numbers up to {abs(values).max():.10g} with a standard deviation of "
            f"{spread:.3g}, and in 32 bits they lie {apart:.3g} apart: subtract what they have in common beforehand"
        )


def check_missing(columns: dict[str, list[Column]], missing: str | None, words: str) -> None:
    """Raise ValueError for gaps that nothing is to stand for."""
    gaps = {name: sum(int(column.missing.sum()) for column in of) for name, of in columns.items()}
    coded = [name for name, of in columns.items() if gaps[name] and of[0].values.dtype.kind == "O"]
    if missing is not None and words == "codes" and coded:
        raise ValueError(
            f"column {coded[0]!r} misses {gaps[coded[0]]} words, which have no {missing}: words must be 'one-hot', "
            "got 'codes'"
        )
    holes = {name: count for name, count in gaps.items() if count}
    if missing is None and holes:
        rows = sum(len(column.values) for column in next(iter(columns.values())))
        shown = ", ".join(f"{name} {count}" for name, count in [*holes.items()][:6])
        more = f" and {len(holes) - 6} more" if len(holes) > 6 else ""
        raise ValueError(
            f"features must be complete in all {rows} rows, got columns with missing values, {shown}{more}: fill "
            "them by missing='mean' or 'median' (of the training rows), or leave them out of features"
        )


def encoded(
    name: str, columns: Sequence[Column], words: str
) -> tuple[list[np.ndarray], list[str], bool, tuple[str, ...] | None]:
    """A column of features, of the training and maybe of the test rows, as numbers.

    Returns per part f32[E, K], the K names, whether it holds numbers, and the words where it does not. Word k is
    the number k ("codes") or column k of zeros and ones ("one-hot"); a missing word is NaN, or zeros.

    Raises:
      ValueError: too many words for a column each, a few words among numbers, or words of the test rows that no
        training row has.
    """
    for column in columns if words == "one-hot" else ():
        if not column.named:
            check_words(name, column.values, REMEDY)
    numeric = {column.values.dtype.kind == "f" for column in columns if not column.missing.all()}
    if numeric <= {True}:
        _check_range(name, columns)
        check_resolution("column", name, columns[0])
        return [column.values[:, None].astype(np.float32) for column in columns], [name], True, None
    if len(numeric) > 1:
        raise ValueError(f"column {name!r} must hold numbers or words in both tables, got words in one of them")
    known = sorted({word for word in columns[0].values.tolist() if isinstance(word, str)})
    rank = {word: k for k, word in enumerate(known)}
    codes = []
    for column in columns:
        listed = [word for word in column.values.tolist() if isinstance(word, str)]
        if strange := sorted(set(listed) - rank.keys()):
            raise ValueError(f"column {name!r} of test must hold words of the training rows, got {strange[0]!r}")
        codes.append(np.array([rank.get(word, -1) for word in column.values.tolist()]))
    if words == "codes":
        found = [np.where(code < 0, np.nan, code).astype(np.float32)[:, None] for code in codes]
        return found, [name], False, tuple(known)
    if len(known) > MOST_WORDS:
        raise ValueError(
            f"column {name!r} holds {len(known)} different words, and at most {MOST_WORDS} become columns: leave "
            "it out of features, or number them by words='codes'"
        )
    found = [(code[:, None] == np.arange(len(known))).astype(np.float32) for code in codes]
    return found, [f"{name}={word}" for word in known], False, tuple(known)

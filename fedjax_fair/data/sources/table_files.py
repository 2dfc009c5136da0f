"""Files of tables and data frames, read by pyarrow."""

import gzip
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedjax_fair.data.sources.cells import with_decimal_commas
from fedjax_fair.data.sources.examples import check_file

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
INDEX = re.compile("__index_level_[0-9]+__")
"""What pandas calls an index without a name in a Parquet file."""


def is_table(path: Path) -> bool:
    """Whether a file's name is one of a table."""
    return path.name.lower().endswith(SUFFIXES)


def read_table(source: Any, name: str, names: Sequence[str], words: Sequence[str] = ()) -> Any:
    """A CSV or Parquet file, or a data frame, as a pyarrow table.

    Of a CSV file the columns ``names``, of clients and groups, are words, where a cell is 007 or NA, too; so are
    the columns ``words``.

    Raises:
      ValueError: a file that is not there, of another kind, damaged, or without rows, or no table at all.
    """
    arrow = _arrow()
    if not isinstance(source, str | Path):
        if not hasattr(source, "__arrow_c_stream__") or (
            hasattr(source, "iloc") and not hasattr(source, "columns")
        ):
            kinds = "a path to a CSV or Parquet file, or a data frame"
            raise ValueError(f"{name} must be {kinds}, got {type(source).__name__}")
        try:
            pandas = hasattr(source, "iloc")  # whose index would be a column
            made = arrow.Table.from_pandas(source, preserve_index=False) if pandas else arrow.table(source)
        except (arrow.ArrowException, TypeError, ValueError) as error:
            raise ValueError(f"{name} must hold numbers or words in every column: {_first(error)}") from None
    else:
        path = check_file(name, source)
        if not is_table(path):
            raise ValueError(f"{name} must be a file that ends in {', '.join(SUFFIXES)}, got {path}")
        try:
            made = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path, names, words)
        except (OSError, EOFError, zlib.error, arrow.ArrowException, UnicodeDecodeError) as error:
            raise ValueError(f"{name} {path} cannot be read: {_first(error)}") from error
    made = made.drop_columns([column for column in made.column_names if INDEX.fullmatch(column)])
    if not made.num_rows:
        raise ValueError(f"{name} must have rows, got a table without any")
    twice = [column for column in made.column_names if made.column_names.count(column) > 1]
    if twice:
        raise ValueError(f"{name} must have columns of different names, got {twice[0]!r} twice")
    return made


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ValueError("tables need pyarrow: pip install pyarrow") from error
    return pyarrow


def _first(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _parquet(path: Path) -> Any:
    from pyarrow import parquet

    return parquet.read_table(path, use_threads=False, partitioning=None)


def _csv(path: Path, names: Sequence[str], words: Sequence[str]) -> Any:
    """In one piece, for what a column holds is decided by the first piece alone."""
    import pyarrow
    from pyarrow import compute, csv

    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix.lower() == ".gz" else data
    tabs, header = path.name.lower().removesuffix(".gz").endswith(".tsv"), data.partition(b"\n")[0]
    points = b";" in header and b"," not in header  # as spreadsheets write where the comma is the decimal point
    options = csv.ConvertOptions(column_types=dict.fromkeys([*names, *words], pyarrow.string()))
    made = csv.read_csv(
        pyarrow.BufferReader(data),
        read_options=csv.ReadOptions(block_size=max(len(data) + 1, 1024), use_threads=False),
        parse_options=csv.ParseOptions(delimiter="\t" if tabs else ";" if points else ",", newlines_in_values=True),
        convert_options=options,
    )
    for i, name in enumerate(made.column_names):
        if made.schema.field(i).type == pyarrow.string():  # NA is a name, but no word among the features
            gaps = pyarrow.array([""] if name in names else options.null_values)
            held = made.column(i)
            held = compute.if_else(compute.is_in(held, value_set=gaps), pyarrow.scalar(None, held.type), held)
            numbers = with_decimal_commas(held.to_pylist()) if points and name not in (*names, *words) else None
            made = made.set_column(i, name, held if numbers is None else pyarrow.array(numbers))
    return made

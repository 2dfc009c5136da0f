"""A table with a column of clients: CSV, Parquet, or a data frame."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from fedjax_fair.checks import check_choice, check_truth, warn
from fedjax_fair.data.federated import FederatedData
from fedjax_fair.data.groups import by_name
from fedjax_fair.data.names import Names
from fedjax_fair.data.sources.cells import check_labels
from fedjax_fair.data.sources.columns import (
    Column,
    check_missing,
    check_resolution,
    column_of,
    encoded,
    names_of,
    word_columns,
)
from fedjax_fair.data.sources.examples import Examples, Part, check_tested, deal, large_enough, numbered
from fedjax_fair.data.sources.table_files import read_table

FEW = 100  # rows: of fewer, all may differ by chance


def table(
    source: Any,
    *,
    client: str,
    label: str | Sequence[str],
    features: Sequence[str] | None = None,
    test: Any = None,
    group: str | None = None,
    regression: bool = False,
    missing: Literal["mean", "median"] | None = None,
    words: Literal["one-hot", "codes"] = "one-hot",
    standardize: bool = True,
    min_examples: int | None = None,
    seed: int = 0,
    split: Sequence[float] | None = None,
) -> FederatedData:
    """Read a table, a row per example, of which one column says whose it is.

    Labels that are words, truth values or whole numbers become classes, in sorted order; what they were is kept in
    ``data.names.labels``, which is None where they were 0, ..., C - 1 already. Decimal numbers are targets of a
    regression. Several columns make y [E, L], of targets, or of labels 0 and 1 where each column has two classes.
    Words among the features become numbers; which is which is kept in ``data.names.categories``.

    Args:
      source: a path to a file ``.csv``, ``.tsv``, either of them ``.gz``, or ``.parquet``; or a data frame of
        pandas, Polars or pyarrow.
      client: the column of the clients' names.
      label: the column of what is to be predicted, or a list of several.
      features: the columns of ``x``; by default all others.
      test: a table of test examples of the same clients; by default they are a share of every client's rows.
      group: the column of what every client is one of, such as its country; no feature.
      regression: whole numbers in ``label`` are targets, too, and not classes.
      missing: what stands for a missing number: the "mean" or "median" of the column over the rows that clients
        train on. By default gaps are refused. A missing word is, as "one-hot", none of the words.
      words: a column of zeros and ones for every word, or "codes", the number of the word.
      standardize: hand numbers to the model with mean 0 and standard deviation 1 over the training rows. The
        store ``data.x`` keeps them as they are in the table.
      min_examples: leave out clients with fewer rows (given test ones aside); a UserWarning says how many.
      seed: of the split.
      split: shares of (train, validation, test); by default (.9, .1, 0) beside ``test``, else (.8, .1, .1).

    Returns:
      :class:`FederatedData` with x f32[E, F], whose columns are ``data.names.features``; ``data.clients`` are the
      clients' names, sorted.

    Raises: ValueError, in one sentence: a table that cannot be read; columns that it lacks; missing values (which
    columns, and how many); as "one-hot" a column of more than 100 words, or of numbers but for a few cells; a
    column without a value among the training rows; and as :meth:`FederatedData.from_arrays`.
    """
    found = read_columns(
        source,
        client=client,
        label=label,
        features=features,
        test=test,
        group=group,
        regression=regression,
        missing=missing,
        words=words,
        standardize=standardize,
    )
    return deal(large_enough(found, min_examples), seed=seed, split=split)


def read_columns(
    source: Any,
    *,
    client: str,
    label: str | Sequence[str],
    features: Sequence[str] | None = None,
    test: Any = None,
    group: str | None = None,
    regression: bool = False,
    missing: str | None = None,
    words: str = "one-hot",
    standardize: bool = True,
) -> Examples:
    """What the table holds; see :func:`table`."""
    check_truth("regression", regression)
    check_truth("standardize", standardize)
    if missing is not None:
        check_choice("missing", missing, ("mean", "median"))
    check_choice("words", words, ("one-hot", "codes"))
    targets = [*map(str, label)] if isinstance(label, list | tuple) else [str(label)]
    client = str(client)  # a data frame's columns may be numbers
    trained = read_table(source, "source", [client, *([] if group is None else [str(group)])])
    tables = {"source": trained}
    if test is not None:  # words of the training rows are words there, too, if all of them look like numbers
        tables["test"] = read_table(test, "test", [client], word_columns(trained))
    if group is not None and str(check_choice("group", str(group), trained.column_names)) in (client, *targets):
        raise ValueError(f"group must be a column of its own, got {group!r}, which is client or label")
    if group is not None and str(group) in map(str, [] if features is None else features):
        raise ValueError(f"features must leave out the group column, got {group!r}: to train on it, too, copy it")
    chosen = _chosen([name for name in trained.column_names if name != str(group)], client, targets, features)
    for name, one in tables.items():
        for column in (client, *targets, *chosen):
            if column not in one.column_names:
                raise ValueError(f"{name} must have a column {column!r}, got {', '.join(one.column_names)}")
    owners = [names_of(_complete(one, client, "client")) for one in tables.values()]
    if len({owner.dtype.kind for owner in owners}) > 1:  # 007 in one of them
        owners = [owner.astype(str) for owner in owners]
    given_labels = {name: [_complete(one, name, "label") for one in tables.values()] for name in targets}
    if len(targets) > 1:
        y, y_test, labels = _several(given_labels, regression)
    else:
        y, y_test, labels = _labels(targets[0], given_labels[targets[0]], regression)
    columns = {name: [column_of(one, name) for one in tables.values()] for name in chosen}
    check_missing(columns, missing, words)
    if features is None:
        _remark_on_identifiers(columns)
    parts: list[list[np.ndarray]] = []
    heads: list[str] = []
    scaled: list[bool] = []
    categories = []
    for name, of in columns.items():
        values, names, numbers, known = encoded(name, of, words)
        parts.append(values)
        heads += names
        scaled += [numbers] * len(names)
        categories += [] if known is None else [(name, known)]
    xs = [np.concatenate(part, axis=1) for part in zip(*parts)]
    train = Part(xs[0], y, owners[0])
    grouped = None if group is None else by_name(owners[0], names_of(_complete(trained, str(group), "group")))
    tested = None if test is None or y_test is None else Part(xs[1], y_test, owners[1])
    check_tested(tested, train, "test")
    fill: Any = missing if any(np.isnan(x).any() for x in xs) else None
    scale = np.array(scaled) if standardize and any(scaled) else None
    return Examples(train, tested, Names(None, labels, tuple(heads), tuple(categories)), fill, scale, grouped)


def _chosen(columns: list[str], client: Any, targets: list[str], features: Any) -> list[str]:
    """The columns of features."""
    check_choice("client", client, columns)
    if not targets:
        raise ValueError("label must be a column, or a list of them, got an empty list")
    for label in targets:
        check_choice("label", label, columns)
        if client == label:
            raise ValueError(f"client and label must be two columns, got {client!r} for both")
        if targets.count(label) > 1:
            raise ValueError(f"label must name a column once, got {label!r} twice")
    if isinstance(features, str):
        raise ValueError(f"features must be a list of columns, got the word {features!r}")
    chosen = (
        [name for name in columns if name not in (client, *targets)] if features is None else [*map(str, features)]
    )
    if not chosen:
        raise ValueError(f"features must be at least one column beside {client!r} and {targets[0]!r}, got none")
    for name in chosen:
        check_choice("features", name, columns)
        if name in (client, *targets):
            raise ValueError(f"features must leave out the client and label columns, got {name!r}")
        if chosen.count(name) > 1:
            raise ValueError(f"features must name a column once, got {name!r} twice")
    return chosen


def _complete(one: Any, name: str, what: str) -> Column:
    """The column of clients or labels; ValueError where a row has none."""
    column = column_of(one, name)
    if count := int(column.missing.sum()):
        first = int(column.missing.argmax())
        raise ValueError(
            f"{what} column {name!r} must be there in every row, got {count} of {one.num_rows} without, first row "
            f"{first}"
        )
    return column


def _several(columns: dict[str, list[Column]], regression: bool) -> tuple[np.ndarray, np.ndarray | None, Any]:
    """Several targets f32[E, L], or labels of 0 and 1 i32[E, L]: of two words the second is 1.

    Raises:
      ValueError: a column of other classes than two, or words beside numbers.
    """
    made = {name: _labels(name, of, regression) for name, of in columns.items()}
    kinds = {y.dtype.kind for y, _, _ in made.values()}
    if len(kinds) > 1:
        raise ValueError(f"label must name columns of numbers, or of two classes each, got both in {[*made]}")
    for name, (y, _, words) in made.items() if kinds != {"f"} else ():
        of = columns[name]
        if all(column.whole and np.isin(column.apart, (0, 1)).all() for column in of):  # also where all are 1
            made[name] = of[0].apart, of[1].apart if len(of) > 1 else None, None
        elif (count := int(y.max()) + 1) != 2:
            raise ValueError(f"label {name!r} must have two classes beside other labels, got {words or count}")
    tested = [tests for _, tests, _ in made.values() if tests is not None]
    return np.stack([y for y, _, _ in made.values()], 1), np.stack(tested, 1) if tested else None, None


def _labels(name: str, columns: list[Column], regression: bool) -> tuple[np.ndarray, np.ndarray | None, Any]:
    """Classes, or targets where numbers are not whole, or where ``regression`` says so."""
    for column in (column for column in columns if not column.named):
        check_labels(name, column.values)
    if regression and any(column.values.dtype.kind != "f" for column in columns):
        raise ValueError("label must be numbers for a regression, got words")
    if regression or any(column.values.dtype.kind == "f" and not column.whole for column in columns):
        if any(column.values.dtype.kind != "f" for column in columns):
            raise ValueError("label must be numbers or words in both tables, got words in one of them")
        check_resolution("label", name, columns[0])
        targets = [column.values.astype(np.float32) for column in columns]
        return targets[0], targets[1] if len(targets) > 1 else None, None
    numbers = all(column.whole for column in columns)
    ys = [column.apart if numbers else column.values.astype(str) for column in columns]
    return numbered(ys[0], ys[1] if len(ys) > 1 else None, "label")


def _remark_on_identifiers(columns: dict[str, list[Column]]) -> None:
    """A UserWarning where whole numbers that nobody has chosen number the rows."""
    for name, (column, *_) in columns.items():
        rows = len(column.values)
        if column.whole and rows > FEW and len(np.unique(column.apart)) == rows:
            warn(
                f"feature {name!r} has another whole number in each of the {rows} rows: if it only numbers them, "
                "choose the features (features=, --features)"
            )

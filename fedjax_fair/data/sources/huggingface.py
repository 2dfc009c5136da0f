"""Data sets of Hugging Face's ``datasets`` with a column of clients."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fedjax_fair.checks import check_choice, check_truth, warn
from fedjax_fair.data.federated import FederatedData, Normalizer
from fedjax_fair.data.groups import by_name
from fedjax_fair.data.names import Names
from fedjax_fair.data.partition.natural import is_missing
from fedjax_fair.data.sources.examples import Examples, Part, check_tested, deal, large_enough, numbered
from fedjax_fair.data.sources.images import GREY, is_deep
from fedjax_fair.data.store import known


def huggingface(
    source: Any,
    *,
    client: str,
    label: str,
    features: str | Sequence[str],
    test: Any = None,
    regression: bool = False,
    group: str | None = None,
    normalizer: Normalizer | Literal["auto"] | None = "auto",
    min_examples: int | None = None,
    seed: int = 0,
    split: Sequence[float] | None = None,
) -> FederatedData:
    """Read a data set of Hugging Face, a row per example, of which one column says whose it is.

    Labels that are words or whole numbers become classes, in sorted order, and floats are targets of a regression;
    those of a ``ClassLabel`` keep its numbers and names.

    Args:
      source: a ``datasets.Dataset``; a ``DatasetDict`` whose ``train`` is trained on, and whose ``test``, where it
        is there, holds test examples of the same clients; or a name, which ``datasets.load_dataset`` looks for.
      client: the column of the clients' names.
      label: the column of what is to be predicted.
      features: the column of ``x``, of images, arrays or token ids of one shape; or several of numbers, x [E, F].
      test: a ``Dataset`` of test examples of the same clients, in the place of the dictionary's.
      regression: whole numbers in ``label`` are targets, too, and not classes.
      group: the column of what every client is one of.
      normalizer: as in :meth:`FederatedData.from_arrays`.
      min_examples: leave out clients with fewer examples (given test ones aside); a UserWarning says how many.
      seed: of the split.
      split: shares of (train, validation, test); by default (.9, .1, 0) beside test examples, else (.8, .1, .1).

    Raises: ValueError, in one sentence: a name without ``pip install 'fedjax-fair[huggingface]'``, columns that it
    lacks, features that are no numbers of one shape, and as :meth:`FederatedData.from_arrays`.
    """
    train, tests = _parts(source, test)
    labels, others = (_classes(one, label) for one in (train, tests))
    if labels and others and labels != others:
        raise ValueError(
            f"test must have the classes of source in {label!r}, in their order, got {', '.join(others)}"
        )
    columns: Any = {"client": client, "label": label, "features": features, "group": group}
    found = of_columns(train, tests, **columns, labels=labels, regression=regression)
    return deal(large_enough(found, min_examples), seed=seed, split=split, normalizer=normalizer)


def _classes(one: Any, label: str) -> list[str] | None:
    """The names of a ``ClassLabel``."""
    names = getattr(dict(getattr(one, "features", None) or {}).get(label), "names", None)
    return None if names is None else [*names]


def _parts(source: Any, test: Any) -> tuple[Any, Any]:
    """Training examples, and test examples where there are any."""
    if isinstance(source, str):
        try:
            import datasets
        except ImportError as error:
            raise ValueError(
                "huggingface takes a name only with pip install 'fedjax-fair[huggingface]', got no datasets"
            ) from error
        try:
            source = datasets.load_dataset(source)
        except (OSError, ValueError) as error:  # the package's own are kinds of these
            raise ValueError(f"source {source} cannot be loaded: {str(error).partition(chr(10))[0]}") from error
    if isinstance(source, Mapping):
        check_choice("split of source", "train", source)
        if "validation" in source:
            warn("the validation split of source is not read: validation examples are a share of train's")
        test = source.get("test") if test is None else test
        source = source["train"]
    for name, one in (("source", source), ("test", test)):
        if not (name == "test" and one is None) and not hasattr(one, "column_names"):
            kinds = "a datasets.Dataset" + ", a DatasetDict or a name" * (name == "source")
            raise ValueError(f"{name} must be {kinds}, got {type(one).__name__}")
    return source, test


def of_columns(
    train: Any,
    tests: Any,
    *,
    client: str,
    label: str,
    features: str | Sequence[str],
    group: str | None,
    labels: Sequence[str] | None,
    regression: bool,
) -> Examples:
    """What tables hold that have ``column_names`` and give a column by its name; ``labels`` are the classes."""
    check_truth("regression", regression)
    for name, one in (("source", train), ("test", tests)):
        for argument, column in _columns(client, label, features, group) if one is not None else ():
            if column not in one.column_names:
                raise ValueError(
                    f"{argument} must be a column of {name}, one of {', '.join(one.column_names)}, got {column!r}"
                )
    mine = _part(train, client, label, features)
    others = None if tests is None else _part(tests, client, label, features)
    check_tested(others, mine, "test")
    for part in (mine, others) if labels is not None else ():
        if part is not None and len(strange := np.setdiff1d(part.y, np.arange(len(labels or ())))):
            raise ValueError(f"label must be one of the {len(labels or ())} classes of {label!r}, got {strange[0]}")
    if regression:
        mine = _targets(mine, label, labels)
        others, labels = None if others is None else _targets(others, label, labels), None
    elif labels is None and mine.y.ndim == 1 and mine.y.dtype.kind in "iuUb":
        y, y_test, labels = numbered(mine.y, None if others is None else others.y, "label")
        mine = mine._replace(y=y)
        others = None if others is None or y_test is None else others._replace(y=y_test)
    groups = None if group is None else by_name(mine.client, _there(train, "group", group))
    return Examples(mine, others, Names(labels=None if labels is None else tuple(labels)), groups=groups)


def _targets(part: Part, column: str, labels: Sequence[str] | None) -> Part:
    """The same with labels that are numbers, for a regression."""
    if labels is not None or part.y.dtype.kind not in "iufb":
        raise ValueError(f"label must be numbers for a regression, got words or classes in column {column!r}")
    return part._replace(y=part.y.astype(np.float32))


def _columns(client: str, label: str, features: Any, group: str | None) -> list[tuple[str, str]]:
    if not isinstance(features, str | Sequence):
        raise ValueError(f"features must be a column, or a list of them, got {features!r}")
    listed = [features] if isinstance(features, str) else [*features]
    if not listed:
        raise ValueError("features must be a column, or a list of them, got an empty list")
    of_group = [] if group is None else [("group", group)]
    return [("client", client), ("label", label), *(("features", name) for name in listed), *of_group]


def _part(one: Any, client: str, label: str, features: str | Sequence[str]) -> Part:
    if isinstance(features, str):
        x = _array(one, features)
    else:
        columns = [_array(one, name) for name in features]
        for name, column in zip(features, columns):
            if column.ndim != 1:
                wanted = "one column of arrays, or several of numbers"
                raise ValueError(f"features must name {wanted}, got {name!r} of arrays")
        x = np.stack(columns, 1)
    return Part(x, _there(one, "label", label), _there(one, "client", client))


def _there(one: Any, argument: str, name: str) -> np.ndarray:
    """A column without a gap, of which NumPy would make the word "nan", and of words or numbers, not both."""
    values = list(one[name])
    plain = {i: value for i, value in enumerate(values) if not isinstance(value, list | np.ndarray)}
    _check_gaps([i for i, value in plain.items() if is_missing(value)], argument, name)
    words = {isinstance(value, str | bytes): value for value in plain.values()}
    if len(words) > 1:  # NumPy would make one word of 1 and "1"
        raise ValueError(
            f"{argument} must hold words or numbers, got {words[True]!r} and {words[False]!r} in column {name!r}"
        )
    return known(np.asarray, values, argument)


def _check_gaps(gaps: list[int], argument: str, name: str) -> None:
    if gaps:
        raise ValueError(f"{argument} must be there in every row, got none in row {gaps[0]} of column {name!r}")


def _array(one: Any, name: str) -> np.ndarray:
    """A column of numbers, arrays or images, which have three channels if one of them has colour."""
    values = list(one[name])
    _check_gaps([i for i, value in enumerate(values) if value is None], "features", name)
    if values and all(hasattr(value, "convert") and hasattr(value, "mode") for value in values):
        if any(map(is_deep, values)):
            raise ValueError(
                f"features must be images of 8 bits a channel, got more in column {name!r}: scale them"
            )
        grey = all(value.mode in GREY for value in values)
        values = [value.convert("L" if grey else "RGB") for value in values]  # a palette's numbers are no pixels
    try:
        x = np.stack([np.asarray(value) for value in values])
    except ValueError:
        several = f"column {name!r} with several: pad or resize it"
        raise ValueError(f"features must be of one shape, got {several}") from None
    if x.dtype.kind not in "biuf":
        raise ValueError(f"features must hold numbers or images, got {x.dtype} in column {name!r}: encode it first")
    return x

"""Data sets of tensorflow-datasets that have a column of clients."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from fedjax_fair.data.federated import FederatedData, Normalizer
from fedjax_fair.data.sources.examples import deal, large_enough
from fedjax_fair.data.sources.huggingface import of_columns
from fedjax_fair.data.sources.tfds import prepared


class Columns:
    """Records, read when a column is asked for."""

    def __init__(self, records: Any, names: Sequence[str]) -> None:
        self.records, self.column_names = records, list(names)

    def __getitem__(self, name: str) -> list[Any]:
        """One value per record; texts, which are bytes there, as words."""
        values = (record[name] for record in self.records)
        return [value.decode() if isinstance(value, bytes) else value for value in values]


def tfds(
    name: str,
    *,
    client: str,
    label: str,
    features: str | Sequence[str],
    train: str = "train",
    test: str | None = None,
    regression: bool = False,
    group: str | None = None,
    normalizer: Normalizer | Literal["auto"] | None = "auto",
    min_examples: int | None = None,
    data_dir: str | Path | None = None,
    seed: int = 0,
    split: Sequence[float] | None = None,
) -> FederatedData:
    """Read a data set of tensorflow-datasets, of which one feature says whose every example is.

    Without TensorFlow; it must have been prepared once in the array_record format, as for :func:`load_arrays`.

    Args:
      name: of the data set, such as ``"my_corpus"`` or ``"my_corpus/configuration"``.
      client: the feature with the clients' names.
      label: the feature to be predicted; of a ``ClassLabel`` the names are kept in ``data.names.labels``. Words and
        other whole numbers become classes, in sorted order; floats are targets of a regression.
      features: the feature of ``x``, of images, arrays or token ids of one shape; or several of numbers, x [E, F].
      train: the split to train on, also a part, such as ``"train[:1000]"``.
      test: a split of test examples of the same clients; by default they are a share of every client's.
      regression: whole numbers in ``label`` are targets, too, and not classes.
      group: the feature of what every client is one of.
      normalizer: as in :meth:`FederatedData.from_arrays`.
      min_examples: leave out clients with fewer examples (given test ones aside); a UserWarning says how many.
      data_dir: where tensorflow-datasets keeps its data; by default ``$TFDS_DATA_DIR``, else its own place.
      seed: of the split into training, validation and test.
      split: shares of (train, validation, test); by default (.9, .1, 0) beside ``test``, else (.8, .1, .1).

    Raises: ValueError, in one sentence: data that there are not or that are not prepared (with the command that
    prepares them), features or splits that they lack, and as :meth:`FederatedData.from_arrays`.
    """
    builder = prepared(name, data_dir)
    known = [*builder.info.splits]
    for argument, asked in (("train", train), ("test", test)):
        if asked is not None and asked.partition("[")[0] not in known:
            raise ValueError(f"{argument} must be a split of {name}, one of {', '.join(known)}, got {asked!r}")
    names = [*builder.info.features]
    parts = [None if part is None else Columns(builder.as_data_source(split=part), names) for part in (train, test)]
    labels = getattr(builder.info.features[label], "names", None) if label in names else None
    columns: Any = {"client": client, "label": label, "features": features, "group": group}
    found = of_columns(*parts, **columns, labels=labels, regression=regression)
    return deal(large_enough(found, min_examples), seed=seed, split=split, normalizer=normalizer)

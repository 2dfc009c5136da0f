"""Public image data through tensorflow-datasets, without TensorFlow."""

import hashlib
import io
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedjax_fair.checks import check_choice, check_count
from fedjax_fair.data.cache import cached
from fedjax_fair.data.federated import FederatedData, Normalizer, who_owns
from fedjax_fair.data.partition.dealing import Partition
from fedjax_fair.data.sources.examples import deal, large_enough
from fedjax_fair.data.sources.published import PUBLISHED, read_published
from fedjax_fair.data.split import check_split

IMAGES = ("fashion_mnist", "cifar10", "cifar100", "mnist")
"""Public image data by name."""
CLOTHES = (0, 2, 6)  # T-shirt/top, pullover, shirt
CHUNK = 1000  # encoded images read at a time


class NotPreparedError(ValueError, FileNotFoundError):
    """The dataset is not on this machine in a form that can be read."""


Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def load_arrays(name: str, data_dir: str | Path | None = None) -> Data:
    """Read a public dataset: ``(x_train, y_train, x_test, y_test)``, u8[E, height, width, channels], i32[E].

    The data must have been prepared once by tensorflow-datasets, in the array_record format; it is looked for
    in ``data_dir``, else in ``$TFDS_DATA_DIR``, else in tensorflow-datasets' own default. The decoded arrays
    are kept in the user's cache directory (``$FEDJAX_FAIR_CACHE``), so that only the first call decodes.

    Args:
      name: mnist, fashion_mnist, cifar10 or cifar100 (the 100 fine labels).
      data_dir: where tensorflow-datasets keeps its data.

    Raises: ValueError for an unknown name; NotPreparedError, a ValueError and a FileNotFoundError, with the
    command that prepares the data, if there is none to be read.
    """
    check_choice("name", name, IMAGES)
    builder = prepared(name, data_dir)
    info = Path(builder.data_dir) / "dataset_info.json"  # names the shards and their sizes
    stamp = hashlib.sha256(info.read_bytes()).hexdigest()[:8]
    arrays = cached(f"{name}-{builder.version}-{stamp}-v1", lambda: _decode(builder))
    return arrays["x_train"], arrays["y_train"], arrays["x_test"], arrays["y_test"]


def load(
    name: str,
    *,
    partition: Partition | None = None,
    seed: int = 0,
    split: Sequence[float] | None = None,
    test: Literal["official"] | None = None,
    data_dir: str | Path | None = None,
    min_examples: int | None = None,
) -> FederatedData:
    """Deal a public dataset to clients; pixels stay uint8 in the store and reach the model in [0, 1].

    ``fashion_mnist_3`` is AFL's federation of three clients, one class each: T-shirt/top, pullover, shirt
    (client 0, 1, 2, and label alike). It takes no ``partition``; its test examples are always the official
    ones, 1000 a client beside 6000 for training; its pixels are standardised one by one,
    ``(x - mean) / (std + 1e-3)`` in units of 0 to 255 over all 60000 training images (as in q-FFL's code).

    ``femnist`` and ``shakespeare`` have natural clients, too, writers and roles, and are read from LEAF's files:
    x f32[28, 28, 1] and 62 classes; x i16[80], of LEAF's 80 characters, and the one that follows. Their test
    examples are LEAF's, where they are apart.

    Args:
      name: mnist, fashion_mnist, cifar10, cifar100, fashion_mnist_3, femnist, or shakespeare.
      partition: who owns what, such as ``partition.shards(100, 2)``.
      seed: of the partition and the splits.
      split: shares of (train, validation, test) of each client's examples; by default (.8, .1, .1), with
        official test examples (.9, .1, 0), for fashion_mnist_3 (1, 0, 0).
      test: None takes the test examples from the clients' own, so that the official test set is not touched;
        "official" deals the official test set, as :meth:`FederatedData.from_arrays` describes.
      data_dir: see :func:`load_arrays`; of LEAF's data their folder, by default ``$LEAF_DATA_DIR``.
      min_examples: of LEAF's data, leave out clients with fewer examples, given test examples not counted.

    Raises: ValueError as :func:`load_arrays` and :meth:`FederatedData.from_arrays`; where LEAF's files are missing,
    a sentence that says where they come from.

    References: Mohri et al., AFL, 2019 (Section 5); Li et al., q-FFL, 2020 (Appendix).
    """
    check_choice("name", name, (*IMAGES, "fashion_mnist_3", *PUBLISHED))
    if name in PUBLISHED:
        for argument, given in (("partition", partition), ("test", test)):
            if given is not None:
                raise ValueError(f"{name} has its own clients and tests: it takes no {argument}, got {given}")
        return deal(large_enough(read_published(name, data_dir), min_examples), seed=seed, split=split)
    if min_examples is not None:
        raise ValueError(f"min_examples is for femnist and shakespeare, got {name}")
    if test is not None:
        check_choice("test", test, ("official",))
    check_count("seed", seed, low=0)
    if name == "fashion_mnist_3":
        if partition is not None:
            raise ValueError("fashion_mnist_3 has its own three clients and takes no partition")
        check_split(split, official=True)
        return _three_clothes(load_arrays("fashion_mnist", data_dir), seed, split)
    if partition is None:
        raise ValueError(f"partition must say how to deal {name}, such as partition.iid(100), got None")
    who_owns(None, partition)  # said before the images are decoded, which takes seconds
    check_split(split, official=test is not None)
    x, y, x_test, y_test = load_arrays(name, data_dir)
    official = (x_test, y_test) if test == "official" else None
    return FederatedData.from_arrays(x, y, partition=partition, seed=seed, split=split, test=official)


def _three_clothes(data: Data, seed: int, split: Sequence[float] | None) -> FederatedData:
    x, y, x_test, y_test = data
    mean = x.mean(0, dtype=np.float64)
    square = sum((part.astype(np.int64) ** 2).sum(0) for part in np.array_split(x, 60)) / len(x)
    std = np.sqrt(np.maximum(square - mean**2, 0))
    normalizer = Normalizer(mean.astype(np.float32), (1 / (std + 1e-3)).astype(np.float32))
    keep, keep_test = np.isin(y, CLOTHES), np.isin(y_test, CLOTHES)
    label, label_test = np.searchsorted(CLOTHES, y[keep]), np.searchsorted(CLOTHES, y_test[keep_test])
    return FederatedData.from_arrays(
        x[keep],
        label,
        client_id=label,
        seed=seed,
        split=(1.0, 0.0, 0.0) if split is None else split,
        test=(x_test[keep_test], label_test),
        test_client_id=label_test,
        normalizer=normalizer,
    )


def prepared(name: str, data_dir: str | Path | None) -> Any:
    """The tensorflow-datasets builder of data that can be read here; NotPreparedError for others."""
    import tensorflow_datasets as tfds  # half a second, so only where it is needed

    # tfds looks at TFDS_DATA_DIR when it is imported; we look now
    where = data_dir or os.environ.get("TFDS_DATA_DIR")
    with _quiet():
        try:
            builder = tfds.builder(name, data_dir=None if where is None else Path(where).expanduser())
        except tfds.core.DatasetNotFoundError as error:
            raise ValueError(f"name must be a data set of tensorflow-datasets, got {name!r}") from error
        there = builder.is_prepared()
    found = str(builder.info.file_format.value) if there else None
    if found == "array_record":
        return builder
    state = f"is there as {found}, which cannot be read without TensorFlow" if there else "is not prepared"
    root = where or Path(builder.data_dir).parents[1]
    raise NotPreparedError(
        f"{name} {state} (looked in {builder.data_dir}); prepare it once with: "
        "pip install tensorflow-cpu importlib_resources && python -c "
        f"\"import tensorflow_datasets as tfds; tfds.builder('{name}', data_dir='{root}', "
        "file_format='array_record').download_and_prepare()\""
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold back tfds's own log lines about a missing dataset: the error says it in one sentence."""
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _decode(builder: Any) -> dict[str, np.ndarray]:
    """Decode every image, in the records' order; threads gain nothing on images this small."""
    import tensorflow_datasets as tfds
    from PIL import Image

    arrays: dict[str, np.ndarray] = {}
    for part in ("train", "test"):
        source = builder.as_data_source(split=part, decoders={"image": tfds.decode.SkipDecoding()})
        x = np.empty((len(source), *builder.info.features["image"].shape), np.uint8)
        y = np.empty(len(source), np.int32)
        for first in range(0, len(source), CHUNK):
            rows = range(first, min(first + CHUNK, len(source)))
            for row, record in zip(rows, source.__getitems__(rows)):
                x[row] = np.asarray(Image.open(io.BytesIO(record["image"]))).reshape(x.shape[1:])
                y[row] = record["label"]
        arrays |= {f"x_{part}": x, f"y_{part}": y}
    return arrays

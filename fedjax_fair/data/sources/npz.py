"""NumPy's files: an archive ``.npz``, or a folder of ``.npy``, with a name of a client for every example."""

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedjax_fair.checks import check_choice, warn
from fedjax_fair.data.federated import FederatedData, Normalizer, Place
from fedjax_fair.data.groups import as_words, by_name
from fedjax_fair.data.host_store import pieces
from fedjax_fair.data.names import Names
from fedjax_fair.data.sources.examples import Examples, Part, check_file, check_tested, deal, large_enough, numbered


def npz(
    path: str | Path,
    *,
    x: str = "x",
    y: str = "y",
    client: str = "client",
    missing: Literal["mean", "median"] | None = None,
    normalizer: Normalizer | Literal["auto"] | None = "auto",
    min_examples: int | None = None,
    seed: int = 0,
    split: Sequence[float] | None = None,
    store: Place = "device",
) -> FederatedData:
    """Read arrays ``x`` [E, ...], ``y`` [E, ...] and ``client`` [E], the name of every example's client.

    Beside them may be ``group`` [E], what every client is one of; ``test_x``, ``test_y`` and ``test_client``: then
    every client is tested on these; and ``client_names``, what the numbers in ``client`` stand for. The files of a
    folder (``x.npy``, ``y.npy``, ...) are mapped into memory: examples are then held once, in the store. Images of
    bytes stay bytes, as in :meth:`FederatedData.from_arrays`.

    Args:
      path: an archive ``.npz``, or a folder of files ``.npy``.
      x: the name of the examples; of the test examples ``"test_" + x``, likewise below.
      y: the name of the labels: words become classes, in sorted order, kept in ``data.names.labels``.
      client: the name of the clients' names.
      missing: what stands for NaN in ``x`` [E, F]: "mean" or "median" of the column over the rows that clients
        train on; by default NaN is refused.
      normalizer: as in :meth:`FederatedData.from_arrays`.
      min_examples: leave out clients with fewer examples (given test ones aside); a UserWarning says how many.
      seed: of the split.
      split: shares of (train, validation, test); by default (.9, .1, 0) beside test examples, else (.8, .1, .1).
      store: "host" leaves the examples in the folder's files, as in :meth:`FederatedData.from_arrays`.

    Raises: ValueError, in one sentence: no such file, a damaged one, arrays that it lacks or that do not fit,
    ``missing`` or ``min_examples`` beside ``store="host"``, which would make other arrays, and as
    :meth:`FederatedData.from_arrays`.
    """
    for name, given in (("missing", missing), ("min_examples", min_examples)):
        if store == "host" and given is not None:
            raise ValueError(f"{name} must be None with store='host', which copies no array, got {given!r}")
    found = read_npz(path, x=x, y=y, client=client, missing=missing)
    return deal(large_enough(found, min_examples), seed=seed, split=split, normalizer=normalizer, store=store)


def is_npz(path: Path) -> bool:
    """Whether it is an archive, or a folder of arrays."""
    return path.suffix == ".npz" or (path.is_dir() and any(path.glob("*.npy")))


def read_npz(
    path: str | Path, *, x: str = "x", y: str = "y", client: str = "client", missing: str | None = None
) -> Examples:
    """What the arrays hold; see :func:`npz`."""
    if missing is not None:
        check_choice("missing", missing, ("mean", "median"))
    place = check_file("path", path)
    if not is_npz(place):
        raise ValueError(f"path must be a file .npz, or a folder of files .npy, got {place}")
    names = [x, y, client]
    arrays = _arrays(place, [*names, *(f"test_{name}" for name in names), "client_names", "group"])
    for name in names:
        if name not in arrays:
            raise ValueError(f"{place} must hold {', '.join(names)}, got {', '.join(_held(place)) or 'nothing'}")
    train = _part(arrays, names, place)
    tested = [f"test_{name}" for name in names]
    some = [name for name in tested if name in arrays]
    if some and len(some) < 3:
        raise ValueError(f"{place} must hold all of {', '.join(tested)} or none, got {', '.join(some)}")
    if not some and (odd := [f"{name}_test" for name in names if f"{name}_test" in _held(place)]):
        warn(f"{place} holds {odd[0]}, which is not read: test examples are test_{x}, test_{y} and test_{client}")
    test = _part(arrays, tested, place) if some else None
    check_tested(test, train, f"test_{client}")
    labels = None
    train = train._replace(y=as_words(train.y, y))
    test = None if test is None else test._replace(y=as_words(test.y, f"test_{y}"))
    if train.y.dtype.kind == "U":
        given, others, labels = numbered(train.y, None if test is None else test.y, y)
        train = train._replace(y=given)
        test = None if test is None or others is None else test._replace(y=others)
    kept = [part.x for part in (train, test) if part is not None and _may_lack(part.x)]
    gaps = sum(int(np.isnan(piece).sum()) for x in kept for piece in pieces(x))
    if gaps and missing is None:
        raise ValueError(
            f"{x} must hold numbers throughout, got {gaps} NaN: fill them by missing='mean' or 'median' (of the "
            "training rows)"
        )
    if gaps and train.x.ndim != 2:
        raise ValueError(f"missing fills columns of {x} [E, F], got shape {list(train.x.shape)}")
    fill: Any = missing if gaps else None
    groups = by_name(train.client, arrays["group"]) if "group" in arrays else None
    return Examples(train, test, Names(labels=labels), fill, groups=groups)


def _may_lack(x: np.ndarray) -> bool:
    return x.dtype.kind == "f"


def _held(place: Path) -> list[str]:
    if place.is_dir():
        return sorted(path.stem for path in place.glob("*.npy"))
    with np.load(place, allow_pickle=False) as archive:
        return list(archive.files)


def _arrays(place: Path, wanted: list[str]) -> dict[str, np.ndarray]:
    try:
        if place.is_dir():
            files = {name: place / f"{name}.npy" for name in wanted}
            return {name: np.load(file, mmap_mode="r") for name, file in files.items() if file.exists()}
        with np.load(place, allow_pickle=False) as archive:
            return {name: archive[name] for name in wanted if name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{place} cannot be read: {type(error).__name__}: {error}") from error


def _part(arrays: Mapping[str, np.ndarray], names: Sequence[str], place: Path) -> Part:
    x, y, client = (arrays[name] for name in names)
    if client.ndim != 1 or client.dtype.kind not in "iubUS":
        raise ValueError(
            f"{names[2]} must be a vector of names or whole numbers, got {client.dtype}{list(client.shape)} in "
            f"{place}"
        )
    if x.ndim == 0 or len(x) != len(client) or y.ndim == 0 or len(y) != len(client):
        lengths = [array.shape[0] if array.ndim else 0 for array in (x, y, client)]
        raise ValueError(f"{', '.join(names)} must have one entry per example, got {lengths} in {place}")
    called = arrays.get("client_names")
    if called is not None and client.dtype.kind in "iu":
        called = np.atleast_1d(called)
        if client.min(initial=0) < 0 or client.max(initial=0) >= len(called):
            most = int(client.max(initial=0))
            raise ValueError(
                f"client_names must name every client up to {most}, got {len(called)} names in {place}"
            )
        listed = np.asarray(called).astype(str)
        if len(known := np.unique(listed)) < len(listed):
            twice = next(name for name in known if (listed == name).sum() > 1)
            raise ValueError(f"client_names must be different names, got {str(twice)!r} twice in {place}")
        client = listed[client]
    return Part(x, y, np.asarray(client))

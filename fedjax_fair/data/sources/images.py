"""Folders of images: a folder per client, in it a folder per label, in it the files."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_fair.checks import check_count, check_truth, warn
from fedjax_fair.data.federated import FederatedData
from fedjax_fair.data.names import Names
from fedjax_fair.data.sources.examples import Examples, Part, check_file, check_tested, deal, large_enough

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm"})

GREY = ("1", "L", "LA")
"""Modes of PIL's images that have no colour."""


def images(
    folder: str | Path,
    *,
    size: tuple[int, int] | None = None,
    colour: bool | None = None,
    min_examples: int | None = None,
    seed: int = 0,
    split: Sequence[float] | None = None,
) -> FederatedData:
    """Read images from ``folder/CLIENT/LABEL/FILE``.

    Where ``folder`` holds just ``train`` and ``test``, the clients are folders in these, and every client is tested
    on its own test images. Labels are numbered in sorted order; what they were is kept in ``data.names.labels``.
    Other files, and names that begin with a dot, are passed over.

    Args:
      folder: see above.
      size: (height, width) to which all are scaled; by default they must have one size.
      colour: three channels, or one; by default three if one of the images has colour.
      min_examples: leave out clients with fewer images (given test ones aside); a UserWarning says how many.
      seed: of the split.
      split: shares of (train, validation, test); by default (.9, .1, 0) beside test images, else (.8, .1, .1).

    Returns:
      :class:`FederatedData` with x u8[E, height, width, channels], handed to the model in [0, 1].

    Raises: ValueError, in one sentence: no such folder, no images at that depth, images of several sizes, a damaged
    file, test images of clients who do not train, and as :meth:`FederatedData.from_arrays`. So are images of more
    than 8 bits a channel, which would be white or black.
    """
    return deal(large_enough(read_images(folder, size, colour), min_examples), seed=seed, split=split)


def is_images(folder: Path) -> bool:
    """Whether there are images two folders down, or three."""
    deep = (path for pattern in ("*/*/*", "*/*/*/*") for path in folder.glob(pattern))
    return any(path.suffix.lower() in SUFFIXES for path in deep)


def read_images(folder: str | Path, size: tuple[int, int] | None = None, colour: bool | None = None) -> Examples:
    """What the folders hold; see :func:`images`."""
    place = check_file("folder", folder)
    if not place.is_dir():
        raise ValueError(f"folder must be a folder of CLIENT/LABEL/FILE, got the file {place}")
    if colour is not None:
        check_truth("colour", colour)
    if size is not None:
        if not isinstance(size, Sequence) or len(size) != 2:
            raise ValueError(f"size must be (height, width), got {size!r}")
        size = check_count("size", size[0]), check_count("size", size[1])
    inside = {path.name for path in place.iterdir() if path.is_dir() and not path.name.startswith(".")}
    apart = inside == {"train", "test"}
    lists = [_listed(place / name) for name in ("train", "test")] if apart else [_listed(place)]
    for where, paths in zip([place / "train", place / "test"] if apart else [place], lists):
        if not paths:
            raise ValueError(f"folder {where} must hold images as CLIENT/LABEL/FILE, got none at that depth")
    known = sorted({path.parent.name for path in lists[0]})
    for path in lists[-1]:
        if path.parent.name not in known:
            raise ValueError(f"{place / 'test'} must have labels that are trained on, got {path.parent.name!r}")
    rank = {label: k for k, label in enumerate(known)}
    pixels = _pixels([path for paths in lists for path in paths], size, colour)
    owners = [np.array([path.parents[1].name for path in paths], str) for paths in lists]
    ys = [np.array([rank[path.parent.name] for path in paths], np.int32) for paths in lists]
    parts = [Part(x, y, owner) for x, y, owner in zip(np.split(pixels, [len(lists[0])]), ys, owners) if len(owner)]
    test = parts[1] if len(parts) > 1 else None
    check_tested(test, parts[0], f"{place / 'test'}")
    return Examples(parts[0], test, Names(labels=tuple(known)))


def _listed(folder: Path) -> list[Path]:
    """CLIENT/LABEL/FILE, in sorted order."""

    def seen(paths: Iterable[Path]) -> list[Path]:
        shown = (path for path in paths if not any(p.startswith(".") for p in path.relative_to(folder).parts))
        return sorted(path for path in shown if path.suffix.lower() in SUFFIXES and path.is_file())

    found = seen(folder.glob("*/*/*"))
    if found and (others := [path for path in seen(folder.rglob("*")) if len(path.relative_to(folder).parts) != 3]):
        where = others[0].relative_to(folder)
        warn(f"{len(others)} images in {folder} are passed over, first {where}: they are not at CLIENT/LABEL/FILE")
    return found


def _pixels(paths: list[Path], size: tuple[int, int] | None, colour: bool | None) -> np.ndarray:
    """u8[E, height, width, channels]."""
    from PIL import Image, UnidentifiedImageError

    pixels: Any = None
    grey = (colour is not None and not colour) or (colour is None and all(_is_grey(path) for path in paths))
    for i, path in enumerate(paths):
        try:
            with Image.open(path) as opened:
                deep, image = is_deep(opened), opened.convert("L" if grey else "RGB")
        except (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise ValueError(f"{path} cannot be read as an image: {error}") from None
        if deep:  # all above 255 would be white, or all below black
            raise ValueError(f"images must have 8 bits a channel, got more, first {path}: scale them beforehand")
        image = image if size is None else image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        one = np.asarray(image).reshape(image.height, image.width, 1 if grey else 3)
        if pixels is None:
            pixels = np.empty((len(paths), *one.shape), np.uint8)
        elif one.shape != pixels.shape[1:]:
            first, other = ("x".join(map(str, shape[:2])) for shape in (pixels.shape[1:], one.shape))
            raise ValueError(
                f"images must have one size, got {first} and {other}, first {path}: scale them by "
                "size=(height, width)"
            )
        pixels[i] = one
    return np.asarray(pixels)


def is_deep(image: Any) -> bool:
    """Whether an image of PIL has more than 8 bits a channel, 16 bits of red, too."""
    return image.mode.startswith(("I", "F")) or ";16" in str(getattr(image, "tile", ""))


def _is_grey(path: Path) -> bool:
    """From the header alone; a file that cannot be read is complained of later."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.mode in GREY
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return True

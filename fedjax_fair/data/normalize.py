"""Model inputs out of stored examples, computed as they are read."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.checks import check_complete
from fedjax_fair.data.host_store import pieces, stored_type
from fedjax_fair.data.store import cast, known


class Normalizer(NamedTuple):
    """Model input = ``(x - shift) * scale``, computed as examples are read: uint8 images stay uint8."""

    shift: Any
    """float array that broadcasts to one example, in the units of ``x``."""
    scale: Any
    """float array that broadcasts to one example, per unit of ``x``."""


Normalizers = Normalizer | tuple[Normalizer | None, ...]
"""Of one array; or of the leaves of a pytree, each with its own or with none."""

AMBIGUOUS = 128
"""Bytes from here on may be pixels. Below lie ASCII, counts, ages and the tokens of small vocabularies."""


def normalize(x: Any, normalizer: Normalizers) -> Any:
    """``(x - shift) * scale`` in the float type of ``x``, or of ``shift`` where ``x`` holds integers."""
    if isinstance(normalizer, Normalizer):
        return _scaled(x, normalizer)
    leaves, form = jax.tree.flatten(x)
    scaled = [leaf if its is None else _scaled(leaf, its) for leaf, its in zip(leaves, normalizer)]
    return jax.tree.unflatten(form, scaled)


def _scaled(x: Array, normalizer: Normalizer) -> Array:
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else normalizer.shift.dtype
    shift, scale = (jnp.broadcast_to(part.astype(dtype), x.shape) for part in normalizer)
    return (x.astype(dtype) - shift) * scale


def check_normalizer(normalizer: Any, x: Any, *more: Any) -> Normalizers | None:
    """Make the parts float arrays, or raise ValueError where they do not broadcast to an example of NumPy's x.

    ``more`` are further examples of the same form.
    """
    if normalizer is None:
        return None
    if isinstance(normalizer, str) and normalizer == "auto":
        return _automatic(x, *more)
    if not isinstance(normalizer, Normalizer):
        raise ValueError(f'normalizer must be a Normalizer, None or "auto", got {normalizer!r}')
    if not isinstance(x, np.ndarray):
        raise ValueError("a normalizer needs x to be one array, got a pytree; normalise its arrays beforehand")
    parts = []
    for name, value in normalizer._asdict().items():
        check_complete(f"normalizer.{name}", value, "fill it")
        given = known(np.asarray, value, f"normalizer.{name}")
        if not (given.dtype.kind in "biu" or jnp.issubdtype(given.dtype, jnp.floating)):
            raise ValueError(f"normalizer.{name} must hold numbers, got {given.dtype}")
        wide = np.float64 in (getattr(value, "dtype", None), stored_type(x))
        part = cast(given, jax.dtypes.canonicalize_dtype(np.float64 if wide else np.float32))
        if part.ndim >= x.ndim or any(p not in (1, n) for p, n in zip(part.shape[::-1], x.shape[:0:-1])):
            raise ValueError(
                f"normalizer.{name} must broadcast to an example of shape {x.shape[1:]}, got {part.shape}"
            )
        if not (finite := np.isfinite(part)).all():
            raise ValueError(f"normalizer.{name} must be finite in {part.dtype}, got {given[~finite][0]}")
        parts.append(jax.device_put(np.array(part)))
    return Normalizer(*parts)


def _automatic(*xs: Any) -> Normalizers | None:
    """What "auto" is for these examples: images of bytes are brought to [0, 1], all else is left alone."""
    x = xs[0]
    leaves = zip(jax.tree.leaves_with_path(x), zip(*map(jax.tree.leaves, xs)))
    found = tuple(_of_leaf(parts, f"x{jax.tree_util.keystr(path)}") for (path, _), parts in leaves)
    if isinstance(x, np.ndarray):
        return found[0]
    return found if any(its is not None for its in found) else None


def _of_leaf(parts: tuple[np.ndarray, ...], name: str) -> Normalizer | None:
    leaf = parts[0]
    if leaf.dtype != np.uint8:
        return None
    largest = _largest(parts, enough=1 if is_image(leaf.shape) else 255)
    if is_image(leaf.shape):  # of black and white in 0 and 1, nothing is left to scale
        return Normalizer(*(jax.device_put(np.float32(part)) for part in (0, 1 / 255 if largest > 1 else 1)))
    if largest >= AMBIGUOUS:
        one = "normalizer=ff.data.Normalizer(0., 1 / 255)" if name == "x" else "divide it by 255 beforehand"
        raise ValueError(
            f"{name} holds bytes up to {largest} that are no images by their shape, {list(leaf.shape)} (images are "
            f"[E, H, W], or [E, H, W, C] with 1, 3 or 4 channels last): for pixels {one}, for tokens or other "
            "numbers as they are normalizer=None"
        )
    return None


def _largest(parts: tuple[np.ndarray, ...], enough: int) -> int:
    """The largest byte, or the first piece's that is above ``enough``: of images more is not asked."""
    largest = 0
    for part in parts:
        for piece in pieces(part):
            largest = max(largest, int(piece.max(initial=0)))
            if largest > enough:
                return largest
    return largest


def is_image(shape: tuple[int, ...]) -> bool:
    """Whether examples [E, ...] are images by their shape: [E, H, W], or [E, H, W, C] with 1, 3 or 4 channels."""
    return len(shape) in (3, 4) and min(shape[1:3]) >= 2 and (len(shape) == 3 or shape[3] in (1, 3, 4))

"""What may go into the example store, checked once on the way in."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.checks import check_complete, warn
from fedjax_fair.data.host_store import pieces, stored_type

INT32 = np.iinfo(np.int32)


def examples_of(x: Any, name: str) -> Any:
    """Return ``x`` with NumPy leaves, or raise ValueError unless every leaf is numeric, [E, ...]."""
    for leaf in [x] if isinstance(x, list) else jax.tree.leaves(x):
        check_complete(name, leaf)
    x = known(np.array, x, name) if isinstance(x, list) else jax.tree.map(lambda a: known(np.asarray, a, name), x)
    leaves = jax.tree.leaves(x)
    if not leaves or any(leaf.ndim == 0 for leaf in leaves):
        raise ValueError(f"{name} must be an array, or a pytree of arrays, whose first axis counts the examples")
    for leaf in leaves:
        if not (leaf.dtype.kind in "biu" or jnp.issubdtype(leaf.dtype, jnp.floating)):
            raise ValueError(f"{name} must hold numbers, got {leaf.dtype}")
        _check_width(leaf, name)
        if 0 in leaf.shape[1:]:
            raise ValueError(f"{name} must have a number in every example, got the shape {list(leaf.shape)}")
    return x


def _check_width(array: np.ndarray, name: str) -> None:
    if array.dtype.itemsize > 8:
        raise ValueError(f"{name} must hold numbers of 64 bits at most, got {array.dtype}")


def check_finite(x: Any, n_examples: int, name: str, name_y: str) -> None:
    """Raise ValueError unless every leaf of ``x`` has ``n_examples`` examples, all finite as they are stored."""
    for leaf in jax.tree.leaves(x):
        if len(leaf) != n_examples:
            raise ValueError(
                f"{name} and {name_y} must have one entry per example, got {len(leaf)} and {n_examples}"
            )
        if leaf.dtype.kind in "biu":
            continue
        bad = [~np.isfinite(cast(piece)).reshape(len(piece), -1).all(1) for piece in pieces(leaf)]
        if (rows := np.flatnonzero(np.concatenate(bad))).size:
            raise ValueError(f"{name} holds {_what(leaf)} in {len(rows)} examples, first in example {rows[0]}")


def check_labels(y: Any, name: str) -> np.ndarray:
    """Return class labels as i32 and float targets as they are; ValueError for NaN and negative labels.

    Among several labels of an example, [E, T], one below 0 is padding; a UserWarning names one of padding alone.
    """
    check_complete(name, y)
    y = known(np.asarray, y, name)
    if y.ndim == 0 or y.size == 0 or not (y.dtype.kind in "biu" or jnp.issubdtype(y.dtype, jnp.floating)):
        hint = ": number the names, np.unique(y, return_inverse=True)[1]" if y.dtype.kind in "USO" else ""
        hint = ": read the file first, np.load" if y.ndim == 0 and hint else hint
        raise ValueError(
            f"{name} must be a non-empty array of labels or targets, got {y.dtype}{list(y.shape)}{hint}"
        )
    _check_width(y, name)
    if y.dtype.kind not in "biu":
        if not (finite := np.isfinite(cast(y))).all():
            raise ValueError(f"{name} holds {_what(y)}, first in example {int(np.argwhere(~finite)[0, 0])}")
        return y.astype(y.dtype.newbyteorder("="), copy=False)  # JAX has no other order
    if (y.ndim == 1 and y.min() < 0) or y.min() < INT32.min or y.max() > INT32.max:
        raise ValueError(f"{name} must hold labels from 0 to {INT32.max}, got {y.min()} to {y.max()}")
    if y.ndim > 1 and (empty := (y < 0).reshape(len(y), -1).all(1)).any():
        warn(
            f"{name} holds nothing but padding (labels below 0) in {empty.sum()} examples, first in example "
            f"{int(empty.argmax())}: each counts as one with a loss and an accuracy of 0, so leave them out"
        )
    return y.astype(np.int32)


def known(convert: Callable[[Any], np.ndarray], value: Any, name: str) -> np.ndarray:
    """``convert(value)``, or ValueError where the value has none yet, or its lists several lengths."""
    try:
        return convert(value)
    except jax.errors.TracerArrayConversionError as error:
        raise ValueError(
            f"{name} must hold numbers that are known, got what JAX traces: make the data outside of jit, vmap and "
            "ff.sweep's floats"
        ) from error
    except (TypeError, ValueError) as error:
        why = str(error).partition(". ")[0]
        raise ValueError(
            f"{name} must be an array, or lists of one length, got {type(value).__name__}: {why}"
        ) from error


def cast(leaf: np.ndarray, kind: np.dtype | None = None) -> np.ndarray:
    """Floats as JAX is set to keep them, or as ``kind``: most often float32, in which 1e300 is infinite."""
    with np.errstate(over="ignore"):
        return leaf.astype(stored_type(leaf) if kind is None else kind, copy=False)


def _what(leaf: np.ndarray) -> str:
    whole = all(np.isfinite(piece).all() for piece in pieces(leaf))
    return f"numbers too large for {cast(leaf[:1]).dtype}" if whole else "NaN or infinity"


def check_whole_numbers(leaf: np.ndarray) -> None:
    """Raise ValueError for integers that int32 has no room for."""
    if leaf.dtype.kind in "iu" and leaf.dtype.itemsize > 2 and leaf.size:
        ends = [(piece.min(), piece.max()) for piece in pieces(leaf)]
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        if low < INT32.min or high > INT32.max:
            raise ValueError(f"integers in x must fit 32 bits, got {low} to {high}")


def to_store(*parts: np.ndarray) -> Array:
    """Copy arrays that follow one another to the device: integers of more than 16 bits as int32, floats as JAX is
    set to keep them."""
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return device_copy(whole.astype(stored_type(whole), copy=False))


def device_copy(array: np.ndarray) -> Array:
    """The array on the device, which may not alias the caller's memory; jnp.array would compile for every shape."""
    return jax.device_put(np.array(array))

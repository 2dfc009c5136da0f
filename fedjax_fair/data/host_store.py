"""Examples that stay in the host's memory or in a file: of them only the rows that are needed go to the device."""

import dataclasses
import hashlib
import mmap
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

PIECE = 2**22
"""Bytes that are looked at at a time."""
ALONE = 2**20
"""Bytes below which one thread reads: others would take longer to start."""
CALL = 2**14
"""Rows of one call from a compiled program: JAX copies larger arguments in the threads that wait for the call."""
WHOLE = 2**30
"""Bytes up to which a checkpoint knows a store by all its examples."""
SAMPLED = 1024
"""Rows that it knows a larger one by."""
THREADS = max(4, min(16, os.cpu_count() or 1))
"""That read side by side: a disk answers many as fast as one."""


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)  # a store is itself alone
class HostStore:
    """The example store ``x`` of a federation, off the device; built by :func:`host_store`.

    A pytree without leaves: compiled programs hold no example of it and ask for rows by a callback.
    """

    parts: tuple[tuple[np.ndarray, ...], ...]
    """Of every leaf the arrays [E_1, ...], [E_2, ...] that follow one another: official test examples come last."""
    form: Any
    """The pytree that the leaves make."""
    types: tuple[np.dtype, ...]
    """Of every leaf, as it reaches the device: settled once, for threads do not know how JAX is set elsewhere."""
    pool: ThreadPoolExecutor

    def __repr__(self) -> str:
        shapes = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(self.forms()))
        return f"HostStore({shapes})"

    def __reduce__(self) -> Any:
        raise TypeError("examples with store='host' stay in the process that opened them")

    def forms(self) -> Any:
        """Shapes [E, ...] and types of the leaves, as they reach the device."""
        return jax.tree.unflatten(self.form, [*map(_form, self.parts, self.types)])

    def read(self, rows: Any) -> Any:
        """``rows i32[...] -> x [..., *example]``, in NumPy; rows beyond the store are clamped to it."""
        places = np.asarray(rows)
        flat = places.reshape(-1)
        found = [_rows(parts, dtype, flat, self.pool) for parts, dtype in zip(self.parts, self.types)]
        leaves = [leaf.reshape(*places.shape, *leaf.shape[1:]) for leaf in found]
        return jax.tree.unflatten(self.form, leaves)

    def take(self, rows: Array) -> Any:
        """The same inside a compiled program, by a callback into this process."""
        if rows.size > CALL:
            count = -(-rows.size // CALL)
            padded = jnp.pad(rows.reshape(-1), (0, count * CALL - rows.size), mode="edge").reshape(count, CALL)
            found = jax.lax.map(self.take, padded)
            return jax.tree.map(
                lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[: rows.size].reshape(*rows.shape, *leaf.shape[2:]),
                found,
            )
        words = [
            ((*rows.shape, *leaf.shape[1:], 2), jnp.uint32)
            if leaf.dtype == np.float64
            else ((*rows.shape, *leaf.shape[1:]), leaf.dtype)
            for leaf in map(_form, self.parts, self.types)
        ]
        forms = [jax.ShapeDtypeStruct(*form) for form in words]
        found = jax.pure_callback(self._words, forms, rows, vmap_method="broadcast_all")
        leaves = [
            jax.lax.bitcast_convert_type(leaf, dtype) if dtype == np.float64 else leaf
            for leaf, dtype in zip(found, self.types)
        ]
        return jax.tree.unflatten(self.form, leaves)

    def _words(self, rows: Any) -> list[np.ndarray]:
        """The leaves, those of 64 bits as two words each: JAX rounds what a callback's thread gives it to 32 bits
        where ``jax_enable_x64`` is set around the caller alone."""
        leaves = jax.tree.leaves(self.read(rows))
        return [a.reshape(*a.shape, 1).view(np.uint32) if a.dtype == np.float64 else a for a in leaves]

    def fingerprint(self) -> bytes:
        """What a checkpoint knows the store by: shapes, types and all examples. Of more than :data:`WHOLE` bytes
        rows at even distances, and the size and the last change of each mapped file."""
        known = hashlib.sha256(repr(self).encode())
        leaves = [leaf for parts in self.parts for leaf in parts]
        for leaf in leaves:
            if sum(each.nbytes for each in leaves) <= WHOLE:
                for piece in pieces(leaf):
                    known.update(piece.tobytes())
                continue
            some = np.linspace(0, len(leaf) - 1, min(SAMPLED, len(leaf)), dtype=np.int64)
            known.update(leaf[some].tobytes())
            mapped = _mapped(leaf)
            if mapped is not None and mapped.filename is not None:
                file = os.stat(mapped.filename)
                known.update(f"{file.st_size} {file.st_mtime_ns}".encode())
        return known.digest()


class Handed(NamedTuple):
    """A host store in whose place a round's examples lie ready: the ``x`` of the data that the round is given."""

    store: HostStore
    ids: Array
    """i32[S]: the clients whose training examples they are."""
    examples: Any
    """Leaves [C, ...]: theirs one after another; see :func:`fedjax_fair.engine.near.packed`."""


def host_store(trees: Sequence[Any]) -> HostStore:
    """The store of pytrees of arrays [E_i, ...] that follow one another; nothing is copied."""
    form = jax.tree.structure(trees[0])
    parts = tuple(zip(*(jax.tree.leaves(tree) for tree in trees)))
    for part in jax.tree.leaves(trees):
        # A client is a few pages: with what the system reads around each, rounds took 25 times as long.
        _advise(part, "MADV_RANDOM")
    types = tuple(stored_type(first) for first, *_ in parts)
    return HostStore(parts, form, types, ThreadPoolExecutor(THREADS, thread_name_prefix="fedjax_fair-rows"))


def forms_of(x: Any) -> Any:
    """Shapes and types of an example store, wherever it lies."""
    return x.forms() if isinstance(x, HostStore) else x


def stored_type(leaf: np.ndarray) -> np.dtype:
    """Integers of more than 16 bits as int32, floats as JAX is set to keep them."""
    if leaf.dtype.kind in "iu" and leaf.dtype.itemsize > 2:
        return np.dtype(np.int32)
    native = leaf.dtype.newbyteorder("=")  # FITS and IDX are the other way round
    return np.dtype(jax.dtypes.canonicalize_dtype(native))


def opened(x: Any, name: str) -> Any:
    """``x``, or where it is the path of a file ``.npy`` its array, mapped into memory.

    Raises:
      ValueError: another file, or one that cannot be read.
    """
    if not isinstance(x, str | os.PathLike):
        return x
    place = Path(x).expanduser()
    if place.suffix != ".npy":
        raise ValueError(f"{name} must be an array, a pytree of arrays or the path of a file .npy, got {str(x)!r}")
    try:
        return np.load(place, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"{name} {place} cannot be read: {type(error).__name__}: {error}") from error


def pieces(leaf: np.ndarray) -> Iterator[np.ndarray]:
    """An array [E, ...] in slices of some megabytes; what was mapped for one is given back before the next."""
    step = max(1, PIECE // max(1, leaf[:1].nbytes))
    for begin in range(0, len(leaf), step):
        yield leaf[begin : begin + step]
        release(leaf)


def release(array: np.ndarray) -> None:
    """Give the pages of a mapped file back: they stay in the system's cache, not in this process."""
    _advise(array, "MADV_DONTNEED")


def _advise(array: np.ndarray, advice: str) -> None:
    """Tell the system how a mapped file is used; nothing for other arrays."""
    base = _mapped(array)
    # What was written to a copy on write ("c") is nowhere else.
    if base is not None and base.mode != "c" and hasattr(mmap, advice):
        mapped: Any = base._mmap  # type: ignore[attr-defined]
        if mapped is not None:
            mapped.madvise(getattr(mmap, advice))


def _mapped(array: np.ndarray) -> np.memmap | None:
    """The mapped file that an array is of; None for other arrays."""
    base: Any = array
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    return base if isinstance(base, np.memmap) else None


def _form(parts: Sequence[np.ndarray], dtype: np.dtype) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((sum(map(len, parts)), *parts[0].shape[1:]), dtype)


def _rows(parts: Sequence[np.ndarray], dtype: np.dtype, rows: np.ndarray, pool: ThreadPoolExecutor) -> np.ndarray:
    """These rows of arrays that follow one another, in memory of their own."""
    form = _form(parts, dtype)
    found = np.empty((len(rows), *form.shape[1:]), form.dtype)
    rows = np.clip(rows, 0, form.shape[0] - 1)
    each = len(rows) if found.nbytes < ALONE else -(-len(rows) // THREADS)
    spans = [slice(begin, begin + each) for begin in range(0, len(rows), max(1, each))]
    if len(spans) <= 1:
        _read(parts, rows, found)
    else:
        list(pool.map(lambda span: _read(parts, rows[span], found[span]), spans))
    for part in parts:
        release(part)
    return found


def _read(parts: Sequence[np.ndarray], rows: np.ndarray, out: np.ndarray) -> None:
    before = 0
    for part in parts:
        inside = (rows >= before) & (rows < before + len(part))
        if inside.all():
            if part.dtype == out.dtype:
                np.take(part, rows - before, axis=0, out=out, mode="clip")  # without the interpreter's lock
            else:
                out[...] = part[rows - before]
            return
        out[inside] = part[rows[inside] - before]
        before += len(part)

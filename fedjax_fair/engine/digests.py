"""What arrays and traced programs are told apart by: digests."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr


def digest_of(*traced: ClosedJaxpr) -> str:
    """A digest of traced programs, constants included."""
    texts = [program.pretty_print(use_color=False) for program in traced]  # str has colours in a terminal
    words = [re.sub(r" at 0x[0-9a-f]+", "", text).encode() for text in texts]  # where functions lie
    return digest(*words, *(piece for program in traced for piece in bytes_of([*_constants(program)])))


def digest_of_arrays(trees: Any) -> str:
    """A digest of the arrays of trees; one that several share is looked at once."""
    seen: dict[int, int] = {}
    pieces: list[bytes] = []
    for leaf in jax.tree.leaves(trees):
        if id(leaf) not in seen:
            pieces += bytes_of(leaf)
        pieces.append(str(seen.setdefault(id(leaf), len(seen))).encode())
    return digest(*pieces)


def _constants(program: Any) -> Iterator[Any]:
    """The constants of a traced program and of those inside it: a function under jit has its own."""
    yield from program.consts
    for step in program.jaxpr.eqns:
        for parameter in step.params.values():
            for inner in parameter if isinstance(parameter, tuple) else (parameter,):
                if isinstance(inner, ClosedJaxpr):
                    yield from _constants(inner)
                elif isinstance(inner, Jaxpr):
                    yield from _constants(ClosedJaxpr(inner, ()))


def bytes_of(tree: Any) -> list[bytes]:
    """The arrays of a tree as bytes."""
    return [np.ascontiguousarray(plain(leaf)).tobytes() for leaf in jax.tree.leaves(tree)]


def digest(*pieces: bytes) -> str:
    """SHA-256 of the pieces, one after the other."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def plain(leaf: Any) -> np.ndarray:
    """A leaf as NumPy; a typed key as its words."""
    is_key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

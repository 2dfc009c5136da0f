"""Keys of random numbers: of seeds, and put side by side without a program compiled for every number of them."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_fair.types import Key, SimState


def as_key(key: Any) -> Key:
    """A JAX key, of itself or of a seed; ValueError for anything else."""
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        if not 0 <= key < 2**32:  # JAX takes the last 32 bits: others would be seeds that were there before
            raise ValueError(f"a seed must be from 0 to 2^32 - 1, got {key}")
        return jax.random.key(int(key))
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and not key.shape:
        return key
    got = "a state, which is for state=" if isinstance(key, SimState) else repr(key)
    raise ValueError(f"key must be one jax.random.key(...), or a seed, got {got}")


def stacked(keys: Sequence[Key]) -> Any:
    """Keys as an array, [R]; ValueError for keys of several kinds."""
    kinds = {str(jax.random.key_impl(key)) for key in keys}
    if len(kinds) > 1:
        raise ValueError(f"seeds must be keys of one kind, got {' and '.join(sorted(kinds))}")
    bits = np.stack([np.asarray(jax.random.key_data(key)) for key in keys])
    return jax.random.wrap_key_data(jax.device_put(bits), impl=jax.random.key_impl(keys[0]))


def picked(keys: Any, places: np.ndarray) -> Any:
    """``keys[places]``."""
    bits = np.asarray(jax.random.key_data(keys))[places]
    return jax.random.wrap_key_data(jax.device_put(bits), impl=jax.random.key_impl(keys))

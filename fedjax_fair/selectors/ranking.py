"""What the loss-guided strategies share: the largest of a list, ties at random."""

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.types import Key


def top(values: Array, m: int, key: Key) -> Array:
    """Positions i32[m] of the m largest of f[K], distinct, ties broken uniformly at random."""
    tiebreak = jax.random.uniform(key, values.shape)
    return jnp.lexsort((tiebreak, values))[::-1][:m].astype(jnp.int32)

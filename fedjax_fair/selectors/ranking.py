"""What the strategies that take the largest of something share."""

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.checks import check_count
from fedjax_fair.selectors.size_proportional import size_proportional
from fedjax_fair.types import Key


def top(values: Array, m: int, key: Key) -> Array:
    """Places of the m largest values, ties in random order; NaN, which no comparison can place, comes last."""
    tiebreak = jax.random.uniform(key, values.shape)
    return jnp.lexsort((tiebreak, jnp.where(jnp.isnan(values), -jnp.inf, values)))[::-1][:m].astype(jnp.int32)


def check_candidates(m: int, d: int | None) -> None:
    """Raise ValueError unless ``d`` candidates make a choice of ``m``."""
    check_count("m", m)
    if d is not None:
        check_count("d", d)
        if d < m:
            raise ValueError(f"d must be at least the {m} clients of the cohort, got {d}")


def draw_candidates(log_sizes: Array, key: Key, d: int) -> Array:
    """Ids i32[d], drawn without replacement in proportion to the sizes.

    Raises:
      ValueError: d is above N.
    """
    if d > log_sizes.shape[0]:
        raise ValueError(f"d must be at most the {log_sizes.shape[0]} clients, got {d}")
    return size_proportional(d).select(log_sizes, key, None)[0]  # type: ignore[arg-type]  # it needs no context

"""What the strategies that take the largest of something share."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.checks import check_count
from fedjax_fair.numerics.largest import MANY, largest
from fedjax_fair.selectors.size_proportional import size_proportional
from fedjax_fair.types import Key

T = TypeVar("T")


def top(values: Array, m: int, key: Key) -> Array:
    """Places of the m largest values, ties in random order; NaN, which no comparison can place, comes last."""
    values = jnp.where(jnp.isnan(values), -jnp.inf, values)
    if values.shape[0] < MANY or 2 * m > values.shape[0]:
        tiebreak = jax.random.uniform(key, values.shape, jnp.float32)  # in 64-bit mode, too: the same cohorts
        return jnp.lexsort((tiebreak, values))[::-1][:m].astype(jnp.int32)
    # The same without a sort of all, and without a draw for each of them where the first m + 1 differ.
    first = largest(values, m + 1)
    alike = (values[first[1:]] == values[first[:-1]]).any()
    return jax.lax.cond(alike, lambda: _lucky(values, values[first[m - 1]], m, key), lambda: first[:m])


def _lucky(values: Array, least: Array, m: int, key: Key) -> Array:
    """Who is above the m-th largest value, ``least``, and of its equals the luckiest."""
    tiebreak = jax.random.uniform(key, values.shape, jnp.float32)
    luck = jnp.where(values > least, 2, jnp.where(values == least, tiebreak, -1))
    last = values.shape[0] - 1  # of two alike in everything, a sort's end has the later one
    among = jnp.sort(last - largest(luck[::-1], m))
    return among[jnp.lexsort((tiebreak[among], values[among]))[::-1]].astype(jnp.int32)


def any_of(chosen: Callable[[Array], Array], n: int, m: int, key: Key, otherwise: Callable[[Key], Array]) -> Array:
    """m different ids below n of those who are ``chosen(ids)``, every set equally likely, without a look at all n.

    ``otherwise(key)``, as even-handed, where 8 m draws with replacement do not hit on m: few are chosen.
    """
    here, there = jax.random.split(key)
    drawn = jax.random.randint(here, (8 * m,), 0, n, jnp.int32)
    order = jnp.argsort(drawn, stable=True)
    again = jnp.zeros(8 * m, bool).at[order[1:]].set(drawn[order[1:]] == drawn[order[:-1]])
    hit = chosen(drawn) & ~again
    first = drawn[jnp.argsort(~hit, stable=True)[:m]]
    return jax.lax.cond(hit.sum() >= m, lambda: first, lambda: otherwise(there))


def shortcut(holds: Array, short: Callable[[], T], long: Callable[[], T], clients: int) -> T:
    """``short()`` where it ``holds``, else ``long()``, right in any case: a branch pays for many clients only."""
    return jax.lax.cond(holds, short, long) if clients >= MANY else long()


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

"""Uniform selection without replacement."""

import functools
from typing import get_args

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.checks import check_choice, check_count
from fedjax_fair.selectors.memoryless import init, observe
from fedjax_fair.selectors.size_proportional import Among, weighted
from fedjax_fair.types import Context, Key, Selector, State


def uniform(m: int, among: Among = "all") -> Selector:
    r"""Every set of m clients is equally likely: each client takes part with probability m / N.

    Floyd's algorithm: O(m^2) comparisons, however many clients there are. The order of the slots is not
    uniform, which no rule can see. With ``m = N`` the clients come in order.

    Args:
      m: clients per round.
      among: "all", or only the clients that are "available" this round, in O(N); where there are fewer than m of
        them, the other slots go to absent clients and stay inactive.

    Raises:
      ValueError: ``m`` is below 1, or another ``among``; in ``simulation``, m above N.

    Source: Bentley, Floyd, Programming pearls: a sample of brilliance, CACM 1987.
    """
    check_count("m", m)
    if check_choice("among", among, get_args(Among)) == "available":
        return weighted(m, lambda sizes: jnp.zeros_like(sizes), among)

    def select(state: State, key: Key, context: Context) -> tuple[Array, State]:
        return _floyd(key, m, context.n_clients), state

    return Selector(init, select, observe, m)


@functools.partial(jax.jit, static_argnums=(1, 2), inline=True)  # traced once for all simulations that ask
def _floyd(key: Key, m: int, n: int) -> Array:
    if m == n:
        return jnp.arange(n, dtype=jnp.int32)
    last = jnp.arange(n - m, n, dtype=jnp.int32)
    draws = jax.random.randint(key, (m,), 0, last + 1, jnp.int32)  # the i-th: of the first n - m + i + 1

    def add(i: Array, ids: Array) -> Array:
        return ids.at[i].set(jnp.where((ids == draws[i]).any(), last[i], draws[i]))

    return jax.lax.fori_loop(0, m, add, jnp.full((m,), -1, jnp.int32))

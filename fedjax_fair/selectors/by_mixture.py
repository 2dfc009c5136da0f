"""Selection by the mixture that a rule such as DRFA carries over all clients."""

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.selectors.memoryless import observe
from fedjax_fair.types import Context, Key, Selector, State


def inclusion(weights: Array, m: Array | int) -> Array:
    r"""The probabilities :math:`\pi_k = \min(1, a w_k)`, f[N], that sum to m, or to the number of w above 0 where
    that is less."""
    order = jnp.argsort(-weights)
    ranked = weights[order]
    rest = jnp.cumsum(ranked[::-1])[::-1]  # of those from each rank on
    certain = jnp.arange(weights.shape[0])  # if as many of the heaviest are in for sure
    a = jnp.maximum(m - certain, 0).astype(weights.dtype) / jnp.where(rest > 0, rest, 1)
    enough = (a * ranked <= 1) | (certain >= m)
    first = jnp.argmax(enough)
    drawn = jnp.where(certain < first, 1, a[first] * ranked)
    drawn = jnp.where(ranked > 0, jnp.minimum(drawn, 1), 0)
    return jnp.zeros_like(weights).at[order].set(drawn)


def by_mixture(m: int) -> Selector:
    """A systematic sample of m clients, each with its probability of :func:`inclusion` by the rule's ``weights``.

    Where fewer than m have a weight above 0, the other slots stay empty.
    """

    def init(sizes: Array, key: Key | None = None) -> State:
        del sizes, key
        return ()

    def select(state: State, key: Key, context: Context) -> tuple[Array, State]:
        mix, throw = jax.random.split(key)
        order = jax.random.permutation(mix, context.n_clients)  # else neighbours would never be drawn together
        until = jnp.cumsum(inclusion(context.rule.weights, m)[order])
        start = jax.random.uniform(throw, (), jnp.float32)  # in 64-bit mode, too: the same cohorts
        marks = start.astype(until.dtype) + jnp.arange(m)
        places = jnp.searchsorted(until, marks.astype(until.dtype), side="right")
        ids = order.at[places].get(mode="fill", fill_value=context.n_clients)  # beyond the last client, nobody
        return ids.astype(jnp.int32), state

    return Selector(init, select, observe, m)

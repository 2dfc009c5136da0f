"""Selection in proportion to the clients' training-set sizes."""

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.checks import check_count
from fedjax_fair.selectors.memoryless import observe
from fedjax_fair.types import Context, Key, Selector, State


def size_proportional(m: int) -> Selector:
    r"""Draw m clients one after another, without replacement, in proportion to their sizes n_k.

    The m largest of :math:`\log n_k + \mathrm{Gumbel}_k` have the law of those successive draws. O(N).
    Pair it with uniform weights: size weights would count the sizes twice.

    Args:
      m: clients per round.

    Raises:
      ValueError: ``m`` is below 1; in ``simulation``, above N.

    Source: q-FFL's and UCB-CS's baseline selection; Gumbel top-m: Vieira 2014, Kool et al. 2019.
    """
    check_count("m", m)

    def init(sizes: Array, key: Key | None = None) -> State:
        del key
        return jnp.log(sizes)

    def select(state: State, key: Key, context: Context) -> tuple[Array, State]:
        del context
        noise = jax.random.gumbel(key, state.shape, state.dtype)
        return jax.lax.top_k(state + noise, m)[1].astype(jnp.int32), state

    return Selector(init, select, observe, m)

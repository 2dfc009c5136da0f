"""Selection in proportion to the clients' training-set sizes."""

from collections.abc import Callable
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.checks import check_choice, check_count
from fedjax_fair.numerics.largest import largest
from fedjax_fair.selectors.memoryless import observe
from fedjax_fair.types import Context, Key, Selector, State

Among = Literal["all", "available"]


def size_proportional(m: int, among: Among = "all") -> Selector:
    r"""Draw m clients one after another, without replacement, in proportion to their sizes n_k.

    The m largest of :math:`\log n_k + \mathrm{Gumbel}_k` have the law of those successive draws. O(N).
    Pair it with uniform weights: size weights would count the sizes twice.

    Args:
      m: clients per round.
      among: "all", or only the clients that are "available" this round; where there are fewer than m of them, the
        other slots go to absent clients and stay inactive.

    Raises:
      ValueError: ``m`` is below 1, or another ``among``; in ``simulation``, m above N.

    Source: q-FFL's and UCB-CS's baseline selection; Gumbel top-m: Vieira 2014, Kool et al. 2019.
    """
    return weighted(m, jnp.log, among)


def weighted(m: int, log_weights: Callable[[Array], Array], among: Among) -> Selector:
    """Draw m clients without replacement, with log-weights that are a function of the sizes."""
    check_count("m", m)
    check_choice("among", among, get_args(Among))

    def init(sizes: Array, key: Key | None = None) -> State:
        del key
        return log_weights(sizes)

    def select(state: State, key: Key, context: Context) -> tuple[Array, State]:
        luck = jax.random.gumbel(key, state.shape, jnp.float32)  # in 64-bit mode, too: the same cohorts
        scores = state + luck.astype(state.dtype)
        if among == "available":
            scores = jnp.where(context.available(jnp.arange(state.shape[0])), scores, -jnp.inf)
        return largest(scores, m), state

    return Selector(init, select, observe, m)

"""Power-of-choice: of d random candidates, the m with the largest losses (Cho, Wang, Joshi, 2020)."""

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.selectors.memoryless import observe
from fedjax_fair.selectors.ranking import check_candidates, draw_candidates, top
from fedjax_fair.types import Context, Key, Selector, State


def pow_d(m: int, d: int | None = None) -> Selector:
    r"""Draw d candidates in proportion to their sizes, ask each for its loss, take the m largest.

    .. math:: S = \operatorname{top}_m \{F_k(w) : k \in A\}, \qquad A \text{ of size } d \text{ drawn } \propto n_k

    without replacement; ties at random, candidates without a finite loss last. The candidates download the model
    and evaluate it on their whole training sets: the history counts both. Pair it with uniform weights. ``d = m``
    is size-proportional selection, ``d = N`` the greedy choice.

    Args:
      m: clients that train.
      d: candidates, at least m; 2 m by default, as in UCB-CS's figures (N where that is more than there are).

    Raises:
      ValueError: ``m`` below 1 or ``d`` below ``m``; in ``simulation``, ``d`` above N.

    Source: Cho, Wang, Joshi, Client Selection in Federated Learning: Convergence Analysis and Power-of-Choice
    Selection Strategies, 2020.
    """
    return choose_among(m, d, batch=None)


def choose_among(m: int, d: int | None, batch: int | None) -> Selector:
    """:func:`pow_d` (``batch=None``) and :func:`cpow_d`."""
    check_candidates(m, d)

    def init(sizes: Array, key: Key | None = None) -> State:
        del key
        return jnp.log(sizes)

    def select(state: State, key: Key, context: Context) -> tuple[Array, State]:
        draw_key, probe_key, tie_key = jax.random.split(key, 3)
        among = draw_candidates(state, draw_key, min(2 * m, context.n_clients) if d is None else d)
        losses = context.probe(among, probe_key, batch)
        answered = jnp.where(jnp.isfinite(losses), losses, -jnp.inf)  # a client that failed is no large loss
        return among[top(answered, m, tie_key)], state

    return Selector(init, select, observe, m)

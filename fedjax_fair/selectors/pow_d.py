"""Power-of-choice: of d random candidates, the m with the largest losses (Cho, Wang, Joshi, 2020)."""

import jax
from jax import Array

from fedjax_fair.checks import check_count
from fedjax_fair.selectors.memoryless import observe
from fedjax_fair.selectors.ranking import top
from fedjax_fair.selectors.size_proportional import size_proportional
from fedjax_fair.types import Context, Key, Selector, State


def pow_d(m: int, d: int | None = None) -> Selector:
    r"""Draw d candidates in proportion to their sizes, ask each for its loss, take the m largest.

    .. math:: S = \operatorname{top}_m \{F_k(w) : k \in A\}, \qquad A \text{ of size } d \text{ drawn } \propto n_k

    without replacement; ties at random. The candidates download the model and evaluate it on their whole training
    sets: the history counts both. Pair it with uniform weights. ``d = m`` is size-proportional selection, ``d = N``
    the greedy choice.

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
    check_count("m", m)
    if d is not None:
        check_count("d", d, low=m)

    def init(sizes: Array, key: Key | None = None) -> State:
        return size_proportional(m).init(sizes, key)

    def select(state: State, key: Key, context: Context) -> tuple[Array, State]:
        n = context.n_clients
        if d is not None and d > n:
            raise ValueError(f"d must be from m to the {n} clients, got {d}")
        draw_key, probe_key, tie_key = jax.random.split(key, 3)
        candidates = size_proportional(min(2 * m, n) if d is None else d)
        among, state = candidates.select(state, draw_key, context)
        losses = context.probe(among, probe_key, batch)
        return among[top(losses, m, tie_key)], state

    return Selector(init, select, observe, m)

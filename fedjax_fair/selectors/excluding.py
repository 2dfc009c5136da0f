"""Clients that are never trained on, under any selector."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.selectors.slots import filled
from fedjax_fair.types import Context, Key, Report, Selector, State


def excluding(ids: Any, selector: Selector) -> Selector:
    """A selector for all clients but these, who are never asked for anything: how a model serves newcomers.

    The selector inside sees a federation of the others alone. Every client is still evaluated: score those of
    ``ids`` apart by ``ff.table(runs, clients=mask)``, with a model of their own by ``ff.fine_tune``. Rules that
    keep a weight for every client, such as AFL and AAggFF-D, keep one for these, too.

    Args:
      ids: the clients that are left out, such as ``range(80, 100)``; distinct.
      selector: who takes part, of the others.

    Raises:
      ValueError: ids that are none or twice; in ``simulation``, ids that nobody has, or a cohort larger than what
        is left.
    """
    try:
        left_out = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids))
    except (TypeError, ValueError):  # no list, or one of lists
        left_out = np.asarray(None)
    if (
        left_out.ndim != 1
        or not np.issubdtype(left_out.dtype, np.integer)
        or len(set(left_out.tolist())) < left_out.size
    ):
        raise ValueError(f"ids must be different clients' whole numbers, got {ids!r}")
    if not isinstance(selector, Selector):
        raise ValueError(f"selector must be a Selector, such as ff.uniform(10), got {type(selector).__name__}")

    def others(n: int) -> np.ndarray:
        """i32[N'] the clients that stay."""
        if ((left_out < 0) | (left_out >= n)).any():
            raise ValueError(f"excluding takes ids from 0 to {n - 1}, got {left_out.min()} to {left_out.max()}")
        stay = np.setdiff1d(np.arange(n, dtype=np.int32), left_out)
        if selector.cohort > stay.size:
            raise ValueError(
                f"the cohort m must be from 1 to the {stay.size} clients not excluded, got {selector.cohort}"
            )
        return stay

    def init(sizes: Array, key: Key | None = None) -> State:
        return selector.init(sizes[others(sizes.shape[0])], key)

    def select(state: State, key: Key, context: Context) -> tuple[Array, State]:
        stay = jnp.asarray(others(context.n_clients))
        known = len(stay)

        def outside(function: Callable[..., Array]) -> Callable[..., Array]:
            return lambda asked, *more, **named: function(stay[asked], *more, **named)

        inside = Context(
            context.round, known, outside(context.probe), outside(context.available)
        )  # the rule's state goes by other ids
        chosen, state = selector.select(state, key, inside)
        valid = (chosen >= 0) & (chosen < known)
        return jnp.where(valid, stay[jnp.clip(chosen, 0, known - 1)], -1), state

    def observe(state: State, report: Report) -> State:
        # Its own numbers: how many of those who stay come before.
        before = (jnp.asarray(np.sort(left_out), jnp.int32)[None, :] < report.ids[:, None]).sum(1, dtype=jnp.int32)
        # A slot left empty may hold a client that is left out: here the lowest of its own that is in no other slot,
        # in its place. Such numbers are below m, and so clients of the selector's.
        known = ~jnp.isin(report.ids, jnp.asarray(left_out, jnp.int32))
        ids = filled(report.ids - before, known, 2 * selector.cohort)
        return selector.observe(state, report._replace(ids=ids))

    return Selector(init, select, observe, selector.cohort)

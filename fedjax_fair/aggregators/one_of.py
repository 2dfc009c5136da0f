"""Several rules as one, of which a number says which: one compiled program serves them all."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.types import Aggregator, Key, Report, State, marked


def one_of(rules: Sequence[Aggregator], which: Any) -> Aggregator:
    """The rule ``rules[which]``, where ``which``, i32[], may be traced.

    The states of all lie side by side, and only that of the chosen moves. It reads what any of the rules reads.
    Mapped (``jax.lax.map``) the chosen alone is computed, vmapped all of them.
    """

    def init(sizes: Array, key: Key | None = None) -> State:
        return tuple(rule.init(sizes, key) for rule in rules)

    def weigh(state: State, report: Report, key: Key) -> tuple[Array, State]:
        def weigh_by(i: int) -> tuple[Array, State]:
            coef, after = rules[i].weigh(state[i], report, key)
            after = jax.tree.map(lambda new, old: jnp.asarray(new, jnp.result_type(old)), after, state[i])
            return jnp.asarray(coef, report.n.dtype), (*state[:i], after, *state[i + 1 :])

        # Without operands: a report that is handed over would count as read, every signal of it.
        return jax.lax.switch(which, [partial(weigh_by, i) for i in range(len(rules))])

    positive, cancels = (
        any(getattr(rule.weigh, mark, False) for rule in rules) for mark in ("positive_losses", "cancels")
    )
    return Aggregator(init, marked(weigh, positive_losses=positive, cancels=cancels))

"""Clients that train at the same time: a step of each in every turn of one loop.

The steps of a turn need nothing of each other, so the cores of a CPU take their operations side by side, where one
client's small products are shared out at a loss. Nothing is stacked: each client's arithmetic is the one that it
has alone.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

Rows = Array | Callable[[Array], Array]
"""Rows of the example store: i32[steps, B] where the number of steps is known to the compiler, else a step's."""


class Work(NamedTuple):
    """One client's local training, ready to begin."""

    steps: int | Array
    rows: Rows
    start: Any
    """The carry before the first step."""
    step: Callable[[Array, Array, Any], Any]
    """``(k i32[], rows i32[B], carry) -> carry``."""
    end: Callable[[Any], Any]
    """From the last carry to what the training returns."""


def take_turns(works: Sequence[Work], unroll: int) -> list[Any]:
    """Each client's end after its own number of steps; where that is an ``int``, all have the same."""
    starts = [work.start for work in works]
    steps = works[0].steps
    if isinstance(steps, int):

        def turn(carries: list[Any], now: tuple[Array, list[Any]]) -> tuple[list[Any], None]:
            k, rows = now
            return [work.step(k, mine, carry) for work, mine, carry in zip(works, rows, carries)], None

        drawn = jnp.arange(steps), [work.rows for work in works]
        carries, _ = jax.lax.scan(turn, starts, drawn, unroll=unroll)
    else:
        least = functools.reduce(jnp.minimum, [work.steps for work in works])
        common = jnp.maximum(least, 0)  # a straggler's limit may be negative: the others still begin with step 0

        def step(work: Work, k: Array, carry: Any) -> Any:
            assert callable(work.rows)  # a number of steps that is not known comes without their rows
            return work.step(k, work.rows(k), carry)

        def together(k: Array, carries: list[Any]) -> list[Any]:
            return [step(work, k, carry) for work, carry in zip(works, carries)]

        carries = jax.lax.fori_loop(0, common, together, starts)
        if len(works) > 1:  # then each by itself, what it has left
            carries = [
                jax.lax.fori_loop(common, work.steps, functools.partial(step, work), carry)
                for work, carry in zip(works, carries)
            ]
    return [work.end(carry) for work, carry in zip(works, carries)]

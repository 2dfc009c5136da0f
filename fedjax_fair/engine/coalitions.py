"""Coalitions of a federation's clients: who is not in one is absent, and all share one compiled program."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.engine.evaluation import scored
from fedjax_fair.engine.run import play
from fedjax_fair.engine.simulation import simulation
from fedjax_fair.engine.tasks import Task, in_threads
from fedjax_fair.numerics.shapley import Game
from fedjax_fair.numerics.xla_options import compiled, of_rounds
from fedjax_fair.selectors import uniform
from fedjax_fair.types import Context, Key, Selector, SimState, Simulation, State, as_method

Value = Callable[[Array], Array]
"""``every client's metric f[N] -> M measures f[M]``."""


class Course(NamedTuple):
    """How coalitions are computed."""

    width: int
    """How many side by side, vmapped."""
    threads: int
    """How many such blocks at the same time."""
    advance: Callable[[int], None]
    """Told how many coalitions are done."""


def coalition(sim: Simulation, members: Any, **other: Any) -> Simulation:
    """The same federation, in which the clients outside ``members``, bool[N], are absent in every round.

    ``members`` may be a tracer. ``other`` are arguments of :func:`fedjax_fair.simulation` to change as well.
    """
    arguments = sim.arguments or {}
    usual = arguments["available"]

    def available(key: Key, round: Array, ids: Array) -> Array:
        return jnp.asarray(members)[ids] & usual(key, round, ids)

    return simulation(**(arguments | {"available": available} | other))


def trainings(sim: Simulation, value: Value, split: str, key: Key, rounds: int, course: Course) -> Game:
    """What coalitions are worth that train from the start, each as if alone: the value of their last model."""

    def one(members: Array, key: Key, data: Any) -> Array:
        mine = coalition(sim, members)
        of_mine = partial(play, step=mine.step, evaluate=mine.evaluate, deploy=mine.deploy)
        _, (_, scores) = of_mine(mine.init(key, data), data, evaluations=1, every=rounds)
        return value(scores[split].accuracy[0])

    some = _compiled(sim, jax.vmap(one, in_axes=(0, None, None)) if course.width > 1 else _alone(one))
    return _by_blocks(lambda members: some(members, key, sim.data), course)


def rounds_of(
    sim: Simulation, value: Value, split: str, key: Key, rounds: int, course: Course
) -> Iterator[tuple[np.ndarray, Game]]:
    """Round by round the ids of those who took part, i32[K], and what coalitions of them are worth: the value of
    the model that the server makes of their updates alone. All updates then move the model on."""
    slots, rule = (sim.arguments or {})["selector"], as_method((sim.arguments or {})["aggregator"])
    cohort = sim.data.n_clients if slots is None else slots.cohort
    usual = uniform(cohort) if slots is None else slots
    usual = usual if rule.selector is None else rule.selector(usual)  # a rule that draws by itself has drawn

    def one(members: Array, ids: Array, state: SimState, data: Any) -> Array:
        these = _these(ids, cohort, usual)
        mine = coalition(sim, members, aggregator=rule._replace(selector=None), selector=these)
        after, _ = mine.step(state, data)
        return value(scored(mine.evaluate, mine.deploy, after, data)[split].accuracy)

    # vmapped, whatever the width: what does not depend on the members, the training, is then computed once.
    some = _compiled(sim, lambda members, ids, state, data: jax.vmap(lambda m: one(m, ids, state, data))(members))
    step = _compiled(sim, sim.step)
    state = sim.init(key)
    for _ in range(rounds):
        after, info = step(state, sim.data)
        ids, active = np.asarray(info.ids), np.asarray(info.active)
        yield ids[active], _among(partial(some, ids=info.ids, state=state, data=sim.data), ids[active], sim, course)
        state = after


def _among(some: Callable[..., Any], ids: np.ndarray, sim: Simulation, course: Course) -> Game:
    """The game of these clients alone."""
    judge = _by_blocks(some, course)

    def game(members: np.ndarray) -> np.ndarray:
        there = np.zeros((len(members), sim.data.n_clients), bool)
        there[:, ids] = members
        return judge(there)

    return game


def _these(ids: Array, cohort: int, usual: Selector) -> Selector:
    """The selector that takes these clients, and leaves the memory of the usual one alone."""

    def select(state: State, key: Key, context: Context) -> tuple[Array, State]:
        return ids, state

    return Selector(usual.init, select, lambda state, report: state, cohort)


def _alone(one: Callable[..., Array]) -> Callable[..., Array]:
    return lambda members, *shared: one(members[0], *shared)[None]


def _compiled(sim: Simulation, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` under jit, with the options of ``run`` for such models."""
    params = jax.eval_shape(sim.init, jax.random.key(0)).params
    return compiled(function, of_rounds(lambda *_, **__: params))


def _by_blocks(some: Callable[[Array], Any], course: Course) -> Game:
    """Blocks of one width, so that they share a program; the last is filled up with its own last coalition."""
    width = course.width

    def game(members: np.ndarray) -> np.ndarray:
        def work(first: int, compiled: Callable[[], None]) -> np.ndarray:
            mine = members[first : first + width]
            filled = mine[np.minimum(np.arange(width), len(mine) - 1)]
            values = some(jnp.asarray(filled))
            compiled()
            found = np.asarray(values, np.float64)[: len(mine)]
            course.advance(len(mine))
            return found

        tasks = [Task(0, partial(work, first)) for first in range(0, len(members), width)]
        return np.concatenate([np.asarray(part) for part in in_threads(tasks, course.threads)])

    return game

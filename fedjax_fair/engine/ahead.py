"""Rounds whose cohorts are known before they are played: the examples are read and sent to the device ahead."""

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.data import FederatedData
from fedjax_fair.data.host_store import Handed, HostStore
from fedjax_fair.engine.components import Components
from fedjax_fair.engine.evaluation import scored
from fedjax_fair.engine.near import packed
from fedjax_fair.engine.round import keys_of_round
from fedjax_fair.engine.selection import Cohort, select
from fedjax_fair.numerics.xla_options import compiled, of_rounds
from fedjax_fair.reads import report_form, used_inputs
from fedjax_fair.types import Evaluation, Info, Params, SimState, Simulation

BYTES = 2**23
"""Of the examples of rounds that are sent at a time; as many are read meanwhile."""


class Coming(NamedTuple):
    """The next cohorts of a simulation."""

    ids: Callable[[SimState, FederatedData, int], Array]
    """``(state, data, rounds) -> i32[rounds, S]``"""
    capacity: int
    """Training examples of the largest cohort."""


def coming(
    parts: Components, init: Callable[..., SimState], trained: Callable[[Params], Params], data: FederatedData
) -> Coming | None:
    """The next cohorts, where the examples are off the device and nothing that rounds find out decides on them.

    ``trained`` takes from the model what is not frozen.
    """
    if not isinstance(data.x, HostStore):
        return None
    state = jax.eval_shape(init, jax.random.key(0))
    state = state._replace(params=trained(state.params))
    if not _learns_nothing(parts, state, data):
        return None

    found = _found(state)

    def ids(known: SimState, data: FederatedData, rounds: int) -> Array:
        def one(known: SimState, _: None) -> tuple[SimState, Array]:
            # Of these the forms matter alone: a selector may ask for losses that do not decide on its cohort.
            zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), found)
            return known._replace(round=known.round + 1), _cohort(parts, known, zeros, data).ids

        return jax.lax.scan(one, known, length=rounds)[1]

    return Coming(ids, parts.largest_cohort)


def _found(state: SimState) -> tuple[Any, ...]:
    """What rounds find out."""
    return state.params, state.server, state.aggregator, state.memory


def _known(state: SimState) -> SimState:
    """The rest: the round's number, the key, and the selector's own state."""
    return state._replace(params=(), server=(), aggregator=(), memory=())


def _cohort(parts: Components, known: SimState, found: tuple[Any, ...], data: FederatedData) -> Cohort:
    params, server, aggregator, memory = found
    state = known._replace(params=params, server=server, aggregator=aggregator, memory=memory)
    keys = keys_of_round(state)
    return select(parts, state, data, keys.select, keys.present, keys.probe, keys.fault)


def _learns_nothing(parts: Components, state: SimState, data: FederatedData) -> bool:
    """Whether cohorts follow from the key, the round's number and a state of the selector that never moves."""

    def chosen(found: tuple[Any, ...], known: SimState) -> Any:
        cohort = _cohort(parts, known, found, data)
        return cohort.ids, cohort.state

    program = jax.make_jaxpr(chosen)(_found(state), _known(state)).jaxpr
    if any(used_inputs(program)[: len(jax.tree.leaves(_found(state)))]):
        return False
    own = len(jax.tree.leaves(state.selector))
    if list(program.outvars[1:]) != list(program.invars[len(program.invars) - own :]):
        return False  # selecting moves it, as where it is whose turn it is
    report = report_form(parts.selector.cohort, state.params, parts.memory)
    seen = jax.make_jaxpr(parts.selector.observe)(state.selector, report).jaxpr
    return list(seen.outvars) == list(seen.invars[:own])  # nor does the feedback


def is_known(sim: Simulation) -> bool:
    """Whether the cohorts of rounds are known before, and their examples to be brought; the data may be others."""
    return sim.coming is not None and isinstance(sim.data, FederatedData) and isinstance(sim.data.x, HostStore)


@functools.partial(jax.jit, static_argnames=("ids", "rounds"))
def _places(state: SimState, data: FederatedData, ids: Coming, rounds: int) -> tuple[Array, Array]:
    """The next cohorts i32[rounds, S], and the rows of their training examples in the store, i32[rounds, C]."""
    cohorts = ids.ids(state, data, rounds)
    return cohorts, jax.vmap(lambda some: packed(data.train, some, ids.capacity).rows)(cohorts)


def _stretch(
    state: SimState, data: FederatedData, ids: Array, examples: Any, *, step: Callable
) -> tuple[SimState, Info]:
    """As many rounds as there are cohorts."""

    def one(state: SimState, now: tuple[Array, Any]) -> tuple[SimState, Info]:
        return step(state, data._replace(x=Handed(data.x, *now)))

    return jax.lax.scan(one, state, (ids, examples))


def _scored(state: SimState, data: Any, *, evaluate: Callable, deploy: Callable) -> dict[str, Evaluation]:
    return scored(evaluate, deploy, state, data)


_rounds = compiled(_stretch, of_rounds(), static_argnames="step", donate_argnames="state")
_scores = compiled(_scored, of_rounds(), static_argnames=("evaluate", "deploy"))


def stretches(every: int, evaluations: int, most: int) -> Iterator[tuple[int, bool]]:
    """``(rounds, whether an evaluation follows)``, of at most ``most`` rounds and of two lengths at most."""
    count = -(-every // most)
    length = -(-every // count)
    for _ in range(evaluations):
        for begun in range(0, every, length):
            yield min(length, every - begun), begun + length >= every


def play(sim: Simulation, state: SimState, evaluations: int, every: int) -> tuple[SimState, Any]:
    """``evaluations`` times ``every`` rounds and an evaluation, as :func:`fedjax_fair.engine.run.play`.

    While the device computes one stretch of rounds, threads read the examples of the next and send them.
    """
    known, store, data = sim.coming, sim.data.x, sim.data
    each = sum(np.prod(leaf.shape[1:]) * leaf.dtype.itemsize for leaf in jax.tree.leaves(store.forms()))
    plan = list(stretches(every, evaluations, max(1, int(BYTES // max(1, known.capacity * each)))))
    # What selects is copied: the rounds take the state apart.
    first = jax.tree.map(jnp.copy, _known(state))
    wide = jnp.result_type(float) == np.float64

    def fetched(begun: int, rounds: int) -> tuple[Array, Any]:
        with jax.enable_x64(wide):  # a thread does not know how JAX is set around its caller
            now = first._replace(round=first.round + begun)
            ids, rows = _places(now, data, known, rounds)
            return ids, jax.device_put(store.read(np.asarray(rows)))

    begins = np.cumsum([0, *(rounds for rounds, _ in plan)])
    infos: list[Any] = []
    scores: list[Any] = []
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(fetched, 0, plan[0][0])
        for number, (_, judged) in enumerate(plan):
            ids, examples = coming.result()
            if number + 1 < len(plan):
                coming = reader.submit(fetched, int(begins[number + 1]), plan[number + 1][0])
            state, info = _rounds(state, data, ids, examples, step=sim.step)
            infos.append(jax.device_get(info))
            if judged:
                scores.append(jax.device_get(_scores(state, data, evaluate=sim.evaluate, deploy=sim.deploy)))
    info = jax.tree.map(
        lambda *parts: np.concatenate(parts).reshape(evaluations, every, *parts[0].shape[1:]), *infos
    )
    return state, (info, jax.tree.map(lambda *parts: np.stack(parts), *scores))

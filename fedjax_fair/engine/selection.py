"""The first step of a round: who takes part, and what asking for losses costs."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fedjax_fair.data import FederatedData
from fedjax_fair.engine.checks import check_ids
from fedjax_fair.engine.components import Components
from fedjax_fair.robustness.faults import misreport_losses
from fedjax_fair.selectors import cpow_d, pow_d, rpow_d, size_proportional, ucb_cs, uniform
from fedjax_fair.selectors.slots import filled
from fedjax_fair.types import Context, Key, Selector, SimState, State

OURS = frozenset(make.__module__ for make in (cpow_d, pow_d, rpow_d, size_proportional, ucb_cs, uniform))


class Cohort(NamedTuple):
    """Who takes part in a round."""

    ids: Array
    """i32[S]: different valid ids; where the selector gave none, another client's, who is then not there."""
    chosen: Array
    """i32[S]: those that the selector gave, and -1 where it gave none."""
    there: Array
    """bool[S]: who can take part, each client once."""
    state: State
    """The selector's memory."""
    downloads: Array
    """i32[]: clients that were sent the model, to train or to be asked for their loss."""
    evaluations: Array
    """i32[]: per-example losses that clients evaluated for the selector."""


def select(
    parts: Components, state: SimState, data: FederatedData, select: Key, present: Key, probe: Key, fault: Key
) -> Cohort:
    """The cohort that the selector chooses; the keys are those of its draws, absences, minibatches and lies."""
    n_clients = parts.n_clients

    def available(ids: Array) -> Array:
        return parts.available(present, state.round, ids)

    asked: list[tuple[Array, Array]] = []  # who answered the selector, and for how many losses: its cost

    def ask(ids: Array, key: Key | None = None, batch: int | None = None) -> Array:
        there = available(ids)
        if batch is None:
            losses = data.train.size[ids]
            answers = parts.received_loss(state, data, ids)
        else:
            losses = jnp.full(ids.shape, batch, jnp.int32)
            drawn_with = probe if key is None else key
            answers = parts.minibatch_loss(state, data, ids, drawn_with, batch)
        asked.append((jnp.where(there, ids, -1), jnp.where(there, losses, 0).sum()))
        of = (data.train.size, parts.faults, fault, state.params, parts.memory)
        return jnp.where(there, misreport_losses(answers, ids, *of), jnp.nan)

    context = Context(state.round, n_clients, ask, available, state.aggregator)
    ids, memory = check_ids(parts.selector.select(state.selector, select, context), parts.selector.cohort)
    known = valid_ids(ids, n_clients)
    # The compiler may know the ids of ours, such as everybody's, and fold what is gathered by them.
    ours = is_ours(parts.selector)
    ids = jnp.clip(ids, 0, n_clients - 1) if ours else filled(ids, known, n_clients)
    there = available(ids) & known
    return Cohort(
        ids,
        ids if ours else jnp.where(known, ids, -1),
        there,
        memory,
        downloads=reached([jnp.where(there, ids, -1), *(who for who, _ in asked)]),
        evaluations=jnp.asarray(sum(count for _, count in asked), jnp.int32),
    )


def is_ours(selector: Selector) -> bool:
    """Whether it is one of the six, which fill every slot, each with another client."""
    return getattr(selector.select, "__module__", "") in OURS


def valid_ids(ids: Array, n_clients: int) -> Array:
    """bool[S]: from 0 to N - 1, and not in an earlier slot already."""
    order = jnp.argsort(ids, stable=True)
    ordered = ids[order]
    again = jnp.zeros(ids.shape, bool).at[order[1:]].set(ordered[1:] == ordered[:-1])
    return (ids >= 0) & (ids < n_clients) & ~again


def reached(groups: Sequence[Array]) -> Array:
    """How many different clients are in these groups of ids: i32[]; -1 is nobody.

    The first group is a cohort, in which nobody is twice: alone, as in most rounds, it is counted without a sort.
    """
    if len(groups) == 1:
        return (groups[0] >= 0).sum().astype(jnp.int32)
    ids = jnp.sort(jnp.concatenate(groups))
    return (jnp.diff(ids, prepend=-1) > 0).sum().astype(jnp.int32)

"""One round of federated learning: select, train, report, weigh, move."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedjax_fair.data import FederatedData
from fedjax_fair.engine.aggregation import before_training, serve, train_and_weigh
from fedjax_fair.engine.components import Components
from fedjax_fair.engine.near import nearby
from fedjax_fair.engine.selection import select
from fedjax_fair.types import Info, Key, SimState


def play_round(parts: Components, state: SimState, data: FederatedData) -> tuple[SimState, Info]:
    r"""The state after one more round, and what the round leaves in the history.

    From the received model w, the clients k of the cohort S train to w_k, and the server moves by

    .. math:: w \leftarrow \text{server optimizer}\big(w,\ -\sum_{k \in S} c_k\,(w_k - w)\big)
    """
    keys = keys_of_round(state)

    # Select: who takes part.
    cohort = select(parts, state, data, keys.select, keys.present, keys.probe, keys.fault)

    near = nearby(data, cohort.ids, parts.largest_cohort)

    # Report, so far as it is known before training: the received model on each client's data.
    report = before_training(
        ids=cohort.ids,
        n=data.train.size[cohort.ids].astype(jnp.result_type(float)),
        active=cohort.there,
        loss=parts.received_loss(state, data, cohort.ids, near),
        accuracy=parts.validated(state, data, cohort.ids),
        params=state.params,
        memory=parts.memory,
    )

    # Train and weigh: from every client's update, and the rule's coefficient for it, to their sum.
    trained = train_and_weigh(parts, state, data, near, report, keys.train, keys.weigh, keys.fault, keys.present)
    report, coef = trained.report, trained.coef

    # Move.
    params, server = serve(parts.update, state, trained.total, report, coef, keys.server)
    after = SimState(
        round=state.round + 1,
        key=state.key,
        params=params,
        server=server,
        aggregator=trained.state,
        selector=parts.selector.observe(cohort.state, report),
        memory=trained.memory,
    )
    info = Info(
        ids=cohort.chosen,
        coef=coef,
        active=report.active,
        loss=jnp.where(report.active, report.loss, jnp.nan) if "loss" in parts.reads else None,
        downloads=cohort.downloads,
        evaluations=cohort.evaluations,
    )
    return after, info


class Keys(NamedTuple):
    """A round's sources of randomness."""

    select: Key
    train: Key
    weigh: Key
    probe: Key
    present: Key
    fault: Key
    server: Key


def keys_of_round(state: SimState) -> Keys:
    """Keys that depend on the run's key and the round's number alone: a resumed run draws what it would have."""
    key = jax.random.fold_in(state.key, state.round)
    present_key, fault_key = jax.random.split(jax.random.fold_in(key, 4))
    select_key, train_key, weigh_key, probe_key = jax.random.split(key, 4)
    return Keys(
        select_key, train_key, weigh_key, probe_key, present_key, fault_key, server=jax.random.fold_in(key, 5)
    )

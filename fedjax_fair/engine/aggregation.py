"""How a cohort's updates become one step of the server: weighed when all are there, or added up as they come.

A rule that reads what training reveals, such as the updates' Gram matrix, needs every update kept until it has
spoken. Any other rule can speak first; then each update goes into one sum as soon as its client has trained.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.sharding import Mesh

from fedjax_fair.data import FederatedData
from fedjax_fair.engine.checks import check_weights
from fedjax_fair.engine.components import Components
from fedjax_fair.engine.devices import Deal, added, added_and_gathered, dealt, gather, share
from fedjax_fair.engine.failures import drop_coefficients, drop_failures, finite, numbers, silence, zeroed
from fedjax_fair.engine.memory import written
from fedjax_fair.engine.signals import gram
from fedjax_fair.engine.training import Carried, Sent, Sums, no_sum, weighted_sum
from fedjax_fair.numerics.solvers import scatter
from fedjax_fair.robustness.faults import Fault, misreport, misreport_losses
from fedjax_fair.types import Key, Losses, Memory, Params, Report, SimState, State, heard_by_rule, message_of

REVEALED = frozenset(["train_loss", "train_loss_std", "gram", "updates", "steps", "message"])
"""The signals that are known after training only."""

Judge = Callable[[Report], tuple[Report, Array, State]]
"""``report -> (report of those who got a coefficient, coef f[S], the rule's next state)``."""


def before_training(
    ids: Array, n: Array, active: Array, loss: Array, accuracy: Array, params: Params, memory: Memory | None
) -> Report:
    """A report in which all that training would reveal is 0."""
    slots, zero = ids.shape[0], jnp.zeros_like(loss)
    nothing = jax.tree.map(lambda w: jnp.zeros((slots, *w.shape), w.dtype), (params, message_of(memory, params)))
    square, steps = jnp.zeros((slots, slots), loss.dtype), jnp.zeros((slots,), jnp.int32)
    return Report(ids, n, active, loss, zero, zero, accuracy, square, nothing[0], steps, nothing[1])


def after_training(
    report: Report, sent: Sent, faults: Sequence[Fault], key: Key, mesh: Mesh | None, deal: Deal | None
) -> tuple[Report, Params, Array]:
    """The report with what training reveals, the updates of this device as they arrive, and whose are finite."""
    # What nobody reads of this is not gathered, nor is a Gram matrix made of it: the compiler drops it.
    slots = report.ids.shape[0]
    # One by one: joined with what somebody reads, it would be sent.
    trace, updates, arrived = (gather(one, slots, mesh, deal) for one in (sent.trace, sent.update, sent.arrived))
    report = report._replace(train_loss=trace.loss, train_loss_std=trace.loss_std, updates=updates)
    report = report._replace(message=gather(sent.message, slots, mesh, deal))
    report = report._replace(steps=report.steps if trace.steps is None else trace.steps)
    mine = sent.update
    if faults:
        report = misreport(report, faults, key)
        kept = gather(sent.memory, slots, mesh, deal)
        arrived = finite([report.updates, *numbers((report.message, kept))])
        mine = zeroed(*share((report.updates, arrived), mesh, deal=deal))
    return report._replace(gram=gram(report.updates, mesh)), mine, arrived


class Trained(NamedTuple):
    """What a cohort's training comes to."""

    report: Report
    coef: Array
    """f[S]"""
    state: State
    """The rule's next."""
    total: Params
    """``sum_k coef_k update_k``"""
    memory: Any
    """All clients', leaves [N, ...]: of those who were active the one that they made."""


def train_and_weigh(
    parts: Components,
    state: SimState,
    data: FederatedData,
    near: FederatedData,
    report: Report,
    train: Key,
    weigh: Key,
    fault: Key,
    present: Key,
) -> Trained:
    """Train a cohort and weigh what it reports.

    ``near`` holds the cohort's examples; ``report`` is what is known before training; the keys are those of
    training, of the rule, of the faults and of the absences.
    """
    cohort, mesh, there = parts.selector.cohort, parts.mesh, report.active
    adds = parts.memory is not None and parts.memory.summed

    def judge(report: Report) -> tuple[Report, Array, State]:
        said = parts.weigh(state.aggregator, heard_by_rule(report, parts.memory), weigh)
        coef, after = check_weights(said, cohort, state.aggregator)
        return *drop_coefficients(report, coef), after

    deal = dealt(report.n, mesh) if mesh is not None and mesh.size > 1 and parts.uneven else None
    local = (state.params, near, share(report.ids, mesh, "edge", deal), train, state.round)
    summed, carried = parts.training.summed, Carried(state.memory, parts.broadcast(state))
    revealing = REVEALED - {"message"} if adds else REVEALED
    if summed is None or parts.revise is not None or not revealing.isdisjoint(parts.reads):
        sent = parts.training.stacked(*local, carried)
        if "steps" in parts.reads and sent.trace.steps is None:
            raise ValueError("trainer must count its steps, Trace(steps=...), for a rule that reads them, got none")
        report, updates, arrived = after_training(report, sent, parts.faults, fault, mesh, deal)
        report, coef, after = judge(drop_failures(report, parts.watches, arrived))
        if parts.revise is not None:
            nobody = jnp.zeros((parts.n_clients,), bool)
            failed = scatter(nobody, report.ids, there & ~report.active, there)
            ask = losses_of(parts, state, data, failed, fault, present)
            said = heard_by_rule(report, parts.memory)
            second = parts.revise(after, coef, said, jax.random.fold_in(weigh, 1), ask)
            coef, after = check_weights(second, cohort, after, "revise")
            report, coef = drop_coefficients(report, coef)
        mine = share(coef, mesh, deal=deal)
        total = added(jax.tree.map(lambda u: weighted_sum(mine, u), updates), mesh)
        kept = written(state.memory, report.ids, gather(sent.memory, cohort, mesh, deal), report.active)
        if adds:
            heard = jax.tree.map(lambda m: weighted_sum(report.active, m).astype(m.dtype), report.message)
            report = report._replace(message=heard)
        return Trained(report, coef, after, total, kept)

    def train_and_add(coef: Array, heard: Array) -> Sums:
        sums = summed(*local, *share((coef, heard), mesh, deal=deal), carried)
        own = (sums.update, sums.message)
        (update, message), arrived = added_and_gathered(own, sums.arrived, cohort, mesh, deal)
        return Sums(update, message, arrived, gather(sums.memory, cohort, mesh, deal))

    report = drop_failures(report, parts.watches, report.active)
    message = message_of(parts.memory, state.params) if adds else None
    kept = jax.tree.map(lambda leaf: jnp.zeros((cohort, *leaf.shape[1:]), leaf.dtype), state.memory)
    nothing = Sums(no_sum(state.params), no_sum(message), report.active, kept)
    report, coef, after, sums = weigh_first(report, judge, train_and_add, state.aggregator, nothing)
    if adds:
        sent = jax.tree.map(lambda sum, one: sum.astype(one.dtype), sums.message, message)
        report = report._replace(message=sent)
    memory = written(state.memory, report.ids, sums.memory, report.active)
    return Trained(report, coef, after, sums.update, memory)


def losses_of(
    parts: Components, state: SimState, data: FederatedData, failed: Array, fault: Key, present: Key
) -> Losses:
    """What a rule's second look may ask of clients: the losses of the model w + update, as they report them.

    Who ``failed`` in this round, bool[N], does not answer.
    """

    def losses(update: Params, ids: Array) -> Array:
        params = jax.tree.map(lambda w, u: w + u.astype(w.dtype), state.params, update)
        found = parts.received_loss(state._replace(params=params), data, ids)
        heard = misreport_losses(found, ids, data.train.size, parts.faults, fault, params, parts.memory)
        return jnp.where(parts.available(present, state.round, ids) & ~failed[ids], heard, jnp.nan)

    return losses


class Try(NamedTuple):
    """A cohort's training, and what the rule had said before."""

    there: Array
    """bool[S]: whose updates were finite, of those whom the rule had heard."""
    failed: Array
    """bool[]: whether there were others."""
    active: Array
    """bool[S]: who got a coefficient."""
    coef: Array
    state: State
    sums: Sums


def weigh_first(
    report: Report,
    judge: Judge,
    train: Callable[[Array, Array], Sums],
    state: State,
    nothing: Sums,
) -> tuple[Report, Array, State, Sums]:
    """``(report, coef f[S], state, sums)`` of a rule that reads nothing of REVEALED.

    ``train`` goes from coefficients, and from who got one, to what is added up; ``nothing`` is that of nobody.
    Where a client's update was not finite, it is silenced, and all train again: the rule's other coefficients may
    depend on it.
    """

    def attempt(before: Try) -> Try:
        heard, coef, after = judge(silence(report, before.there))
        sums = train(coef, heard.active)
        failed = (before.there & ~sums.arrived).any()
        return Try(before.there & sums.arrived, failed, heard.active, coef, after, sums)

    coef = jax.eval_shape(judge, report)[1]
    start = Try(report.active, jnp.array(True), report.active, jnp.zeros(coef.shape, coef.dtype), state, nothing)
    last = jax.lax.while_loop(lambda before: before.failed, attempt, start)
    return silence(report, last.active), last.coef, last.state, last.sums


def serve(
    update: Callable[..., tuple[Params, Any]],
    state: SimState,
    total: Params,
    report: Report,
    coef: Array,
    key: Key,
) -> tuple[Params, Any]:
    """``(params, optimiser's state)`` after the server's step; where nobody reports, those of before.

    ``update`` is the server optimiser's; its gradient is ``-total``, where ``total = sum_k coef_k update_k``.
    """
    gradient = jax.tree.map(lambda sum, w: -sum.astype(w.dtype), total, state.params)
    moved, after = update(gradient, state.server, state.params, report=report, coef=coef, key=key)
    anybody = report.active.any()
    moved_on, before = (optax.apply_updates(state.params, moved), after), (state.params, state.server)
    return jax.tree.map(lambda new, old: jnp.where(anybody, new, old), moved_on, before)

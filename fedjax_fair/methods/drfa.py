"""DRFA: distributionally robust averaging with communication between rounds (Deng, Kamani, Mahdavi, 2020)."""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.checks import check_choice, check_range
from fedjax_fair.local.remembering import Around, Finish, need_local_sgd
from fedjax_fair.methods.base import of_all, zeros
from fedjax_fair.numerics.solvers import as_floats, masked_mean, normalize, project_simplex, uniform_over
from fedjax_fair.selectors import uniform
from fedjax_fair.selectors.by_mixture import by_mixture, inclusion
from fedjax_fair.types import (
    Aggregator,
    Client,
    Key,
    Losses,
    LossFn,
    Memory,
    Method,
    Params,
    Report,
    Selector,
    Trace,
)


class DRFAState(NamedTuple):
    """The adversary's mixture, and where the round's snapshot is taken."""

    weights: Array  # f[N], lambda; on the simplex
    share: Array  # f[], the share of a client's steps after which the round's snapshot is taken, in (0, 1]


GATHERS = "drfa asks any client for its loss, so that its mixture would gather on clients who never train"


def drfa(lr: Array | float = 0.001, sampling: Literal["mixture", "selector"] = "mixture") -> Method:
    r"""Minimise the worst mixture of the clients' losses, with many local steps between two looks at them.

    In a round m clients are drawn in proportion to :math:`\lambda` and train :math:`\tau` steps each. Let v be
    their mean model after :math:`t' \le \tau` steps, weighed as the models are; t' is drawn anew in every round.
    Another m clients, U, drawn uniformly from all, tell their losses at v:

    .. math:: \lambda \leftarrow \Pi_\Delta\Big(\lambda + \tau \eta_\lambda \tfrac{N}{m} \sum_{k \in U} F_k(v)\, e_k
              \Big)

    with :math:`\Pi_\Delta` the Euclidean projection onto the simplex. :math:`\lambda` begins as the clients' shares
    of all examples. Reads ``steps`` and ``message``, the snapshots. A client sends two models, and those of U are
    asked for a pass over their data.

    Optimises: max over lambda on the simplex of sum_k lambda_k F_k, the largest of the clients' losses.

    Args:
      lr: eta_lambda, the step of the ascent, >= 0, which is taken tau N / m times; .1, decaying by .9 a round, in
        the authors' code.
      sampling: "mixture" draws as many clients as ``ff.uniform(m)``, the simulation's selector, would, but by
        lambda. "selector" keeps the selector, takes the plain mean of the snapshots and weighs by
        :math:`\lambda_k N / m`, as the authors' code does, which is right where it draws uniformly; these weights
        do not sum to 1.

    Raises:
      ValueError: ``lr`` is negative, another sampling; in ``simulation``, a trainer that is not ``local_sgd``'s, or
        under "mixture" a selector that is not ``ff.uniform(m)``'s, under "selector" ``ff.excluding``'s.

    Differs from the paper in:
      1. clients are drawn without replacement, each with probability :math:`\pi_k = \min(1, a \lambda_k)` where a
         makes these sum to m, and weigh :math:`\lambda_k / \pi_k`: 1 / m, but for those who would be drawn twice;
         where some of them are absent, as if so many fewer had been drawn;
      2. in the first round the snapshot is taken at the end.

    Differs from the authors' code in: all clients take the snapshot at the same share of their steps, as in the
    paper; the losses are those of all of a client's examples, not of its first batch; no entry of lambda is raised
    to .001.

    Source: Deng, Kamani, Mahdavi, Distributionally Robust Federated Averaging, NeurIPS 2020.
    """
    check_range("lr", lr, 0)
    check_choice("sampling", sampling, ("mixture", "selector"))

    def init(sizes: Array, key: Key | None = None) -> DRFAState:
        del key
        sizes = as_floats(sizes)
        return DRFAState(sizes / sizes.sum(), jnp.ones((), sizes.dtype))

    def weigh(state: DRFAState, report: Report, key: Key) -> tuple[Array, DRFAState]:
        del key
        n_clients, m = state.weights.shape[0], report.active.sum()
        mine = jnp.where(report.active, state.weights[report.ids], 0)
        if sampling == "selector":
            return mine * (n_clients / jnp.maximum(m, 1).astype(mine.dtype)), state
        drawn = inclusion(state.weights, m)[report.ids]
        return normalize(mine / jnp.where(drawn > 0, drawn, 1), report.active), state

    def revise(state: DRFAState, coef: Array, report: Report, key: Key, losses: Losses) -> tuple[Array, DRFAState]:
        slots, n_clients = report.ids.shape[0], state.weights.shape[0]
        who, when = jax.random.split(key)
        asked = jax.random.permutation(who, n_clients)[:slots]
        share = coef if sampling == "mixture" else uniform_over(report.active, coef.dtype)
        snapshot = jax.tree.map(lambda moves: jnp.tensordot(share.astype(moves.dtype), moves, 1), report.message)
        loss = losses(snapshot, asked).astype(coef.dtype)
        steps = masked_mean(report.steps.astype(coef.dtype), report.active)
        rise = steps * lr * (n_clients / slots) * loss
        heard = jnp.isfinite(rise) & report.active.any()
        raised = state.weights.at[asked].add(jnp.where(heard, rise, 0))
        weights = project_simplex(raised, jnp.ones(raised.shape, bool))
        at = 1 - jax.random.uniform(when, (), jnp.float32).astype(coef.dtype)  # in 64-bit mode, too: the same step
        return coef, DRFAState(jnp.where(heard.any(), weights, state.weights), at)

    return Method(
        Aggregator(init, weigh),
        local=_with_snapshot,
        memory=Memory(init=lambda params: (), message=zeros, broadcast=lambda state: state.share),
        revise=revise,
        selector=_drawn_by_mixture if sampling == "mixture" else of_all(GATHERS),
    )


def _drawn_by_mixture(given: Selector) -> Selector:
    """As many clients as a uniform selector draws, by the mixture."""
    if given.select.__module__ != uniform.__module__:
        raise ValueError(
            "drfa draws from all clients by its own mixture, as many as ff.uniform(m) would, got another selector, "
            "or one among the available: ff.drfa(sampling='selector') keeps that"
        )
    return by_mixture(given.cohort)


def _with_snapshot(trainer: Any) -> Around:
    """The trainer, which also sends how far the client had moved after the broadcast share of its steps."""

    def at(client: Client, steps: Array) -> Array:
        return jnp.ceil(client.broadcast * steps.astype(client.broadcast.dtype)).astype(jnp.int32)

    def plan(loss: LossFn, params: Params, client: Client) -> tuple[LossFn, Params, Finish]:
        def finish(trained: Params, trace: Trace) -> tuple:
            moved = jax.tree.map(jnp.subtract, trace.snapshot, params)
            return trained, trace, client.memory, moved

        return loss, params, finish

    return Around(need_local_sgd(trainer, "drfa")._replace(snapshot=at), plan)

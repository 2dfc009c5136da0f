"""FedMDFG: a common descent direction, guided towards equal losses (Pan et al., 2023)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.aggregators.fedfv import stretch
from fedjax_fair.checks import check_count, check_range
from fedjax_fair.numerics.min_norm import known_weights, min_norm_with_row, noted_weights, squared_length
from fedjax_fair.numerics.solvers import as_floats, masked_mean, scatter, uniform_over
from fedjax_fair.types import Aggregator, Key, Losses, Method, Report

STILL = 1e-6  # an update shorter than this has no direction
EQUAL = 1e-4  # losses at a smaller angle, in radians, to equal ones give no direction


class FedMDFGState(NamedTuple):
    """What each client's loss usually is, and what its update weighed."""

    usual: Array  # f[N], mean of the losses that did not exceed it
    times: Array  # i32[N], rounds taken part in
    last: Array  # i32[N], 1 for who took part in the last round
    same: Array  # i32[], whether all of the round before are in this one
    guided: Array  # i32[], whether this round's step is
    weights: Array  # f[N + 1], what each client's update weighed last in the hull, and the guidance


def fedmdfg(theta: Array | float = 11.25, line_search: int = 0, iterations: int = 2000) -> Aggregator | Method:
    r"""Descend for everybody at once, and towards equal losses where they lie apart.

    With every update stretched to the cohort's mean length, :math:`g_k`, and the losses as a vector F at an angle
    :math:`\varphi` to p = (1, ..., 1): d is the shortest vector in the convex hull of the :math:`g_k`, and, where
    :math:`\varphi > \theta`, of :math:`\sum_k h_k g_k` with

    .. math:: h = \frac{\cos\varphi\, \hat F - \hat p}{\sin\varphi}

    which points to where F turns towards p. The server steps along d, stretched to the length of
    :math:`\operatorname{mean}_k g_k`. The guidance is also used where some but not all clients' losses exceed what
    is usual for them. Reads ``loss`` (received model, before training) and ``gram``; with a line search also
    ``updates``. Coefficients may be negative.

    Optimises: all clients' losses at once, on the way to losses that are equal.

    Args:
      theta: the angle in degrees that counts as fair, in (0, 90); 11.25 in the authors' code.
      line_search: s, 0 for none. The step is tried with the factors :math:`2^s` (1 where somebody of the last
        cohort is missing), half of it, ... :math:`2^{-s}`, until no client's loss rises and, under guidance, the
        angle does not grow: up to 2 s + 1 forward passes of the cohort over its data. Where none will do, the
        largest that lowers their sum, or that of the least sum. 5 in the authors' code.
      iterations: of the solver at most, which begins at the weights of the round before and ends where it has
        arrived.

    Raises:
      ValueError: an argument outside its range.

    The line search takes the server's step to be the one that the coefficients give, that of ``optax.sgd(1.)``.

    Differs from the authors' code in:
      1. their test of the angle divides by the sum of the losses, not by their length, so that it is nearly always
         met; their bound on the losses allows small rises; here both say what they are meant to;
      2. equal losses give no guidance, where theirs follows their rounding;
      3. gradients of clients that have left the cohort are not added to the hull;
      4. the updates of whatever the trainer does stand for the one full gradient of theirs;
      5. where the updates cancel out to rounding, nobody moves, where theirs stretches the rest; an update shorter
         than 1e-6 has no part, as in theirs.

    Source: Pan, Wang, Li, Wang, Tang, Zhao, FedMDFG: Federated Learning with Multi-Gradient Descent and Fair
    Guidance, AAAI 2023.
    """
    check_range("theta", theta, 0, 90, open_low=True, open_high=True)
    check_count("line_search", line_search, low=0)
    check_count("iterations", iterations)

    def init(sizes: Array, key: Key | None = None) -> FedMDFGState:
        del key
        usual = jnp.zeros_like(as_floats(sizes))
        nobody, no = jnp.zeros(usual.shape, jnp.int32), jnp.zeros((), jnp.int32)
        return FedMDFGState(usual, nobody, nobody, no, no, jnp.zeros(usual.shape[0] + 1, usual.dtype))

    def weigh(state: FedMDFGState, report: Report, key: Key) -> tuple[Array, FedMDFGState]:
        del key
        norm = jnp.sqrt(jnp.maximum(jnp.diagonal(report.gram), 0))
        moved = report.active & (norm > STILL)
        mean = masked_mean(norm, moved)
        scale = jnp.where(moved, mean / jnp.where(moved, norm, 1), 0)
        gram = jnp.where(moved[:, None] & moved[None, :], report.gram * scale[:, None] * scale[None, :], 0)

        angle, h = towards_equal(report.loss, moved)
        raised, after = remember(state, report)
        guided = (angle > EQUAL) & ((angle > jnp.deg2rad(jnp.asarray(theta, norm.dtype))) | raised)
        before = known_weights(state.weights, report.ids)
        mixture, weights = min_norm_with_row(gram, h, moved, guided, before, iterations)

        everybody = uniform_over(moved, norm.dtype)
        factor = stretch(squared_length(mixture, gram), everybody @ gram @ everybody)
        after = after._replace(
            guided=guided.astype(jnp.int32), weights=noted_weights(state.weights, report.ids, weights, moved)
        )
        return mixture * scale * factor, after

    rule = Aggregator(init, weigh)
    return rule if line_search == 0 else Method(rule, revise=_line_search(line_search))


def towards_equal(loss: Array, where: Array) -> tuple[Array, Array]:
    """The angle in radians between the losses and equal ones, and the unit vector h f[S] that turns the former
    towards the latter; zeros for losses of 0, and where they are equal."""
    largest = jnp.max(jnp.abs(loss), where=where, initial=0)
    loss = jnp.where(where, loss / jnp.where(largest > 0, largest, 1), 0)  # squares overflow
    length = jnp.sqrt((loss**2).sum())
    loss = loss / jnp.where(length > 0, length, 1)
    equal = jnp.sqrt(uniform_over(where, loss.dtype))
    cosine = loss @ equal
    h = cosine * loss - equal
    sine = jnp.sqrt((h**2).sum())
    known = (length > 0) & (sine > 0)
    return jnp.where(known, jnp.arctan2(sine, cosine), 0), jnp.where(known, h / jnp.where(known, sine, 1), 0)


def remember(state: FedMDFGState, report: Report) -> tuple[Array, FedMDFGState]:
    """Whether some but not all losses exceed what is usual for their clients, bool[]; and what is usual now."""
    seen, ids = report.active, report.ids
    usual, times = state.usual[ids], state.times[ids]
    rises = seen & (times > 0) & (report.loss > usual)
    lower = usual + (jnp.where(seen, report.loss, 0) - usual) / (times + 1).astype(usual.dtype)
    raised = rises.any() & (rises.sum() < seen.sum())
    here = scatter(jnp.zeros_like(state.last), ids, seen.astype(jnp.int32), seen)
    return raised, state._replace(
        usual=scatter(state.usual, ids, jnp.where(rises, usual, lower), seen),
        times=scatter(state.times, ids, times + 1, seen),
        last=here,
        same=(state.last <= here).all().astype(jnp.int32),
    )


class Search(NamedTuple):
    """The factors tried so far."""

    k: Array  # i32[], how many
    found: Array  # bool[], whether the last will do
    falling: Array  # f[], the largest that lowered the sum of the losses; 0 for none
    least: Array  # f[], the least sum
    best: Array  # f[], the factor that had it


def _line_search(s: int) -> Callable[..., tuple[Array, FedMDFGState]]:
    """The second look that finds the factor of the step."""

    def revise(
        state: FedMDFGState, coef: Array, report: Report, key: Key, losses: Losses
    ) -> tuple[Array, FedMDFGState]:
        del key
        seen, guided = report.active, state.guided > 0
        step = jax.tree.map(lambda u: jnp.tensordot(coef.astype(u.dtype), u, 1), report.updates)
        angle = towards_equal(report.loss, seen)[0]
        total = jnp.where(seen, report.loss, 0).sum()

        def factor(k: Array) -> Array:
            return jnp.exp2((s - k).astype(coef.dtype))

        def attempt(before: Search) -> Search:
            tried = factor(before.k)
            loss = losses(jax.tree.map(lambda v: tried.astype(v.dtype) * v, step), report.ids).astype(coef.dtype)
            known = jnp.isfinite(loss).all(where=seen)
            fairer = ~guided | (towards_equal(loss, seen)[0] <= angle)
            found = known & (loss <= report.loss).all(where=seen) & fairer
            sum = jnp.where(known, jnp.where(seen, loss, 0).sum(), jnp.inf)
            falling = jnp.where((before.falling == 0) & (sum < total), tried, before.falling)
            less = sum < before.least
            least, best = jnp.where(less, sum, before.least), jnp.where(less, tried, before.best)
            return Search(before.k + 1, found, falling, least, best)

        zero = jnp.zeros((), coef.dtype)
        start = Search(jnp.where(state.same > 0, 0, s), jnp.zeros((), bool), zero, zero + jnp.inf, zero)
        end = jax.lax.while_loop(lambda now: (now.k <= 2 * s) & ~now.found, attempt, start)
        chosen = jnp.where(end.found, factor(end.k - 1), jnp.where(end.falling > 0, end.falling, end.best))
        return chosen * coef, state

    return revise

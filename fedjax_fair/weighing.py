"""How a cohort's updates become one step of the server: weighed when all are there, or added up as they come.

A rule that reads what training reveals, such as the updates' Gram matrix, needs every update kept until it has
spoken. Any other rule speaks first; then each update goes into one sum as soon as its client has trained.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.cohort import adding
from fedjax_fair.failures import silence
from fedjax_fair.types import Params, Report, State

REVEALED = frozenset(["train_loss", "train_loss_std", "gram", "updates"])
"""The signals that are known after training only."""

Judge = Callable[[Report], tuple[Report, Array, State]]
"""``report -> (report of those who got a coefficient, coef f[S], the rule's next state)``."""


def before_training(ids: Array, n: Array, active: Array, loss: Array, accuracy: Array, params: Params) -> Report:
    """A report in which all that training would reveal is 0."""
    slots, zero = ids.shape[0], jnp.zeros_like(loss)
    updates = jax.tree.map(lambda w: jnp.zeros((slots, *w.shape), w.dtype), params)
    return Report(ids, n, active, loss, zero, zero, accuracy, jnp.zeros((slots, slots), loss.dtype), updates)


def weigh_first(
    report: Report,
    judge: Judge,
    train: Callable[[Array], tuple[Params, Array]],
    state: State,
    params: Params,
) -> tuple[Report, Array, State, Params]:
    """``(report, coef f[S], state, sum_k coef_k update_k)`` of a rule that reads nothing of REVEALED.

    ``train`` goes from coefficients to that sum and to whose updates were finite, bool[S]. Where one was not, the
    client is silenced and the round is played again without it, for the rule's other coefficients may depend on it.
    """

    def attempt(tried: tuple) -> tuple:
        there = tried[0]
        heard, coef, after = judge(silence(report, there))
        total, arrived = train(coef)
        return there & arrived, (there & ~arrived).any(), heard.active, coef, after, total

    coef = jax.eval_shape(judge, report)[1]
    total = jax.tree.map(lambda w: jnp.zeros(w.shape, adding(w.dtype)), params)
    start = (report.active, jnp.array(True), report.active, jnp.zeros(coef.shape, coef.dtype), state, total)
    _, _, active, coef, state, total = jax.lax.while_loop(lambda tried: tried[1], attempt, start)
    return silence(report, active), coef, state, total

"""A policy that tries actions around its mean, and keeps what it saw and drew of the last round."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.aggregators.policy import STATES, WEIGHTS, Policy, mean_action
from fedjax_fair.numerics.solvers import as_floats
from fedjax_fair.types import Aggregator, Key, Report

Reward = Callable[[Array, Array], Array]
"""``(validation accuracy f[S] of the received model, active bool[S]) -> f[]``."""


class Explored(NamedTuple):
    """What one round leaves; the rule's state."""

    examples: Array
    """f[]: training examples of all clients."""
    seen: Array
    """f[S, F]: what the policy saw."""
    noise: Array
    """f[S]: how many standard deviations the action lies off its mean."""
    acted: Array
    """bool[S]: whose weights depended on it: active clients, of at least two."""
    reward: Array
    """f[]: of the received model, which the action of the round before has made."""
    judged: Array
    """bool[]: whether there was one: at least two clients were heard."""


def exploring(policy: Policy, std: Array | float, cohort: int, reward: Reward) -> Aggregator:
    r"""Weights of :math:`a \sim N(\mu_\phi(s), \sigma^2 I)`, for cohorts of S; phi and sigma may be traced."""
    see, width = STATES[policy.state]

    def init(sizes: Array, key: Key | None = None) -> Explored:
        examples = as_floats(sizes).sum()
        zero, nobody = jnp.zeros((cohort,), examples.dtype), jnp.zeros((cohort,), bool)
        seen = jnp.zeros((cohort, width), examples.dtype)
        return Explored(examples, seen, zero, nobody, jnp.zeros_like(examples), jnp.zeros((), bool))

    def weigh(state: Explored, report: Report, key: Key) -> tuple[Array, Explored]:
        seen = see(report, state.examples)
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(report.ids)
        noise = jax.vmap(lambda k: jax.random.normal(k, (), seen.dtype))(keys)  # 64-bit mode draws others
        coef = WEIGHTS[policy.weights](mean_action(policy.params, seen) + std * noise, report.active)
        several = report.active.sum() > 1
        got = jnp.asarray(reward(report.accuracy, report.active), state.reward.dtype)
        return coef, Explored(state.examples, seen, noise, report.active & several, got, several)

    return Aggregator(init, weigh)

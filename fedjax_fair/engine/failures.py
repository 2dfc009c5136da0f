"""What is not finite: a client's report or coefficient, out of the round before any sum; a model, never fair."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.types import Evaluation, Params, Report

SIGNALS = ("loss", "train_loss", "train_loss_std", "accuracy")


def all_finite(tree: Any) -> Array:
    """Whether all numbers of a tree of arrays are finite: bool[]."""
    alike: dict[tuple[int, ...], list[Array]] = {}  # of one shape are looked at in one go
    for leaf in jax.tree.leaves(tree):
        alike.setdefault(jnp.shape(leaf), []).append(jnp.isfinite(leaf))
    each = (functools.reduce(jnp.logical_and, flags).all() for flags in alike.values())
    return functools.reduce(jnp.logical_and, each)


def numbers(tree: Any) -> list[Array]:
    """The arrays of a tree that can hold what is not finite."""
    return [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]


def finite(tree: Any) -> Array:
    """Whose numbers are all finite: bool[S], of a tree of arrays [S, ...]."""
    return jax.vmap(all_finite)(tree)


def zeroed(tree: Any, active: Array) -> Any:
    """Arrays [S, ...] with 0 for all but ``active``, by ``where``: ``0 * nan`` is ``nan``."""
    return jax.tree.map(lambda leaf: jnp.where(active.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, 0), tree)


def drop_failures(report: Report, read: Sequence[str], arrived: Array) -> Report:
    """Deactivate clients whose update (not ``arrived``) or a signal that is ``read`` is not finite; zero theirs.

    Of the Gram matrix the diagonal is looked at, and of updates that are read the squared length, which may not be
    finite though the update is. Signals that
    nothing reads are not looked at, so that the compiler can still drop them.
    """
    watched = [getattr(report, name) for name in SIGNALS if name in read]
    if "gram" in read:
        watched.append(jnp.diagonal(report.gram))
    elif "updates" in read:
        watched += [(leaf.reshape(leaf.shape[0], -1) ** 2).sum(1) for leaf in jax.tree.leaves(report.updates)]
    return silence(report, report.active & arrived & finite([arrived, *watched]))


def drop_coefficients(report: Report, coef: Array) -> tuple[Report, Array]:
    """Deactivate clients to whom the rule gave a coefficient that is not finite; inactive ones get exactly 0."""
    report = silence(report, report.active & jnp.isfinite(coef))
    return report, jnp.where(report.active, coef, 0)


def unless_dead(found: Evaluation, params: Params) -> Evaluation:
    """The evaluation; NaN for all of a model that is not finite, or whose loss is NaN for everybody who judges it.

    Its accuracies are often all 0, which every measure of fairness takes for perfectly even.
    """
    broken = ~all_finite([jnp.ones((), bool), *numbers(params)])
    loss = jnp.where(broken, jnp.nan, found.loss)
    return judged_by(found, loss, jnp.isnan(loss).all())


def judged_by(found: Evaluation, loss: Array, broken: Array) -> Evaluation:
    """The evaluation with this loss, and with metrics of NaN where it is ``broken``."""
    accuracy, further = jax.tree.map(lambda of: jnp.where(broken, jnp.nan, of), (found.accuracy, found.further))
    return Evaluation(accuracy, loss, further)


def silence(report: Report, active: Array) -> Report:
    """The report with only ``active`` clients; the others' signals are 0."""
    kept = {name: zeroed(getattr(report, name), active) for name in (*SIGNALS, "updates", "steps", "message")}
    both = active[:, None] & active[None, :]
    return report._replace(active=active, gram=jnp.where(both, report.gram, 0), **kept)

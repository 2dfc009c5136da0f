"""Clients whose report, or coefficient, is not finite: out of the round before any sum."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.types import Report

SIGNALS = ("loss", "train_loss", "train_loss_std", "accuracy")


def drop_failures(report: Report, read: Sequence[str]) -> Report:
    """Deactivate clients with a non-finite update, or a non-finite signal that is ``read``; zero what they sent.

    Of the Gram matrix the diagonal is looked at: a finite update may be too long for its square. Signals that
    nothing reads are not looked at, so that the compiler can still drop them.
    """
    watched = [getattr(report, name) for name in SIGNALS if name in read] + jax.tree.leaves(report.updates)
    if "gram" in read:
        watched.append(jnp.diagonal(report.gram))
    active = report.active
    for values in watched:
        active &= jnp.isfinite(values).reshape(values.shape[0], -1).all(axis=1)
    return silence(report, active)


def drop_coefficients(report: Report, coef: Array) -> tuple[Report, Array]:
    """Deactivate clients to whom the rule gave a coefficient that is not finite; inactive ones get exactly 0."""
    report = silence(report, report.active & jnp.isfinite(coef))
    return report, jnp.where(report.active, coef, 0)


def silence(report: Report, active: Array) -> Report:
    """The report with only ``active`` clients; the others' signals are 0, by ``where``: ``0 * nan`` is ``nan``."""

    def keep(values: Array) -> Array:
        return jnp.where(active.reshape(-1, *(1,) * (values.ndim - 1)), values, 0)

    kept = {name: keep(getattr(report, name)) for name in SIGNALS}
    both = active[:, None] & active[None, :]
    return report._replace(
        active=active,
        gram=jnp.where(both, report.gram, 0),
        updates=jax.tree.map(keep, report.updates),
        **kept,
    )

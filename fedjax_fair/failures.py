"""Clients whose report is not finite: out of the round before any sum."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.types import Report

SIGNALS = ("loss", "train_loss", "train_loss_std", "accuracy")


def drop_failures(report: Report, read: Sequence[str]) -> Report:
    """Deactivate clients with a non-finite update or a non-finite signal that is ``read``; zero what they sent.

    The zeros come by ``where``, because ``0 * nan`` is ``nan``. Signals that nothing reads are not looked at,
    so that the compiler can still drop them. The Gram matrix is for the caller to compute afterwards.
    """
    active = report.active
    for values in [getattr(report, name) for name in SIGNALS if name in read] + jax.tree.leaves(report.updates):
        active &= jnp.isfinite(values).reshape(values.shape[0], -1).all(axis=1)

    def keep(values: Array) -> Array:
        return jnp.where(active.reshape(-1, *(1,) * (values.ndim - 1)), values, 0)

    kept = {name: keep(getattr(report, name)) for name in SIGNALS}
    return report._replace(active=active, updates=jax.tree.map(keep, report.updates), **kept)

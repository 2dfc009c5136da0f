"""Whatever a rule hears of losses, clipped: a defence against clients that inflate theirs."""

from typing import Any

import jax.numpy as jnp
import optax
from jax import Array

from fedjax_fair.checks import check_range
from fedjax_fair.types import (
    Aggregator,
    Key,
    Losses,
    Method,
    Params,
    Report,
    State,
    Transform,
    as_method,
    marked,
    server_transform,
)


def clip_losses(rule: Aggregator | Method, factor: float = 3.0) -> Method:
    r"""Let ``rule`` hear no loss above ``factor`` times the median of the cohort's.

    .. math:: F_k \leftarrow \min(F_k,\ \text{factor} \cdot \operatorname{median}_{j \text{ active}} F_j)

    for the received model's loss and for that of local training, whichever the rule reads. Losses that a second
    look hears are clipped by the median of the clients asked. The median holds while fewer than half lie.
    Losses are at least 0: of a negative median every multiple is below it.

    Args:
      rule: any rule that reads losses; others are not changed.
      factor: at least 1.

    Raises:
      ValueError: a factor below 1, or ``rule`` is no rule.
    """
    check_range("factor", factor, 1)
    method = as_method(rule)

    def clip(losses: Array, active: Array) -> Array:
        middle = jnp.nanmedian(jnp.where(active, losses, jnp.nan))
        return jnp.where(active, jnp.minimum(losses, factor * middle), losses)

    def softened(report: Report) -> Report:
        clipped = {name: clip(getattr(report, name), report.active) for name in ("loss", "train_loss")}
        return report._replace(**clipped)

    def weigh(state: State, report: Report, key: Key) -> tuple[Array, State]:
        return method.aggregator.weigh(state, softened(report), key)

    def revise(state: State, coef: Array, report: Report, key: Key, losses: Losses) -> tuple[Array, State]:
        def clipped(update: Params, ids: Array) -> Array:
            found = losses(update, ids)
            return clip(found, jnp.isfinite(found))

        assert method.revise is not None
        return method.revise(state, coef, softened(report), key, clipped)

    def transform(n_clients: int, cohort: int) -> Transform:
        inside = server_transform(method, n_clients, cohort)

        def update(updates: Params, state: State, params: Params = None, *, report: Report, **extra: Any) -> Any:
            return inside.update(updates, state, params, report=softened(report), **extra)

        return optax.GradientTransformationExtraArgs(inside.init, update)

    remark, cancels = (getattr(method.aggregator.weigh, mark, None) for mark in ("remark", "cancels"))
    marked(weigh, positive_losses=True, remark=remark or "", cancels=bool(cancels))
    wrapped = method._replace(aggregator=Aggregator(method.aggregator.init, weigh))
    wrapped = wrapped if method.transform is None else wrapped._replace(transform=transform)
    return wrapped if method.revise is None else wrapped._replace(revise=revise)

"""All that a fairness table prints of the clients' results, in one call."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fedjax_fair.metrics.fairness import best, deviation, gini, jain, mean, pooled, worst
from fedjax_fair.metrics.kind import ACCURACY, Metric, check_values
from fedjax_fair.metrics.masked import as_array, check_sizes, counted, mask_of, spread
from fedjax_fair.numerics.xla_options import QUICK, compiled, is_concrete

SUMMARY = ("accuracy", "pooled", "variance", "std", "worst5", "best5", "worst10", "best10", "gini", "jain")
FEW = 2**11
"""Numbers up to which rows are filled up: so many are sorted in a tenth of a millisecond."""
_LOSS = ("loss", "loss_jain", "loss_gini")


def summary(
    acc: ArrayLike,
    loss: ArrayLike | None = None,
    sizes: ArrayLike | None = None,
    *,
    metric: Metric = ACCURACY,
    where: ArrayLike | None = None,
) -> dict[str, float | Array]:
    """All that a fairness table prints, from accuracies in [0, 1]: [..., N] to one [...] per key.

    In percent ``accuracy``, the mean over clients, ``worst5``, ``best5``, ``worst10``, ``best10``; in
    percent^2 ``variance`` and in percentage points ``std``; without unit ``gini`` and ``jain``. With
    ``sizes``, the numbers of test examples, also ``pooled``, in percent. With ``loss``, shaped as ``acc``,
    also ``loss``, its mean, ``loss_jain`` and ``loss_gini``, over the clients that have an accuracy. A single
    vector gives Python floats (arrays inside ``jit``).

    Of another ``metric``, such as ``history.metric``, everything is in its unit, and the worst are the least
    favoured. ``where``, bool[..., N], says who counts, as everywhere here: those with test examples.

    Raises:
      ValueError: a value outside the metric's range, [0, 1] by default (unseen under ``jit``); a ``loss``
        of another shape; a ``where`` that is not bool.
    """
    acc = as_array("acc", acc)
    loss = None if loss is None else as_array("loss", loss)
    if sizes is not None:
        check_sizes(sizes)
        sizes = as_array("sizes", sizes)
    if loss is not None and loss.shape != acc.shape:
        raise ValueError(f"loss must have the shape of acc {acc.shape}, got {loss.shape}")
    check_values("acc", acc, metric)
    if not metric.for_everybody:
        where = ~jnp.isnan(acc) if where is None else spread("where", mask_of(where), acc) & ~jnp.isnan(acc)
    where = None if where is None else mask_of(where)
    count = math.prod(acc.shape[:-1]) if is_concrete(acc, where, sizes, loss) else 0
    given: Any = {"acc": acc, "where": where, "sizes": sizes, "loss": loss}
    if acc.ndim and count:
        given = {name: None if of is None else _rows(name, of, acc, count) for name, of in given.items()}
    table = _accuracies(given["acc"], given["where"], given["sizes"], metric.scale, metric.higher_is_better)
    if loss is not None:
        table |= _losses(given["acc"], given["loss"], given["where"])
    table = {key: table[key] for key in SUMMARY + _LOSS if key in table}  # jit has sorted the keys
    if not acc.ndim or not count:
        return table
    table = {key: np.asarray(value)[:count].reshape(acc.shape[:-1]) for key, value in table.items()}
    return {key: jax.device_put(value) if acc.ndim > 1 else float(value) for key, value in table.items()}


def _rows(name: str, value: Any, acc: Any, count: int) -> np.ndarray:
    """[..., N] as rows; few are filled up to a power of two, at least 32: one program serves many shapes."""
    rows = np.asarray(spread(name, value, acc)).reshape(count, acc.shape[-1])
    filled = max(32, 1 << (count - 1).bit_length())
    if acc.ndim == 1 or filled * acc.shape[-1] > FEW:
        return rows
    return np.concatenate([rows, np.repeat(rows[:1], filled - count, axis=0)])


@partial(compiled, choices=[(QUICK, is_concrete)], static_argnums=(3, 4))
def _accuracies(
    acc: Array, where: Array | None, sizes: Array | None, scale: float, higher: bool
) -> dict[str, Array]:
    std = scale * deviation(acc, where)
    table = {"accuracy": scale * mean(acc, where), "variance": std**2, "std": std}
    table |= {"gini": gini(acc, where=where), "jain": jain(acc, where)}
    for k in (5, 10):
        for name, tail in (("worst", worst), ("best", best)):
            table[f"{name}{k}"] = scale * tail(acc, k, where=where, higher_is_better=higher)
    return table if sizes is None else {**table, "pooled": scale * pooled(acc, sizes, where)}


@partial(compiled, choices=[(QUICK, is_concrete)])
def _losses(acc: Array, loss: Array, where: Array | None) -> dict[str, Array]:
    _, where, _ = counted(acc, where)
    return dict(zip(_LOSS, (mean(loss, where), jain(loss, where), gini(loss, where=where))))

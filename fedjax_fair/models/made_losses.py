"""Losses that are made of others: over the tokens of a sequence, and by classes that weigh more than others."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.numerics.sum_type import sum_type

PerExample = Callable[[Array, Array], Array]


def full(outputs: Array) -> Array:
    """Outputs in float32 where they are of half precision, in which 257 is 256 and counts end at that."""
    return outputs.astype(sum_type(outputs.dtype))


def mean_of_tokens(values: Array, y: Array) -> Array:
    """f[B]: the mean of ``values`` [B, T, ...] where the label y [B, T, ...] is at least 0; 0 where none is."""
    there = (y >= 0).reshape(len(y), -1)
    kept = full(jnp.where(there, values.reshape(there.shape), 0))
    return kept.sum(1) / jnp.maximum(there.sum(1), 1).astype(kept.dtype)


def masked(fn: PerExample) -> PerExample:
    """A loss or metric of sequences, of one that gives a value per token: labels below 0 are padding.

    ``ff.simulation(..., loss=ff.losses.masked(fn))``. An example's value is the mean over its tokens, and a
    client's the mean over its examples: in training, in the losses that rules read, and in evaluations. That of an
    example of padding alone is 0; data that hold one are warned of.
    ``softmax_cross_entropy`` and ``accuracy`` of labels [B, T] do so by themselves.

    Args:
      fn: ``(outputs [B, T, ...], y [B, T]) -> f[B, T]``; what it gives for a label below 0 is left out, but must
        be finite, or its gradient is NaN: index with ``jnp.maximum(y, 0)``.

    Raises:
      ValueError: ``fn`` is no function, or gives another shape.
    """
    if not callable(fn):
        raise ValueError(f"masked takes a function (outputs, y) with a value per label, got {fn!r}")

    @functools.wraps(fn)
    def loss(outputs: Array, y: Array) -> Array:
        values = fn(outputs, y)
        if values.shape != y.shape:
            raise ValueError(
                f"masked takes a function that returns a value per label, {list(y.shape)}, got {list(values.shape)}"
            )
        return mean_of_tokens(values, y)

    return loss


def weighted(loss: PerExample, weights: Sequence[float]) -> PerExample:
    """A loss times ``weights[c]`` of the label's class c: ``weighted(ff.losses.softmax_cross_entropy, [1, 5])``.

    A mean over a batch is over its examples, not over their weights: all weights twice as large are steps twice as
    large, and losses that rules read.

    Args:
      loss: what is weighed, of labels y [B]; ``sigmoid_cross_entropy`` has the classes 0 and 1.
      weights: one per class, not negative.

    Raises:
      ValueError: weights that are no finite numbers from 0, all of them 0, or something that is no function; when
        it is called, labels that are no classes; in ``ff.simulation``, a label for which there is no weight.
    """
    if not callable(loss):
        raise ValueError(f"weighted takes a loss, a function of outputs and labels, got {loss!r}")
    try:
        given = np.asarray(weights, float)
    except (TypeError, ValueError):
        given = np.array(np.nan)
    if given.ndim != 1 or not given.size or not (np.isfinite(given) & (given >= 0)).all() or not given.any():
        raise ValueError(f"weights must be a number from 0 for every class, not all of them 0, got {weights!r}")
    factors = tuple(given.tolist())

    @functools.wraps(loss)
    def weighed(outputs: Array, y: Array) -> Array:
        y = jnp.asarray(y)
        if y.ndim != 1 or not jnp.issubdtype(y.dtype, jnp.integer):
            raise ValueError(f"weighted needs a class per example, integers [B], got {y.dtype}{list(y.shape)}")
        values = loss(outputs, y)
        known = jnp.asarray(factors, values.dtype).at[y].get(mode="fill", fill_value=jnp.nan)
        return values * jnp.where(y < 0, jnp.nan, known)  # -1 is an index of the last

    weighed.made_of, weighed.weights = loss, factors  # type: ignore[attr-defined]
    return weighed


def inside(loss: Any) -> Any:
    """The loss that a weighted one is made of; any other as it is."""
    return inside(loss.made_of) if hasattr(loss, "made_of") else loss

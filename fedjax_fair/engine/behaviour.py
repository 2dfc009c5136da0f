"""What a loss or a metric does with labels, found by trying: a lambda of cross-entropy is a cross-entropy, too.

Everything is asked with NumPy, nothing compiled; a function that closes over something traced is not asked.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_fair.engine.signals import PerExample
from fedjax_fair.models import losses
from fedjax_fair.numerics.by_numpy import evaluate, is_concrete

POINTS = np.array([-3.0, -0.6, 0.2, 0.4, 2.5], np.float32)
"""Outputs, or factors of an output of ones, at which functions of one number are compared."""
MOST = 12
"""Classes that are tried."""


class Tried(NamedTuple):
    """A loss, and what it is tried with."""

    loss: PerExample
    outputs: jax.ShapeDtypeStruct
    """[2, ...]."""
    y: jax.ShapeDtypeStruct
    drawn: np.ndarray | None
    """[3, ...] outputs of the model under random parameters; None where it was not asked."""
    lowest: Any
    highest: Any

    def three(self) -> np.ndarray:
        """Outputs of three examples: the model's where they are finite, else small numbers."""
        if self.drawn is not None and np.isfinite(self.drawn).all():
            return self.drawn
        return _numbers(self.outputs.shape[1:]).astype(np.float32)


@lru_cache(maxsize=16)
def _numbers(shape: tuple[int, ...]) -> np.ndarray:
    return 0.5 * np.random.default_rng(1).normal(size=(3, *shape))


def asked(function: Callable, tried: Tried, outputs: np.ndarray, y: np.ndarray) -> list[np.ndarray] | None:
    """The function's results in these outputs and labels; None where it has closed over something traced."""
    like = jax.ShapeDtypeStruct(outputs.shape, tried.outputs.dtype)
    program = jax.make_jaxpr(function)(like, jax.ShapeDtypeStruct(y.shape, tried.y.dtype))
    return evaluate(program, outputs, y) if is_concrete(program) else None


def constant(tried: Tried, labels: Any) -> np.ndarray:
    """[n, ...] labels that are all alike within an example."""
    labels = np.asarray(labels)
    laid = labels.reshape(-1, *[1] * (len(tried.y.shape) - 1))
    return np.broadcast_to(laid, (len(labels), *tried.y.shape[1:])).astype(tried.y.dtype)


def at_points(function: PerExample, tried: Tried, label: float) -> np.ndarray | None:
    """f[n]: the values at outputs that are all one of the n points, under one label."""
    shape = tried.outputs.shape[1:]
    outputs = np.broadcast_to(POINTS.reshape(-1, *[1] * len(shape)), (len(POINTS), *shape))
    results = asked(function, tried, outputs, constant(tried, np.full(len(POINTS), label)))
    return None if results is None else np.asarray(results[0], np.float64)


def one_each(tried: Tried) -> bool:
    """Whether every label has one output."""
    return int(np.prod(tried.outputs.shape)) == int(np.prod(tried.y.shape))


def tells_two(loss: PerExample, tried: Tried) -> bool:
    """Whether it is a binary cross-entropy of logits, or a multiple of one."""
    if loss is losses.sigmoid_cross_entropy:
        return True
    if not one_each(tried) or loss in (losses.squared_error, losses.softmax_cross_entropy):
        return False
    if jnp.issubdtype(tried.y.dtype, jnp.integer) and tried.highest <= 1:
        return False  # nothing would be refused
    yes, no = (at_points(loss, tried, label) for label in (1, 0))
    if yes is None or no is None:
        return False
    ratios = np.concatenate([yes / np.logaddexp(0, -POINTS), no / np.logaddexp(0, POINTS)])
    return bool(ratios[0] > 0 and np.allclose(ratios, ratios[0], rtol=1e-3))


def sign_decides(tried: Tried) -> bool:
    """Whether labels are 0 and 1, and a loss of one output is smaller under 1 just where the output is above 0."""
    if not (tried.lowest >= 0 and tried.highest <= 1) or tried.loss is losses.softmax_cross_entropy:
        return False
    yes, no = (at_points(tried.loss, tried, label) for label in (1, 0))
    return yes is not None and no is not None and bool(((yes < no) == (POINTS > 0)).all())


def judges_by_sign(metric: PerExample, tried: Tried) -> bool:
    """Whether a metric of one output says 1 where the sign of the output is the label's, else 0."""
    if metric is losses.binary_accuracy:
        return True
    if not one_each(tried) or metric is losses.accuracy:
        return False
    yes, no = (at_points(metric, tried, label) for label in (1, 0))
    return yes is not None and no is not None and bool((yes == (POINTS > 0)).all() and (no == (POINTS <= 0)).all())


def says_one_class_only(metric: PerExample, tried: Tried) -> bool:
    """Whether a metric of one output is 1 under label 0 and 0 under others, whatever the output."""
    if metric is losses.accuracy:
        return True
    if metric is losses.binary_accuracy or not jnp.issubdtype(tried.y.dtype, jnp.integer):
        return False
    no, yes = (at_points(metric, tried, label) for label in (0, tried.highest))
    return yes is not None and no is not None and bool((no == 1).all() and (yes == 0).all())


def tells_classes(loss: PerExample, tried: Tried) -> bool:
    """Whether the loss of an integer label falls most steeply as that label's own output rises: to first order, by
    itself or beside the mean over all labels, for a squared distance is also drawn to where it ends."""
    if loss is losses.softmax_cross_entropy:
        return True
    shape = tried.outputs.shape
    if not jnp.issubdtype(tried.y.dtype, jnp.integer) or shape[:-1] != tried.y.shape:
        return False
    if loss in (losses.sigmoid_cross_entropy, losses.squared_error):
        return False
    if shape[-1] == 1:
        return _is_blind(loss, tried)
    labels = np.arange(min(shape[-1], MOST))
    outputs = np.broadcast_to(tried.three()[:1], (len(labels), *shape[1:]))
    results = asked(
        jax.grad(lambda o, y: loss(o, y).sum().astype(jnp.float32)), tried, outputs, constant(tried, labels)
    )
    if results is None or not np.isfinite(results[0]).all():
        return False
    slopes = results[0].reshape(len(labels), -1, shape[-1]).sum(1)
    moving = np.abs(slopes).max(1) > 0  # a class of weight 0 moves nothing
    own = [
        (mine.argmin(1) == labels) & (mine.min(1) < 0)
        for mine in (slopes, slopes - slopes[moving].mean(0, keepdims=True))
    ]
    return bool(moving.sum() > 1 and any(falls[moving].all() for falls in own))


def _is_blind(loss: PerExample, tried: Tried) -> bool:
    """Whether a loss of one output is the same, or no number, whatever the output: a softmax over one class."""
    no, yes = (at_points(loss, tried, label) for label in (0, tried.highest))
    return no is not None and yes is not None and bool((no == no[0]).all() and not (np.abs(np.diff(yes)) > 0).any())


def knows_label(loss: PerExample, tried: Tried) -> bool:
    """Whether a label for which there is no output still has its probability, as that of a reference class has.

    Then the likelihoods of all labels, it included, sum to one.
    """
    classes = tried.outputs.shape[-1]
    if loss is losses.softmax_cross_entropy or tried.highest != classes or classes == 1:
        return False
    outputs = np.broadcast_to(tried.three()[:1], (classes + 1, *tried.outputs.shape[1:]))
    results = asked(loss, tried, outputs, constant(tried, np.arange(classes + 1)))
    return results is not None and bool(np.isclose(np.exp(-results[0].astype(np.float64)).sum(), 1, rtol=1e-3))

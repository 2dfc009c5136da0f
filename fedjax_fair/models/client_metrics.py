"""Metrics of all of a client's outputs at once, which no mean over its examples gives: AUROC, F1, R2 and others.

As ``ff.losses.NAME``, for ``ff.simulation(..., metric=)``; each is NaN for a client for whom it has no value. An
evaluation keeps the outputs of all examples of a split at once; of ``perplexity`` and ``token_accuracy``, and of
those of a user's that say what they need of ``each`` example, two numbers an example.

* ``auroc``: area under the receiver operating characteristic, of two classes; a tie is half a win.
* ``f1``: harmonic mean of precision and recall of class 1, of two; ``f1_macro``: its mean over the classes that
  occur among labels or predictions (over all of several labels); ``f1_micro``: of all decisions together.
* ``balanced_accuracy``: mean recall over the classes that the client has.
* ``r2``: 1 minus the squared residuals over the squared deviations from the client's own mean; ``rmse``: the root
  of the mean squared residual.
* ``perplexity``: exp of the mean cross-entropy of the client's tokens, those whose label is at least 0;
  ``token_accuracy``: the share of these tokens whose largest logit is the label's.
* ``calibration_error``: mean distance between confidence and accuracy over 15 bins of confidence.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.models.made_losses import full

BINS = 15
"""Of the calibration error."""


class Whole(NamedTuple):
    """A metric of a client; built by :func:`whole`."""

    fn: Callable[[Array, Array, Array], Array]
    """``(outputs [M, ...], y [M, ...], mask bool[M]) -> f[]``"""
    each: Callable[[Array, Array], Array] | None = None
    """``(outputs [B, ...], y [B, ...]) -> [B, ...]``, what ``fn`` is given in their place; None for the outputs."""

    def __call__(self, outputs: Array, y: Array, mask: Array) -> Array:
        """The client's number; examples where ``mask`` is False are padding."""
        return self.of_kept(self.kept(outputs, y), y, mask)

    def kept(self, outputs: Array, y: Array) -> Array:
        """What an evaluation keeps of every example of a batch."""
        return outputs if self.each is None else self.each(outputs, y)

    def of_kept(self, kept: Array, y: Array, mask: Array) -> Array:
        """The client's number, of what was kept."""
        return self.fn(kept, y, mask)


def whole(fn: Callable[[Array, Array, Array], Array], each: Callable[[Array, Array], Array] | None = None) -> Whole:
    """A metric of all of a client's outputs at once: ``ff.simulation(..., metric=ff.losses.whole(fn))``.

    Args:
      fn: ``(outputs [M, ...], y [M, ...], mask bool[M]) -> f[]``, in JAX. M is the largest client's number of
        examples; those where ``mask`` is False are padding and must not count. NaN says that a client has none,
        such as an AUROC of one class.
      each: ``(outputs [B, ...], y [B, ...]) -> [B, ...]``, what is kept of an example and given to ``fn`` in the
        place of its outputs: counts or sums, which take less room than logits [B, T, C].

    Raises:
      ValueError: ``fn`` or ``each`` is no function.

    >>> share = ff.losses.whole(lambda outputs, y, mask: (outputs > 0).mean(where=mask))
    >>> share(jnp.array([1.0, -1.0, 5.0]), jnp.zeros(3), jnp.array([True, True, False]))  # the last one is padding
    Array(0.5, dtype=float32)
    """
    if not callable(fn):
        raise ValueError(f"whole takes a function (outputs, y, mask) of a client's examples, got {fn!r}")
    if each is not None and not callable(each):
        raise ValueError(f"whole's each must be a function (outputs, y) of a batch, got {each!r}")
    return Whole(fn, each)


def _logit(name: str, outputs: Array, y: Array) -> Array:
    """One number that grows with the second class's probability, f[M]."""
    if y.ndim != 1 or outputs.shape[1:] not in ((), (1,), (2,)):
        raise ValueError(
            f"{name} needs one logit [M] or [M, 1], or two [M, 2], and labels 0 and 1 [M], got outputs "
            f"{list(outputs.shape)} and labels {list(y.shape)}"
        )
    outputs = full(outputs)
    if outputs.shape[1:] == (2,):
        return outputs[:, 1] - outputs[:, 0]
    return outputs.reshape(-1)


def _auroc(outputs: Array, y: Array, mask: Array) -> Array:
    """Area under the receiver operating characteristic: how often an example of class 1 ranks above one of 0."""
    score = _logit("auroc", outputs, y)
    positive, negative = mask & (y > 0), mask & (y <= 0)
    ranked = jnp.sort(jnp.where(negative, score, jnp.inf))
    below, level = (jnp.searchsorted(ranked, score, side=side) for side in ("left", "right"))
    count = negative.sum()
    wins = (below + jnp.minimum(level, count)).astype(score.dtype) / 2  # a tie is half a win
    share = jnp.where(positive, wins / jnp.where(count > 0, count, 1).astype(score.dtype), 0)
    both = (count > 0) & positive.any()
    known = jnp.isfinite(jnp.where(mask, score, 0)).all()
    return jnp.where(both & known, share.sum() / jnp.maximum(positive.sum(), 1).astype(score.dtype), jnp.nan)


def _told(name: str, outputs: Array, y: Array) -> tuple[Array, Array]:
    """Predictions and labels as bool[M, C]: of classes, of the two signs of one logit, or of several labels. NaN
    says no class, and of several labels the wrong ones."""
    if y.ndim == 2 and outputs.shape == y.shape and y.shape[1] > 1:
        return jnp.where(jnp.isnan(outputs), y <= 0, outputs > 0), y > 0
    if y.ndim == 1 and outputs.ndim == 2 and outputs.shape[1] > 1:
        classes = jnp.arange(outputs.shape[1])
        told = jnp.where(jnp.isnan(outputs).any(1), -1, outputs.argmax(1))
        return told[:, None] == classes[None, :], y[:, None] == classes[None, :]
    if y.ndim == 1 and outputs.shape[1:] in ((), (1,)):
        logit, true = outputs.reshape(-1), y > 0
        return jnp.stack([logit <= 0, logit > 0], 1), jnp.stack([~true, true], 1)
    raise ValueError(
        f"{name} needs logits [M, C] and labels [M], one logit [M] or [M, 1] and labels 0 and 1 [M], or logits and "
        f"labels of 0 and 1 [M, L], got outputs {list(outputs.shape)} and labels {list(y.shape)}"
    )


def _counts(name: str, outputs: Array, y: Array, mask: Array) -> tuple[Array, Array, Array]:
    """Of each class f[C]: right, said and true."""
    said, true = (mask[:, None] & told for told in _told(name, outputs, y))
    kind = jnp.result_type(float)
    return (said & true).sum(0).astype(kind), said.sum(0).astype(kind), true.sum(0).astype(kind)


def _f1_macro(outputs: Array, y: Array, mask: Array) -> Array:
    """Mean over the classes that occur among labels or predictions of the harmonic mean of precision and recall; of
    several labels over all of them, 0 for one that does not occur."""
    right, said, true = _counts("f1_macro", outputs, y, mask)
    there = (said + true > 0) | (y.ndim == 2)
    f1 = 2 * right / jnp.maximum(said + true, 1)
    return jnp.where(mask.any(), jnp.where(there, f1, 0).sum() / jnp.maximum(there.sum(), 1), jnp.nan)


def _f1_micro(outputs: Array, y: Array, mask: Array) -> Array:
    """The harmonic mean of precision and recall of all classes' decisions together."""
    right, said, true = (count.sum() for count in _counts("f1_micro", outputs, y, mask))
    return jnp.where(said + true > 0, 2 * right / jnp.maximum(said + true, 1), jnp.nan)


def _f1_positive(outputs: Array, y: Array, mask: Array) -> Array:
    """The harmonic mean of precision and recall of class 1, of two."""
    score = _logit("f1", outputs, y)
    right, said, true = (count[1] for count in _counts("f1", score, y, mask))
    return jnp.where(said + true > 0, 2 * right / jnp.maximum(said + true, 1), jnp.nan)


def _balanced_accuracy(outputs: Array, y: Array, mask: Array) -> Array:
    """Mean recall over the classes that the client has."""
    if y.ndim != 1:
        raise ValueError(f"balanced_accuracy needs one label an example, [M], got labels {list(y.shape)}")
    right, _, true = _counts("balanced_accuracy", outputs, y, mask)
    recall = jnp.where(true > 0, right / jnp.maximum(true, 1), 0)
    return jnp.where(mask.any(), recall.sum() / jnp.maximum((true > 0).sum(), 1), jnp.nan)


def _residuals(name: str, outputs: Array, y: Array) -> tuple[Array, Array]:
    outputs = full(outputs)
    if (*outputs.shape, 1) == y.shape or outputs.shape == (*y.shape, 1):
        outputs = outputs.reshape(y.shape)
    if outputs.shape != y.shape:
        raise ValueError(f"{name} needs an output for every target, got {list(outputs.shape)} and {list(y.shape)}")
    flat = y.reshape(y.shape[0], -1).astype(outputs.dtype)
    return outputs.reshape(flat.shape) - flat, flat


def _r2(outputs: Array, y: Array, mask: Array) -> Array:
    """One minus the squared residuals over the squared deviations from the client's own mean; over several targets
    the mean. NaN where a target does not vary."""
    residuals, targets = _residuals("r2", outputs, y)
    there = mask[:, None]
    count = jnp.maximum(mask.sum(), 1).astype(targets.dtype)
    mean = jnp.where(there, targets, 0).sum(0) / count
    lowest, highest = (jnp.where(there, targets, pad) for pad in (jnp.inf, -jnp.inf))
    varies = highest.max(0) > lowest.min(0)  # equal targets differ from their rounded mean
    square = (jnp.where(there, targets - mean[None, :], 0) ** 2).sum(0)
    left = (jnp.where(there, residuals, 0) ** 2).sum(0)
    return jnp.where(varies, 1 - left / jnp.where(varies, square, 1), jnp.nan).mean()


def _rmse(outputs: Array, y: Array, mask: Array) -> Array:
    """Root of the mean squared residual."""
    residuals, _ = _residuals("rmse", outputs, y)
    squares = jnp.where(mask[:, None], residuals**2, 0).sum() / jnp.maximum(mask.sum(), 1) / residuals.shape[1]
    return jnp.where(mask.any(), jnp.sqrt(squares), jnp.nan)


def _calibration_error(outputs: Array, y: Array, mask: Array) -> Array:
    """Expected calibration error: mean distance between confidence and accuracy over 15 bins of confidence."""
    if y.ndim != 1 or outputs.ndim != 2 or outputs.shape[1] < 2:
        raise ValueError(
            f"calibration_error needs logits [M, C] and labels [M], got outputs {list(outputs.shape)} and labels "
            f"{list(y.shape)}"
        )
    confidence = jax.nn.softmax(full(outputs)).max(1)
    right = (outputs.argmax(1) == y).astype(confidence.dtype)
    bin = jnp.clip(jnp.ceil(confidence * BINS).astype(jnp.int32) - 1, 0, BINS - 1)
    gap = jax.ops.segment_sum(jnp.where(mask, confidence - right, 0), bin, BINS)
    return jnp.where(mask.any(), jnp.abs(gap).sum() / jnp.maximum(mask.sum(), 1), jnp.nan)


auroc = Whole(_auroc)
f1 = Whole(_f1_positive)
f1_macro = Whole(_f1_macro)
f1_micro = Whole(_f1_micro)
balanced_accuracy = Whole(_balanced_accuracy)
r2 = Whole(_r2)
rmse = Whole(_rmse)
calibration_error = Whole(_calibration_error)

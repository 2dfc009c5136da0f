"""Per-example losses and metrics, ``(outputs [B, ...], y [B, ...]) -> f[B]``. A user's own has the same form.

Of sequences, ``y`` [B, T], an example's value is the mean over its tokens, those whose label is at least 0; and a
client's is the mean over its examples. Several labels of an example, [B, L], are averaged likewise.

Metrics of a whole client, such as AUROC, have their names here, too: :mod:`fedjax_fair.models.client_metrics`. What
is made of another loss (:func:`masked`, :func:`weighted`) is in :mod:`fedjax_fair.models.made_losses`.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

from fedjax_fair.models.client_metrics import (  # noqa: F401
    auroc,
    balanced_accuracy,
    calibration_error,
    f1,
    f1_macro,
    f1_micro,
    r2,
    rmse,
    whole,
)
from fedjax_fair.models.made_losses import (  # noqa: F401
    full,
    masked,
    mean_of_tokens,
    weighted,
)
from fedjax_fair.models.token_metrics import perplexity, token_accuracy  # noqa: F401


def softmax_cross_entropy(logits: ArrayLike, y: ArrayLike) -> Array:
    """``-log softmax(logits)[y]`` in nats; logits [B, C], integer labels y [B] from 0 to C - 1.

    Of logits [B, T, C] and tokens y [B, T] the mean over an example's tokens; a label below 0 is padding and does
    not count, and an example of padding alone is 0.

    Raises:
      ValueError: logits and labels of other shapes, a label for which there is no output; where labels are traced,
        such a loss is NaN.

    >>> ff.losses.softmax_cross_entropy(jnp.zeros((2, 4)), jnp.array([0, 3])).round(3)  # log 4
    Array([1.386, 1.386], dtype=float32)
    """
    logits, y = full(jnp.asarray(logits)), jnp.asarray(y)
    _check_classes("softmax_cross_entropy", logits, y)
    highest = logits.shape[-1] - 1
    if y.ndim < 2:
        _check_labels("softmax_cross_entropy", y, highest)
        return _softmax_cross_entropy(logits, y)
    _check_labels("softmax_cross_entropy", jnp.maximum(y, 0), highest)
    values = _softmax_cross_entropy(logits.reshape(-1, highest + 1), jnp.maximum(y, 0).reshape(-1))
    return mean_of_tokens(values.reshape(y.shape), y)


@jax.custom_jvp
def _softmax_cross_entropy(logits: Array, y: Array) -> Array:
    """The same of arrays.

    Label and derivative (softmax minus the label's unit vector) are picked by comparison: in the inner loop of a
    small model the gather and the scatter of the usual form cost as much as the products.
    """
    return _parts(logits.T, y)[0]


def _parts(logits: Array, y: Array) -> tuple[Array, Array]:
    """The loss f[B], of logits f[C, B], and its gradient in them f[B, C].

    A CPU sums over the classes of all examples at once where they are laid so. There a barrier keeps the gradient
    in that order: it is a factor of the last layer's kernel gradient, a product that is up to twice as fast so.
    """
    shifted = logits - logits.max(axis=0, keepdims=True)
    label = jnp.arange(logits.shape[0])[:, None] == y[None, :]
    e = jnp.exp(shifted)
    total = e.sum(axis=0, keepdims=True)
    known = jnp.where((y >= 0) & (y < logits.shape[0]), 0, jnp.nan).astype(e.dtype)
    loss = jnp.log(total[0]) - jnp.where(label, shifted, 0).sum(axis=0) + known
    gradient = e / total - label.astype(e.dtype)
    return loss, _apart(gradient).T


def _apart(value: Array) -> Array:
    """On a CPU, a value that XLA does not merge with what is made of it."""
    return jax.lax.optimization_barrier(value) if jax.default_backend() == "cpu" else value


@_softmax_cross_entropy.defjvp
def _softmax_cross_entropy_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    logits, y = primals
    # Apart, or XLA turns all that follows around and sums over the classes of one example after another: rounds of
    # FedAvg on Synthetic(1, 1) took 1.15 of the time.
    loss, gradient = _parts(_apart(logits.T), y)
    return loss, (gradient * tangents[0]).sum(axis=-1)


def sigmoid_cross_entropy(logits: Array, y: Array) -> Array:
    """Binary cross-entropy in nats; logits [B] or [B, 1], labels y [B] in {0, 1}.

    Of several labels, logits and y [B, L], the mean over the labels.

    >>> ff.losses.sigmoid_cross_entropy(jnp.zeros(2), jnp.array([0, 1])).round(3)  # log 2
    Array([0.693, 0.693], dtype=float32)
    """
    _check_labels("sigmoid_cross_entropy", y, 1)
    logits = full(_fitting("sigmoid_cross_entropy", logits, y))
    values = optax.sigmoid_binary_cross_entropy(logits, y.astype(logits.dtype))
    return values.reshape(values.shape[0], -1).mean(axis=1) if values.ndim > 1 else values


def squared_error(outputs: Array, y: Array) -> Array:
    """``(outputs - y)^2``, in the targets' unit squared, summed over all axes but the first.

    >>> ff.losses.squared_error(jnp.array([1.0, 2.0]), jnp.array([1.0, 4.0]))
    Array([0., 4.], dtype=float32)
    """
    outputs = full(_fitting("squared_error", outputs, y))
    errors = jnp.square(outputs - y.astype(outputs.dtype))
    return errors.reshape(errors.shape[0], -1).sum(axis=1)


def absolute_error(outputs: Array, y: Array) -> Array:
    """``|outputs - y|``, in the targets' unit, summed over all axes but the first."""
    outputs = full(_fitting("absolute_error", outputs, y))
    errors = jnp.abs(outputs - y.astype(outputs.dtype))
    return errors.reshape(errors.shape[0], -1).sum(axis=1)


def accuracy(logits: Array, y: Array) -> Array:
    """1 where the largest logit is the label's, else 0; logits [B, C], y [B].

    A NaN among an example's logits is an error in it, whatever its label: argmax takes NaN for the largest, so that
    a model that has diverged would be scored as one that always says the first class.

    Of logits [B, T, C] and tokens y [B, T] the share of an example's tokens; a label below 0 does not count, and
    an example of padding alone has 0 of its tokens right.

    >>> ff.losses.accuracy(jnp.array([[0.1, 0.9], [0.8, 0.2]]), jnp.array([1, 1]))
    Array([1., 0.], dtype=float32)
    """
    _check_classes("accuracy", logits, y)
    right = ((logits.argmax(axis=-1) == y) & ~jnp.isnan(logits).any(axis=-1)).astype(logits.dtype)
    return mean_of_tokens(right, y) if y.ndim > 1 else right


def binary_accuracy(logits: Array, y: Array) -> Array:
    """1 where the sign of the logit says the label, else 0; logits [B] or [B, 1], y [B] in {0, 1}.

    Of several labels, logits and y [B, L], the share of the labels. A NaN is an error, whatever the label: it is
    not above 0, and would pass for a 0.

    >>> ff.losses.binary_accuracy(jnp.array([0.5, 0.5]), jnp.array([1, 0]))
    Array([1., 0.], dtype=float32)
    """
    _check_labels("binary_accuracy", y, 1)
    logits = _fitting("binary_accuracy", logits, y)
    right = (((logits > 0) == (y > 0)) & ~jnp.isnan(logits)).astype(logits.dtype)
    return full(right).reshape(right.shape[0], -1).mean(axis=1) if right.ndim > 1 else right


def _check_classes(name: str, logits: Array, y: Array) -> None:
    """ValueError unless there are logits for every label."""
    if logits.ndim < 1 or logits.shape[:-1] != y.shape:
        raise ValueError(
            f"{name} needs logits [B, C] and labels [B], or [B, T, C] and [B, T], got outputs {list(logits.shape)} "
            f"and labels {list(y.shape)}"
        )


def _check_labels(name: str, y: ArrayLike, highest: int) -> None:
    """ValueError for labels below 0 or above the highest; those that are traced are not known."""
    if isinstance(y, jax.core.Tracer) or not np.size(y):
        return
    low, high = np.asarray(y).min(), np.asarray(y).max()
    if not (low >= 0 and high <= highest):
        raise ValueError(f"{name} needs labels from 0 to {highest}, got {low} to {high}")


def _fitting(name: str, outputs: Array, y: Array) -> Array:
    """``outputs`` in the labels' shape; ValueError unless only axes of length 1, or flattening, tell them apart."""
    one, other = ([size for size in array.shape[1:] if size != 1] for array in (outputs, y))
    flat = math.prod(one) == math.prod(other) and min(len(one), len(other)) == 1
    if outputs.shape[:1] != y.shape[:1] or (one != other and not flat):
        raise ValueError(
            f"{name} needs one output for every label, such as [B] or [B, 1] for labels [B], got outputs "
            f"{outputs.shape} and labels {y.shape}"
        )
    return outputs.reshape(y.shape)

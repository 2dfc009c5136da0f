"""Per-example losses and metrics, ``(outputs [B, ...], y [B, ...]) -> f[B]``. A user's own has the same form."""

import jax.numpy as jnp
import optax
from jax import Array


def softmax_cross_entropy(logits: Array, y: Array) -> Array:
    """``-log softmax(logits)[y]`` in nats; logits [B, C], integer labels y [B]."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, y)


def sigmoid_cross_entropy(logits: Array, y: Array) -> Array:
    """Binary cross-entropy in nats; logits [B] or [B, 1], labels y [B] in {0, 1}."""
    logits = logits.reshape(y.shape)
    return optax.sigmoid_binary_cross_entropy(logits, y.astype(logits.dtype))


def squared_error(outputs: Array, y: Array) -> Array:
    """``(outputs - y)^2``, in the targets' unit squared, summed over all axes but the first."""
    errors = jnp.square(outputs.reshape(y.shape) - y.astype(outputs.dtype))
    return errors.reshape(errors.shape[0], -1).sum(axis=1)


def accuracy(logits: Array, y: Array) -> Array:
    """1 where the largest logit is the label's, else 0; logits [B, C], y [B]."""
    return (logits.argmax(axis=-1) == y).astype(logits.dtype)


def binary_accuracy(logits: Array, y: Array) -> Array:
    """1 where the sign of the logit says the label, else 0; logits [B] or [B, 1], y [B] in {0, 1}."""
    return ((logits.reshape(y.shape) > 0) == (y > 0)).astype(logits.dtype)

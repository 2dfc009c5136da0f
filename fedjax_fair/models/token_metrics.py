"""Metrics of all of a client's tokens, of sequences [M, T] whose labels below 0 are padding."""

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.models.client_metrics import Whole
from fedjax_fair.models.made_losses import full


def _tokens(name: str, outputs: Array, y: Array) -> Array:
    """bool[B, ...]: which labels are tokens, not padding."""
    if outputs.shape[:-1] != y.shape or y.ndim < 2:
        raise ValueError(
            f"{name} needs logits [M, T, V] and tokens [M, T], got outputs {list(outputs.shape)} and labels "
            f"{list(y.shape)}"
        )
    return y >= 0


def _summed(values: Array, there: Array) -> Array:
    """f[B, 2]: of each example the sum over its tokens, and how many they are."""
    rows = [jnp.where(there, values, 0), there.astype(values.dtype)]
    return jnp.stack([row.reshape(len(row), -1).sum(1) for row in rows], 1)


def _per_token(sums: Array, y: Array, mask: Array) -> Array:
    """The mean over all tokens of a client; NaN where it has none."""
    del y
    total, count = jnp.where(mask[:, None], sums, 0).sum(0)
    return jnp.where(count > 0, total / jnp.maximum(count, 1), jnp.nan)


def _surprise(outputs: Array, y: Array) -> Array:
    there = _tokens("perplexity", outputs, y)
    picked = jnp.take_along_axis(jax.nn.log_softmax(full(outputs)), jnp.maximum(y, 0)[..., None], -1)[..., 0]
    return _summed(-picked, there)


def _perplexity(sums: Array, y: Array, mask: Array) -> Array:
    """exp of the mean cross-entropy of the tokens; labels below 0 are padding."""
    return jnp.exp(_per_token(sums, y, mask))


def _right(outputs: Array, y: Array) -> Array:
    there = _tokens("token_accuracy", outputs, y)
    right = (outputs.argmax(-1) == y) & ~jnp.isnan(outputs).any(-1)
    return _summed(right.astype(jnp.result_type(float)), there)


def _token_accuracy(sums: Array, y: Array, mask: Array) -> Array:
    """The share of the tokens whose largest logit is the label's; labels below 0 are padding."""
    return _per_token(sums, y, mask)


perplexity = Whole(_perplexity, _surprise)
token_accuracy = Whole(_token_accuracy, _right)

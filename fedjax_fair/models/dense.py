"""A dense layer of few outputs whose bias a CPU gives its gradient sooner: the batch is summed half by half."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.dtypes import promote_dtype
from jax import Array

from fedjax_fair.numerics.batch_sum import repeated, worth_halving

NARROW = 32
"""Outputs up to which halves pay. With hidden layers of 64 and 200, rounds took 1.04 to 1.1 times as long."""


class Dense(nn.Module):
    """``x W + b``: ``flax.linen.Dense``, its parameters, their names and first values included."""

    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """x [..., K] -> [..., features]."""
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (x.shape[-1], self.features), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        x, kernel, bias = promote_dtype(x, kernel, bias)
        return add_bias(x @ kernel, bias)


@jax.custom_jvp
def add_bias(outputs: Array, bias: Array) -> Array:
    """``outputs [..., C] + bias [C]``."""
    return outputs + jnp.broadcast_to(bias, outputs.shape)


@add_bias.defjvp
def _add_bias_jvp(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    outputs, bias = tangents
    halved = outputs.ndim == 2 and outputs.shape[1] <= NARROW and worth_halving(outputs.shape[0], outputs.dtype)
    moved = repeated(bias, outputs.shape[0]) if halved else jnp.broadcast_to(bias, outputs.shape)
    return add_bias(*primals), outputs + moved

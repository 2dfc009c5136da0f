"""The stock models' flax modules."""

from collections.abc import Sequence, Sized

import flax.linen as nn
import jax.numpy as jnp
from jax import Array

from fedjax_fair.models.convolution import convolve
from fedjax_fair.models.dense import Dense
from fedjax_fair.models.pooling import convolve_and_pool

CHANNELS = 4
"""Up to so many rows of at least 16 pixels and 16 channels are channels of an image."""


class MLP(nn.Module):
    """Flatten, then dense layers with ReLU between them."""

    features: Sequence[int]
    classes: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """x [B, ...] -> logits [B, classes]."""
        x = x.reshape(x.shape[0], -1)
        for width in self.features:
            x = nn.relu(Dense(width)(x))
        return Dense(self.classes)(x)


class PatchConv(nn.Module):
    """A convolution that is fast for clients with kernels of their own: see :mod:`fedjax_fair.models.convolution`.

    Stride 1; the kernel is shaped as ``nn.Conv``'s.
    """

    features: int
    kernel: tuple[int, int]
    padding: str
    pool: bool = False
    """Take the largest of each 2 x 2 window (``max_pool_2x2``); the bias is then added to a quarter."""

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """x [B, H, W, C] -> [B, H', W', features]."""
        if self.padding not in ("SAME", "VALID"):
            raise ValueError(f"padding must be 'SAME' or 'VALID', got {self.padding!r}")
        if not isinstance(self.kernel, Sized) or len(self.kernel) != 2:
            raise ValueError(f"kernel must be two numbers, its rows and columns, got {self.kernel!r}")
        rows, columns = self.kernel
        shape = (rows, columns, x.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape, jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        if self.padding == "SAME":
            x = jnp.pad(x, ((0, 0), _same(rows), _same(columns), (0, 0)))
        y = convolve_and_pool(x, kernel) if self.pool else convolve(x, kernel)
        return y + bias.reshape(1, 1, 1, -1)


def _same(size: int) -> tuple[int, int]:
    return (size - 1) // 2, size // 2


class CNN(nn.Module):
    """Two 5 x 5 convolutions (ReLU, 2 x 2 max pooling), one hidden dense layer, logits."""

    channels: tuple[int, int]
    hidden: int
    classes: int
    padding: str

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """x [B, H, W, C] or [B, H, W] -> logits [B, classes]."""
        first, *others = x.shape[1:]
        if x.ndim == 4 and (first < others[0] == others[1] or (first <= CHANNELS and min(others) >= 16)):
            raise ValueError(
                f"cnn needs images [H, W, C], channels last, got examples of shape {x.shape[1:]}: "
                "np.moveaxis(x, 1, -1) moves the channels"
            )
        if x.ndim == 3:
            x = x[..., None]
        smallest = 16 if self.padding == "VALID" else 4
        if x.ndim != 4 or min(x.shape[1:3]) < smallest:
            raise ValueError(
                "cnn needs images [H, W] or [H, W, C] of at least 16 x 16 pixels, or of 4 x 4 with padding='SAME', "
                f"got examples of shape {x.shape[1:]}"
            )
        for width in self.channels:
            # In this order a quarter of the work: the ReLU of the maximum is the maximum of the ReLUs.
            x = nn.relu(PatchConv(width, (5, 5), self.padding, pool=True)(x))
        x = nn.relu(Dense(self.hidden)(x.reshape(x.shape[0], -1)))
        return Dense(self.classes)(x)

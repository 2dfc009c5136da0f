"""The networks of the workloads as a user writes them in flax; ``workloads.FORWARD`` names them."""

import flax.linen as nn
import jax


class CNN(nn.Module):
    """The stock CNN's network."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for width in (32, 64):
            x = nn.max_pool(nn.relu(nn.Conv(width, (5, 5), padding="VALID")(x)), (2, 2), (2, 2))
        return nn.Dense(10)(nn.relu(nn.Dense(512)(x.reshape(x.shape[0], -1))))


class Block(nn.Module):
    width: int
    stride: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.Conv(self.width, (3, 3), self.stride, padding=1, use_bias=False)(x)
        y = nn.Conv(self.width, (3, 3), use_bias=False)(nn.relu(nn.GroupNorm(4)(y)))
        if x.shape != y.shape:
            x = nn.GroupNorm(4)(nn.Conv(self.width, (1, 1), self.stride, use_bias=False)(x))
        return nn.relu(x + nn.GroupNorm(4)(y))


class ResNet(nn.Module):
    """ResNet-18 with group normalisation."""

    width: int = 8

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.relu(nn.GroupNorm(4)(nn.Conv(self.width, (3, 3), use_bias=False)(x)))
        for stage in range(4):
            for stride in (2 if stage else 1, 1):
                x = Block(self.width * 2**stage, stride)(x)
        return nn.Dense(10)(x.mean((1, 2)))


class GRU(nn.Module):
    """Letters [B, T] to logits [B, T, letters] of the next ones."""

    letters: int
    embedded: int = 8
    width: int = 128

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.RNN(nn.GRUCell(self.width))(nn.Embed(self.letters, self.embedded)(x))
        return nn.Dense(self.letters)(x)


class Transformer(nn.Module):
    """The same by causal attention, normalised before each part."""

    letters: int
    width: int = 64
    depth: int = 2
    heads: int = 4

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        places = self.param("places", nn.initializers.normal(0.02), (1, x.shape[1], self.width))
        mask, x = nn.make_causal_mask(x), nn.Embed(self.letters, self.width)(x) + places
        for _ in range(self.depth):
            y = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(self.heads)(y, y, mask=mask)
            y = nn.Dense(4 * self.width)(nn.LayerNorm()(x))
            x = x + nn.Dense(self.width)(nn.gelu(y))
        return nn.Dense(self.letters)(nn.LayerNorm()(x))


def network(name: str, letters: int) -> nn.Module:
    """By name; of text with so many letters, where it is one of text."""
    made = {"resnet": ResNet, "gru": lambda: GRU(letters), "transformer": lambda: Transformer(letters)}
    return made[name]()

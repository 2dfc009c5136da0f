"""How many clients train side by side: as a CPU's cache and cores like it, and nobody waits for another."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_fair as ff
from fedjax_fair.engine.blocks import choose_block, choose_interleaved
from fedjax_fair.models import as_model

SMALL, MLP, LARGE = (60, 10), (784, 200), (4096, 1024)


def choose(block, weights, sizes):
    return choose_block(block, len(sizes), {"w": np.zeros(weights, np.float32)}, np.array(sizes))


@pytest.mark.parametrize(
    ("block", "backend", "weights", "sizes", "chosen"),
    [
        ("auto", "cpu", (4, 3), [5] * 4, None),
        ("auto", "cpu", (5, 5, 1, 32), [5] * 4, 1),  # a convolution's patches stay in cache
        ("auto", "cpu", (8, 2, 4), [5] * 4, 1),  # and what attention makes
        ("auto", "cpu", (4, 3), [1, 1, 1, 40], 1),  # three small clients would wait for the large one
        ("auto", "gpu", (5, 5, 1, 32), [1, 1, 1, 40], None),
        (None, "cpu", (5, 5, 1, 32), [1, 1, 1, 40], None),
        (2, "gpu", (4, 3), [5] * 4, 2),
        (4, "cpu", (4, 3), [5] * 4, None),  # a block of everybody is no block
        ("auto", "cpu", SMALL, [5] * 100, None),
        ("auto", "cpu", (784, 10), [5] * 30, 6),  # eight would fit, but leave a last block of six
        ("auto", "cpu", MLP, [5] * 30, 1),
        ("auto", "cpu", LARGE, [5] * 4, 1),
        ("auto", "gpu", (1024, 1024), [5] * 4, None),
        ("auto", "cpu", SMALL, [300, 700] * 15, None),  # a small model's loop costs more
    ],
)
def test_how_many_clients_train_side_by_side(monkeypatch, block, backend, weights, sizes, chosen):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert choose(block, weights, sizes) == chosen


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(nn.RNN(nn.SimpleCell(200))(x)[:, -1])


class Words(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(nn.Embed(6000, 8)(x).mean(1))


class Letters(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Embed(80, 64)(x)
        return nn.Dense(80)(nn.LayerNorm()(x + nn.MultiHeadDotProductAttention(4)(x)))


class Signal(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(nn.Conv(4000, (3,))(x).mean(1))


def interleaved(net, example, trainer=None, block="auto"):
    net = as_model(net)
    params = jax.eval_shape(net.init, jax.random.key(0), example)
    trainer = ff.local_sgd(optax.sgd(0.1), batch_size=5) if trainer is None else trainer
    return choose_interleaved(block, trainer, net, params, example) is not None


@pytest.mark.parametrize(
    ("model", "example", "expected"),
    [
        (ff.models.mlp((200,)), jnp.zeros((1, 28, 28)), True),
        (ff.models.logistic_regression(), jnp.zeros((1, 784)), False),  # small: several are vmapped
        (ff.models.mlp((1000,)), jnp.zeros((1, 784)), False),  # both cores are busy with one
        (Recurrent(), jnp.zeros((1, 5, 3)), False),
        (Words(), jnp.zeros((1, 5), int), False),
        (Letters(), jnp.zeros((1, 5), int), True),
        (Signal(), jnp.zeros((1, 5, 3)), False),
        (ff.models.cnn(), jnp.zeros((1, 32, 32, 3)), False),
    ],
)
def test_which_models_are_interleaved(model, example, expected, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    assert interleaved(model, example) == expected


def test_clients_go_abreast_by_default_on_a_cpu_with_a_trainer_that_can(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    net, example = ff.models.mlp((200,)), jnp.zeros((1, 784))
    assert not interleaved(net, example, block=1)
    assert not interleaved(net, example, block=None)
    assert not interleaved(net, example, lambda *given: None)  # a trainer of the user's own
    other = type("Other", (ff.local.LocalSGD,), {"__call__": lambda *given: None})
    assert not interleaved(net, example, other(*ff.local_sgd(optax.sgd(0.1), batch_size=5)))
    assert interleaved(net, example, ff.local_sgd(optax.adam(0.1), batch_size=5, limit=lambda key, r, i: 1))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not interleaved(net, example)

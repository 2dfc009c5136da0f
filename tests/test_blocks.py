"""How many clients train side by side: whatever keeps a CPU's cache, and never where one waits for another."""

from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_fair as ff
from fedjax_fair import blocks
from fedjax_fair.blocks import bytes_held, choose_block
from fedjax_fair.models import as_model

SMALL, MLP, LARGE = (60, 10), (784, 200), (4096, 1024)


def choose(block, weights, sizes, *, dense=True, devices=1):
    params = {"w": np.zeros(weights, np.float32)}
    return choose_block(block, len(sizes), params, np.array(sizes), params["w"].nbytes if dense else None, devices)


@pytest.mark.parametrize(
    ("block", "backend", "weights", "sizes", "chosen"),
    [
        ("auto", "cpu", (4, 3), [5] * 4, None),
        ("auto", "cpu", (5, 5, 1, 32), [5] * 4, 1),  # a convolution's patches stay in cache
        ("auto", "cpu", (4, 3), [1, 1, 1, 40], 1),  # three small clients would wait for the large one
        ("auto", "gpu", (5, 5, 1, 32), [1, 1, 1, 40], None),
        (None, "cpu", (5, 5, 1, 32), [1, 1, 1, 40], None),
        (2, "gpu", (4, 3), [5] * 4, 2),
        (4, "cpu", (4, 3), [5] * 4, None),  # a block of everybody is no block
        ("auto", "cpu", SMALL, [5] * 100, None),
        ("auto", "cpu", (784, 10), [5] * 30, 10),  # what its batches take is more than its models
        ("auto", "cpu", MLP, [5] * 30, 10),
        ("auto", "cpu", (1024, 1024), [5] * 4, 2),  # two models of 4 MB
        ("auto", "cpu", (512, 1280), [5] * 4, 2),  # three would fit, but leave a last block of one
        ("auto", "cpu", LARGE, [5] * 4, 1),
        ("auto", "gpu", (1024, 1024), [5] * 4, None),
        ("auto", "cpu", MLP, [300, 700] * 15, 1),  # whoever has less would wait; one by one costs little
        ("auto", "cpu", MLP, [480, 520] * 15, 10),
        ("auto", "cpu", SMALL, [300, 700] * 15, None),  # a small model's loop costs more
    ],
)
def test_how_many_clients_train_side_by_side(monkeypatch, block, backend, weights, sizes, chosen):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert choose(block, weights, sizes) == chosen


def test_other_work_than_the_same_on_dense_layers_goes_one_by_one():
    assert choose("auto", MLP, [5] * 30, dense=False) == 1
    assert choose("auto", SMALL, [5] * 30, dense=False) is None


@pytest.mark.parametrize(("weights", "chosen"), [(SMALL, None), (MLP, 5), (LARGE, 1)])
def test_devices_that_share_a_cache_share_the_block(weights, chosen):
    assert choose("auto", weights, [5] * 15, devices=2) == chosen
    assert choose("auto", (784, 10), [5] * 64, devices=16) == 8  # these fit any core's cache


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(nn.RNN(nn.SimpleCell(8))(x)[:, -1])


class Words(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(nn.Embed(20, 8)(x).mean(1))


class Signal(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(nn.Conv(8, (3,))(x).mean(1))


@pytest.mark.parametrize(
    ("model", "example", "dense"),
    [
        (ff.models.mlp((20,)), jnp.zeros((1, 4, 4)), True),
        (Recurrent(), jnp.zeros((1, 5, 3)), False),
        (Words(), jnp.zeros((1, 5), int), False),
        (Signal(), jnp.zeros((1, 5, 3)), False),
    ],
)
def test_which_models_are_dense(model, example, dense):
    net = as_model(model)
    params = jax.eval_shape(net.init, jax.random.key(0), example)
    size = sum(4 * leaf.size for leaf in jax.tree.leaves(params))
    held = bytes_held(ff.local_sgd(optax.sgd(0.1), batch_size=5), net, params, example)
    assert held == (size if dense else None)


def test_the_optimisers_state_is_held_too_and_stragglers_are_not_the_same_work():
    net, example = ff.models.logistic_regression(), jnp.zeros((1, 30))
    params = jax.eval_shape(net.init, jax.random.key(0), example)
    momentum = ff.local_sgd(optax.sgd(0.1, 0.9), batch_size=5)
    assert bytes_held(momentum, net, params, example) == 2 * 4 * 310
    late = ff.local_sgd(optax.sgd(0.1), batch_size=5, limit=lambda key, r, i: 1)
    assert bytes_held(late, net, params, example) is None
    assert bytes_held(lambda *given: None, net, params, example) is None  # a trainer of the user's own


def test_devices_that_share_a_machine_are_counted_alike_in_every_process():
    def mesh(*processes):
        return SimpleNamespace(devices=np.array([SimpleNamespace(process_index=p) for p in processes]))

    assert [blocks.neighbours(m) for m in (None, mesh(0, 0), mesh(0, 0, 1), mesh(1, 2))] == [1, 2, 2, 1]


def test_a_simulation_tells_what_its_clients_hold(monkeypatch):
    asked = []
    monkeypatch.setattr(blocks, "choose_block", lambda *given: asked.append(given))
    x, y = np.zeros((40, 30), np.float32), np.arange(40) % 10
    data = ff.FederatedData.from_arrays(x, y, client_id=np.arange(40) // 10)
    trainer = ff.local_sgd(optax.sgd(0.1), batch_size=5)
    ff.simulation(ff.models.logistic_regression(), data, aggregator=ff.fedavg(), trainer=trainer)
    ((_, cohort, _, _, held, neighbours),) = asked
    assert (cohort, held, neighbours) == (4, 4 * 310, 1)

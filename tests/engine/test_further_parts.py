"""Further parts of the kinds that gave wrong numbers in silence: refused, or warned of, in one sentence.

Written from the kinds alone, without a look at the checks that answer them. Nothing here is compiled.
"""

import contextlib
import re
import warnings

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import fedjax_fair as ff

X = np.random.default_rng(0).normal(size=(40, 3)).astype("f")
TWO, THREE = np.arange(40) % 2, np.arange(40) % 3
LINEAR = (lambda key, x: {"w": jnp.ones((3, 2))}, lambda params, x: x @ params["w"])


@contextlib.contextmanager
def told(words):
    """Refused, or warned of, in one sentence that has the words."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            yield
        except ValueError as refusal:
            said = [str(refusal)]
        else:
            said = [str(w.message) for w in heard if issubclass(w.category, UserWarning)]
    assert any(re.search(words, s) and "\n" not in s and len(s) < 450 for s in said), said


def simulation(model=None, y=TWO, x=X, trainer=None, **settings):
    settings.setdefault("aggregator", ff.fedavg())
    return ff.simulation(
        LINEAR if model is None else model,
        ff.FederatedData.from_arrays(x, y, client_id=np.arange(len(x)) // 10),
        trainer=trainer or ff.local_sgd(optax.sgd(0.1), steps=4, batch_size=5),
        **settings,
    )


def cross_entropy(o, y):
    return optax.softmax_cross_entropy_with_integer_labels(o, y)


class Focal:
    def __call__(self, o, y):
        chance = jnp.exp(-cross_entropy(o, y))
        return (1 - chance) ** 2 * cross_entropy(o, y)


def balanced(o, y):
    hot = jax.nn.one_hot(y, 2)
    return cross_entropy(o, y) * (len(y) / (2 * jnp.maximum(hot.sum(0), 1)))[y]


LOSSES = {
    "one hot of a label too large is zero": (
        lambda o, y: optax.softmax_cross_entropy(o, jax.nn.one_hot(y, 2)),
        THREE,
    ),
    "smoothed one hot of a label too large": (
        lambda o, y: optax.softmax_cross_entropy(o, optax.smooth_labels(jax.nn.one_hot(y, 2), 0.1)),
        THREE,
    ),
    "labels from one, gathered": (
        lambda o, y: -jnp.take_along_axis(jax.nn.log_softmax(o), y[:, None], 1)[:, 0],
        TWO + 1,
    ),
    "an object": (Focal(), THREE),
    "a hinge that wants -1 and 1": (lambda o, y: optax.hinge_loss(o[:, 0], y.astype(float)), TWO),
    "the batch's mean for each": (lambda o, y: jnp.full(len(y), cross_entropy(o, y).mean()), TWO),
    "[B, 1] against [1, B]": (
        lambda o, y: optax.huber_loss(o[:, :1], y[None]).mean(-1),
        TWO,
    ),
    "weights by the batch's classes": (balanced, TWO),
    "distances to the batch's mean": (lambda o, y: ((o - o.mean(0, keepdims=True)) ** 2).sum(1), TWO),
    "the batch's losses sorted": (lambda o, y: jnp.sort(cross_entropy(o, y)), TWO),
    "labels as a column": (ff.losses.softmax_cross_entropy, TWO[:, None]),
    "labels as one hot rows": (ff.losses.softmax_cross_entropy, np.eye(2, dtype=int)[TWO]),
    "one number": (lambda o, y: cross_entropy(o, y).mean(), TWO),
    "a column": (lambda o, y: cross_entropy(o, y)[:, None], TWO),
    "whole numbers": (lambda o, y: (o.argmax(-1) != y).astype(int), TWO),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_would_be_wrong_is_told(name):
    loss, y = LOSSES[name]
    with told("loss|label"):
        simulation(loss=loss, y=y)


def test_the_same_labels_are_refused_where_data_come_later():
    sim = simulation(loss=jax.jit(cross_entropy))
    with told("label"):
        ff.run(sim._replace(data=simulation(y=THREE % 2 * 0 + THREE, model=WIDE).data), 0, 1)


WIDE = (lambda key, x: {"w": jnp.ones((3, 3))}, lambda params, x: x @ params["w"])

METRICS = {
    "the batch's share": lambda o, y: jnp.full(len(y), (o.argmax(-1) == y).mean()),
    "five best of two": lambda o, y: (jax.lax.top_k(o, 5)[1] == y[:, None]).any(1),
    "ranks within the batch": lambda o, y: o[:, 0].argsort().argsort() / len(y),
    "the largest of the labels of a batch": lambda o, y: o.argmax(-1) == y.argmax(-1),
    "binary of two outputs": ff.losses.binary_accuracy,
    "all against all": lambda o, y: (o.argmax(-1)[:, None] == y[None]).mean(0),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_that_would_be_wrong_is_told(name):
    with told("metric"):
        simulation(metric=METRICS[name])


OBJECTIVES = {
    "the two hardest, padding included": lambda losses, mask, params, received: jax.lax.top_k(losses, 2)[0].mean(),
    "the largest, padding included": lambda losses, mask, params, received: losses.max(),
    "the median, padding included": lambda losses, mask, params, received: jnp.median(losses),
    "a variance of all": lambda losses, mask, params, received: jnp.mean(losses, where=mask) + losses.var(),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_that_sees_padding_is_told(name):
    objective = OBJECTIVES[name]
    with told("objective"):
        simulation(trainer=ff.local_sgd(optax.sgd(0.1), batch_size=5, objective=objective))


class AcrossTheBatch(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.SelfAttention(num_heads=1)(x[None])[0])


class OverTheBatch(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.LayerNorm(reduction_axes=0, feature_axes=-1)(x))


class WhitenedInTraining(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool):
        if train:
            x = (x - x.mean(0, keepdims=True)) / (x.std(0, keepdims=True) + 1e-3)
        return nn.Dense(2)(x)


class WhitenedNnx(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(3, 2, rngs=rngs)

    def __call__(self, x, deterministic=True):
        return self.dense(x if deterministic else x - x.mean(0, keepdims=True))


class Spectral(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool = False):
        return nn.SpectralNorm(nn.Dense(2))(x, update_stats=train)


class GuardedNoise(nn.Module):
    @nn.compact
    def __call__(self, x):
        if self.has_rng("noise"):
            x = x + jax.random.normal(self.make_rng("noise"), x.shape)
        return nn.Dense(2)(x)


class Inference(nn.Module):
    @nn.compact
    def __call__(self, x, inference: bool = True):
        return nn.Dense(2)(nn.Dropout(0.5, deterministic=inference)(x))


class Cached(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(3, 2, rngs=rngs)
        self.seen = nnx.Cache(jnp.zeros(3))

    def __call__(self, x):
        return self.dense(x + self.seen[...])


class Normed(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dense = nnx.Linear(3, 2, rngs=rngs)

    def __call__(self, x):
        return self.dense(self.norm(x))


def pair(leaf, apply=None):
    params = {"w": jnp.ones((3, 2)), "other": leaf}
    return (lambda key, x: params), apply or (lambda p, x: x @ p["w"])


MODELS = {
    "attention across the batch": AcrossTheBatch(),
    "layer norm over the batch": OverTheBatch(),
    "linen, the batch's statistics in training only": WhitenedInTraining(),
    "nnx, the batch's statistics in training only": WhitenedNnx,
    "a pair, the batch's statistics where there is a key": (
        LINEAR[0],
        lambda p, x, key: (x if key is None else x - x.mean(0, keepdims=True)) @ p["w"],
    ),
    "spectral norm": Spectral(),
    "noise behind a guard": GuardedNoise(),
    "a switch named inference": Inference(),
    "a cache": Cached,
    "nnx batch norm": Normed,
    "whole numbers among the parameters": pair(np.arange(3)),
    "a raw key among the parameters": pair(jax.random.PRNGKey(0)),
    "a key among the parameters": pair(jax.random.key(0)),
    "a mask among the parameters": pair(np.ones(3, bool)),
    "complex parameters": pair(np.ones(3, "complex64")),
    "no parameters": (lambda key, x: (), lambda p, x: x[:, :2]),
    "outputs in another order": (LINEAR[0], lambda p, x: (x @ p["w"])[::-1]),
    "a running total": (LINEAR[0], lambda p, x: jnp.cumsum(x, 0) @ p["w"]),
    "no axis of examples": (LINEAR[0], lambda p, x: (x @ p["w"]).ravel()),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_would_be_wrong_is_told(name):
    with told("model"):
        simulation(MODELS[name])


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x, deterministic: bool):
        x = nn.RNN(nn.LSTMCell(4))(nn.Dropout(0.5)(x[..., None], deterministic=deterministic))
        x = nn.MultiHeadDotProductAttention(2, dropout_rate=0.2, deterministic=deterministic)(x)
        return nn.Dense(2)(nn.GroupNorm(2)(x).mean(1))


class Layers(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool):
        block = nn.scan(
            nn.remat(Residual, static_argnums=(2,)),
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=nn.broadcast,
            length=3,
        )
        return nn.Dense(2)(block()(nn.Dense(4)(x), train)[0])


class Residual(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool):
        x = x + nn.Dropout(0.3, broadcast_dims=(0,))(nn.gelu(nn.Dense(4)(x)), deterministic=not train)
        return x, None


class TimeFirst(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool):
        x = nn.Dropout(0.5)(jnp.moveaxis(x, 0, -1), deterministic=not train)  # [features, B]
        depth = jax.random.bernoulli(self.make_rng("dropout"), 0.5) if self.has_rng("dropout") else 1.0
        return nn.Dense(2)(jnp.moveaxis(x, -1, 0)) * depth


class Dropping(nnx.Module):
    def __init__(self, rngs):
        self.dense, self.drop = nnx.Linear(3, 2, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.dense(self.drop(x))


INNOCENT = {"recurrent": Recurrent(), "layers": Layers(), "time first": TimeFirst(), "nnx": Dropping}


@pytest.mark.parametrize("name", INNOCENT)
def test_a_model_with_noise_in_training_alone_is_let_alone(name):
    simulation(INNOCENT[name])

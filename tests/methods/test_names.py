"""The methods of clients that remember by their names, as the command line calls them."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import fedjax_fair as ff
from fedjax_fair.methods.layers import paths_of
from fedjax_fair.registry import make_rule


def test_a_rule_inside_goes_by_its_name():
    made = make_rule("ditto", {"lam": 0.5, "aggregator": "fedmaba"}, learning_rate=0.1)
    assert ff.reads(made) == ("loss",)
    assert ff.reads(make_rule("scaffold", {"aggregator": "qfedavg"}, learning_rate=0.1)) == (
        "loss",
        "gram",
        "message",
    )
    with pytest.raises(ValueError, match="got 'fedmba'; did you mean 'fedmaba'"):
        make_rule("ditto", {"aggregator": "fedmba"}, learning_rate=0.1)


@pytest.mark.parametrize(
    ("personal", "stay"),
    [
        ("last", ["Dense_10/bias", "Dense_10/kernel"]),
        ("Dense_1/", ["Dense_1/bias", "Dense_1/kernel"]),
        ("bias$", ["Dense_1/bias", "Dense_10/bias", "Dense_9/bias"]),
        (lambda path: "9/k" in path, ["Dense_9/kernel"]),
    ],
)
def test_which_layers_stay(personal, stay):
    model = {f"Dense_{i}": {name: f"Dense_{i}/{name}" for name in ("bias", "kernel")} for i in (1, 9, 10)}
    assert ff.fedper(personal).memory.init(model) == {path: path for path in stay}


class Image(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.GroupNorm(2)(nn.Conv(4, (3, 3))(x)))
        return nn.Dense(3)(x.mean((1, 2)))


class Text(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.RNN(nn.GRUCell(5))(nn.Embed(9, 4)(x))
        return nn.Dense(3)(nn.LayerNorm()(x)[:, -1])


class Parallel(nn.Module):
    """Two heads, and a layer that only a loss of its own would read."""

    @nn.compact
    def __call__(self, x):
        h = nn.relu(nn.Dense(5, name="body")(x))
        outputs = jnp.concatenate([nn.Dense(1, name="a")(h), nn.Dense(2, name="b")(h)], 1)
        self.sow("intermediates", "aside", nn.Dense(7, name="unused")(h))
        return outputs


class Tied(nn.Module):
    @nn.compact
    def __call__(self, x):
        embed = nn.Embed(9, 4)
        return embed.attend(nn.Dense(4)(embed(x)).mean(1))


class Named(nnx.Module):
    def __init__(self, rngs):
        self.head, self.hidden = nnx.Linear(5, 3, rngs=rngs), nnx.Linear(4, 5, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.relu(self.hidden(x)))


STACKED = (
    lambda key, x: {"in": jnp.ones((4, 3)), "W": jnp.ones((6, 3, 3)), "B": jnp.ones((6, 3))},
    lambda p, x: jax.lax.scan(
        lambda h, of: (jnp.tanh(h @ of[0] + of[1][None]), None), x @ p["in"], (p["W"], p["B"])
    )[0],
)
FLAT = (
    lambda key, x: {"w1": jnp.ones((4, 5)), "b1": jnp.ones((1, 5)), "w2": jnp.ones((5, 3)), "b2": jnp.ones((1, 3))},
    lambda p, x: jax.lax.cond(x.sum() > 0, jnp.tanh, jnp.sin, x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"],
)
IMAGES, TOKENS, VECTORS = (
    np.ones((9, 16, 16, 3), np.float32),
    np.ones((9, 6), np.int32),
    np.ones((9, 4), np.float32),
)


@pytest.mark.parametrize(
    ("model", "x", "stay"),
    [
        (ff.models.cnn(3), IMAGES, ["Dense_1/bias", "Dense_1/kernel"]),
        (ff.models.mlp((5, 5), 3), VECTORS, ["Dense_2/bias", "Dense_2/kernel"]),
        (Image(), IMAGES, ["Dense_0/bias", "Dense_0/kernel"]),
        (Text(), TOKENS, ["Dense_0/bias", "Dense_0/kernel"]),
        (Parallel(), VECTORS, ["a/bias", "a/kernel", "b/bias", "b/kernel"]),
        (STACKED, VECTORS, ["B", "W"]),
        (Tied(), TOKENS, ["Embed_0/embedding"]),
        (Named, VECTORS, ["head/bias", "head/kernel"]),
        (FLAT, VECTORS, ["b2", "w2"]),
        (ff.models.logistic_regression(3), VECTORS, ["Dense_0/bias"]),
    ],
    ids=["cnn", "mlp", "GroupNorm", "GRU", "parallel", "stacked", "tied", "nnx", "flat", "regression"],
)
def test_the_last_layer_is_the_one_that_makes_the_outputs(model, x, stay):
    """Though ``PatchConv_1``, ``GroupNorm_0``, ``LayerNorm_0`` and ``hidden`` come later by name."""
    data = ff.FederatedData.from_arrays(x, np.arange(9) % 3, client_id=np.arange(9) // 5, split=(0.5, 0, 0.5))
    settings = {"trainer": ff.local_sgd(optax.sgd(0.1), batch_size=2)}
    for rule in (ff.fedper(), ff.fedrep(aggregator=ff.qfedavg(1.0, lipschitz=10.0))):
        state = jax.eval_shape(ff.simulation(model, data, aggregator=rule, **settings).init, jax.random.key(0))
        assert [*state.memory] == stay
    moving = trained(model, data, "last")
    assert [path for path in paths_of(state.params) if path not in moving] == stay


def test_the_last_layer_may_be_in_a_list():
    model = ff.models.mlp((5, 5), 3)
    data = ff.FederatedData.from_arrays(VECTORS, np.arange(9) % 3, client_id=np.arange(9) // 5, split=(0.5, 0, 0.5))
    assert trained(model, data, ["last"]) == trained(model, data, "last")


seen: list[list[str]] = []


def without(state):
    """Notes what is trained."""
    seen.append(paths_of(state.params))
    return state.params


def trained(model, data, freeze):
    """The paths of the parameters that are not frozen."""
    trainer = ff.local_sgd(optax.sgd(0.1), batch_size=2)
    frozen = ff.simulation(model, data, aggregator=ff.fedavg(), freeze=freeze, deploy=without, trainer=trainer)
    seen.clear()
    jax.eval_shape(frozen.evaluate, jax.eval_shape(frozen.init, jax.random.key(0)).params, data)
    jax.eval_shape(frozen.deploy, jax.eval_shape(frozen.init, jax.random.key(0)))
    return seen[-1]


def test_of_one_layer_the_biases_stay():
    one = {"Dense_0": {"kernel": np.ones((3, 2)), "bias": np.ones(2)}}
    assert [*ff.fedper().memory.init(one)] == ["Dense_0/bias"]
    assert [*ff.fedper().memory.init({"kernel": np.ones((3, 2))})] == ["kernel"]

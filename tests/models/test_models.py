"""Models: the stock ones against JAX's own operations, and the one door for everybody else's."""

import functools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import fedjax_fair as ff
from fedjax_fair.models import PatchConv, as_model, max_pool_2x2
from fedjax_fair.models.convolution import DEEP
from fedjax_fair.models.losses import softmax_cross_entropy

KEY, OTHER = jax.random.key(0), jax.random.key(1)
IMAGES = jnp.array(np.random.default_rng(0).normal(size=(2, 28, 28)), jnp.float32)


pytestmark = pytest.mark.usefixtures("quick_to_compile")


def count(params):
    return sum(leaf.size for leaf in jax.tree.leaves(params))


# Stock models


@pytest.mark.parametrize(
    ("model", "x", "outputs", "parameters"),
    [
        (ff.models.logistic_regression(3), jnp.ones((5, 7)), 3, 7 * 3 + 3),
        (ff.models.mlp((200, 200)), IMAGES, 10, 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10),
        (ff.models.mlp((), classes=4), jnp.ones((5, 2, 3)), 4, 6 * 4 + 4),
        (ff.models.cnn(), IMAGES, 10, 26 * 32 + (800 + 1) * 64 + (16 * 64 + 1) * 512 + 5130),
        (
            ff.models.cnn(62, padding="SAME"),
            IMAGES[..., None],
            62,
            26 * 32 + 801 * 64 + (49 * 64 + 1) * 512 + 513 * 62,
        ),
        (
            ff.models.cnn(10, (6, 16), 30),
            jnp.ones((2, 32, 32, 3)),
            10,
            76 * 6 + 151 * 16 + (25 * 16 + 1) * 30 + 310,
        ),
    ],
    ids=["logistic", "mlp", "mlp-flattens", "cnn", "cnn-same", "cnn-colour"],
)
def test_stock_models_have_the_papers_sizes(model, x, outputs, parameters):
    params = jax.eval_shape(model.init, KEY, x)
    assert count(params) == parameters
    assert jax.eval_shape(model.apply, params, x, None).shape == (x.shape[0], outputs)


def test_the_mlp_is_dense_layers_with_relu_between_them():
    model = ff.models.mlp((5,), 3)
    params = model.init(KEY, IMAGES)
    first, last = params["Dense_0"], params["Dense_1"]
    hidden = np.maximum(IMAGES.reshape(2, -1) @ first["kernel"] + first["bias"][None], 0)
    np.testing.assert_allclose(
        model.apply(params, IMAGES, None), hidden @ last["kernel"] + last["bias"][None], rtol=1e-5
    )


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("channels", [3, DEEP])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 5), (2, 4), (4, 1)])
def test_patch_convolution_is_the_convolution_in_values_and_gradients(kernel, channels, padding):
    with jax.enable_x64(True):
        rng = np.random.default_rng(1)
        x, weights = (
            jnp.array(rng.normal(size=(2, 7, 6, channels))),
            jnp.array(rng.normal(size=(*kernel, channels, 4))),
        )
        bias = jnp.array(rng.normal(size=4))

        def ours(x, weights):
            return PatchConv(4, kernel, padding).apply({"params": {"kernel": weights, "bias": bias}}, x)

        def theirs(x, weights):
            out = jax.lax.conv_general_dilated(
                x, weights, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            return out + bias.reshape(1, 1, 1, 4)

        towards = jnp.array(rng.normal(size=jax.eval_shape(theirs, x, weights).shape))

        @jax.jit
        def both(x, weights):
            (out, pull), (expected, expected_pull) = jax.vjp(ours, x, weights), jax.vjp(theirs, x, weights)
            return (out, *pull(towards)), (expected, *expected_pull(towards))

        for got, expected in zip(*both(x, weights)):
            np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-11)


def test_pooling_before_the_bias_is_pooling_after_it():
    x = jnp.array(np.random.default_rng(3).normal(size=(2, 9, 8, 3)), jnp.float32)
    params = PatchConv(4, (3, 3), "VALID").init(KEY, x)
    params = jax.tree.map(lambda leaf: leaf + 0.3, params)
    plain, pooled = (PatchConv(4, (3, 3), "VALID", pool=pool).apply(params, x) for pool in (False, True))
    np.testing.assert_allclose(pooled, max_pool_2x2(plain), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (4, 6), (5, 4), (7, 9)])
def test_max_pooling_is_reduce_window(shape):
    x = jnp.array(np.random.default_rng(2).normal(size=(3, *shape, 2)), jnp.float32)
    window = (1, 2, 2, 1)
    expected = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
    assert np.array_equal(max_pool_2x2(x), expected)


def test_no_grouped_convolution_for_clients_with_weights_of_their_own():
    model, x = ff.models.cnn(10, (2, 3), 4), jnp.zeros((3, 2, 16, 16))
    params = jax.eval_shape(jax.vmap(model.init), jax.random.split(KEY, 3), x)

    def loss(params, x):
        return softmax_cross_entropy(model.apply(params, x, None), jnp.zeros(2, jnp.int32)).mean()

    program = str(jax.make_jaxpr(jax.vmap(jax.grad(loss)))(params, x))
    assert "dot_general" in program
    assert "conv_general_dilated" not in program


IMAGE = jnp.ones((1, 8, 8, 1))


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: ff.models.mlp((5, 0)), "features[1] must be at least 1, got 0"),
        (lambda: ff.models.logistic_regression(0), "classes must be at least 1, got 0"),
        (lambda: ff.models.cnn(padding="FULL"), "padding must be 'SAME' or 'VALID', got 'FULL'"),
        (lambda: ff.models.mlp(5), "features must be the widths of the hidden layers, such as (200, 200), got 5"),
        (
            lambda: ff.models.cnn(channels=32),
            "channels must be those of the two convolutions, such as (32, 64), got",
        ),
        (lambda: PatchConv(2, (3, 3), "same").init(KEY, IMAGE), "padding must be 'SAME' or 'VALID', got 'same'"),
        (
            lambda: PatchConv(2, 3, "SAME").init(KEY, IMAGE),
            "kernel must be two numbers, its rows and columns, got 3",
        ),
        (lambda: ff.models.cnn().init(KEY, jnp.ones((1, 15, 16))), "at least 16 x 16 pixels"),
        (lambda: ff.models.cnn().init(KEY, jnp.ones((1, 784))), "got examples of shape (784,)"),
    ],
)
def test_a_stock_model_that_cannot_be_is_one_sentence(build, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)) as error:
        build()
    assert "\n" not in str(error.value)


# The door: everything below is ``as_model`` on a user's own


class Drop(nn.Module):
    """Dropout on ones: its output shows the mask."""

    @nn.compact
    def __call__(self, x):
        return nn.Dropout(0.5, deterministic=not self.has_rng("dropout"))(x) + 0 * nn.Dense(1)(x)


class Train(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool):
        return nn.Dropout(0.5, deterministic=not train)(x)


class Training(nn.Module):
    @nn.compact
    def __call__(self, x, *, training: bool = True):
        return nn.Dropout(0.5, deterministic=not training)(x)


class IsTraining(nn.Module):
    @nn.compact
    def __call__(self, x, is_training=False):
        return nn.Dropout(0.5, deterministic=not is_training)(x)


class Deterministic(nn.Module):
    @nn.compact
    def __call__(self, x, deterministic: bool = False):
        return nn.Dropout(0.5, deterministic=deterministic)(x)


class Nnx(nnx.Module):
    """Two layers of dropout around a linear one."""

    def __init__(self, rngs, width=40):
        self.first, self.second = nnx.Dropout(0.5, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
        self.linear = nnx.Linear(width, 40, rngs=rngs)

    def __call__(self, x):
        return self.second(self.linear(self.first(x)))


class ByName(Nnx):
    """As flax's own layers take their keys: by name alone."""

    def __init__(self, *, rngs):
        super().__init__(rngs)


NNX = {
    "class": Nnx,
    "by name": ByName,
    "partial": functools.partial(Nnx, width=40),
    "in its place": lambda rngs, /: Nnx(rngs, 40),
    "factory": lambda rngs: Nnx(rngs, 40),
    "instance": Nnx(nnx.Rngs(3)),
}
LINEN = {"train": Train(), "training": Training(), "is_training": IsTraining(), "deterministic": Deterministic()}
DROPOUT = {"linen": Drop(), **LINEN, **NNX}
ONES = jnp.ones((3, 40))


@pytest.mark.parametrize("name", DROPOUT)
def test_dropout_is_drawn_from_the_key_in_training_and_off_in_evaluation(name):
    model = as_model(DROPOUT[name])
    params = model.init(KEY, ONES)
    trained = model.apply(params, ONES, KEY)
    assert (trained == 0).any()
    assert np.array_equal(trained, model.apply(params, ONES, KEY))
    assert not np.array_equal(trained, model.apply(params, ONES, OTHER))
    evaluated = model.apply(params, ONES, None)
    assert (evaluated != 0).all()
    assert np.array_equal(evaluated, model.apply(params, ONES, None))


def test_two_dropout_layers_of_an_nnx_module_draw_masks_of_their_own():
    class Twice(nnx.Module):
        def __init__(self, rngs):
            self.first, self.second = nnx.Dropout(0.5, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x):
            return self.second(self.first(x))

    kept = as_model(Twice).apply({}, jnp.ones((100, 100)), KEY) > 0
    assert float(kept.mean()) == pytest.approx(0.25, abs=0.02)


def test_the_default_stream_and_that_of_dropout_draw_apart():
    class Both(nnx.Module):
        def __init__(self, rngs):
            two = nnx.Rngs(default=rngs(), dropout=rngs())
            self.dropout, self.noise = nnx.Dropout(0.5, rngs=two), two["default"].fork()

        def __call__(self, x):
            return (self.dropout(x) > 0) == jax.random.bernoulli(self.noise(), 0.5, x.shape)

    alike = as_model(Both).apply({}, jnp.ones((100, 100)), KEY)
    assert float(alike.mean()) == pytest.approx(0.5, abs=0.03)


class Stacked(nnx.Module):
    """Three equal layers with dropout, in a scan."""

    def __init__(self, rngs):
        @nnx.split_rngs(splits=3)
        @nnx.vmap(in_axes=0, out_axes=0)
        def make(rngs):
            return nnx.Dropout(0.5, rngs=rngs)

        self.layers = make(rngs)

    def __call__(self, x):
        return nnx.scan(lambda x, layer: layer(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, self.layers)


def test_layers_that_are_stacked_draw_masks_of_their_own():
    model = as_model(Stacked)
    assert float((model.apply({}, jnp.ones((100, 100)), KEY) > 0).mean()) == pytest.approx(0.125, abs=0.02)
    assert (model.apply({}, ONES, None) == 1).all()


def test_a_recurrent_cell_may_draw_a_state_of_zeros():
    model = as_model(lambda rngs: nnx.RNN(nnx.LSTMCell(4, 8, rngs=rngs)))
    x = jnp.ones((2, 5, 4))
    outputs = jax.jit(lambda params: model.apply(params, x, None))(model.init(KEY, x))
    assert outputs.shape == (2, 5, 8)


@pytest.mark.parametrize("name", ["train", *NNX])
def test_any_model_may_be_mapped_over_clients_with_weights_of_their_own(name):
    model = as_model(nn.Sequential([nn.Dense(40), nn.relu]) if name == "train" else DROPOUT[name])
    one, two = model.init(KEY, ONES), jax.tree.map(lambda leaf: leaf + 1, model.init(KEY, ONES))
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), one, two)
    together = jax.jit(jax.vmap(model.apply, (0, None, None)))(stacked, ONES, KEY)
    for outputs, params in zip(together, (one, two)):
        np.testing.assert_allclose(outputs, model.apply(params, ONES, KEY), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["class", "factory"])
def test_every_seed_starts_an_nnx_module_from_other_weights(name):
    init = as_model(NNX[name]).init
    one, same, other = (init(key, ONES)["linear"]["kernel"] for key in (KEY, KEY, OTHER))
    assert np.array_equal(one, same)
    assert not np.isclose(one, other).any()


def test_every_seed_starts_a_linen_module_from_other_weights():
    init = ff.models.logistic_regression(3).init
    one, other = (init(key, ONES)["Dense_0"]["kernel"] for key in (KEY, OTHER))
    assert not np.isclose(one, other).any()


def test_an_nnx_instance_gives_its_own_weights_and_is_left_alone():
    module = Nnx(nnx.Rngs(5))
    before = jax.tree.map(jnp.copy, nnx.to_pure_dict(nnx.state(module, nnx.Param)))
    count_before = int(module.first.rngs.count[...])
    model = as_model(module)
    params = model.init(KEY, ONES)
    jax.jit(model.apply)(jax.tree.map(jnp.zeros_like, params), ONES, KEY)
    after = nnx.to_pure_dict(nnx.state(module, nnx.Param))
    jax.tree.map(np.testing.assert_array_equal, params, before)
    jax.tree.map(np.testing.assert_array_equal, after, before)
    assert int(module.first.rngs.count[...]) == count_before
    assert module.first.deterministic is False


class OwnStream(nnx.Module):
    """Noise of a stream with a name of its own, beside dropout."""

    def __init__(self, rngs):
        self.linear, self.dropout = nnx.Linear(1, 4, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
        self.rngs, self.training = nnx.Rngs(rngs.params(), noise=1), True

    def __call__(self, x):
        noise = jax.random.normal(self.rngs.noise(), (4,)) if not self.dropout.deterministic else jnp.zeros(4)
        return self.linear(self.dropout(x)) + noise[None, :]


def test_every_stream_of_an_nnx_module_is_drawn_anew():
    model = as_model(OwnStream)
    params = jax.tree.map(jnp.zeros_like, model.init(KEY, ONES[:, :1]))
    one, same, other = (model.apply(params, ONES[:, :1], key) for key in (KEY, KEY, OTHER))
    np.testing.assert_array_equal(one, same)
    assert not np.isclose(one, other).any()


def test_a_pair_of_functions_takes_the_key_if_it_wants_it():
    plain = as_model((lambda key, x: jnp.float32(2), lambda params, x: params * x))
    noisy = as_model((lambda key, x: jnp.float32(2), lambda params, x, key: params * x if key is None else x * 0))
    for model in (plain, noisy):
        assert float(model.init(KEY, ONES)) == 2
        assert np.array_equal(model.apply(jnp.float32(2), ONES, None), 2 * ONES)
    assert np.array_equal(plain.apply(jnp.float32(2), ONES, KEY), 2 * ONES)
    assert np.array_equal(noisy.apply(jnp.float32(2), ONES, KEY), 0 * ONES)


def test_a_model_is_taken_as_it_is():
    model = ff.models.logistic_regression(3)
    assert as_model(model) is model


class LinenNorm(nn.Module):
    @nn.compact
    def __call__(self, x, train: bool = False):
        return nn.BatchNorm(use_running_average=not train)(x)


@pytest.mark.parametrize("module", [LinenNorm(), lambda rngs: nnx.BatchNorm(40, rngs=rngs)], ids=["linen", "nnx"])
def test_batch_normalisation_is_refused_in_one_sentence(module):
    with pytest.raises(ValueError, match=r"^model keeps batch_stats besides[^\n]+nn\.GroupNorm or nn\.LayerNorm$"):
        as_model(module).init(KEY, ONES)


def test_a_module_that_is_bound_to_weights_is_refused():
    """Its weights would be ignored: every seed draws its own."""
    module = nn.Dense(3)
    with pytest.raises(ValueError, match=r"^model must be an unbound module, .* pass module\.unbind\(\)\[0\]"):
        as_model(module.bind(module.init(KEY, ONES)))
    with pytest.raises(ValueError, match=r"^model must be an unbound module"):
        as_model(nn.Sequential([module.bind(module.init(KEY, ONES)), nn.relu]))


NONSENSE = {"number": 3, "name": "mlp", "none": None, "half": (lambda key, x: 0, "apply"), "triple": (jnp.sin,) * 3}


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused_in_one_sentence(nonsense):
    with pytest.raises(ValueError, match=r"^model must be a flax module [^\n]+ pair, got \w+$"):
        as_model(nonsense)


class Equinox:
    """As a module of equinox: a callable whose class, or the one above it, is of that package."""

    __module__ = "equinox.nn"

    def __call__(self, x):
        return x


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (nnx.Linear, r"Linear was taken for such a function, and raised TypeError: .* missing 2 required"),
        (lambda: 3, r"<lambda> was taken for such a function, and raised TypeError: .* takes 0 positional"),
        (functools.partial(Nnx, rngs=nnx.Rngs(0)), r"leave rngs open, got a functools\.partial that gives it"),
        (Equinox(), r"pair where it is of equinox, got Equinox: params are its arrays, eqx\.filter\(model, "),
    ],
    ids=["layer", "no arguments", "given", "equinox"],
)
def test_a_callable_that_is_no_factory_is_refused_in_one_sentence(model, sentence):
    with pytest.raises(ValueError, match=rf"^model must [^\n]*{sentence}[^\n]+$"):
        as_model(model).init(KEY, ONES)


class Constant(nn.Module):
    @nn.compact
    def __call__(self, x):
        return x * self.variable("constants", "scale", lambda: jnp.ones(())).value


def test_variables_that_are_no_batch_statistics_are_not_told_to_become_a_norm():
    with pytest.raises(ValueError, match=r"^model keeps constants besides .*; make it a parameter, or an array of"):
        as_model(Constant()).init(KEY, ONES)


def test_a_factory_of_something_else_is_refused_in_one_sentence():
    with pytest.raises(ValueError, match=r"^model must build an nnx\.Module, but its factory returned Rngs$"):
        as_model(lambda rngs: rngs).init(KEY, ONES)


class IsTrain(nn.Module):
    def __call__(self, x, is_train=False):
        return x


class Evaluate(nn.Module):
    def __call__(self, x, train: bool = False, *, evaluate: bool = True):
        return x


class Determined(nn.Module):
    def __call__(self, x, deterministic_dropout=None):
        return x


class Must(nn.Module):
    def __call__(self, x, is_train):
        return x


class Other(nn.Module):
    def __call__(self, x, constrained: bool = False, use_retrieval: bool = False, train_steps: int = 3):
        return x


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (IsTrain(), "is_train"),
        (Evaluate(), "evaluate"),
        (Determined(), "deterministic_dropout"),
        (Must(), "is_train"),
    ],
)
def test_a_switch_that_nobody_would_set_is_refused_in_one_sentence(module, name):
    with pytest.raises(
        ValueError, match=rf"^model's __call__ [^\n]+ train, training, is_training, deterministic, got {name}$"
    ):
        as_model(module)


def test_an_argument_that_is_no_such_switch_stays_at_its_default():
    assert np.array_equal(as_model(Other()).apply({}, ONES, KEY), ONES)


def test_a_linen_class_is_refused_in_one_sentence():
    with pytest.raises(ValueError, match=r"^model must be a model, got the class Train: call it$"):
        as_model(Train)


# Rows 5 and 7: nnx modules are told what linen's are, and nothing is left at its default in silence


def switched(arguments, setting, base="nnx"):
    """A module of this base on ones with dropout .5, whose __call__ has these arguments."""
    names = {"nnx": nnx, "nn": nn, "jnp": jnp}
    made = "def __init__(s, rngs): s.l, s.d = nnx.Linear(40, 40, rngs=rngs), nnx.Dropout(.5, rngs=rngs)"
    ours, theirs = ("s.d", "s.l") if base == "nnx" else ("nn.Dropout(.5)", "nn.Dense(40)")
    exec(
        f"class M({base}.Module):\n"
        + (f"    {made}\n" if base == "nnx" else "    @nn.compact\n")
        + f"    def __call__(s, x{arguments}):\n"
        f"        return {ours}(jnp.ones_like(x) + 0 * {theirs}(x), {setting})\n",
        names,
    )
    return names["M"]


@pytest.mark.parametrize("instance", [False, True])
@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        (", train=True", "deterministic=not train"),
        (", train=False", "deterministic=not train"),
        (", is_training", "deterministic=not is_training"),
        (", *, training: bool = True", "deterministic=not training"),
        (", deterministic=True", "deterministic=deterministic"),
        (", rngs=None", "rngs=rngs"),
    ],
)
def test_row_5_an_nnx_module_is_told_whether_it_trains(arguments, setting, instance):
    module = switched(arguments, setting)
    model = as_model(module(nnx.Rngs(0)) if instance else module)
    params = model.init(KEY, ONES)
    assert set(np.unique(model.apply(params, ONES, None))) == {1}
    assert set(np.unique(model.apply(params, ONES, KEY))) == {0, 2}
    assert not np.array_equal(model.apply(params, ONES, KEY), model.apply(params, ONES, OTHER))


PARAMS = {"l": {"kernel": jnp.ones((40, 40)), "bias": jnp.ones(40)}}


@pytest.mark.parametrize("base", ["nn", "nnx"])
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (", is_train=True", "is_train"),
        (", mode='eval'", "mode"),
        (", split: str = 'train'", "split"),
        (", phase='test'", "phase"),
        (", dropout=False", "dropout"),
        (", use_dropout: bool = False, train=False", "use_dropout"),
    ],
)
def test_row_5_a_switch_of_another_name_is_refused(arguments, name, base):
    module = switched(arguments, "deterministic=True", base)
    with pytest.raises(ValueError, match=rf"^model's __call__ must say [^\n]+, deterministic, got {name}"):
        as_model(module if base == "nnx" else module()).apply(PARAMS, ONES, None)


@pytest.mark.parametrize("base", ["nn", "nnx"])
@pytest.mark.parametrize("name", ["rng", "key", "dropout_rng"])
def test_row_5_a_key_that_nobody_would_give_is_refused(name, base):
    module = switched(f", {name}=None", "deterministic=True", base)
    with pytest.raises(
        ValueError, match=rf"^model's __call__ must draw from flax's own keys[^\n]+ argument {name} "
    ):
        as_model(module if base == "nnx" else module()).apply(PARAMS, ONES, None)


def test_row_5_dropout_that_is_always_on_is_refused():
    nnx_model = as_model(switched("", "deterministic=False"))
    linen = as_model(switched("", "deterministic=False", "nn")())
    with pytest.raises(ValueError, match=r"^model must draw random numbers in training only"):
        nnx_model.apply(nnx_model.init(KEY, ONES), ONES, None)
    with pytest.raises(ValueError, match=r'in training only, got "dropout" in an evaluation, which has no key$'):
        linen.apply({"Dense_0": {"kernel": jnp.ones((40, 40)), "bias": jnp.ones(40)}}, ONES, None)


@pytest.mark.parametrize(
    ("apply", "name"),
    [
        (lambda params, x, rng=None: x, "rng"),
        (lambda params, x, train=False: x, "train"),
        (lambda params, x, train: x, "train"),
        (lambda params, x, dropout=False: x, "dropout"),
        (lambda params, x, mode="eval": x, "mode"),
        (lambda params, rng, x: x, "rng"),
        (lambda params, key, x: x, "key"),
    ],
)
def test_row_5_a_pairs_argument_that_nobody_would_set_is_refused(apply, name):
    with pytest.raises(
        ValueError, match=rf"^model's apply must be \(params, x\) or [^\n]+ got an argument {name}$"
    ):
        as_model((lambda key, x: jnp.ones(()), apply))


def test_a_pair_with_a_state_of_its_own_is_refused():
    with pytest.raises(
        ValueError, match=r"^model's apply must be [^\n]+, got \(params, state, ...\): batch statistics"
    ):
        as_model((lambda key, x: jnp.ones(()), lambda params, state, *args, **more: args))


def test_a_pairs_key_may_be_named_or_in_third_place():
    for apply in (lambda p, x, *, key=None: x if key is None else 0 * x, lambda p, x, r: x if r is None else 0 * x):
        model = as_model((lambda key, x: jnp.ones(()), apply))
        assert model.apply(1.0, ONES, None).all()
        assert not model.apply(1.0, ONES, KEY).any()


class Noisy(nn.Module):
    guarded: bool

    @nn.compact
    def __call__(self, x, train=False):
        return x + jax.random.normal(self.make_rng("noise"), x.shape) if train or not self.guarded else x


def test_random_numbers_of_another_collection_are_one_sentence():
    with pytest.raises(ValueError, match=r'collection "dropout"[^\n]+ got "noise" in training'):
        as_model(Noisy(True)).apply({}, ONES, KEY)
    with pytest.raises(ValueError, match=r'collection "dropout"[^\n]+ got "noise" in an evaluation'):
        as_model(Noisy(False)).apply({}, ONES, None)


class Kept(nnx.Variable):
    pass


def keeping(value):
    class Keeps(nnx.Module):
        def __init__(self, rngs):
            self.linear, self.kept = nnx.Linear(40, 2, rngs=rngs), value(rngs)

        def __call__(self, x):
            return self.linear(x) + jnp.sum(self.kept[...])

    return Keeps


@pytest.mark.parametrize("kind", [Kept, nnx.Variable])
def test_row_7_variables_beside_the_parameters_are_refused(kind):
    module = keeping(lambda rngs: kind(jax.random.normal(rngs.params(), (2,))))
    for model in (module, module(nnx.Rngs(0))):
        with pytest.raises(
            ValueError, match=rf"^model keeps variables of type {kind.__name__} besides its nnx.Param"
        ):
            as_model(model).init(KEY, ONES)


def test_row_7_arrays_that_depend_on_the_seed_are_refused_and_constants_are_not():
    with pytest.raises(ValueError, match=r"^model keeps arrays that are drawn from rngs but are no nnx\.Param"):
        as_model(keeping(lambda rngs: jax.random.normal(rngs.params(), (2,)))).init(KEY, ONES)
    model = as_model(keeping(lambda rngs: jnp.ones(2)))
    assert model.apply(model.init(KEY, ONES), ONES, None).shape == (3, 2)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (5, 28, 28), (4, 28, 30)])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_channels_come_last(shape, padding):
    with pytest.raises(ValueError, match=r"^cnn needs images \[H, W, C\], channels last, got examples of shape"):
        ff.models.cnn(padding=padding).init(KEY, jnp.ones((2, *shape)))

"""Model, loss, metric, objective and labels fit each other: right values, or one sentence before compiling."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from test_engine_errors import refused
from toy import linear

import fedjax_fair as ff
from fedjax_fair.engine.behaviour import Tried, knows_label, tells_classes, tells_two

pytestmark = pytest.mark.usefixtures("quick_to_compile")

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(int)
THREE = np.arange(60) % 3
LINE = (X @ [1, -2, 0.5]).astype(np.float32)
STEPS = ff.local_sgd(optax.sgd(0.1), steps=4, batch_size=5)
PASS = ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=6)  # 16 examples a client: the last batch has padding
CE, OPTAX = ff.losses.softmax_cross_entropy, optax.softmax_cross_entropy_with_integer_labels
SIGMOID = ff.losses.sigmoid_cross_entropy
regression = ff.models.logistic_regression


def fed(x=X, y=Y, **settings):
    return ff.FederatedData.from_arrays(x, y, client_id=np.arange(60) % 3, **settings)


def sim(model, data=None, trainer=STEPS, aggregator=None, **settings):
    return ff.simulation(model, data or fed(), aggregator=aggregator or ff.fedavg(), trainer=trainer, **settings)


def first(outputs, y):
    return outputs.reshape(len(y), -1)[:, 0]


# Row 2: labels that the model has no output for, whatever the loss is called

CROSS_ENTROPIES = {
    "stock": CE,
    "optax": OPTAX,
    "jit": jax.jit(CE),
    "partial": functools.partial(CE),
    "lambda": lambda o, y: 2 * CE(o, y),
    "one-hot": lambda o, y: optax.softmax_cross_entropy(o, jax.nn.one_hot(y, o.shape[1])),
    "smoothed": lambda o, y: optax.softmax_cross_entropy(
        o, optax.smooth_labels(jax.nn.one_hot(y, o.shape[1]), 0.1)
    ),
    "gather": lambda o, y: -jax.nn.log_softmax(o)[jnp.arange(len(y)), y],
    "squares": lambda o, y: jnp.square(o - jax.nn.one_hot(y, o.shape[1])).sum(1),
    "one against all": lambda o, y: optax.sigmoid_binary_cross_entropy(o, jax.nn.one_hot(y, o.shape[1])).sum(1),
}


def test_one_logit_of_two_labels_is_told_its_loss():
    with refused(
        "labels must be below the model's 1 outputs, got label 1: give the model more classes, or, for one logit, "
        "loss=ff.losses.sigmoid_cross_entropy"
    ):
        sim(regression(1))


@pytest.mark.parametrize("name", CROSS_ENTROPIES)
def test_row_2_a_label_without_an_output_is_refused_for_every_cross_entropy(name):
    loss = CROSS_ENTROPIES[name]
    with refused("labels must be below the model's 2 outputs, got label 2: give the model more classes"):
        sim(regression(2), fed(y=THREE), loss=loss)
    made = sim(regression(2), loss=loss)
    with refused("labels must be below the model's 2 outputs, got label 2"):
        ff.run(made._replace(data=fed(y=THREE)), 0, 1)
    sim(regression(3), fed(y=THREE), loss=loss)


@pytest.mark.parametrize("loss", [CE, OPTAX, lambda o, y: CE(o, y)])
def test_row_2_two_classes_need_more_than_one_softmax_output(loss):
    with refused("labels must be below the model's 1 outputs, got label 1"):
        sim(regression(1), loss=loss, metric=first)


def test_row_2_a_reference_class_needs_no_output():
    """The likelihoods of its label and of the others sum to one."""
    sim(regression(2), fed(y=THREE), loss=lambda o, y: CE(jnp.pad(o, ((0, 0), (0, 1))), y))


def test_row_2_the_label_is_checked_where_build_is_swept():
    data = fed(y=THREE)

    def build(lr):
        trainer = ff.local_sgd(optax.sgd(lr), steps=1, batch_size=2)
        return sim(regression(2), data, trainer, loss=lambda o, y: OPTAX(o, y))

    with refused("labels must be below the model's 2 outputs, got label 2"):
        ff.sweep(build, {"lr": [0.1, 0.2]}, rounds=1)


def test_labels_with_gaps_can_be_renumbered():
    gaps = fed(y=10 * THREE + 10)
    with refused("got label 30: renumber the 3 labels, np.unique(y, return_inverse=True)[1], or give the model 31"):
        sim(regression(3), gaps)
    with refused("renumber the 3 labels, np.unique(y, return_inverse=True)[1]; it needs 3 outputs"):
        sim(regression(2), gaps)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (lambda: fed(x=X[:, :2]), "data must have examples of the form that the simulation is made for"),
        (
            lambda: ff.FederatedData.from_arrays(X, Y, client_id=np.arange(60) % 4),
            "data must have the clients and the sizes that the simulation is made for, got others",
        ),
        (lambda: fed()._replace(y=jnp.full(60, -1)), "labels must be from 0 to the model's 2 outputs - 1, got"),
        (lambda: "mnist", "data must be a FederatedData, such as ff.data.synthetic(), got str"),
    ],
)
def test_data_that_take_the_place_of_others_fit_the_simulation(other, sentence):
    with refused(sentence):
        ff.run(sim(regression(2))._replace(data=other()), 0, 1)


# Row 3: losses and metrics that fit each other


@pytest.mark.parametrize("loss", [SIGMOID, jax.jit(SIGMOID), lambda o, y: 2 * SIGMOID(o, y)])
def test_row_3_one_logit_is_judged_by_its_sign_by_default(loss):
    _, history = ff.run(sim(regression(1), loss=loss), 0, 200, eval_every=200)
    assert history.accuracy[-1].mean() > 0.95


def test_row_3_a_swept_run_has_the_same_default_metric():
    data = fed()

    def build(lr):
        return sim(regression(1), data, ff.local_sgd(optax.sgd(lr), steps=4, batch_size=5), loss=SIGMOID)

    swept = ff.sweep(build, {"lr": [0.1, 0.2]}, rounds=200, eval_every=200).histories[0][0]
    assert swept.accuracy[-1].mean() > 0.95


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"metric": ff.losses.accuracy}, "metric must depend on the outputs, but accuracy of one output"),
        (
            {"metric": lambda o, y: o.argmax(-1) == y},
            "metric must depend on the outputs, but accuracy of one output",
        ),
        (
            {"loss": ff.losses.squared_error, "metric": ff.losses.accuracy},
            "metric must depend on the outputs, but accuracy of one output",
        ),
        ({"y": THREE}, "labels must be 0 or 1 for a binary cross-entropy of one logit each, got 0 to 2"),
        ({"y": 2.0 * Y - 1}, "labels must be 0 or 1 for a binary cross-entropy of one logit each, got -1 to 1"),
        (
            {"y": THREE, "loss": lambda o, y: optax.sigmoid_binary_cross_entropy(o[:, 0], y), "metric": first},
            "labels must be 0 or 1 for a binary cross-entropy of one logit each, got 0 to 2",
        ),
        (
            {"y": THREE, "loss": ff.losses.squared_error, "metric": ff.losses.binary_accuracy},
            "labels must be 0 or 1 for a metric that goes by the sign of one output, got 0 to 2",
        ),
        (
            {"y": THREE, "loss": ff.losses.squared_error, "metric": lambda o, y: (o[:, 0] > 0) == (y > 0)},
            "labels must be 0 or 1 for a metric that goes by the sign of one output, got 0 to 2",
        ),
        (
            {"y": THREE, "loss": lambda o, y: jnp.exp(o[:, 0]) - y * o[:, 0]},  # counts, by Poisson's law
            "an example, is the share of labels 0: pass a metric of outputs and labels, such as ff.losses.rmse",
        ),
    ],
)
def test_row_3_a_loss_and_a_metric_that_do_not_fit_are_refused(settings, sentence):
    settings = {"loss": SIGMOID} | settings
    with refused(sentence):
        sim(regression(1), fed(y=settings.pop("y", Y)), **settings)


@pytest.mark.parametrize("loss", ["sigmoid_cross_entropy", "squared_error"])
def test_two_outputs_for_one_label_are_one_sentence(loss):
    with refused(
        f"{loss} needs one output for every label, such as [B] or [B, 1] for labels [B], got outputs (2, 2)"
    ):
        sim(regression(2), loss=getattr(ff.losses, loss))


# Row 4: examples together are what they are alone


def test_row_4_outputs_that_are_broadcast_against_labels_are_refused():
    line, wrong = fed(y=LINE), lambda o, y: jnp.square(o - y).mean(1)
    with jax.numpy_rank_promotion("allow"):  # as it is for users
        with refused("outputs [3, 1] and labels [3] may be broadcast against each other"):
            sim(regression(1), line, loss=wrong, metric=first)
        with refused("metric must judge every example by its own outputs and label"):
            sim(regression(1), line, loss=ff.losses.squared_error, metric=wrong)
    made = sim(regression(1), fed(y=LINE), loss=lambda o, y: jnp.square(o[:, 0] - y), metric=first)
    state, _ = ff.run(made, 0, 200, eval_every=200)
    np.testing.assert_allclose(state.params["Dense_0"]["kernel"][:, 0], [1, -2, 0.5], atol=1e-2)


class Normed(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(4)(x)
        return nn.Dense(2)((x - x.mean(0, keepdims=True)) / (1e-3 + x.std(0, keepdims=True)))


class Convolved(nn.Module):
    """Takes [B, H, W] for one image of B rows."""

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(4, (3, 3))(x))
        return nn.Dense(2)(x.reshape(x.shape[0], -1))


IMAGES = np.random.default_rng(1).normal(size=(60, 8, 8)).astype(np.float32)


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (Normed(), lambda: fed()),
        (Convolved(), lambda: fed(x=IMAGES)),
        ((linear[0], lambda p, x: (x @ p["w"] + p["b"][None]) / len(x)), lambda: fed()),
    ],
    ids=["batch statistics", "no channel axis", "divided by B"],
)
def test_row_4_a_model_that_mixes_its_batch_is_refused(model, data):
    with refused("model must treat every example by itself"):
        sim(model, data())


def test_row_4_a_model_of_images_with_channels_is_taken():
    sim(Convolved(), fed(x=IMAGES[..., None]))


@pytest.mark.parametrize(
    "loss", [lambda o, y: OPTAX(o, y) / len(y), lambda o, y: 0 * OPTAX(o, y) + OPTAX(o, y).mean()]
)
def test_row_4_a_loss_that_looks_at_the_batch_is_refused(loss):
    with refused("loss must judge every example by its own outputs and label"):
        sim(regression(2), loss=loss)


OBJECTIVES = {
    "plain mean": lambda losses, mask, params, anchor: losses.mean(),
    "mean of masked": lambda losses, mask, params, anchor: (losses * mask).mean(),
    "largest": lambda losses, mask, params, anchor: losses.max(),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_row_4_an_objective_that_sees_padding_is_refused_where_there_is_some(name):
    objective = OBJECTIVES[name]
    for aggregator in (ff.fedavg(), ff.fedprox()):
        with refused("objective must leave out losses whose mask is False, such as the padding of a last batch"):
            sim(regression(2), trainer=PASS._replace(objective=objective), aggregator=aggregator)
    sim(regression(2), trainer=STEPS._replace(objective=objective))  # batches of exactly 5


@pytest.mark.parametrize(
    "objective", [lambda f, m, p, a: (f * m).sum() / m.sum(), lambda f, m, p, a: (f * m).sum()]
)
def test_row_4_a_masked_mean_or_sum_is_taken(objective):
    sim(regression(2), trainer=PASS._replace(objective=objective))


def test_row_4_squared_error_takes_no_other_shape_for_its_own():
    outputs = jnp.ones((4, 2, 3))
    with refused("squared_error needs one output for every label"):
        ff.losses.squared_error(outputs, jnp.ones((4, 3, 2)))
    for y in (jnp.ones((4, 2, 3)), jnp.ones((4, 6)), jnp.ones((4, 2, 1, 3))):
        assert ff.losses.squared_error(outputs, y).tolist() == [0] * 4


# Row 6, and other parameters that cannot be averaged


def with_leaf(leaf):
    return lambda key, x: {"w": jnp.ones((3, 2)), "c": leaf(key)}, lambda params, x: x @ params["w"]


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (
            with_leaf(lambda key: jnp.zeros((), int)),
            "model's parameters must be floats, which can be averaged, got int",
        ),
        (with_leaf(lambda key: 1), "model's parameters must be floats, which can be averaged, got int"),
        (with_leaf(lambda key: jnp.zeros(2, bool)), "got bool in params['c']: keep what is not trained outside"),
        (with_leaf(lambda key: key), "got keys of random numbers in params['c']"),
        (with_leaf(lambda key: jnp.zeros((), complex)), "got complex"),
        (with_leaf(lambda key: "relu"), "model's init must return a pytree of arrays, got a str among them"),
        ((lambda key, x: {}, lambda params, x: x[:, :2]), "model must have parameters to train, got none"),
        ((lambda key, x: None, lambda params, x: x[:, :2]), "model must have parameters to train, got none"),
        ((linear[0], lambda params, x: {"logits": x}), "model must return one array of outputs [B, ...]"),
    ],
)
def test_row_6_parameters_that_are_no_floats_are_refused(model, sentence):
    with refused(sentence):
        sim(model)


@pytest.mark.parametrize("rule", [ff.fedavg(), ff.fedfv(tau=2)])
@pytest.mark.parametrize("leaf", [1.5, np.float64(1.5), np.full(2, 1.5)])
def test_row_6_pythons_floats_and_numpys_are_parameters(rule, leaf):
    init = lambda key, x: {"w": jnp.zeros((3, 2)), "c": leaf}  # noqa: E731
    apply = lambda params, x: x @ params["w"] * params["c"].mean()  # noqa: E731
    state, _ = ff.run(sim((init, apply), aggregator=rule), 0, 2)
    assert state.params["c"].dtype == jnp.float32
    assert not np.allclose(state.params["c"], 1.5)


# What the checks are made of


def tried(loss, shape, y=np.int32, highest=2):
    return Tried(loss, jax.ShapeDtypeStruct(shape, np.float32), jax.ShapeDtypeStruct((2,), y), None, 0, highest)


@pytest.mark.parametrize(
    ("loss", "classes"),
    [
        (lambda o, y: jnp.square(o[:, 0] - y), False),
        (lambda o, y: jnp.square(o[:, 0] - y) / jnp.exp(o[:, 1]) + o[:, 1], False),
        (
            lambda o, y: jnp.logaddexp(0, jnp.where(jnp.arange(3)[None] < y[:, None], -o, o)).sum(1),
            False,
        ),  # ordinal
        (lambda o, y: jnp.array([0.0, 5.0, 1.0])[y] * CE(o, y), True),
        (lambda o, y: jnp.maximum(0, 1 + o - jnp.take_along_axis(o, y[:, None], 1)).sum(1), True),
    ],
)
def test_a_loss_of_classes_is_told_from_others(loss, classes):
    assert tells_classes(loss, tried(loss, (2, 3))) is classes


def test_a_binary_cross_entropy_is_told_from_others():
    logistic = lambda o, y: jnp.logaddexp(0, -o[:, 0] * y)  # noqa: E731
    assert not tells_two(logistic, tried(logistic, (2, 1), np.float32))
    assert not knows_label(CE, tried(CE, (2, 2)))

"""The losses by the book: values, derivatives, and what happens at the edges."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

import fedjax_fair as ff
from fedjax_fair.models.losses import (
    absolute_error,
    accuracy,
    binary_accuracy,
    masked,
    sigmoid_cross_entropy,
    softmax_cross_entropy,
    weighted,
)

LOGITS = arrays(np.float32, (4, 3), elements=st.floats(-50, 50, width=32))
LABELS = arrays(np.int32, 4, elements=st.integers(0, 2))


@settings(max_examples=60, deadline=None)
@given(LOGITS, LABELS)
def test_cross_entropy_is_optaxs_with_its_gradient(logits, y):
    theirs = optax.softmax_cross_entropy_with_integer_labels
    assert_allclose(softmax_cross_entropy(logits, y), theirs(jnp.asarray(logits), y), rtol=1e-5, atol=1e-5)
    scale = jnp.arange(1.0, 5.0)  # each example's own cotangent
    ours, wanted = (
        jax.grad(lambda z, f=f: (scale * f(z, y)).sum())(jnp.asarray(logits))
        for f in (softmax_cross_entropy, theirs)
    )
    assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)


def test_its_second_derivative_is_the_covariance_of_the_labels():
    logits, y = jnp.array([[0.5, -1.0, 2.0]]), jnp.array([1])
    p = np.asarray(jax.nn.softmax(logits[0]))
    hessian = jax.hessian(lambda z: softmax_cross_entropy(z[None], y)[0])(logits[0])
    assert_allclose(hessian, np.diag(p) - np.outer(p, p), atol=1e-6)


@pytest.mark.parametrize("y", [[0, 3], [-1, 2], [4, 1]], ids=["classes", "padding", "beyond"])
def test_the_loss_beside_its_derivative_is_the_loss(y):
    """Traced, a label for which there is no output makes NaN on both ways."""
    logits = jnp.array([[1.0, -2.0, 0.5, 3.0], [0.0, 2.0, -1.0, 1.5]])
    alone = jax.jit(softmax_cross_entropy)(logits, jnp.array(y))
    beside, _ = jax.jit(lambda z, y: jax.jvp(lambda z: softmax_cross_entropy(z, y), (z,), (z,)))(
        logits, jnp.array(y)
    )
    assert_allclose(beside, alone, rtol=1e-6)
    assert np.isnan(alone).tolist() == [not 0 <= label < 4 for label in y]


def test_what_is_made_of_the_loss_has_a_second_derivative_too():
    """The square's holds the loss itself."""
    logits, y = jnp.array([[1.0, -2.0, 0.5], [0.0, 2.0, -1.0]]), jnp.array([0, 2])
    ours, theirs = (
        jax.hessian(lambda z, loss=loss: (loss(z, y) ** 2).sum())(logits)
        for loss in (softmax_cross_entropy, optax.softmax_cross_entropy_with_integer_labels)
    )
    assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_huge_logits_do_not_overflow(scale):
    logits, y = scale * jnp.array([[1.0, 0.0], [0.0, 1.0]]), jnp.array([0, 0])
    assert_allclose(softmax_cross_entropy(logits, y), [0, scale], rtol=1e-6)
    assert_allclose(jax.grad(lambda z: softmax_cross_entropy(z, y).sum())(logits), [[0, 0], [-1, 1]], atol=1e-6)


def test_a_logit_that_is_not_finite_is_not_hidden():
    logits = jnp.array([[jnp.inf, 0.0], [jnp.nan, 0.0], [1.0, 0.0]])
    assert np.isfinite(softmax_cross_entropy(logits, jnp.array([1, 1, 1]))).tolist() == [False, False, True]


def test_its_derivative_gathers_and_scatters_nothing():
    """What made the inner loop of a logistic regression slow."""
    y = jnp.array([0, 2])
    program = str(jax.make_jaxpr(jax.grad(lambda z: softmax_cross_entropy(z, y).sum()))(jnp.ones((2, 3))))
    assert "scatter" not in program
    assert "gather" not in program


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="a CPU's order of operations")
def test_logits_and_their_gradient_stay_laid_by_classes():
    """Without either barrier XLA turns them around, to the same numbers in up to 1.15 of a round's time."""
    y = jnp.array([0, 2])
    program = str(jax.make_jaxpr(jax.grad(lambda z: softmax_cross_entropy(z, y).sum()))(jnp.ones((2, 3))))
    assert program.count("optimization_barrier") == 2


def test_an_output_that_is_nan_is_wrong_whatever_the_label():
    """Not class 0, which argmax makes of it, nor NaN, which a metric reads as a client without test examples."""
    nan = np.float32("nan")
    logits = jnp.array([[nan, nan], [nan, nan], [1, nan], [1, 0], [np.inf, 0]])
    got = accuracy(logits, jnp.array([0, 1, 0, 0, 0]))
    assert got.tolist() == [0, 0, 0, 1, 1]
    y = jnp.array([0, 1, 0, 1])
    for outputs in (jnp.array([nan, nan, -1, 1]), jnp.array([[nan], [nan], [-1], [1]])):
        assert binary_accuracy(outputs, y).tolist() == [0, 0, 1, 1]
    for dtype in (jnp.float16, jnp.float32):
        assert accuracy(logits.astype(dtype), jnp.zeros(5, int)).dtype == dtype
        assert binary_accuracy(y.astype(dtype), y).dtype == dtype


TOKENS = np.array([[2, 0, -1, -1], [1, -1, -1, -1], [-1, -1, -1, -1]])


def test_of_tokens_an_example_is_the_mean_over_those_that_are_no_padding():
    logits = np.random.default_rng(0).normal(size=(3, 4, 3)).astype(np.float32)
    each = optax.softmax_cross_entropy_with_integer_labels(jnp.asarray(logits), jnp.maximum(TOKENS, 0))
    wanted = [each[0, :2].mean(), each[1, 0], 0]
    assert_allclose(softmax_cross_entropy(logits, TOKENS), wanted, rtol=1e-6)
    per_token = masked(lambda o, y: optax.softmax_cross_entropy_with_integer_labels(o, jnp.maximum(y, 0)))
    assert_allclose(per_token(jnp.asarray(logits), jnp.asarray(TOKENS)), wanted, rtol=1e-6)
    right = logits.argmax(-1) == TOKENS
    assert_allclose(accuracy(jnp.asarray(logits), TOKENS), [right[0, :2].mean(), right[1, 0], 0])


def test_padding_has_no_gradient():
    gradient = jax.grad(lambda z: softmax_cross_entropy(z, jnp.asarray(TOKENS)).sum())(jnp.ones((3, 4, 3)))
    assert_allclose(np.abs(gradient).sum(-1) > 0, TOKENS >= 0)


def test_several_labels_are_averaged():
    logits, y = jnp.array([[3.0, -1, 0], [-2, 1, 5]]), jnp.array([[1, 1, 0], [0, 0, 1]])
    each = optax.sigmoid_binary_cross_entropy(logits, y)
    assert_allclose(sigmoid_cross_entropy(logits, y), each.mean(1), rtol=1e-6)
    assert_allclose(binary_accuracy(logits, y), [2 / 3, 2 / 3])


def test_a_class_counts_as_it_weighs():
    logits, y = jnp.array([[1.0, 0], [1, 0], [0, 2]]), jnp.array([0, 1, 1])
    wanted = np.array([1, 5, 5]) * softmax_cross_entropy(logits, y)
    assert_allclose(weighted(softmax_cross_entropy, [1, 5])(logits, y), wanted, rtol=1e-6)
    assert np.isnan(weighted(softmax_cross_entropy, [1])(logits, y)).tolist() == [False, True, True]


def test_the_absolute_error_is_summed_over_the_targets():
    assert absolute_error(jnp.array([[1.0, -2], [0, 3]]), jnp.zeros((2, 2))).tolist() == [3, 3]


X = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)


def test_half_precision_rounds_no_target_and_no_count():
    """In bfloat16 257 is 256."""
    outputs, y = jnp.array([256.0], jnp.bfloat16), jnp.array([257.0])
    for loss in (ff.losses.squared_error, absolute_error):
        assert loss(outputs, y).tolist() == [1]
    assert ff.losses.rmse(outputs, y, jnp.ones(1, bool)) == 1
    tokens = jnp.zeros((1, 771), int)
    equal = jnp.zeros((*tokens.shape, 4), jnp.bfloat16)
    np.testing.assert_allclose(softmax_cross_entropy(equal, tokens), np.log(4), rtol=1e-6)
    np.testing.assert_allclose(ff.losses.perplexity(equal, tokens, jnp.ones(1, bool)), 4, rtol=1e-6)
    right = accuracy(equal, tokens.at[:, :257].set(1))
    np.testing.assert_allclose(right, 514 / 771, rtol=1e-6)


@pytest.mark.parametrize("metric", ["auroc", "calibration_error"])
def test_metrics_of_half_precision_are_those_of_the_same_numbers(metric):
    rng = np.random.default_rng(0)
    logits, y = jnp.asarray(rng.normal(size=(70_001, 2)), jnp.float16), jnp.asarray(rng.integers(0, 2, 70_001))
    found = [
        getattr(ff.losses, metric)(jnp.asarray(logits, kind), y, y >= 0) for kind in (jnp.float16, jnp.float32)
    ]
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_a_label_below_zero_has_no_weight():
    values = weighted(lambda outputs, y: outputs, [1, 5])(jnp.ones(2), jnp.array([1, -1]))
    np.testing.assert_array_equal(values, [5, np.nan])


def simulated(y, outputs, **settings):
    data = ff.FederatedData.from_arrays(X, y, client_id=np.arange(24) % 2)
    model = ff.models.logistic_regression(classes=outputs)
    local = ff.local_sgd(optax.sgd(0.1), batch_size=4)
    return ff.simulation(model, data, aggregator=ff.fedavg(), trainer=local, **settings)


@pytest.mark.parametrize(
    ("y", "outputs", "loss", "name"),
    [
        (X[:, 0] > 0, 1, sigmoid_cross_entropy, "accuracy"),
        (X[:, 0] > 0, 1, weighted(sigmoid_cross_entropy, [1, 5]), "accuracy"),
        (X[:, 0] > 0, 2, weighted(softmax_cross_entropy, [1, 5]), "accuracy"),
        (X > 0, 3, sigmoid_cross_entropy, "accuracy"),
        (X[:, 0], 1, ff.losses.squared_error, "RMSE"),
        (X[:, 0], 1, absolute_error, "absolute error"),
    ],
)
def test_the_metric_is_by_default_the_losses(y, outputs, loss, name):
    assert simulated(y, outputs, loss=loss).metric.name == name


REFUSED = {
    "masked takes a function (outputs, y) with a value per label, got 3": lambda: masked(3),
    "loss must take two examples' outputs float32[2, 3] and labels int32[2, 3], got ValueError: masked takes": (
        lambda: simulated((X > 0).astype(int), 3, loss=masked(lambda o, y: o[:, 0]))
    ),
    "weighted takes a loss, a function of outputs and labels, got [1, 2]": (
        lambda: weighted([1, 2], softmax_cross_entropy)
    ),
    "weights must be a number from 0 for every class, not all of them 0, got [1, -1]": (
        lambda: weighted(softmax_cross_entropy, [1, -1])
    ),
    "weights must be a number from 0 for every class, not all of them 0, got [0, 0]": (
        lambda: weighted(softmax_cross_entropy, [0, 0])
    ),
    "weights must be a number from 0 for every class, not all of them 0, got 'balanced'": (
        lambda: weighted(softmax_cross_entropy, "balanced")
    ),
    "labels must be below the 2 weights of ff.losses.weighted, got label 2": (
        lambda: simulated(np.arange(len(X)) % 3, 3, loss=weighted(softmax_cross_entropy, [1, 2]))
    ),
    "weighted needs a class per example, integers [B], got float32[2]": (
        lambda: simulated(X[:, 0], 1, loss=weighted(ff.losses.squared_error, [1, 2]))
    ),
    "softmax_cross_entropy needs logits [B, C] and labels [B], or [B, T, C] and [B, T], got outputs [3, 3] and": (
        lambda: softmax_cross_entropy(jnp.zeros((3, 3)), jnp.zeros((3, 1), int))
    ),
    "accuracy needs logits [B, C] and labels [B], or [B, T, C] and [B, T], got outputs [2, 5, 3] and labels [2]": (
        lambda: accuracy(jnp.zeros((2, 5, 3)), jnp.zeros(2, int))
    ),
    "whole's each must be a function (outputs, y) of a batch, got 3": lambda: ff.losses.whole(len, 3),
    "token_accuracy needs logits [M, T, V] and tokens [M, T], got outputs [2, 2] and labels [2]": (
        lambda: simulated(X[:, 0] > 0, 2, metric=ff.losses.token_accuracy)
    ),
    "softmax_cross_entropy needs logits [B, C] and integer labels [B], or [B, T, C] and [B, T], got outputs": (
        lambda: simulated(X > 0, 3)
    ),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_wrong_loss_is_one_sentence(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        REFUSED[sentence]()
    assert sentence in str(error.value)

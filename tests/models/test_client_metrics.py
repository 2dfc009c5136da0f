"""Metrics of whole clients against scikit-learn's, with padding, under jit and vmap."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import softmax
from sklearn import metrics as sk

import fedjax_fair as ff
from fedjax_fair.models.client_metrics import Whole

M = 60
CLOSE = {"rtol": 1e-6, "atol": 1e-6}


@functools.cache
def jitted(metric):
    """One function for each metric, so that calls of one shape share a program."""
    return jax.jit(lambda *of: metric(*of))


def padded(metric, outputs, y):
    """The client's number, jitted, with rubbish behind its examples."""
    rows = 17
    rubbish = np.random.default_rng(9).normal(size=(rows, *outputs.shape[1:])) * 100
    more = np.concatenate([outputs, rubbish]).astype(np.float32)
    labels = np.concatenate([y, y[:1].repeat(rows, 0)])
    mask = np.arange(len(more)) < len(y)
    return np.asarray(jitted(metric)(jnp.asarray(more), jnp.asarray(labels), jnp.asarray(mask)))


@pytest.fixture(params=range(4))
def rng(request):
    return np.random.default_rng(request.param)


def test_auroc(rng):
    """Of one logit and of two, with ties."""
    y = rng.integers(0, 2, M)
    score = np.round(rng.normal(size=M) + y, 1).astype(np.float32)
    wanted = sk.roc_auc_score(y, score)
    assert_allclose(padded(ff.losses.auroc, score, y), wanted, **CLOSE)
    assert_allclose(padded(ff.losses.auroc, score[:, None], y), wanted, **CLOSE)
    assert_allclose(padded(ff.losses.auroc, np.stack([0 * score, score], 1), y), wanted, **CLOSE)


@pytest.mark.parametrize("label", [0, 1])
def test_auroc_of_one_class_is_not_a_number(label):
    assert np.isnan(padded(ff.losses.auroc, np.arange(5.0), np.full(5, label)))


def test_auroc_of_a_model_that_is_not_finite_is_not_a_number():
    assert np.isnan(padded(ff.losses.auroc, np.array([0.0, np.nan, 1.0]), np.array([0, 1, 1])))


DEAD = np.full(4, np.nan, np.float32)


@pytest.mark.parametrize("name", ["balanced_accuracy", "f1_macro", "f1_micro", "f1"])
@pytest.mark.parametrize("outputs", [DEAD, DEAD[:, None], np.stack([DEAD, DEAD], 1)], ids=lambda v: str(v.shape))
def test_a_prediction_that_is_not_a_number_is_an_error_whatever_the_label(name, outputs):
    for y in (np.array([0, 0, 0, 1]), np.array([0, 1, 1, 1])):
        assert padded(getattr(ff.losses, name), outputs, y) == 0
        half = np.where((np.arange(4) % 2 == 0).reshape(-1, *[1] * (outputs.ndim - 1)), 0 * outputs, 1.0)
        assert padded(getattr(ff.losses, name), half.astype(np.float32), y) < 1


def test_several_labels_that_are_not_numbers_are_told_wrong():
    y, outputs = np.array([[0, 1], [1, 0], [0, 0], [1, 1]]), np.full((4, 2), np.nan, np.float32)
    for metric in (ff.losses.f1_macro, ff.losses.f1_micro):
        assert padded(metric, outputs, y) == 0


def test_f1_of_two_classes(rng):
    y, score = rng.integers(0, 2, M), rng.normal(size=M).astype(np.float32)
    assert_allclose(padded(ff.losses.f1, score, y), sk.f1_score(y, score > 0), **CLOSE)
    for average, metric in (("macro", ff.losses.f1_macro), ("micro", ff.losses.f1_micro)):
        assert_allclose(padded(metric, score, y), sk.f1_score(y, score > 0, average=average), **CLOSE)


def test_f1_of_many_classes_of_which_a_client_lacks_some(rng):
    y, logits = rng.choice([0, 2, 3], M), rng.normal(size=(M, 6)).astype(np.float32)
    logits[:, 5] -= 100  # never said, never true
    for average, metric in (("macro", ff.losses.f1_macro), ("micro", ff.losses.f1_micro)):
        assert_allclose(padded(metric, logits, y), sk.f1_score(y, logits.argmax(1), average=average), **CLOSE)


def test_f1_of_several_labels(rng):
    y, logits = rng.integers(0, 2, (M, 4)), rng.normal(size=(M, 4)).astype(np.float32)
    for average, metric in (("macro", ff.losses.f1_macro), ("micro", ff.losses.f1_micro)):
        assert_allclose(padded(metric, logits, y), sk.f1_score(y, logits > 0, average=average), **CLOSE)


def test_balanced_accuracy(rng):
    y, logits = rng.choice([0, 2, 3], M), rng.normal(size=(M, 4)).astype(np.float32)
    with pytest.warns(UserWarning, match="y_pred contains classes not in y_true"):
        wanted = sk.balanced_accuracy_score(y, logits.argmax(1))
    assert_allclose(padded(ff.losses.balanced_accuracy, logits, y), wanted, **CLOSE)


def test_r2_and_rmse(rng):
    """Far from 0, where a difference of means of squares would round."""
    y = rng.normal(1000, 1, M).astype(np.float32)
    told = (y + rng.normal(0, 0.5, M)).astype(np.float32)
    assert_allclose(padded(ff.losses.r2, told[:, None], y), sk.r2_score(y, told), **CLOSE)
    assert_allclose(padded(ff.losses.rmse, told, y), sk.root_mean_squared_error(y, told), **CLOSE)
    two, both = np.stack([told, 2 * told], 1), np.stack([y, y], 1)
    assert_allclose(padded(ff.losses.r2, two, both), sk.r2_score(both, two), rtol=1e-5)


def test_r2_of_what_does_not_vary_is_not_a_number():
    assert np.isnan(padded(ff.losses.r2, np.arange(4.0), np.ones(4, np.float32)))


@pytest.mark.parametrize("count", [3, 7, 10])
@pytest.mark.parametrize("target", [0.1, 1 / 3, 1.1, -0.7, 1e6 / 3])
def test_r2_knows_equal_targets_though_their_mean_is_rounded(target, count):
    y = np.full(count, target, np.float32)
    told = y + np.linspace(-0.1, 0.1, count, dtype=np.float32)
    assert np.isnan(padded(ff.losses.r2, told, y))
    assert np.isnan(padded(ff.losses.r2, np.stack([told, told], 1), np.stack([y, np.arange(count)], 1)))


def test_perplexity_counts_tokens_and_not_padding(rng):
    logits = rng.normal(size=(M, 5, 7)).astype(np.float32)
    y = rng.integers(0, 7, (M, 5))
    y[:, 3:] = np.where(rng.random((M, 2)) < 0.5, -1, y[:, 3:])
    picked = np.log(softmax(logits, -1))[np.arange(M)[:, None], np.arange(5)[None], np.maximum(y, 0)]
    assert_allclose(padded(ff.losses.perplexity, logits, y), np.exp(-picked[y >= 0].mean()), rtol=1e-5)
    right = (logits.argmax(-1) == y)[y >= 0]
    assert_allclose(padded(ff.losses.token_accuracy, logits, y), right.mean(), rtol=1e-6)


def test_calibration_error(rng):
    y, logits = rng.integers(0, 3, M), rng.normal(0, 2, (M, 3)).astype(np.float32)
    confidence, right = softmax(logits, 1).max(1), logits.argmax(1) == y
    wanted = 0.0
    for low in range(15):
        inside = (confidence > low / 15) & (confidence <= (low + 1) / 15)
        if inside.any():
            wanted += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    assert_allclose(padded(ff.losses.calibration_error, logits, y), wanted, rtol=1e-5, atol=1e-6)


STOCK = (
    "auroc",
    "f1",
    "f1_macro",
    "f1_micro",
    "balanced_accuracy",
    "r2",
    "rmse",
    "perplexity",
    "token_accuracy",
    "calibration_error",
)


@pytest.mark.parametrize("name", STOCK)
def test_nobodys_examples_are_not_a_number(name):
    tokens = name in ("perplexity", "token_accuracy")
    shape = (3, 2, 4) if tokens else (3, 4) if name == "calibration_error" else (3,)
    y = np.zeros((3, 2) if tokens else 3, int)
    value = getattr(ff.losses, name)(jnp.ones(shape), jnp.asarray(y), jnp.zeros(3, bool))
    assert np.isnan(value)


def test_whole_takes_a_function():
    assert isinstance(ff.losses.whole(lambda outputs, y, mask: outputs.sum()), Whole)
    with pytest.raises(ValueError, match="whole takes a function"):
        ff.losses.whole(3)

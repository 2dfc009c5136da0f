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

from fedjax_fair.models.losses import accuracy, binary_accuracy, softmax_cross_entropy

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

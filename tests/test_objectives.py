"""Local objectives: the scalar a client differentiates, and its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_fair as ff

LOSSES, MASK = jnp.array([1.0, 5.0, 100.0, 3.0]), jnp.array([True, True, False, True])
PARAMS = {"w": jnp.array([[1.0, -2.0], [0.5, 4.0]]), "b": jnp.array([3.0])}
ANCHOR = {"w": jnp.array([[0.0, -2.0], [1.5, 1.0]]), "b": jnp.array([-1.0])}
SQUARES = 1 + 0 + 1 + 9 + 16


def twice(losses, mask, params, anchor):
    """A user's own objective."""
    return 2 * ff.erm(losses, mask, params, anchor)


def test_erm_is_the_mean_over_the_examples_that_are_there():
    assert float(ff.erm(LOSSES, MASK, PARAMS, ANCHOR)) == 3.0
    assert float(ff.erm(LOSSES, jnp.ones(4, bool), PARAMS, ANCHOR)) == 27.25


def test_erm_of_padding_alone_is_zero():
    assert float(ff.erm(LOSSES, jnp.zeros(4, bool), PARAMS, ANCHOR)) == 0.0


def test_erm_takes_nothing_from_padding_not_even_a_nan():
    """Value and gradient alike; padding that overflows is common, since it is somebody's example."""
    value, gradient = jax.value_and_grad(ff.erm)(LOSSES.at[2].set(jnp.nan), MASK, PARAMS, ANCHOR)
    assert float(value) == 3.0
    np.testing.assert_allclose(gradient, [1 / 3, 1 / 3, 0, 1 / 3], rtol=1e-6)


@pytest.mark.parametrize("mu", [0.0, 0.1, 2.0])
def test_proximal_adds_half_mu_times_the_squared_distance(mu):
    value = ff.proximal(mu)(LOSSES, MASK, PARAMS, ANCHOR)
    assert float(value) == pytest.approx(3 + mu / 2 * SQUARES)


@pytest.mark.parametrize("mu", [0.0, 0.1, 2.0])
def test_proximal_pulls_every_parameter_towards_the_received_model(mu):
    gradient = jax.grad(ff.proximal(mu), 2)(LOSSES, MASK, PARAMS, ANCHOR)
    for name in PARAMS:
        np.testing.assert_allclose(gradient[name], mu * (PARAMS[name] - ANCHOR[name]), rtol=1e-6)


def test_proximal_adds_to_any_base_another_proximal_term_included():
    value = ff.proximal(0.5, base=ff.proximal(1.0, base=twice))(LOSSES, MASK, PARAMS, ANCHOR)
    assert float(value) == pytest.approx(2 * 3 + 1.5 / 2 * SQUARES)


def test_mu_may_be_swept():
    values = jax.jit(jax.vmap(lambda mu: ff.proximal(mu)(LOSSES, MASK, PARAMS, ANCHOR)))(jnp.array([0.0, 1.0]))
    np.testing.assert_allclose(values, [3, 3 + SQUARES / 2])


@pytest.mark.parametrize(("mu", "got"), [(-0.1, "-0.1"), (float("nan"), "nan"), (None, "None"), ("1", "'1'")])
def test_a_mu_that_is_not_a_nonnegative_number_is_one_sentence(mu, got):
    with pytest.raises(ValueError, match=f"^mu must be [^\n]+, got {got}$"):
        ff.proximal(mu)

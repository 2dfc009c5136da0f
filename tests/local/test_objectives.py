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


# TERM on examples


def value_and_slope(objective, losses, mask=MASK):
    return jax.value_and_grad(objective)(jnp.asarray(losses, jnp.float32), mask, PARAMS, ANCHOR)


@pytest.mark.parametrize("t", [-2.0, -0.3, 0.5, 3.0])
def test_tilted_is_the_log_mean_exp_and_its_gradient_the_softmax(t):
    value, slope = value_and_slope(ff.tilted(t), LOSSES)
    kept = np.array([1.0, 5.0, 3.0])
    powers = np.exp(t * kept)
    assert float(value) == pytest.approx(np.log(powers.mean()) / t, rel=1e-5)
    np.testing.assert_allclose(np.asarray(slope)[[0, 1, 3]], powers / powers.sum(), rtol=1e-4, atol=1e-7)
    assert slope[2] == 0


@pytest.mark.parametrize("t", [0.0, 1e-9])
def test_tilted_without_tilt_is_erm(t):
    for ours, wanted in zip(value_and_slope(ff.tilted(t), LOSSES), value_and_slope(ff.erm, LOSSES)):
        np.testing.assert_allclose(ours, wanted, rtol=1e-6)


@pytest.mark.parametrize("t", [1e-5, 1e-2, -1e-2])
def test_a_small_tilt_adds_half_the_variance(t):
    """mean + t Var / 2 + O(t^2), no 0 / 0 on the way to t = 0; the value is as good as float32's eps / t."""
    value, slope = value_and_slope(ff.tilted(t), LOSSES)
    kept = np.array([1.0, 5.0, 3.0])
    assert float(value) == pytest.approx(3 + t * kept.var() / 2, abs=2.5e-7 / abs(t))
    np.testing.assert_allclose(np.asarray(slope)[[0, 1, 3]], (1 + t * (kept - 3)) / 3, atol=1e-4)


@pytest.mark.parametrize(("t", "extreme"), [(100.0, 1200.0), (-100.0, 0.0)])
def test_tilted_does_not_overflow(t, extreme):
    """Losses of 1e3 in float32; equal losses are returned as they are."""
    value, slope = value_and_slope(ff.tilted(t), [1000.0, 0, 5, 1200], jnp.array([True, True, False, True]))
    assert float(value) == pytest.approx(extreme, abs=0.02)  # log(3) / t
    np.testing.assert_allclose(slope, np.array([1000.0, 0, 5, 1200]) == extreme, atol=1e-6)
    value, slope = value_and_slope(ff.tilted(t), np.full(4, 1234.5))
    assert float(value) == 1234.5
    np.testing.assert_allclose(slope, MASK / 3, rtol=1e-6)


@pytest.mark.parametrize("outlier", [1e7, 1e8, np.inf])
def test_a_tilt_to_the_smallest_is_not_rounded_by_an_outlier(outlier):
    value, slope = value_and_slope(ff.tilted(-1.0), [1.0, 2.0, 0, outlier])
    assert float(value) == pytest.approx(1 - np.log((1 + np.exp(-1)) / 3), rel=1e-6)
    np.testing.assert_allclose(slope, np.array([np.e, 1, 0, 0]) / (np.e + 1), rtol=1e-5)


@pytest.mark.parametrize("objective", [ff.tilted(0.7), ff.tilted(0.0), ff.propfair_objective()])
def test_padding_changes_neither_value_nor_gradient(objective):
    for padding in (jnp.nan, jnp.inf, 1e30):
        value, slope = value_and_slope(objective, LOSSES.at[2].set(padding))
        wanted, wanted_slope = value_and_slope(objective, LOSSES)
        assert float(value) == float(wanted)
        np.testing.assert_array_equal(slope, wanted_slope)
        assert slope[2] == 0
    value, slope = value_and_slope(objective, LOSSES, jnp.zeros(4, bool))
    assert float(value) == 0
    np.testing.assert_array_equal(slope, 0)


def test_the_tilt_may_be_swept():
    values = jax.jit(jax.vmap(lambda t: ff.tilted(t)(LOSSES, MASK, PARAMS, ANCHOR)))(jnp.array([0.0, 1.0, -1.0]))
    alone = [float(ff.tilted(t)(LOSSES, MASK, PARAMS, ANCHOR)) for t in (0.0, 1.0, -1.0)]
    np.testing.assert_allclose(values, alone, rtol=1e-6)
    assert values[2] < values[0] < values[1]


@pytest.mark.parametrize(("t", "got"), [(float("nan"), "nan"), (None, "None"), ("1", "'1'")])
def test_a_tilt_that_is_not_a_number_is_one_sentence(t, got):
    with pytest.raises(ValueError, match=f"^t must be a number, got {got}$"):
        ff.tilted(t)


# PropFair


def propfair_at(loss, **settings):
    return value_and_slope(ff.propfair_objective(**settings), np.full(4, loss), jnp.ones(4, bool))


@pytest.mark.parametrize("huber", [False, True])
def test_propfair_is_a_logarithm_up_to_the_switch(huber):
    for loss in (0.0, 1.0, 4.7):
        value, slope = propfair_at(loss, huber=huber)
        assert float(value) == pytest.approx(-np.log(1 - loss / 5), rel=1e-5)
        assert float(slope.sum()) == pytest.approx(1 / (5 - loss), rel=1e-5)


@pytest.mark.parametrize("loss", [4.81, 5.0, 5.2, 100.0])
def test_propfair_is_a_line_beyond_the_switch(loss):
    """No NaN where the logarithm has none to give: at M itself and above."""
    value, slope = propfair_at(loss)
    assert float(value) == pytest.approx(loss / 5, rel=1e-5)
    assert float(slope.sum()) == pytest.approx(1 / 5, rel=1e-5)
    value, slope = propfair_at(loss, huber=True)
    assert float(value) == pytest.approx(-np.log(0.2 / 5) + (loss - 4.8) / 0.2, rel=1e-4)
    assert float(slope.sum()) == pytest.approx(1 / 0.2, rel=1e-5)


def test_only_the_huber_form_is_smooth_at_the_switch():
    gaps = {}
    for huber in (False, True):
        (low, low_slope), (high, high_slope) = (propfair_at(loss, huber=huber) for loss in (4.7999, 4.8001))
        gaps[huber] = float(high - low), float(high_slope.sum() - low_slope.sum())
    np.testing.assert_allclose(gaps[True], [0.0002 / 0.2, 0], atol=5e-3)
    np.testing.assert_allclose(gaps[False], [4.8 / 5 + np.log(0.2 / 5), 1 / 5 - 1 / 0.2], atol=5e-3)


@pytest.mark.parametrize("huber", [False, True])
@pytest.mark.parametrize("loss", [0.5, 4.7, 4.9, 6.0])
def test_propfairs_derivatives_in_all_its_arguments_are_those_of_its_formula(loss, huber):
    """The slope in the loss is written down; in M and epsilon, and once more in the loss, JAX derives it."""

    def formula(loss, M, epsilon):
        line = -jnp.log(epsilon / M) + (loss - M + epsilon) / epsilon if huber else loss / M
        return -jnp.log(1 - loss / M) if M - loss >= epsilon else line

    with jax.enable_x64(True):

        def ours(loss, M, epsilon):
            return ff.propfair_objective(M, epsilon, huber)(loss[None], jnp.ones(1, bool), None, None)

        at = jnp.float64(loss), jnp.float64(5.0), jnp.float64(0.2)
        for derive in (jax.grad, lambda f, **named: jax.grad(jax.grad(f), **named)):
            made, expected = (derive(f, argnums=(0, 1, 2))(*at) for f in (ours, formula))
            np.testing.assert_allclose(made, expected, rtol=1e-12, atol=1e-12)


def test_propfairs_settings_may_be_swept():
    def at(M, epsilon):
        return jax.value_and_grad(ff.propfair_objective(M, epsilon))(LOSSES, MASK, PARAMS, ANCHOR)

    swept = jnp.array([2.0, 5.0, 3.2]), jnp.array([0.2, 0.1, 0.2])  # the mean is 3: beyond, before, at the switch
    values, slopes = jax.jit(jax.vmap(at))(*swept)
    for M, epsilon, value, slope in zip(*swept, values, slopes):
        np.testing.assert_allclose(value, at(float(M), float(epsilon))[0], rtol=1e-6)
        np.testing.assert_allclose(slope, at(float(M), float(epsilon))[1], rtol=1e-6)
    np.testing.assert_allclose(slopes.sum(1), [1 / 2, 1 / 2, 1 / 0.2], rtol=1e-5)


def test_propfair_keeps_the_losses_precision():
    value, slope = jax.value_and_grad(ff.propfair_objective())(LOSSES.astype(jnp.bfloat16), MASK, PARAMS, ANCHOR)
    assert value.dtype == slope.dtype == jnp.bfloat16


@pytest.mark.parametrize("settings", [{"M": 0}, {"M": -1.0}, {"epsilon": 0.0}, {"M": "five"}])
def test_propfair_settings_are_positive_numbers(settings):
    for factory in (ff.propfair_objective, ff.propfair):
        with pytest.raises(ValueError, match=rf"^{next(iter(settings))} must be "):
            factory(**settings)


# Compositions


@pytest.mark.parametrize("make", [ff.proximal, ff.propfair_objective])
@pytest.mark.parametrize(
    ("base", "sentence"),
    [
        (ff.tilted, "base must be an objective, got the factory tilted: call it"),
        ("x", "base must be a function, got"),
    ],
)
def test_a_base_that_is_no_objective_is_one_sentence(make, base, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        make(0.1, base=base)


def test_objectives_compose():
    tilted = float(ff.tilted(0.5)(LOSSES, MASK, PARAMS, ANCHOR))
    value = ff.proximal(0.1, base=ff.tilted(0.5))(LOSSES, MASK, PARAMS, ANCHOR)
    assert float(value) == pytest.approx(tilted + 0.1 / 2 * SQUARES)
    gradient = jax.grad(ff.proximal(0.1, base=ff.tilted(0.5)))(LOSSES, MASK, PARAMS, ANCHOR)
    np.testing.assert_allclose(gradient, jax.grad(ff.tilted(0.5))(LOSSES, MASK, PARAMS, ANCHOR), rtol=1e-6)
    assert 3 < tilted < 5
    value = ff.propfair_objective(10.0, base=ff.tilted(0.5))(LOSSES, MASK, PARAMS, ANCHOR)
    assert float(value) == pytest.approx(-np.log(1 - tilted / 10), rel=1e-5)


def test_propfair_wraps_the_users_own_objective():
    method = ff.propfair(10.0)
    value = method.objective(twice)(LOSSES, MASK, PARAMS, ANCHOR)
    assert float(value) == pytest.approx(-np.log(1 - 6 / 10), rel=1e-5)

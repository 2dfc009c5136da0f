"""Further numbers outside a measure's domain, or too large, too small or too narrow for its sums."""

import jax.numpy as jnp
import numpy as np
import pytest

import fedjax_fair as ff

m = ff.metrics


@pytest.mark.parametrize("measure", [m.entropy, m.kl_to_uniform, m.cosine_to_uniform, m.cov, m.jain, m.gini])
def test_shares_of_a_total_that_is_negative_or_cancels_are_no_number(measure):
    assert np.isnan(measure(jnp.array([-1.0, 2.0])))
    assert np.isnan(measure(jnp.array([-1.0, 1.0])))


def test_a_lorenz_curve_of_negative_amounts_is_no_curve():
    assert np.isnan(m.lorenz(jnp.array([-1.0, 2.0]))[1][1:-1]).all()


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30, 1e38])
def test_measures_without_a_unit_do_not_know_the_scale(scale):
    x = jnp.array([1.0, 3.0]) * jnp.float32(scale)
    np.testing.assert_allclose(m.gini(x), 0.25, rtol=1e-5)
    np.testing.assert_allclose(m.jain(x), 0.8, rtol=1e-5)
    np.testing.assert_allclose(m.cov(x), 0.5, rtol=1e-5)
    np.testing.assert_allclose(m.cosine_to_uniform(x), np.degrees(np.arctan(0.5)), rtol=1e-4)
    np.testing.assert_allclose(m.entropy(x), -0.25 * np.log(0.25) - 0.75 * np.log(0.75), rtol=1e-5)
    np.testing.assert_allclose(m.lorenz(x)[1], [0, 0.25, 1], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float16"])
def test_narrow_numbers_do_not_wrap_or_overflow(dtype):
    x = np.array([100, 40, 120, 120]).astype(dtype)
    exact = x.astype(float)
    np.testing.assert_allclose(m.mean(x), exact.mean(), rtol=1e-5)
    np.testing.assert_allclose(m.parity_gap(x), 80, rtol=1e-5)
    np.testing.assert_allclose(m.variance(x), 1e4 * exact.var(), rtol=1e-5)
    np.testing.assert_allclose(m.gini(x), np.abs(exact[:, None] - exact).sum() / (32 * exact.mean()), rtol=1e-5)
    np.testing.assert_allclose(m.worst(x, 50), 70, rtol=1e-5)


@pytest.mark.parametrize("percent", [-5, 150, float("nan")])
def test_a_percentage_of_clients_that_is_none_is_refused(percent):
    with pytest.raises(ValueError, match="percent"):
        m.worst([0.1, 0.2, 0.3], percent)


@pytest.mark.parametrize("measure", [m.gini, m.mean, m.variance, m.jain, m.entropy, m.worst, m.parity_gap])
@pytest.mark.parametrize("where", [[0, 1, 1], [0.0, 1.0, 1.0], [1, 2]])
def test_clients_named_by_numbers_are_no_mask(measure, where):
    with pytest.raises(ValueError, match="where"):
        measure(np.array([0.1, 0.2, 0.3]), where=np.array(where))


def test_the_pooled_accuracy_of_no_example_is_no_number_and_counts_are_not_negative():
    assert np.isnan(m.pooled([0.5, 0.7], [0, 0]))
    np.testing.assert_allclose(m.pooled([0.5, 0.7], np.array([2**31 - 1, 2**31 - 1])), 0.6, rtol=1e-5)
    np.testing.assert_allclose(m.pooled([0.5, 0.7], np.array([200, 200], np.uint8)), 0.6, rtol=1e-5)


@pytest.mark.parametrize("measure", [m.mean, m.gini, m.variance, m.jain, m.worst, m.best, m.entropy, m.parity_gap])
def test_of_nobody_there_is_no_measure(measure):
    assert np.isnan(measure(np.array([0.1, 0.2]), where=np.zeros(2, bool)))


def test_a_summary_of_errors_has_its_worst_where_the_error_is_high():
    error = ff.Metric(None, higher_is_better=False, unit="K", range=(0, jnp.inf), name="error")
    summary = m.summary([3.0, 4.0, 9.0], metric=error)
    assert (summary["worst5"], summary["best5"]) == (9.0, 3.0)
    with pytest.raises(ValueError, match=r"\[0"):
        m.summary([3.0, 4.0, 9.0])

"""AAggFF: its responses, and what both of its forms keep to over the rounds."""

import jax.numpy as jnp
import numpy as np
import pytest
from contract import LOSS, N, coefficients, everybody, make_report, partial_rounds, play, random_report
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

import fedjax_fair as ff
from fedjax_fair.aggregators.responses import CDFS, responses

DISTRIBUTIONS = {
    "weibull": stats.weibull_min(2),
    "exponential": stats.expon(),
    "frechet": stats.invweibull(1),
    "normal": stats.norm(1, 1),
    "gumbel": stats.gumbel_r(1, 1),
    "logistic": stats.logistic(1, 1),
}


@pytest.mark.parametrize("cdf", CDFS)
def test_responses_are_distribution_functions_of_the_relative_loss(cdf):
    loss = jnp.array([0.0, 1e-3, 2, 7, 30, jnp.nan])
    active = jnp.arange(6) < 5
    relative = loss[:5] / loss[:5].mean()
    heard = responses(loss, active, cdf, "paper")
    assert_allclose(heard, [*DISTRIBUTIONS[cdf].cdf(relative), 0], rtol=1e-5, atol=1e-7)
    assert_allclose(responses(512 * loss, active, cdf, "paper"), heard, rtol=1e-6)
    assert_allclose(responses(0 * loss, active, cdf, "paper")[:5], DISTRIBUTIONS[cdf].cdf(1), rtol=1e-6)


def test_losses_near_the_end_of_float32_are_compared_too():
    heard = responses(jnp.array([1, 3e38, 3e38, 2]), jnp.ones(4, bool), "exponential", "paper")
    assert_allclose(heard, -np.expm1([0.0, -2, -2, 0]), atol=1e-6)


def test_the_authors_normal_response_falls_with_the_loss():
    heard = {v: responses(jnp.asarray(LOSS), jnp.ones(N, bool), "normal", v) for v in ("paper", "repo")}
    assert_array_equal(np.argsort(heard["paper"]), np.argsort(LOSS))
    assert_array_equal(np.argsort(heard["repo"]), np.argsort(-LOSS))


@pytest.mark.parametrize("variant", ["paper", "repo"])
@pytest.mark.parametrize("factory", [ff.aaggff_s, ff.aaggff_d])
def test_equal_losses_keep_aaggff_uniform(factory, variant):
    rounds = [everybody(np.full(N, loss)) for loss in (0.5, 3.0)]
    assert_allclose(coefficients(factory(variant=variant), *rounds), np.full(N, 1 / N), atol=1e-6)


@pytest.mark.parametrize("factory", [ff.aaggff_s, ff.aaggff_d])
def test_aaggff_prefers_high_losses_whatever_their_scale(factory):
    rule = factory()
    one, scaled = (coefficients(rule, everybody(LOSS), everybody(LOSS * c)) for c in (1, 512))
    assert_allclose(scaled, one, rtol=1e-6)
    assert_array_equal(np.argsort(one), np.argsort(LOSS))
    assert one.max() > one.min() + 1e-3


@pytest.mark.parametrize("factory", [ff.aaggff_s, ff.aaggff_d])
def test_an_absent_client_counts_as_an_average_one(factory):
    rounds = [everybody(np.full(N, 2.0), active=np.arange(N) != t) for t in range(3)]
    coefs, states = play(factory(), rounds)
    for t in range(3):
        assert_allclose(states[t].p, np.full(N, 1 / N), atol=1e-6)
        assert_allclose(coefs[t], (np.arange(N) != t) / (N - 1), atol=1e-6)


def test_aaggff_d_treats_all_whom_it_never_heard_alike():
    rounds = [make_report(t, [0, 3, 5], loss=LOSS[[0, 3, 5]] + t) for t in range(4)]
    for variant in ("paper", "repo"):
        _, states = play(ff.aaggff_d(variant=variant), rounds)
        for state in states:
            assert_allclose(state.p.sum(), 1, atol=1e-6)
            assert np.ptp(np.asarray(state.p)[[1, 2, 4, 6, 7]]) == 0
            assert np.ptp(state.p) > 1e-3


def test_aaggff_d_stays_on_the_simplex_in_partial_rounds():
    coefs, states = partial_rounds(ff.aaggff_d())
    assert states.p.min() > 0
    assert_allclose(states.p.sum(axis=1), 1, atol=1e-5)
    assert_allclose(coefs.sum(axis=1), 1, atol=1e-5)


def test_aaggff_s_refuses_a_partial_cohort_and_names_the_way_out():
    with pytest.raises(ValueError, match=r"all 8 clients.*cohort of 5.*aaggff_d"):
        coefficients(ff.aaggff_s(), random_report(0, 5))

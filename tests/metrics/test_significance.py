"""Paired differences against scipy's own test, and against simulation: errors and coverage as promised."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats

from fedjax_fair.metrics.significance import Difference, holm, paired


@pytest.mark.parametrize("replicates", [2, 3, 5, 20])
def test_mean_interval_and_p_are_scipys(replicates):
    values, baseline = np.random.default_rng(replicates).normal(size=(2, replicates))
    got, test = paired(values, baseline), stats.ttest_rel(values, baseline)
    interval = test.confidence_interval(0.95)
    assert_allclose(got[:4], [(values - baseline).mean(), interval.low, interval.high, test.pvalue], rtol=1e-10)


@pytest.mark.parametrize("replicates", [3, 5, 10])
def test_the_detectable_difference_is_found_four_times_out_of_five(replicates):
    rng = np.random.default_rng(0)
    spread = np.array([-1.0, 1.0] * replicates)[:replicates]
    spread = (spread - spread.mean()) / spread.std(ddof=1)
    detectable = paired(spread, np.zeros(replicates)).detectable
    runs = rng.normal(detectable, 1, size=(40_000, replicates))
    found = stats.ttest_1samp(runs, 0, axis=1).pvalue < 0.05
    assert_allclose(found.mean(), 0.8, atol=0.01)


def test_where_scipy_does_not_know_the_detectable_difference_is_nan():
    assert np.isnan(paired([0.1, 0.4], [0.0, 0.0], confidence=1 - 1e-6, power=0.9).detectable)


def test_two_thousand_comparisons_err_and_cover_as_promised():
    """Under no difference p < .05 in 5 %; the interval covers a true difference of .7 in 95 %."""
    rng = np.random.default_rng(1)
    false, covered = [], []
    for _ in range(2_000):
        replicate, noise = rng.normal(size=5), rng.normal(size=(2, 5))
        false.append(paired(replicate + noise[0], replicate + noise[1]).p < 0.05)
        got = paired(replicate + noise[0] + 0.7, replicate + noise[1])
        covered.append(got.low <= 0.7 <= got.high)
    assert_allclose([np.mean(false), np.mean(covered)], [0.05, 0.95], atol=0.015)


def test_equal_replicates_and_failed_ones():
    assert paired([1.0, 2], [1.0, 2]) == Difference(0, 0, 0, 1, 0)
    same = paired([0.31, 0.41, 0.51], [0.3, 0.4, 0.5])  # to rounding: no spread, so no test
    assert_allclose(same.mean, 0.01)
    assert np.isnan(same[1:]).all()
    assert np.isnan(paired([1.0, np.nan, 3], [1.0, 2, 3])).all()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_the_textbooks(p):
    """Sorted ascending, p_i times how many are left, never below the one before, at most 1."""
    got = holm(p)
    order, before = np.argsort(p), 0.0
    for rank, i in enumerate(order):
        before = max(before, min(1.0, p[i] * (len(p) - rank)))
        assert_allclose(got[i], before)


def test_holm_leaves_out_what_has_no_p():
    assert_allclose(holm([0.02, np.nan, 0.03]), [0.04, np.nan, 0.04])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: paired([1.0], [2.0]), "a difference needs at least two replicates, got 1"),
        (lambda: paired([1.0, 2.0], [2.0]), "vectors of one length"),
        (lambda: paired([1.0, 2.0], [2.0, 1.0], confidence=1), "confidence must be in"),
        (lambda: paired([1.0, 2.0], [2.0, 1.0], power=0), "power must be in"),
    ],
)
def test_wrong_calls_say_what_is_wrong(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_against_statsmodels(count):
    """Holm's adjustment, the interval, and the smallest effect that the paired t-test shows with power .8."""
    from statsmodels.stats import multitest, power, weightstats

    rng = np.random.default_rng(count)
    values, baseline = rng.normal(size=(2, count))
    found, differences = paired(values, baseline), values - baseline
    described = weightstats.DescrStatsW(differences)
    assert_allclose([found.low, found.high], described.tconfint_mean(0.05), rtol=1e-9)
    assert_allclose(found.p, described.ttest_mean(0)[1], rtol=1e-9)
    effect = power.TTestPower().solve_power(effect_size=None, nobs=count, alpha=0.05, power=0.8)
    assert_allclose(found.detectable, effect * differences.std(ddof=1), rtol=1e-3)
    p = rng.random(6) / 10
    assert_allclose(holm(p), multitest.multipletests(p, method="holm")[1], rtol=1e-12)

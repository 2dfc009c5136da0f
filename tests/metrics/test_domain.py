"""Measures outside their domain: negative values, sums that overflow, per cent for fractions, ids for masks."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from fedjax_fair import metrics

SHARES = ("cov", "jain", "cosine_to_uniform", "gini", "kl_to_uniform", "entropy")
ERROR = ff.Metric(None, higher_is_better=False, unit="m", range=(0, np.inf), name="error")


@pytest.mark.parametrize("name", [*SHARES, "lorenz"])
@pytest.mark.parametrize("values", [[-1.0, 1.0], [-1.0, -2.0], [5.0, -1e-3, np.nan], [-3.0]])
def test_of_negative_amounts_there_are_no_shares(name, values):
    measure = getattr(metrics, name)
    for got in (measure(np.array(values)), jax.jit(measure)(np.array(values))):
        assert np.isnan(np.ravel(got)[-1])


def test_a_negative_amount_of_somebody_who_does_not_count_is_no_matter():
    got = metrics.gini(np.array([1.0, -5.0, 3.0]), where=np.array([True, False, True]))
    assert float(got) == pytest.approx(0.25)
    rows = metrics.gini(np.array([[1.0, 3.0], [-1.0, 1.0]]))  # nor of another row
    assert float(rows[0]) == pytest.approx(0.25)
    assert np.isnan(rows[1])


@pytest.mark.parametrize("size", [1e38, 1e30, 1.0, 1e-12, 1e-30])
@pytest.mark.parametrize("name", SHARES)
def test_evenness_does_not_depend_on_the_unit_however_large(name, size):
    measure = getattr(metrics, name)
    small, large = np.array([1, 3], np.float32), np.array([size, 3 * size], np.float32)
    assert_allclose(measure(large), measure(small), rtol=1e-5)
    assert_allclose(jax.jit(measure)(large), measure(small), rtol=1e-5)


def test_a_mean_and_a_deviation_that_float32_can_hold_do_not_overflow():
    x = np.array([3e38, 1e38], np.float32)
    assert_allclose(metrics.mean(x), 2e38, rtol=1e-6)
    assert_allclose(metrics.pooled(x, [3, 1]), 2.5e38, rtol=1e-6)
    assert_allclose(metrics.worst(np.full(40, 3e38, np.float32), 10), 3e38, rtol=1e-6)
    assert_allclose(metrics.std(np.array([0, 1e30], np.float32)), 5e31, rtol=1e-6)
    assert_allclose(metrics.std(np.array([1e-30, 3e-30], np.float32)), 1e-28, rtol=1e-6)


def test_clients_of_size_0_are_in_no_tail():
    acc, sizes = np.array([0.1, 0.3, 0.5, 0.9]), np.array([0, 2, 1, 0])
    assert_allclose(metrics.worst(acc, 0, sizes), 0.3, rtol=1e-6)
    assert_allclose(metrics.best(acc, 0, sizes), 0.5, rtol=1e-6)
    assert_allclose(metrics.worst(acc, 100, sizes), (2 * 0.3 + 0.5) / 3, rtol=1e-6)
    assert np.isnan(metrics.worst(acc, 0, np.zeros(4)))


def test_a_loss_may_be_a_list():
    assert metrics.summary([0.5, 0.7], [1.0, 2.0])["loss"] == pytest.approx(1.5)


def test_an_infinity_is_still_a_failure():
    assert np.isnan(metrics.gini([1.0, np.inf]))
    assert metrics.mean(np.array([1.0, np.inf])) == np.inf


def test_the_worst_of_errors_are_the_highest():
    x = np.array([0.1, 0.9, 0.5, 0.3])
    assert_allclose(metrics.worst(x, 50, higher_is_better=False), 0.7, rtol=1e-6)
    assert_allclose(metrics.best(x, 50, higher_is_better=False), 0.2, rtol=1e-6)


def test_a_summary_is_in_its_metrics_unit():
    got = metrics.summary([1.0, 3.0, 8.0], metric=ERROR)
    assert (got["accuracy"], got["worst5"], got["best5"]) == pytest.approx((4, 8, 1))
    assert (got["variance"], got["std"]) == pytest.approx((26 / 3, (26 / 3) ** 0.5))
    signed = ff.Metric(None, unit="", range=(-np.inf, 1), name="R2")
    assert np.isnan(metrics.summary([-0.5, 0.5], metric=signed)["gini"])
    assert metrics.summary([-0.5, 0.5], metric=signed)["accuracy"] == 0


def test_who_has_examples_and_failed_is_not_passed_over():
    acc = np.array([0.5, np.nan, np.nan])
    assert metrics.summary(acc)["accuracy"] == 50
    assert np.isnan(metrics.summary(acc, where=np.array([True, True, False]))["accuracy"])
    assert metrics.summary(acc, where=np.array([True, False, False]))["accuracy"] == 50


def test_under_jit_nothing_is_known_of_the_range():
    assert_array_equal(jax.jit(lambda a: metrics.summary(a)["accuracy"])(np.array([74.0, 90.0])), 8200)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.summary([74.0, 90.0]), r"acc must hold accuracy in \[0, 1\], fractions .*, got 74 to 90"),
        (lambda: metrics.summary([-0.1, 0.5]), r"got -0.1 to 0.5"),
        (lambda: metrics.summary(np.array([[0.5], [1.5]])), r"got 0.5 to 1.5"),
        (lambda: metrics.summary([-1.0], metric=ERROR), r"acc must hold error in \[0, inf\], got -1 to -1"),
        (lambda: metrics.gini([1.0, 2.0], where=[0, 1]), r"where must be bool, True for who .*, got int64\[2\]"),
        (lambda: metrics.mean([1.0, 2.0], where=np.array([0.0, 1.0])), r"where must be bool.*got float64\[2\]"),
        (lambda: jax.jit(metrics.mean)(np.ones(2), np.array([0, 1])), r"where must be bool.*got int32\[2\]"),
        (lambda: metrics.summary([0.5, 0.5], where=[0, 1]), "where must be bool"),
        (lambda: metrics.pooled([0.5, 0.5], [3, -1]), "sizes must be at least 0, .*, got -1"),
        (lambda: metrics.worst([0.5, 0.5], sizes=jax.numpy.array([3, -1])), "sizes must be at least 0, .*, got -1"),
        (lambda: metrics.summary([0.5, 0.5], sizes=[3, -1]), "sizes must be at least 0, .*, got -1"),
        (lambda: metrics.gini([0.5, 1.0], "no"), "^unbiased must be True or False, got 'no'$"),
        (lambda: metrics.gini([0.5, 1.0], np.ones(2, bool)), r"^unbiased must be True or False, got bool\[2\]$"),
        (lambda: metrics.worst([0.5, 1.0], higher_is_better="no"), "^higher_is_better must be True or False"),
        (lambda: metrics.best([0.5, 1.0], higher_is_better="no"), "^higher_is_better must be True or False"),
    ],
)
def test_a_wrong_call_is_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


THREE = np.array([0.9, 0.5, 0.1])
LAST = np.array([False, False, True])


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("acc", lambda: metrics.summary(np.ma.array(THREE, mask=LAST))),
        ("loss", lambda: metrics.summary(THREE, np.ma.array(THREE, mask=LAST))),
        ("sizes", lambda: metrics.summary(THREE, sizes=np.ma.array([3, 2, 1], mask=LAST))),
        ("where", lambda: metrics.summary(THREE, where=np.ma.array([True] * 3, mask=LAST))),
        ("a metric's array", lambda: metrics.mean(np.ma.array(THREE, mask=LAST))),
        ("a metric's array", lambda: metrics.gini([np.ma.array(THREE, mask=LAST)] * 2)),
        ("where", lambda: metrics.mean(THREE, where=np.ma.array([True] * 3, mask=LAST))),
        ("sizes", lambda: metrics.pooled(THREE, np.ma.array([3, 2, 1], mask=LAST))),
        ("sizes", lambda: metrics.worst(THREE, sizes=np.ma.array([3, 2, 1], mask=LAST))),
        ("values", lambda: metrics.groups.group_means(np.ma.array(THREE, mask=LAST), ["a", "a", "b"])),
        ("groups", lambda: metrics.groups.group_means(THREE, np.ma.array(["a", "a", "b"], mask=LAST))),
        ("values", lambda: metrics.significance.paired(np.ma.array(THREE, mask=LAST), THREE)),
    ],
)
def test_what_lies_below_a_mask_is_not_measured(argument, call):
    with pytest.raises(ValueError, match=f"^{argument} must be complete, got a masked array: fill it"):
        call()


def test_a_mask_that_hides_nothing_is_no_matter():
    assert metrics.summary(np.ma.array(THREE, mask=False)) == metrics.summary(THREE)


def test_a_mean_that_rounds_out_of_its_range_is_let_through():
    assert metrics.summary(np.array([1 + 1e-6, 1], np.float32))["accuracy"] == pytest.approx(100)
    assert metrics.summary(np.array([0.5, np.inf]))["accuracy"] == np.inf

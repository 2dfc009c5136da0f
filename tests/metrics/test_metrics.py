"""Fairness metrics: the authors' own figures, closed forms, identities and JAX transformations."""

import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal

from fedjax_fair import metrics
from fedjax_fair.metrics.kind import Metric

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "metrics.json").read_text())["cases"]
AUROC = Metric(None, name="AUROC", for_everybody=False)
EVENNESS = ("cov", "jain", "cosine_to_uniform", "gini", "kl_to_uniform", "entropy")
PLAIN = ("mean", "variance", "std", "worst", "best", "parity_gap", *EVENNESS)
REDUCTIONS = {name: getattr(metrics, name) for name in PLAIN} | {
    "worst25": lambda x, where=None: metrics.worst(x, 25, where=where),
    "best25": lambda x, where=None: metrics.best(x, 25, where=where),
    "gini_unbiased": lambda x, where=None: metrics.gini(x, unbiased=True, where=where),
    "lorenz": lambda x, where=None: metrics.lorenz(x, where)[1],
    "pooled": lambda x, where=None: metrics.pooled(x, np.arange(1, x.shape[-1] + 1), where),
}

# Values that do not vanish in float32 next to one another, and honest zeros.
client = st.one_of(st.just(0.0), st.floats(2**-10, 1, width=32))
vectors = hnp.arrays(np.float64, st.sampled_from([1, 2, 3, 8, 40]), elements=client)
quick = settings(deadline=None, max_examples=60)


@pytest.fixture(params=list(REDUCTIONS))
def metric(request):
    return REDUCTIONS[request.param]


@pytest.fixture
def acc():
    """Two rounds of 23 clients, as float32."""
    return np.random.default_rng(0).beta(6, 2, (2, 23)).astype(np.float32)


@jax.jit
def _everything(x):
    return {"p": metrics.lorenz(x)[0]} | {name: metric(x) for name, metric in REDUCTIONS.items()}


def everything(x):
    return jax.device_get(_everything(x))


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"K{case['K']}")
def test_matches_the_authors_code(case):
    with jax.enable_x64(True):
        acc, sizes = np.array(case["acc"]), np.array(case["n"])
        for key, x in (("acc1", acc), ("loss", -np.log(acc))):
            std, average, gini = metrics.std(x) / 100, metrics.pooled(x, sizes), metrics.gini(x)
            got = {"avg": average, "std": std, "snr": average / std, "gini": gini}
            got["top10p_avg"], got["bottom10p_avg"] = metrics.best(x, 10, sizes), metrics.worst(x, 10, sizes)
            for name, value in got.items():
                assert_allclose(value, case["aaggff"][key][name], rtol=1e-9, err_msg=name)
        table, expected = metrics.summary(acc), case["fair_flearn"]
    assert_allclose(table["variance"], expected["variance_pct2"], rtol=1e-9)
    if case["K"] >= 10:  # fair_flearn takes int(K / 10) clients: none of three
        tails = np.array([table["worst10"], table["best10"]])
        assert_allclose(tails, [100 * expected["worst10"], 100 * expected["best10"]], rtol=1e-9)


def test_table_ii_of_pg_ffl():
    got = everything(np.array([0.66, 0.845, 0.859]))
    assert_allclose([got["gini"], got["gini_unbiased"]], [0.056, 0.084], atol=5e-4)


def test_gini_sees_ratios_where_variance_sees_differences():
    low, high = everything(np.array([0.07, 0.08, 0.09])), everything(np.array([0.7, 0.8, 0.9]))
    assert_allclose(low["gini"], high["gini"], rtol=1e-5)
    assert_allclose(100 * low["variance"], high["variance"], rtol=1e-5)


@pytest.mark.parametrize("n", [1, 7])
def test_one_client_has_all(n):
    got = everything(np.eye(n)[0])
    expected = {"gini": 1 - 1 / n, "gini_unbiased": n > 1, "jain": 1 / n, "cov": np.sqrt(n - 1), "entropy": 0}
    expected |= {"kl_to_uniform": np.log(n), "cosine_to_uniform": np.degrees(np.arccos(n**-0.5))}
    for name, value in expected.items():
        assert_allclose(got[name], value, rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("n", [1, 20])
@pytest.mark.parametrize("value", [0, 0.3])
def test_equal_clients(n, value):
    got = everything(np.full(n, value))
    level = dict.fromkeys(("mean", "pooled", "worst", "best", "worst25", "best25"), value)
    evenness = dict.fromkeys(
        ("std", "cov", "parity_gap", "gini", "gini_unbiased", "kl_to_uniform", "cosine_to_uniform"), 0
    )
    for name, expected in {**level, **evenness, "jain": 1, "entropy": np.log(n)}.items():
        assert_allclose(got[name], expected, rtol=1e-6, atol=2e-5, err_msg=name)
    assert_allclose(got["lorenz"], np.linspace(0, 1, n + 1), atol=1e-6)


def test_arithmetic_progression():
    got = everything(np.arange(1, 11) / 10)
    expected = {"mean": 0.55, "variance": 825, "gini": 0.3, "pooled": 0.7, "parity_gap": 0.9}
    for name, value in expected.items():
        assert_allclose(got[name], value, rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("n", [1, 19, 40, 100])
@pytest.mark.parametrize("percent", [0, 2.5, 5, 29, 100])
def test_tails_take_as_many_clients_as_python_would(n, percent):
    x = np.random.default_rng(n).permutation(np.arange(n) / n)
    k = max(1, int(n * percent / 100))
    assert_allclose(metrics.worst(x, percent), np.arange(k).mean() / n, atol=1e-6)
    assert_allclose(metrics.best(x, percent), (n - 1 - np.arange(k)).mean() / n, atol=1e-6)


def test_a_weighted_tail_does_not_mind_the_order_of_equal_clients():
    """Two of [.1, .5, .5, .9], of which one of the two in the middle has nine times the examples."""
    acc, sizes = np.array([0.1, 0.5, 0.5, 0.9]), np.array([1, 9, 1, 1])
    for order in itertools.permutations(range(4)):
        mine = acc[list(order)], 50, sizes[list(order)]
        assert metrics.worst(*mine) == pytest.approx((0.1 + 0.5) / 2)
        assert metrics.best(*mine) == pytest.approx((0.5 * 9 + 0.9) / 10)


def test_an_infinity_outside_a_tail_says_nothing_of_it():
    """A diverged client's loss must not hide the others'."""
    x = np.array([1.0, 2.0, np.inf])
    assert metrics.worst(x, 0) == 1
    assert metrics.worst(x, 67) == 1.5
    assert metrics.best(-x, 0) == -1
    assert metrics.best(x, 0) == metrics.parity_gap(x) == np.inf
    assert metrics.worst(x, 67, sizes=np.array([1, 3, 1])) == 1.75
    assert metrics.worst(np.array([np.inf, np.nan]), 0) == np.inf  # NaN is a client without test examples


@quick
@given(vectors)
def test_identities(x):
    with jax.enable_x64(True):
        got = everything(x)
    total, n = x.sum(), len(x)
    pairs = np.abs(np.subtract.outer(x, x)).sum()
    assert_allclose(got["gini"], pairs / (2 * n * total) if total else 0, atol=1e-12)
    assert_allclose(got["gini"], 1 - 2 * np.trapezoid(got["lorenz"], got["p"]), atol=1e-12)
    assert_allclose(got["jain"], total**2 / (n * (x**2).sum()) if total else 1, rtol=1e-12)
    assert_allclose(got["jain"], 1 / (1 + got["cov"] ** 2), rtol=1e-12)
    cosine = total / (np.sqrt(n) * np.linalg.norm(x)) if total else 1
    assert_allclose(np.cos(np.radians(got["cosine_to_uniform"])), cosine, rtol=1e-12)
    assert_allclose(got["entropy"] + got["kl_to_uniform"], np.log(n), atol=1e-12)
    assert_allclose(got["variance"], 1e4 * x.var(), atol=1e-9)


@quick
@given(vectors)
def test_ranges_in_float32(x):
    got, n, slack = everything(x), len(x), 1e-5
    assert 0 <= got["gini"] <= 1 - 1 / n + slack
    assert 1 / n - slack <= got["jain"] <= 1
    assert max(got["kl_to_uniform"], got["entropy"]) <= np.log(n) + slack
    assert min(got["kl_to_uniform"], got["entropy"]) >= 0
    assert 0 <= got["cosine_to_uniform"] < 90
    order = x.min(), got["worst"], got["mean"], got["best"], x.max()
    assert np.all(np.diff(order) >= -slack)
    p, share = got["p"], got["lorenz"]
    assert (share[0], share[-1]) == (0, 1)
    assert np.all(share <= p + slack)
    assert np.all(np.diff(share) >= -slack)


@quick
@given(vectors, st.floats(1e-6, 1e6), st.randoms())
def test_unevenness_ignores_scale_and_order(x, scale, random):
    moved = scale * np.array(random.sample(list(x), len(x)))
    with jax.enable_x64(True):
        before, after = everything(x), everything(moved)
    for name in (*EVENNESS, "gini_unbiased", "lorenz"):
        assert_allclose(after[name], before[name], atol=2e-6, err_msg=name)


def test_float32_keeps_its_digits_over_many_clients():
    x = np.random.default_rng(0).uniform(0.3, 0.31, 100_000)
    narrow = metrics.summary(x.astype(np.float32))
    with jax.enable_x64(True):
        wide = metrics.summary(x)
    assert narrow == pytest.approx(wide, rel=1e-5)


def test_whom_the_mask_leaves_out_does_not_count(metric, acc):
    where = np.random.default_rng(1).random(acc.shape) < 0.6
    blank = np.where(where, acc, np.nan)
    masked = np.asarray(metric(blank))
    assert_array_equal(masked, metric(acc, where=where))
    assert_array_equal(masked, metric(np.where(where, acc, 9), where=where))
    sizes = np.arange(1, acc.shape[1] + 1)
    for row, keep, got in zip(acc, where, masked):
        pooled = metrics.pooled(row[keep], sizes[keep])
        kept = pooled if metric is REDUCTIONS["pooled"] else metric(row[keep])
        tail = got.size - np.size(kept)  # a Lorenz curve stays at 1 past the clients who count
        assert_allclose(got, np.pad(kept, (0, tail), constant_values=1) if tail else kept, rtol=2e-5)


def test_nobody_counts_or_a_failure_does(metric):
    x = np.array([0.1, np.nan, 0.3])
    for where in ([False, False, False], [True, True, True]):
        assert np.isnan(np.ravel(metric(x, where=np.array(where)))[-1])


def test_jit_vmap_and_leading_axes_agree(metric, acc):
    acc[:, 3] = np.nan
    eager = np.asarray(metric(acc))
    assert eager.dtype == np.float32
    for other in (jax.jit(metric)(acc), jax.vmap(metric)(acc), jnp.stack([metric(row) for row in acc])):
        assert_allclose(other, eager, rtol=1e-5, atol=1e-6)
    assert_array_equal(metric(acc[None])[0], eager)
    with jax.numpy_rank_promotion("raise"):
        metric(acc)


def test_dtype_follows_the_input(metric):
    assert metric(jnp.arange(4)).dtype == jnp.float32
    with jax.enable_x64(True):
        assert metric(np.ones(4)).dtype == jnp.float64
        assert metric(np.ones(4, np.float32)).dtype == jnp.float32


def test_summary_of_a_vector_is_python_floats(acc):
    table = metrics.summary(acc[0], loss=-np.log(acc[0]), sizes=np.arange(23))
    assert all(type(value) is float for value in table.values())
    assert tuple(table) == (*metrics.SUMMARY, "loss", "loss_jain", "loss_gini")
    assert table["accuracy"] == pytest.approx(100 * acc[0].mean(), rel=1e-6)
    assert table["worst10"] == pytest.approx(100 * np.sort(acc[0])[:2].mean(), rel=1e-6)
    assert table["pooled"] == pytest.approx(100 * np.average(acc[0], weights=np.arange(23)), rel=1e-6)
    assert table["loss_jain"] == pytest.approx(float(metrics.jain(-np.log(acc[0]))), rel=1e-6)
    assert metrics.summary([0.5, 1])["accuracy"] == 75


def test_summary_keeps_leading_axes(acc):
    table = metrics.summary(acc, loss=1 - acc, sizes=np.ones(23))
    assert {value.shape for value in table.values()} == {(2,)}
    last = metrics.summary(acc[-1], loss=1 - acc[-1], sizes=np.ones(23))
    assert {key: float(value[-1]) for key, value in table.items()} == pytest.approx(last, rel=1e-5)
    inside = jax.jit(lambda a: metrics.summary(a, 1 - a, jnp.ones(23)))(acc[-1])
    assert {key: float(value) for key, value in inside.items()} == pytest.approx(last, rel=1e-5)
    listed = jax.jit(lambda *a: metrics.summary([*a])["accuracy"])(0.2, 0.4)
    assert float(listed) == pytest.approx(30)


def test_a_diverged_client_shows_in_the_loss():
    acc = np.array([0.5, 0.1, np.nan])
    assert np.isnan(metrics.summary(acc, np.array([1, np.nan, np.nan]))["loss"])
    assert metrics.summary(acc, np.array([1, 3, np.nan]))["loss"] == pytest.approx(2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.mean(0.5), "clients, got a scalar"),
        (lambda: metrics.worst(np.ones(3), 101), "percent must be in"),
        (lambda: metrics.pooled(np.ones(3), np.ones(4)), "sizes must broadcast"),
        (lambda: metrics.gini(np.ones(3), where=np.ones(2, bool)), "where must broadcast"),
        (lambda: metrics.summary(np.ones(3), loss=np.ones(4)), "loss must have the shape"),
        (lambda: metrics.summary(np.ones(3), metric=AUROC, where=np.ones(2, bool)), "where must broadcast"),
        (lambda: metrics.summary(np.ones(3), metric=AUROC, where=np.ones(3)), "where must be bool"),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_one_program_summarises_few_rows_of_any_number():
    rng = np.random.default_rng(0)
    rows = rng.uniform(size=(4, 5, 29)).astype(np.float32)
    metrics.summary(rows[0], loss=rows[0])
    with toy.compilations() as made:
        table = metrics.summary(rows, loss=1 - rows)
        last = metrics.summary(rows[:, -1], loss=1 - rows[:, -1])
    assert made.count == 0
    for key, value in last.items():
        assert_array_equal(table[key][:, -1], value)


@pytest.mark.parametrize("x", [np.full(17, 0.1), np.full(3, 3e38), np.full(1000, 0.9)])
def test_equal_values_have_no_spread(x):
    """The mean of a float32 is rounded; what it lacks is no spread."""
    assert_allclose(metrics.std(np.float32(x)), 0, atol=1e-6 * np.float32(x[0]))
    assert_allclose(metrics.variance(np.float32(x)) if x[0] < 1 else 0, 0, atol=1e-9)


def test_nearly_equal_values_have_the_spread_that_they_have():
    x = np.float32(0.9 + 1e-6 * np.random.default_rng(0).random(1000))
    assert_allclose(metrics.std(x), 100 * x.astype(np.float64).std(), rtol=1e-3)


@pytest.mark.parametrize("x", ["abc", [None, 0.5], [1 + 2j]])
def test_what_is_no_real_number_is_refused(x):
    with pytest.raises(ValueError, match="needs an array of real numbers"):
        metrics.mean(x)

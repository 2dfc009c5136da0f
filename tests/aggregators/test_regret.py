"""The regret ledger, and the rules' regret against their published bounds."""

import jax.numpy as jnp
import numpy as np
import pytest
from contract import make_report
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

import fedjax_fair as ff
from fedjax_fair.aggregators.regret import best_fixed

T = 2_000


def losses(name: str, n: int) -> np.ndarray:
    rng, quiet = np.random.default_rng(0), np.full((T, n), 0.2)
    if name == "random":
        return rng.gamma(1, 1, (T, n))
    if name == "stationary":
        return np.linspace(0.1, 3, n) * rng.uniform(0.9, 1.1, (T, n))
    if name == "switching":
        quiet[: T // 2, 0] = quiet[T // 2 :, 1] = 5
    else:  # where following the leader is always a round late
        quiet[::2, 0] = quiet[1::2, 1] = 5
        quiet[0, 0] = 2.5
    return quiet


@pytest.mark.parametrize("n", [5, 10, 50])
@pytest.mark.parametrize("name", ["random", "stationary", "switching", "follow-the-leader"])
@pytest.mark.parametrize("rule", [ff.aaggff_s, ff.aaggff_d])
def test_regret_stays_under_the_published_bound(rule, name, n):
    account = ff.ledger(rule(), losses(name, n).astype(np.float32), points=2)
    assert account.rounds.tolist() == [T // 2, T]
    assert (account.slack < 1).all()
    assert (account.regret <= account.bound).all()
    assert (account.measured_bound <= account.bound * (1 + 1e-6)).all()


def test_the_account_by_hand():
    """Two clients, three rounds, everything written out."""
    x = np.array([[1.0, 3.0], [2.0, 2.0], [4.0, 1.0]])
    account = ff.ledger(ff.aaggff_d("exponential"), jnp.asarray(x, jnp.float32), cdf="exponential", points=3)
    rule, state, spent = ff.aaggff_d("exponential"), None, []
    state = rule.init(jnp.ones(2))
    r = 1 - np.exp(-x / x.mean(1, keepdims=True))
    for t in range(3):
        spent.append(-np.log(1 + float(np.asarray(state.p) @ r[t])))
        report = make_report(0, [0, 1])._replace(loss=jnp.asarray(x[t], jnp.float32))
        state = rule.weigh(state, report, None)[1]
    np.testing.assert_allclose(account.loss, np.cumsum(spent), rtol=1e-5)
    grid = np.linspace(0, 1, 20_001)
    values = -np.log(1 + r @ np.stack([grid, 1 - grid])).sum(0)
    assert account.best[-1] - account.slack[-1] <= values.min() <= account.best[-1] + 1e-6
    np.testing.assert_allclose(account.regret, account.loss - account.best + account.slack, rtol=1e-12)
    np.testing.assert_allclose(-np.log(1 + r @ account.weights).sum(), account.best[-1], rtol=1e-5)
    rounds = np.arange(1, 4)
    np.testing.assert_allclose(account.bound, 2 * 3 * np.sqrt(rounds * np.log(2)))
    steepest = np.maximum.accumulate(r.max(1) * np.exp(np.diff(np.cumsum([0, *spent]))))  # -log of what was earned
    np.testing.assert_allclose(account.measured_bound, 2 * steepest * np.sqrt(rounds * np.log(2)), rtol=1e-5)


def test_the_bounds_of_the_newton_step_by_hand():
    x = np.array([[1.0, 3.0], [2.0, 2.0], [4.0, 1.0]], np.float32)
    account = ff.ledger(ff.aaggff_s("exponential"), x, cdf="exponential", points=3)
    growth = 2 * 2 * (1 + np.log(1 + np.arange(1, 4) / 32))
    np.testing.assert_allclose(account.bound, growth / 2)  # L_inf = 1 / N
    r = (1 - np.exp(-x / x.mean(1, keepdims=True))) / 2
    first = r[0].max() / (1 + r[0].mean())  # from uniform weights
    np.testing.assert_allclose(account.measured_bound[0], growth[0] * first, rtol=1e-5)
    assert (np.diff(account.measured_bound / growth) >= 0).all()


def test_a_good_start_shortens_the_way_to_the_same_weights():
    r = np.random.default_rng(1).uniform(0, 1, (200, 6))
    p, value, _ = best_fixed(r, tolerance=1e-6, iterations=50_000)
    again, near, gap = best_fixed(r, tolerance=1e-3, iterations=2_000, start=p)
    assert gap <= 1e-3
    assert near == pytest.approx(value, abs=2e-3)
    assert again.sum() == pytest.approx(1)
    assert best_fixed(r, tolerance=1e-3, iterations=200, start=p)[2] <= best_fixed(r, 1e-3, iterations=200)[2]


def test_the_best_fixed_weights_and_their_gap():
    r = np.random.default_rng(1).uniform(0, 1, (200, 6))
    p, value, gap = best_fixed(r, tolerance=1e-6, iterations=50_000)

    def total(q: np.ndarray) -> float:
        return float(-np.log1p(r @ (np.abs(q) / np.abs(q).sum())).sum())

    found = minimize(total, np.full(6, 1 / 6), method="Nelder-Mead", options={"maxiter": 20_000, "fatol": 1e-10})
    assert p.sum() == pytest.approx(1)
    assert gap <= 1e-6
    assert value <= found.fun + 1e-5


def test_fewer_rounds_than_points_are_accounted_for_one_by_one():
    x = losses("random", 3)[:7]
    account, all_seven = (ff.ledger(ff.aaggff_d(), x, points=points) for points in (20, 7))
    assert account.rounds.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert np.isfinite(account.regret).all()
    assert_allclose(account.regret, all_seven.regret)


def test_whole_numbers_are_losses_too():
    x = [[1, 3], [2, 2], [4, 1]]
    assert_allclose(ff.ledger(ff.aaggff_s(), x).regret, ff.ledger(ff.aaggff_s(), np.array(x, float)).regret)


def test_only_online_rules_have_an_account():
    with pytest.raises(ValueError, match="ledger takes an online rule"):
        ff.ledger(ff.fedavg(), np.ones((3, 2)))
    for rule in (ff.defences.clip_losses(ff.aaggff_d()), ff.aaggff_d, "aaggff_d"):
        with pytest.raises(ValueError, match="ledger takes an online rule"):
            ff.ledger(rule, np.ones((3, 2)))
    with pytest.raises(ValueError, match="variant must be one of paper, repo, got 'Paper'"):
        ff.ledger(ff.aaggff_d(), np.ones((3, 2)), variant="Paper")
    for nothing in (None, "x", ff.History(*[None] * 8)):
        kind = type(nothing).__name__
        with pytest.raises(ValueError, match=rf"losses must be \[T, N\], such as .*\.received_loss, got a {kind}$"):
            ff.ledger(ff.aaggff_d(), nothing)
    for shape in ((3,), (0, 3)):
        with pytest.raises(ValueError, match=r"losses must be \[T, N\] with T and N above 0, got shape"):
            ff.ledger(ff.aaggff_d(), np.ones(shape))
    with pytest.raises(ValueError, match="losses must be at least 0, for AAggFF takes others for 0, got -2"):
        ff.ledger(ff.aaggff_d(), np.array([[1.0, -2.0, 3.0]]))
    with pytest.raises(ValueError, match="points must be at least 1, got 0"):
        ff.ledger(ff.aaggff_d(), np.ones((3, 2)), points=0)


def test_the_plot_shows_each_rule_and_its_bound(tmp_path):
    x = losses("switching", 5).astype(np.float32)[:400]
    ax = ff.plot.regret({"S": ff.ledger(ff.aaggff_s(), x), "D": ff.ledger(ff.aaggff_d(), x)})
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["S", "S, bound", "D", "D, bound"]
    assert ff.plot.save(ax, tmp_path / "regret.png").stat().st_size > 5_000
    ahead = ff.ledger(ff.aaggff_s(), x)._replace(regret=np.linspace(2.0, -1.0, 20))
    line = np.ma.getdata(ff.plot.regret({"S": ahead}).lines[0].get_ydata())
    assert_array_equal(np.isnan(line), ahead.regret <= 0)  # no place on a logarithmic axis

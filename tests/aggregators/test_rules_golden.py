"""The rules against the figures of the authors' own code, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import golden, make_report, play
from numpy.testing import assert_allclose

import fedjax_fair as ff
from fedjax_fair.numerics.solvers import project_simplex

KEY = jax.random.key(0)
CDFS = ("weibull", "exponential", "normal")
TIGHT = {"rtol": 1e-9, "atol": 1e-9}
FLOAT32 = {"rtol": 0, "atol": 2e-5}  # the authors' float32 state and solver


@pytest.fixture(scope="module", autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def report(ids, loss, updates=None):
    """A float64 report with just these signals, the rest zero."""
    s = len(ids)
    updates = np.zeros((s, 1)) if updates is None else np.asarray(updates, np.float64)
    zeros = jnp.zeros(s)
    template = make_report(0, [0] * s)
    return template._replace(
        ids=jnp.asarray(ids, jnp.int32),
        loss=jnp.asarray(loss, jnp.float64),
        n=zeros,
        train_loss=zeros,
        train_loss_std=zeros,
        accuracy=zeros,
        gram=jnp.asarray(updates @ updates.T),
        updates=jnp.asarray(updates),
    )


def fedmaba_cases():
    """The cases, stacked by number of clients: one compilation each."""
    cases = golden("banditmtl_lambda")["cases"]
    for n in sorted({len(case["p"]) for case in cases}):
        same = [case for case in cases if len(case["p"]) == n]
        yield n, {key: np.array([case[key] for case in same]) for key in same[0]}


def test_fedmaba_is_banditmtls_search_for_lambda():
    """lambda, read off the weights as 1 / slope - 1 of log p_hat against log q, and the next p."""
    active = 0
    for n, case in fedmaba_cases():

        def play_one(rho, eta, p, loss):
            rule = ff.fedmaba(alpha=1.0, eta_b=eta, rho=rho)
            state = rule.init(jnp.ones(n))._replace(log_p=jnp.log(p))  # noqa: B023
            return rule.weigh(state, report(range(n), loss), KEY)  # noqa: B023

        p_hat, state = jax.jit(jax.vmap(play_one))(*(case[key] for key in ("rho", "eta", "p", "F")))
        log_q = np.log(case["p"]) + case["eta"][:, None] * case["F"]
        rows, low, high = np.arange(len(p_hat)), log_q.argmin(axis=1), log_q.argmax(axis=1)
        log_p_hat = np.log(p_hat)
        slope = (log_p_hat[rows, high] - log_p_hat[rows, low]) / (log_q[rows, high] - log_q[rows, low])
        assert_allclose(1 / slope - 1, case["lambda"], rtol=1e-6, atol=1e-9)
        assert_allclose(np.exp(state.log_p), case["p_next"], rtol=0, atol=1e-9)
        active += (case["lambda"] > 0).sum()
    assert active == 72  # of 144: the constraint binds in half of them


def aaggff_s_rounds(cdf, variant):
    rounds = [report(range(10), loss) for loss in golden("aaggff_s")["losses"]]
    return play(ff.aaggff_s(cdf, variant), rounds, np.ones(10))


@pytest.mark.parametrize("cdf", CDFS)
def test_aaggff_s_repo(cdf):
    coefs, states = aaggff_s_rounds(cdf, "repo")
    theirs = golden("aaggff_s")["runs"][cdf]["repo"]
    assert_allclose([state.p for state in states], theirs["p"], **FLOAT32)
    assert_allclose(coefs, theirs["coef"], **FLOAT32)
    assert_allclose([state.linear for state in states], theirs["gradient"], **FLOAT32)
    assert_allclose(4 * np.eye(10) + states[-1].curvature, theirs["hessian"], **FLOAT32)


@pytest.mark.parametrize("cdf", CDFS)
def test_aaggff_s_paper(cdf):
    coefs, states = aaggff_s_rounds(cdf, "paper")
    reference = golden("aaggff_s")["runs"][cdf]["paper"]["p"]
    assert_allclose([state.p for state in states], reference, **TIGHT)
    assert_allclose(coefs, reference, **TIGHT)  # everybody takes part


def aaggff_d_rounds(cdf, variant):
    case = golden("aaggff_d")
    rounds = [report(ids, np.array(loss)[ids]) for ids, loss in zip(case["selected"], case["losses"])]
    return play(ff.aaggff_d(cdf, variant), rounds, np.ones(50))


@pytest.mark.parametrize("cdf", CDFS)
def test_aaggff_d_repo(cdf):
    coefs, states = aaggff_d_rounds(cdf, "repo")
    theirs = golden("aaggff_d")["runs"][cdf]["repo"]
    assert_allclose([state.p for state in states], theirs["p"], **FLOAT32)
    assert_allclose(coefs, theirs["coef"], **FLOAT32)
    assert_allclose([state.gradient for state in states], theirs["gradient"], **FLOAT32)


@pytest.mark.parametrize("cdf", CDFS)
def test_aaggff_d_paper(cdf):
    coefs, states = aaggff_d_rounds(cdf, "paper")
    case = golden("aaggff_d")
    reference = case["runs"][cdf]["paper"]
    assert_allclose([state.p for state in states], reference["p"], **TIGHT)
    assert_allclose([state.gradient for state in states], reference["gradient"], **TIGHT)
    sampled = np.take_along_axis(np.array(reference["p"]), np.array(case["selected"]), axis=1)
    assert_allclose(coefs, sampled / sampled.sum(axis=1, keepdims=True), **TIGHT)


@pytest.mark.parametrize("case", golden("qfedavg")["cases"], ids=lambda c: f"n={len(c['losses'])}-q={c['q']}")
def test_qfedavg_makes_the_authors_step(case):
    w = np.array(case["w"])
    updates = np.array(case["clients"]) - w if "clients" in case else -np.array(case["deltas"])
    rule = ff.qfedavg(case["q"], lipschitz=1 / case["lr"])
    coef = play(rule, [report(range(len(updates)), case["losses"], updates)], np.ones(len(updates)))[0][0]
    assert_allclose(w + coef @ updates, case["w_new"], rtol=0, atol=1e-8)


@pytest.mark.parametrize("case", golden("afl")["cases"], ids=lambda c: f"lr={c['lr_lambda']}")
def test_afl_follows_the_authors_trajectory(case):
    """The mixture, the model and the average of all models, over all rounds."""
    rounds = case["rounds"]
    coefs, states = play(
        ff.afl(case["lr_lambda"]),
        [report(range(5), theirs["losses"], -np.array(theirs["deltas"])) for theirs in rounds],
        np.ones(5),
    )
    w, iterates = np.array(case["w0"]), []
    for coef, state, theirs in zip(coefs, states, rounds, strict=True):
        w = w - coef @ np.array(theirs["deltas"])
        iterates.append(w)
        assert_allclose(state.weights, theirs["lam"], rtol=0, atol=1e-8)
        assert_allclose(w, theirs["w"], rtol=0, atol=1e-8)
        assert_allclose(np.mean(iterates, axis=0), theirs["w_avg"], rtol=0, atol=1e-8)


@pytest.mark.parametrize("case", golden("afl")["ascent"], ids=lambda c: f"step={c['step']}")
def test_afl_ascends_as_propfairs_authors_do(case):
    rule = ff.afl(case["step"])
    state = rule.init(jnp.ones(6))._replace(weights=jnp.array(case["lam"]))
    _, state = jax.jit(rule.weigh)(state, report(range(6), case["losses"]), KEY)
    assert_allclose(state.weights, case["lam_new"], **TIGHT)


@pytest.mark.parametrize("case", golden("afl")["projection"], ids=lambda c: f"n={len(c['y'])}")
def test_projection(case):
    y = jnp.array(case["y"])
    assert_allclose(project_simplex(y, jnp.ones(y.shape, bool)), case["x"], **TIGHT)

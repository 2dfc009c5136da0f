"""What each rule becomes at the ends of its hyper-parameters, and the laws it keeps over many rounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import LOSS, SIZES, N, coefficients, everybody, make_report, partial_rounds, play, random_report
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff

KEY = jax.random.key(0)
quick = settings(deadline=None, max_examples=40, derandomize=True)
all_losses = st.lists(st.floats(0.015625, 8, width=32), min_size=N, max_size=N)


@pytest.mark.parametrize(
    "rule",
    [
        ff.fedavg("uniform"),
        ff.qfedavg(0.0, lipschitz=10.0),
        ff.fedmaba(alpha=0.0),
        ff.fedmaba(alpha=1.0, eta_b=0.0),
        ff.fedmaba(alpha=1.0, rho=0.0),
        ff.afl(0.0),
        ff.fedprox(0.0, weighting="uniform"),
    ],
    ids=["fedavg", "q=0", "alpha=0", "eta_b=0", "rho=0", "afl-lr=0", "mu=0"],
)
def test_uniform_fedavg_is_the_limit(rule):
    """Over three rounds, with one client missing from each."""
    reports = [random_report(t, 5, active=[1, 1, 0, 1, 1]) for t in range(3)]
    for t in range(3):
        assert_allclose(coefficients(rule, *reports[: t + 1]), [0.25, 0.25, 0, 0.25, 0.25], rtol=1e-6)


def test_fedavg_weighs_by_size_among_those_present():
    report = make_report(0, [2, 0, 5], active=[1, 1, 0])
    assert_allclose(coefficients(ff.fedavg(), report), [400 / 450, 50 / 450, 0], rtol=1e-6)


def test_fedprox_without_pull_is_the_objective_it_wraps():
    losses, mask = jnp.array([1.0, 5.0, 7.0]), jnp.array([True, True, False])
    w, anchor = (
        {"a": jnp.array([1.0, -2.0]), "b": jnp.float32(3)},
        {"a": jnp.array([0.0, 1.0]), "b": jnp.float32(1)},
    )
    arguments = (losses, mask, w, anchor)
    assert ff.erm(*arguments) == 3
    assert ff.fedprox(0.0).objective(ff.erm)(*arguments) == ff.erm(*arguments)
    assert ff.fedprox(0.5).objective(ff.erm)(*arguments) == 3 + 0.25 * (1 + 9 + 4)
    pull = jax.grad(lambda w: ff.fedprox(0.5).objective(ff.erm)(losses, mask, w, anchor))(w)
    assert_allclose(pull["a"], 0.5 * (w["a"] - anchor["a"]))
    assert_allclose(pull["b"], 0.5 * (w["b"] - anchor["b"]))


# q-FedAvg


@jax.jit
def qfedavg_coefficients(loss, q, lipschitz):
    rule = ff.qfedavg(q, lipschitz=lipschitz)
    return rule.weigh(rule.init(SIZES), everybody(LOSS)._replace(loss=loss), KEY)[0]


@quick
@given(all_losses, st.floats(0, 15, width=32), st.floats(0.5, 100, width=32))
def test_qfedavg_steps_less_than_an_average(losses, q, lipschitz):
    coef = qfedavg_coefficients(np.float32(losses), q, lipschitz)
    assert 0 <= coef.sum() <= 1 + 1e-6
    if q > 0.01:
        assert coef.sum() < 1


@pytest.mark.parametrize("q", [0.5, 1.0, 5.0])
def test_qfedavg_alone(q):
    """c = 1 / (1 + q L |d|^2 / F)."""
    report = make_report(0, [3], loss=[1.7], gram=[[0.4]])
    assert_allclose(coefficients(ff.qfedavg(q, lipschitz=10.0), report), [1 / (1 + q * 10 * 0.4 / 1.7)], rtol=1e-6)


def test_large_q_listens_to_the_worst_client_only():
    coef = coefficients(ff.qfedavg(200.0, lipschitz=10.0), everybody(LOSS))
    assert_allclose(coef / coef.sum(), np.arange(N) == LOSS.argmax(), atol=1e-6)


def test_lipschitz_may_follow_the_round():
    schedule = ff.qfedavg(lipschitz=lambda r: 10 * 2.0**r)
    reports = [everybody(LOSS + t) for t in range(3)]
    for t in range(3):
        constant = ff.qfedavg(lipschitz=10 * 2.0**t)
        assert_allclose(coefficients(schedule, *reports[: t + 1]), coefficients(constant, reports[t]), rtol=1e-6)


def test_a_rate_that_has_decayed_to_nothing_leaves_the_average():
    """One over a rate of 0 is infinite, and nobody has moved."""
    report = everybody(LOSS)._replace(gram=jnp.zeros((N, N)))
    coef = coefficients(ff.qfedavg(1.0, lipschitz=lambda r: 1 / (0.0 * r)), report)
    assert_allclose(coef, LOSS / LOSS.sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("lipschitz", "sentence"),
    [
        (lambda r: jnp.ones(3), r"lipschitz must give one number for a round, got shape \[3\]"),
        (lambda r: 10.0 if r < 5 else 20.0, "lipschitz must be a number or a function of the round .* got Tracer"),
        (lambda: 10.0, "lipschitz must be a number or a function of the round .* got TypeError"),
    ],
)
@pytest.mark.parametrize("rule", [ff.qfedavg, ff.qfedsgd])
def test_a_lipschitz_constant_that_is_no_number_of_the_round_is_refused(rule, lipschitz, sentence):
    with pytest.raises(ValueError, match=sentence):
        rule(lipschitz=lipschitz)


# AFL


def test_afl_ascends_after_it_aggregated():
    """A huge step: uniform first, then the worst client of the first round, alone."""
    coefs, states = play(ff.afl(1e4), [everybody(LOSS), everybody(LOSS[::-1])])
    assert_allclose(coefs[0], np.full(N, 1 / N))
    assert_array_equal(coefs[1], np.arange(N) == LOSS.argmax())
    assert_array_equal(states[1].weights, np.arange(N) == LOSS[::-1].argmax())


def test_afl_keeps_its_mixture_on_equal_losses_however_large():
    _, states = play(ff.afl(1.0), [everybody(LOSS), everybody(np.full(N, 1e4))])
    assert_allclose(states[1].weights, states[0].weights, rtol=1e-6)


@pytest.mark.parametrize("losses", [[1.0, 3, 4], [1e10, 9e9, 0]])
def test_afl_hands_a_cohorts_mass_around_and_makes_none(losses):
    """A cohort that holds next to nothing, or has diverged: one client takes all of its mass."""
    held = jnp.full(N, 1 / N).at[:3].set(jnp.array([3e-8, 3e-8, 4e-8]))
    _, after = ff.afl(0.1).weigh(
        type(ff.afl().init(jnp.ones(N)))(held), make_report(0, [0, 1, 2], loss=losses), None
    )
    assert_allclose(after.weights[:3], 1e-7 * np.eye(3)[np.argmax(losses)], rtol=1e-6)
    assert_array_equal(after.weights[3:], held[3:])


def test_afl_keeps_its_mixture_on_equal_losses():
    _, states = play(ff.afl(0.5), [everybody(LOSS), everybody(np.full(N, 2.0))])
    assert np.ptp(states[0].weights) > 0.1
    assert_allclose(states[1].weights, states[0].weights, atol=1e-6)


@pytest.mark.parametrize("lr", [0.01, 0.5])
def test_afl_stays_on_the_simplex_in_partial_rounds(lr):
    coefs, states = partial_rounds(ff.afl(lr))
    assert_allclose(coefs.sum(axis=1), 1, atol=1e-5)
    assert_allclose(states.weights.sum(axis=1), 1, atol=1e-5)
    assert states.weights.min() == 0  # clients are forgotten: the next test is about a case that happens


def test_afl_averages_a_forgotten_cohort_uniformly():
    rule = ff.afl(0.5)
    state = rule.init(jnp.ones(N))._replace(weights=jnp.array([0, 0, 0, 1e-13, 0.5, 0.5, 0, 0], jnp.float32))
    coef, after = rule.weigh(state, make_report(0, [0, 1, 3, 6]), KEY)
    assert_array_equal(coef, 0.25)
    assert_array_equal(after.weights, state.weights)
    coef, after = rule.weigh(state, make_report(0, [0, 1, 5, 6]), KEY)
    assert_array_equal(coef, [0, 0, 1, 0])
    assert_allclose(after.weights[jnp.array([0, 1, 5, 6])].sum(), 0.5, atol=1e-6)


# FedMABA


@jax.jit
def fedmaba_coefficients(loss, alpha, eta_b, rho):
    """Of the first round, from uniform, everybody taking part."""
    rule = ff.fedmaba(alpha, eta_b, rho)
    return rule.weigh(rule.init(SIZES), everybody(LOSS)._replace(loss=loss), KEY)[0]


def divergence(p):
    """KL to uniform, in float64."""
    p = np.asarray(p, np.float64)
    return (p * np.log(np.maximum(p, 1e-300) * p.size)).sum()


@quick
@given(all_losses, st.floats(0.125, 4, width=32), st.sampled_from([0.05, 0.3, 1.0]))
def test_fedmaba_stays_in_the_ball_and_uses_all_of_it(losses, eta_b, rho):
    coef = fedmaba_coefficients(np.float32(losses), 1.0, eta_b, rho)
    untempered = np.exp(eta_b * np.array(losses))
    wanted = divergence(untempered / untempered.sum())
    assert_allclose(divergence(coef), min(rho, wanted), atol=1e-5)
    if wanted < rho - 1e-5:
        assert_allclose(coef, untempered / untempered.sum(), rtol=1e-4)


@quick
@given(all_losses, st.floats(0, 8, width=32), st.sampled_from([0.1, 1.0]))
def test_fedmaba_ignores_a_common_shift(losses, shift, rho):
    one, shifted = (fedmaba_coefficients(np.float32(losses) + np.float32(c), 0.5, 0.5, rho) for c in (0, shift))
    assert_allclose(shifted, one, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("rho", [0.01, 1.0])
def test_fedmaba_orders_clients_by_loss_from_uniform(rho):
    coef = fedmaba_coefficients(LOSS, 0.5, 0.5, rho)
    assert_array_equal(np.argsort(coef), np.argsort(LOSS))
    assert np.diff(np.sort(coef)).min() > 0


def test_fedmaba_at_a_small_radius_is_the_mean_plus_a_multiple_of_the_deviation():
    """sup over the ball = mean + sqrt(2 rho Var), Eq. 7 with the factor 2 that it misses."""
    rho = 1e-4
    excess = fedmaba_coefficients(LOSS, 1.0, 0.5, rho) @ LOSS - LOSS.mean()
    assert_allclose(excess, np.sqrt(2 * rho * LOSS.var()), rtol=0.02)


def test_the_literal_ball_collapses_to_uniform_in_small_cohorts():
    """log(100 / 10) > rho = 1: Eq. 10 has no root, however different the clients are."""
    report = make_report(0, range(N), loss=3 * LOSS)
    for kl_set, collapsed in (("literal", True), ("sampled", False)):
        coef = coefficients(ff.fedmaba(1.0, kl_set=kl_set), report, sizes=np.ones(100, np.float32))
        assert (np.ptp(coef) < 1e-4) == collapsed
    sampled, literal = (coefficients(ff.fedmaba(kl_set=k), report) for k in ("sampled", "literal"))
    assert_allclose(literal, sampled, rtol=1e-5)  # the same at full participation


@pytest.mark.parametrize("scatter_back", ["mass", "literal"])
def test_only_the_mass_form_keeps_fedmaba_on_the_simplex(scatter_back):
    coefs, states = partial_rounds(ff.fedmaba(scatter_back=scatter_back))
    total = np.exp(np.asarray(states.log_p, np.float64)).sum(axis=1)
    assert_allclose(coefs.sum(axis=1), 1, atol=1e-5)
    if scatter_back == "mass":
        assert_allclose(total, 1, atol=1e-4)
    else:
        assert total[-1] > 3


def test_fedmaba_lets_a_client_come_back():
    """60 rounds at the bottom leave a floored, not a vanished weight; then 20 bad rounds make it the heaviest."""
    worst_last = np.array([0, 9, 9, 9, 9, 9, 9, 9], np.float32)
    rounds = [everybody(worst_last)] * 60 + [everybody(9 - worst_last)] * 20
    coefs, states = play(ff.fedmaba(1.0, 1.0), rounds)
    assert_allclose(states[59].log_p[0], np.log(1e-12), atol=0.01)
    assert coefs[-1].argmax() == 0


def test_propfair_hands_its_huber_form_on():
    losses, mask = jnp.full(4, 6.0), jnp.ones(4, bool)
    drop, huber = (ff.propfair(5.0, huber=h).objective(ff.erm)(losses, mask, None, None) for h in (False, True))
    assert float(drop) == pytest.approx(6 / 5)
    assert float(huber) == pytest.approx(-np.log(0.2 / 5) + (6 - 4.8) / 0.2, rel=1e-5)


def test_terms_authors_divide_by_the_clients_that_are_there():
    rule = ff.term(0.5, variant="authors")
    some = everybody(LOSS, active=np.arange(8) < 5)
    few = make_report(0, range(5), loss=LOSS[:5])
    np.testing.assert_allclose(coefficients(rule, some)[:5], coefficients(rule, few), rtol=1e-6)

"""What the further rules become at the ends of their hyper-parameters, and the laws they keep."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from contract import LOSS, SIZES, N, coefficients, everybody, make_report, random_report, take
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

import fedjax_fair as ff
from fedjax_fair import registry
from fedjax_fair.types import server_transform

KEY = jax.random.key(0)
quick = settings(deadline=None, max_examples=40, derandomize=True)
some_losses = st.lists(st.floats(0.015625, 8, width=32), min_size=N, max_size=N)
PARTIAL = random_report(3, 5, active=[1, 0, 1, 1, 1])
SAME = {"rtol": 1e-5, "atol": 1e-7}


@pytest.fixture(scope="module", autouse=True)
def compile_fast():
    with toy.optimized(False):
        yield


def share(values):
    values = np.asarray(values, np.float64)
    return values / values.sum()


def with_updates(updates, **changes):
    """A report of clients 0, 1, ... who send these vectors."""
    updates, made = np.asarray(updates, np.float32), make_report(0, range(2))
    made = jax.tree.map(lambda v: jnp.resize(v, (len(updates), *v.shape[1:])), made)
    made = made._replace(ids=jnp.arange(len(updates), dtype=jnp.int32), updates=jnp.asarray(updates))
    made = made._replace(gram=made.updates @ made.updates.T, active=jnp.ones(len(updates), bool))
    return made._replace(**{k: jnp.asarray(v, getattr(made, k).dtype) for k, v in changes.items()})


# Equivalences


@pytest.mark.parametrize(
    ("rule", "same"),
    [
        (ff.term(0.0), ff.fedavg("size")),
        (ff.term(0.0, "uniform"), ff.fedavg("uniform")),
        (ff.loss_softmax(0.5), ff.term(2.0, "uniform")),
        (ff.loss_softmax(0.5), ff.fedeba(0.5)),
        (ff.fedeba(0.5, "size"), ff.term(2.0)),
        (ff.fedeba(1e6), ff.fedavg("uniform")),
        (ff.loss_proportional(), ff.reweighted(lambda F: F**2 / 2)),
        (ff.loss_proportional(), ff.reweighted()),
        (ff.term(0.7, "uniform"), ff.reweighted(lambda F: jnp.exp(0.7 * F))),
        (ff.term(0.7, "size"), ff.reweighted(lambda F: jnp.exp(0.7 * F), "size")),
        (ff.reweighted(lambda F: F), ff.fedavg("uniform")),
        (ff.reweighted(lambda F: F, "size"), ff.fedavg("size")),
        (ff.reweighted(lambda F: -F), ff.fedavg("uniform")),  # a slope below 0 counts as 0: nobody's is above
        (ff.reweighted(lambda F: (F - 1) ** 2), ff.reweighted(lambda F: jnp.maximum(F - 1, 0) ** 2)),
        (ff.fedfv(1.0), ff.fedavg("uniform")),
        (ff.qfedsgd(0.0, lipschitz=10.0), ff.fedsgd("uniform")),
    ],
    ids=lambda rule: "",
)
@pytest.mark.parametrize("report", [everybody(LOSS), PARTIAL], ids=["all", "partial"])
def test_one_rule_is_another(rule, same, report):
    assert_allclose(coefficients(rule, report), coefficients(same, report), **SAME)


def test_the_first_order_forms_are_just_that():
    propfair = ff.reweighted(lambda F: -jnp.log(5 - F))
    assert_allclose(coefficients(propfair, everybody(LOSS)), share(1 / (5 - LOSS)), rtol=1e-5)
    assert_allclose(coefficients(ff.loss_proportional(), everybody(LOSS)), share(LOSS), rtol=1e-5)
    assert_allclose(coefficients(ff.loss_softmax(), everybody(LOSS)), share(np.exp(LOSS)), rtol=1e-5)


@pytest.mark.parametrize(
    "rule",
    [ff.loss_proportional(), ff.loss_softmax(), ff.fedeba(), ff.term(weighting="uniform"), ff.reweighted()],
    ids=["proportional", "softmax", "fedeba", "term", "reweighted"],
)
def test_losses_of_zero_give_the_uniform_average(rule):
    """An inactive client's loss, which is not zero, does not count."""
    report = make_report(0, [1, 2, 3, 4], loss=[0, 0, 9, 0], active=[1, 1, 0, 1])
    assert_allclose(coefficients(rule, report), [1 / 3, 1 / 3, 0, 1 / 3], rtol=1e-6)


# TERM


@pytest.mark.parametrize("weighting", ["size", "uniform"])
def test_a_large_tilt_listens_to_one_client_only(weighting):
    for t, chosen in ((1e3, LOSS.argmax()), (-1e3, LOSS.argmin())):
        assert_array_equal(coefficients(ff.term(t, weighting), everybody(LOSS)), np.arange(N) == chosen)


@jax.jit
def tilted_coefficients(loss, t):
    return ff.term(t).weigh((), everybody(LOSS)._replace(loss=loss), KEY)[0]


@quick
@given(some_losses, st.floats(0, 8, width=32), st.floats(-2, 2, width=32))
def test_term_ignores_a_common_shift(losses, shift, t):
    one, shifted = (tilted_coefficients(np.float32(losses) + np.float32(c), t) for c in (0, shift))
    assert_allclose(shifted, one, rtol=2e-4, atol=1e-6)


def test_terms_authors_start_twice_too_long_and_divide_by_m_twice():
    coef = coefficients(ff.term(0.5, variant="authors"), everybody(np.full(N, 2.0)))
    assert_allclose(coef, 2 / N**2, rtol=1e-5)
    later = coefficients(ff.term(0.5, variant="authors"), *[everybody(np.full(N, 2.0))] * 20)
    assert_allclose(later, 1 / N**2, rtol=1e-5)


def test_terms_authors_shift_by_the_largest_loss_whatever_the_sign_of_t():
    """By hand: e^2 and 1, then e and 1, over running means of 2.0973 and 1.9782, and twice over m = 2."""
    first, second = make_report(0, [0, 1], loss=[0, 2]), make_report(0, [0, 1], loss=[0, 1])
    rule = ff.term(-1.0, variant="authors")
    assert_allclose(coefficients(rule, first), [0.8808, 0.1192], atol=1e-4)
    assert_allclose(coefficients(rule, first, second), [0.3435, 0.1264], atol=1e-4)


@pytest.mark.parametrize(("t", "wanted"), [(-10.0, [1, 0]), (10.0, [0, 1])])
def test_a_loss_that_has_exploded_does_not_stop_the_tilt(t, wanted):
    assert_array_equal(coefficients(ff.term(t), make_report(0, [0, 1], loss=[0, 1e38])), wanted)


# size_softmax


def test_size_softmax_goes_by_sizes_relative_to_the_cohort():
    report = everybody(LOSS)
    wanted = share(np.exp(-SIZES / SIZES.mean() / 0.5))
    assert_allclose(coefficients(ff.size_softmax(0.5), report), wanted, rtol=1e-5)
    assert_allclose(coefficients(ff.size_softmax(0.5), report._replace(n=100 * report.n)), wanted, rtol=1e-5)
    assert wanted.argmax() == SIZES.argmin()
    equal = report._replace(n=jnp.full(N, 7.0), active=jnp.arange(N) < 4)
    assert_allclose(coefficients(ff.size_softmax(0.5), equal), np.where(np.arange(N) < 4, 0.25, 0), rtol=1e-6)


# FedMGDA+


@cache
def compiled(rule, **fixed):
    """The coefficients, given one argument of a rule without state and the report: compiled once a shape."""
    return jax.jit(lambda argument, report: rule(argument, **fixed).weigh((), report, KEY)[0])


def mgda(epsilon, report, prior="uniform"):
    """The mixture of the unit updates (coefficient times length) and the move."""
    coef = np.asarray(compiled(ff.fedmgda_plus, prior=prior)(epsilon, report), np.float64)
    updates = np.asarray(report.updates, np.float64)
    return coef * np.linalg.norm(updates, axis=1), coef @ updates


@pytest.mark.parametrize("prior", ["uniform", "size"])
def test_without_a_box_fedmgda_plus_averages_unit_updates(prior):
    report = with_updates(np.random.default_rng(0).normal(size=(5, 7)))
    mixture, _ = mgda(0.0, report, prior=prior)
    assert_allclose(mixture, share(report.n) if prior == "size" else 0.2, rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_mgda_descends_for_everybody(seed):
    updates = np.random.default_rng(seed).normal(0.4, 1, size=(6, 9))
    mixture, move = mgda(1.0, with_updates(updates))
    units = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    assert mixture.min() >= 0
    assert_allclose(mixture.sum(), 1, rtol=1e-5)
    assert move @ move > 1e-3
    assert (units @ move).min() >= move @ move - 1e-5


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_fedmgda_plus_sees_directions_only(epsilon):
    updates = np.random.default_rng(1).normal(0.4, 1, size=(5, 7))
    scaled = updates * np.array([1e-3, 1, 50, 1, 7])[:, None]
    assert_allclose(mgda(epsilon, with_updates(scaled))[1], mgda(epsilon, with_updates(updates))[1], atol=1e-5)


def test_two_clients_meet_halfway():
    """Unit vectors: lambda = 1/2 whatever their angle; uneven sizes only move the box."""
    report = with_updates([[3.0, 0, 0], [-0.2, 0.9, 0.1]], n=[90, 10])
    for prior in ("uniform", "size"):
        assert_allclose(mgda(1.0, report, prior=prior)[0], [0.5, 0.5], atol=1e-5)
    assert_allclose(mgda(0.1, report, prior="size")[0], [0.8, 0.2], atol=1e-5)


def test_a_client_that_did_not_move_gets_nothing():
    report = with_updates([[1.0, 2, 0], [0, 0, 0], [0, 1, 1]])
    coef = compiled(ff.fedmgda_plus, prior="uniform")(0.0, report)
    assert_allclose(coef, [0.5 / 5**0.5, 0, 0.5 / 2**0.5], rtol=1e-5)
    by_size = compiled(ff.fedmgda_plus, prior="size")(0.0, report._replace(n=jnp.array([1.0, 5, 3])))
    assert_allclose(by_size, [0.25 / 5**0.5, 0, 0.75 / 2**0.5], rtol=1e-5)  # the shares among those who moved
    assert_array_equal(mgda(0.1, with_updates(np.zeros((3, 3))))[1], 0)


@pytest.mark.parametrize("epsilon", [0.15, 1.0])
def test_more_clients_than_dimensions(epsilon):
    """A singular Gram matrix: the weights are not unique, the move is; SciPy's solver finds the same."""
    updates = np.random.default_rng(2).normal(1, 0.5, size=(9, 3))
    units = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    gram, m = units @ units.T, len(units)
    bounds = [(max(0, 1 / m - epsilon), min(1, 1 / m + epsilon))] * m
    total = {"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like}
    oracle = minimize(
        lambda p: p @ gram @ p, np.full(m, 1 / m), jac=lambda p: 2 * gram @ p, bounds=bounds, constraints=total,
        method="SLSQP", options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    assert oracle.success
    assert np.linalg.norm(units.mean(axis=0) - oracle.x @ units) > 1e-3
    assert_allclose(mgda(epsilon, with_updates(updates))[1], oracle.x @ units, atol=1e-4)


def test_a_hundred_clients_in_float32():
    updates = np.random.default_rng(3).normal(0.05, 1, size=(100, 400)).astype(np.float32)
    mixture, move = mgda(0.02, with_updates(updates))
    assert_allclose(mixture.sum(), 1, atol=1e-4)
    assert mixture.max() <= 0.03 + 1e-5
    assert mixture.min() >= -1e-7
    units = updates / np.linalg.norm(updates, axis=1, keepdims=True)
    assert np.linalg.norm(move) < np.linalg.norm(units.mean(axis=0)) - 1e-3


# FedFV


def test_updates_without_conflict_are_averaged():
    updates = np.abs(np.random.default_rng(0).normal(size=(5, 6)))
    assert_allclose(compiled(ff.fedfv)(0.0, with_updates(updates)), 0.2, rtol=1e-5)


@pytest.mark.parametrize("active", [[1, 1, 1, 1, 1], [1, 1, 0, 1, 1]], ids=["all", "partial"])
@pytest.mark.parametrize("alpha", [0.0, 0.34])
def test_fedfv_keeps_the_length_and_follows_the_losses_not_the_slots(alpha, active):
    fedfv = compiled(ff.fedfv)
    updates = np.random.default_rng(5).normal(size=(5, 4))
    report = with_updates(updates, loss=LOSS[:5], active=active)
    coef = fedfv(alpha, report)
    mean = updates[np.array(active) > 0].mean(axis=0)
    assert np.linalg.norm(coef @ updates - mean) > 0.03
    assert_allclose(np.linalg.norm(coef @ updates), np.linalg.norm(mean), rtol=1e-4)
    order = np.array([3, 0, 4, 2, 1])
    assert_allclose(fedfv(alpha, take(report, order)), coef[order], rtol=1e-4, atol=1e-6)
    swapped = report._replace(loss=report.loss[::-1])
    assert np.abs(fedfv(alpha, swapped) - coef).max() > 1e-3


def test_two_conflicting_clients_are_projected_off_each_other():
    """By hand: d_0 = (1, 0) and d_1 = (-1, 1) become (1/2, 1/2) and (0, 1), or stay where they are kept."""
    report = with_updates([[1.0, 0], [-1, 1]], loss=[1, 2])
    for alpha, mean in ((0.0, [0.25, 0.75]), (0.5, [-0.25, 0.75])):  # 0.5 keeps the client of the largest loss
        wanted = np.array(mean) / np.linalg.norm(mean) * 0.5
        assert_allclose(compiled(ff.fedfv)(alpha, report) @ np.asarray(report.updates), wanted, rtol=1e-5)


def test_a_slope_that_overflows_stops_nobody():
    """exp(F) at F = 100 is infinite in float32, at 88.5 its sum with another is."""
    rule = ff.reweighted(jnp.exp)
    assert_allclose(coefficients(rule, everybody([1, 2, 3, 4, 5, 6, 7, 100])), [0] * 7 + [1], atol=1e-6)
    assert_allclose(coefficients(rule, everybody([0, 0, 0, 0, 0, 0, 88.5, 88.5])), [0] * 6 + [0.5] * 2, atol=1e-6)


def test_losses_whose_sum_overflows_have_shares():
    report = make_report(0, [0, 1, 2], loss=[2e38, 2e38, 0])
    assert_allclose(coefficients(ff.loss_proportional(), report), [0.5, 0.5, 0], rtol=1e-6)


def test_opposite_updates_stop_fedfv():
    assert_array_equal(compiled(ff.fedfv)(0.0, with_updates([[1.0, 2], [-1, -2]], loss=[1, 2])), 0)


def test_a_memory_that_would_not_fit_is_refused_in_one_sentence():
    transform = server_transform(ff.fedfv(tau=10), 1000, 100)
    params = {"w": jax.ShapeDtypeStruct((1200, 1000), jnp.float32)}
    with pytest.raises(ValueError, match=r"tau=10 would remember 10 x 100 models, 4\.5 GiB; the limit is 4 GiB: "):
        jax.eval_shape(transform.init, params)
    fits = jax.eval_shape(transform.init, {"w": jax.ShapeDtypeStruct((1000, 1000), jnp.float32)})
    assert fits.updates["w"].shape == (10, 100, 1000, 1000)


def after_one_round(rule, trainer, data, start):
    sim = ff.simulation(toy.linear, data, aggregator=rule, trainer=trainer)
    state = sim.init(KEY)._replace(params=start)
    return jax.jit(sim.step)(state, sim.data)[0].params


def test_propfair_in_one_full_batch_step_weighs_by_the_distance_from_M():
    """Coefficients n_k / n / (M - F_k), which do not sum to 1; losses beyond M - epsilon count 1 / M instead."""

    def weigh(state, report, key):
        slope = jnp.where(5 - report.loss >= 0.2, 1 / (5 - report.loss), 1 / 5)
        return report.n / report.n.sum() * slope, state

    by_hand = ff.Aggregator(lambda sizes, key=None: (), weigh)
    data, trainer = toy.federation(), ff.local_sgd(optax.sgd(0.5), batch_size=None)
    start = {"w": 1.5 * jax.random.normal(KEY, (toy.DIM, toy.CLASSES)), "b": jnp.zeros(toy.CLASSES)}
    losses = [float(toy.mean_loss(start, *toy.examples(data, k))) for k in range(len(toy.SIZES))]
    assert min(losses) < 4.8 < max(losses)
    ours, wanted = (after_one_round(rule, trainer, data, start) for rule in (ff.propfair(5.0), by_hand))
    for name in start:
        assert np.abs(wanted[name] - start[name]).max() > 0.01
        assert_allclose(ours[name], wanted[name], rtol=1e-4, atol=1e-6)


def test_qfedsgd_of_q_zero_is_fedsgd_of_uniform_weights():
    """Whatever the trainer's epochs; q = 1 is another step."""
    data, trainer = toy.federation(), ff.local_sgd(optax.sgd(0.5), epochs=3, batch_size=None)
    start = toy.linear_init(KEY, jnp.zeros((1, toy.DIM)))
    rules = (ff.qfedsgd(0.0, lipschitz=2.0), ff.fedsgd("uniform"), ff.qfedsgd(1.0, lipschitz=2.0))
    zero, fedsgd, one = (after_one_round(rule, trainer, data, start) for rule in rules)
    for name in start:
        assert_allclose(zero[name], fedsgd[name], rtol=1e-5, atol=1e-7)
        assert np.abs(one[name] - zero[name]).max() > 1e-3


# reweighted


def test_a_client_whose_slope_is_no_number_is_left_out_and_the_others_share_as_they_should():
    rule = ff.reweighted(lambda F: jnp.log1p(jnp.exp(F)))  # whose slope is inf / inf from a loss of 89 on
    report = make_report(0, range(3), loss=np.float32([1, 2, 100]))
    slopes = 1 / (1 + np.exp([-1.0, -2.0]))
    assert_allclose(coefficients(rule, report), [*(slopes / slopes.sum()), np.nan], rtol=1e-6)


def test_where_no_slope_is_above_0_the_prior_alone_weighs():
    rule = ff.reweighted(lambda F: jnp.maximum(F - 5, 0), "size")
    report = make_report(0, range(3), loss=[1, 2, 3], n=[10, 20, 70])
    assert_allclose(coefficients(rule, report), [0.1, 0.2, 0.7], rtol=1e-6)


@pytest.mark.parametrize("name", ["afl", "fedmaba", "aaggff_s", "aaggff_d", "term", "pg_ffl"])
def test_whole_numbers_of_examples_make_the_same_state(name):
    init = registry.make_rule(name, {}, learning_rate=0.1).init
    floats, whole = init(jnp.asarray(SIZES), KEY), init(jnp.asarray(SIZES, jnp.int32), KEY)
    jax.tree.map(assert_array_equal, floats, whole)
    assert [leaf.dtype for leaf in jax.tree.leaves(floats)] == [leaf.dtype for leaf in jax.tree.leaves(whole)]

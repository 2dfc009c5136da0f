"""More rules against the figures of the authors' own code, or against their loop written out, in float64."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy
from contract import golden, stack
from numpy.testing import assert_allclose

import fedjax_fair as ff
from fedjax_fair.types import Report, as_method, server_transform

KEY = jax.random.key(0)


@pytest.fixture(scope="module", autouse=True)
def float64():
    with jax.enable_x64(True), toy.optimized(False):
        yield


def report(ids, loss, *, n=None, updates=None, active=None):
    """A float64 report with just these signals, the rest ones."""
    one = jnp.ones(len(ids))
    updates = jnp.zeros((len(ids), 1)) if updates is None else jnp.asarray(updates, jnp.float64)
    return Report(
        ids=jnp.asarray(ids, jnp.int32),
        n=one if n is None else jnp.asarray(n, jnp.float64),
        active=one > 0 if active is None else jnp.asarray(active),
        loss=jnp.asarray(loss, jnp.float64),
        train_loss=jnp.asarray(loss, jnp.float64),
        train_loss_std=one,
        accuracy=one,
        gram=updates @ updates.T,
        updates=updates,
    )


def play(rule, w, reports, n_clients):
    """The models after each round of the server ``w + aggregate``: the rule's coefficients, then its transform."""
    method = as_method(rule)
    transform = server_transform(method, n_clients, reports[0].ids.size)

    def step(carry, report):
        w, weights, server = carry
        coef, weights = method.aggregator.weigh(weights, report, KEY)
        coef = jnp.where(report.active, coef, 0)
        g, server = transform.update(-(coef @ report.updates), server, w, report=report)
        return (w - g, weights, server), w - g

    w = jnp.asarray(w, jnp.float64)
    start = (w, method.aggregator.init(jnp.ones(n_clients)), transform.init(w))
    return np.asarray(jax.lax.scan(step, start, stack(reports))[1])


@cache
def compiled(rule, **fixed):
    """The coefficients of the first round, given one argument of the rule and the report: compiled once a shape."""

    def weigh(argument, report):
        aggregator = as_method(rule(argument, **fixed)).aggregator
        return aggregator.weigh(aggregator.init(report.n), report, KEY)[0]

    return jax.jit(weigh)


@pytest.mark.parametrize("case", golden("qfedsgd")["cases"], ids=lambda c: f"n={len(c['losses'])}-q={c['q']}")
def test_qfedsgd_makes_the_authors_step(case):
    updates = -case["lr"] * np.array(case["grads"])
    assert case["lr"] == 0.1
    made = report(range(len(updates)), case["losses"], updates=updates)
    step = compiled(ff.qfedsgd, lipschitz=10.0)(case["q"], made) @ updates
    assert_allclose(np.add(case["w"], step), case["w_new_qfedsgd"], rtol=0, atol=1e-8)


@pytest.mark.parametrize("case", golden("term")["paper"], ids=lambda c: f"t={c['alpha']}")
def test_term_is_the_tilted_softmax(case):
    coef = compiled(ff.term)(case["alpha"], report(range(6), case["losses"], n=case["prior"]))
    assert_allclose(coef, case["weights"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", golden("term")["authors"], ids=lambda c: f"t={c['t']}")
def test_term_authors_follows_their_federated_code(case):
    """Five rounds of the running estimate, and the second division by the number of clients."""
    reports = [report(range(6), loss, updates=-np.array(case["deltas"])) for loss in case["losses"]]
    w = play(ff.term(case["t"], variant="authors"), case["w0"], reports, 6)
    assert len(w) == 5
    assert_allclose(w, case["w_after_round"], rtol=0, atol=1e-6)


@jax.jit
def propfair_of(M, epsilon, losses):
    objective = ff.propfair_objective(M, epsilon)
    return jax.vmap(jax.value_and_grad(lambda loss: objective(loss[None], jnp.ones(1, bool), None, None)))(losses)


@pytest.mark.parametrize("case", golden("propfair")["cases"], ids=lambda c: f"M={c['M']}")
def test_propfair_is_the_authors_transform_of_the_loss(case):
    """Values and slopes of 22 losses, some of them on the switch to the line."""
    value, slope = propfair_of(case["M"], case["eps"], jnp.array(case["ce"]))
    assert_allclose(value, case["value"], rtol=0, atol=1e-6)
    assert_allclose(slope, case["grad"], rtol=0, atol=1e-6)


def mgda(case, prior):
    """Our mixture of the unit updates, which is the model's move, and those updates."""
    updates = np.array(case["updates"])
    made = report(range(len(updates)), np.ones(len(updates)), n=case.get("sizes"), updates=updates)
    move = compiled(ff.fedmgda_plus, prior=prior)(case["eps"], made) @ updates
    return move, updates / np.linalg.norm(updates, axis=1, keepdims=True)


@pytest.mark.parametrize("prior", ["uniform", "size"])
def test_fedmgda_plus_finds_the_shortest_mixture_of_the_authors_solvers(prior):
    """Directions and squared lengths; the weights themselves need not be unique."""
    for case in golden("fedmgda")[prior]:
        move, units = mgda(case, prior)
        theirs = np.array(case["lam"]) @ units
        assert_allclose(move, theirs, rtol=0, atol=1e-5)
        assert_allclose(move @ move, theirs @ theirs, rtol=0, atol=1e-8)


def test_fedmgda_plus_agrees_with_the_float32_solver():
    for case in golden("fedmgda")["uniform"]:
        move, units = mgda(case, "uniform")
        theirs = np.array(case["lam_float32"]) @ units
        assert_allclose(move, theirs, rtol=0, atol=1e-5)
        assert_allclose(move @ move, theirs @ theirs, rtol=0, atol=2e-8)


@pytest.mark.parametrize(
    "case", golden("fedfv")["cases"], ids=lambda c: f"n={c['n']}-alpha={c['alpha']}-tau={c['tau']}"
)
def test_fedfv_follows_the_authors_trajectory(case):
    rounds = [report(r["selected"], r["losses"], updates=-np.array(r["deltas"])) for r in case["rounds"]]
    w = play(ff.fedfv(case["alpha"], case["tau"]), case["w_init"], rounds, case["n"])
    assert len(w) == 5
    assert_allclose(w, [r["new_w"] for r in case["rounds"]], rtol=0, atol=1e-8)


# FedFV's memory: the authors' server, which remembers the last update and the last round of each of N clients


def authors_fedfv(w, rounds, n_clients, alpha, tau):
    """Their loop, transcribed; ``hits`` counts how often an earlier cohort was projected away."""
    grads_log, last_sampled = [None] * n_clients, np.full(n_clients, -1)
    models, hits = [], 0
    for t, (ids, losses, updates) in enumerate(rounds):
        d = -updates
        order = np.argsort(losses, kind="stable")
        kept = order[int(np.ceil((len(ids) - 1) * (1 - alpha))) :] if alpha > 0 else []
        rows = []
        for i in range(len(ids)):
            g = d[i]
            for j in () if i in kept else order:
                if j != i and g @ d[j] < 0:
                    g = g - (g @ d[j]) / (d[j] @ d[j]) * d[j]
            rows.append(g)
        for client, update in zip(ids, d):
            grads_log[client], last_sampled[client] = update, t
        g = np.mean(rows, axis=0)
        for k in range(tau, 0, -1) if t >= tau else ():
            con = np.zeros_like(g)
            for client in np.flatnonzero(last_sampled == t - k):
                if grads_log[client] @ g < 0:
                    con = con + grads_log[client]
            if g @ con < 0:
                g = g - (g @ con) / (con @ con) * con
                hits += 1
        w = w - g / np.linalg.norm(g) * np.linalg.norm(d.mean(axis=0))
        models.append(w)
    return np.array(models), hits


@pytest.mark.parametrize(("alpha", "tau"), [(0.34, 3), (0.0, 2)])
def test_fedfv_remembers_the_last_cohorts_as_the_authors_remember_every_client(alpha, tau):
    """Random cohorts of overlapping clients, some of whom drop out: what a drop-out sent counts nowhere."""
    rng = np.random.default_rng(4)
    n_clients, slots, dim = 9, 4, 6
    ours, theirs = [], []
    for t in range(12):
        ids, active = rng.permutation(n_clients)[:slots], rng.random(slots) < 0.75
        active[t % slots] = True
        losses, updates = rng.uniform(0.1, 4, slots), rng.normal(size=(slots, dim))
        ours.append(report(ids, losses, updates=np.where(active[:, None], updates, 0), active=active))
        theirs.append((ids[active], losses[active], updates[active]))
    assert not all(r.active.all() for r in ours)
    w = rng.normal(size=dim)
    wanted, hits = authors_fedfv(w, theirs, n_clients, alpha, tau)
    without, _ = authors_fedfv(w, theirs, n_clients, alpha, 0)
    assert hits > 5
    assert np.abs(wanted - without).max() > 0.1
    assert_allclose(play(ff.fedfv(alpha, tau), w, ours, n_clients), wanted, rtol=0, atol=1e-8)


# AAggFF's own code for its baselines (float32)

BASELINES = golden("afl_term_aaggff")


def weights(rule, cohorts):
    """The rule's coefficients and states, round by round."""
    reports = [report(ids, np.array(loss)[ids]) for ids, loss in zip(cohorts, BASELINES["losses"])]

    def step(state, report):
        coef, state = rule.weigh(state, report, KEY)
        return state, (coef, state)

    return jax.lax.scan(step, rule.init(jnp.ones(8)), stack(reports))[1]


@pytest.mark.parametrize("lr", BASELINES["afl_full"])
def test_afl_with_all_clients_is_as_in_aaggffs_code(lr):
    """Which aggregates by the mixture after its step; the rule's own is one round behind, as in the paper."""
    told = [played["mix_coefs"] for played in BASELINES["afl_full"][lr]["rounds"]]
    coef, states = weights(ff.afl(float(lr)), 10 * [range(8)])
    assert_allclose(states.weights, told, atol=2e-7)
    assert_allclose(coef[1:], told[:-1], atol=2e-7)


@pytest.mark.parametrize("t", BASELINES["term_full"])
@pytest.mark.parametrize("where", ["full", "partial"])
@pytest.mark.parametrize("variant", ["paper", "authors"])
def test_terms_shares_are_as_in_aaggffs_code(variant, where, t):
    """There they are normalised; the running evidence is the authors' only."""
    told = BASELINES[f"term_{where}"][t]["rounds"]
    coef, states = weights(ff.term(float(t), "uniform", variant), [played["selected"] for played in told])
    assert_allclose(coef / coef.sum(1, keepdims=True), [played["coef_selected"] for played in told], atol=2e-7)
    if variant == "authors":
        assert_allclose(states.evidence, np.array([played["evidence"] for played in told])[:, 0], atol=2e-7)

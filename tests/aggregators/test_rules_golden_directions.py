"""Rules that mix gradients, rank losses or remember updates, against the authors' own code, in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import golden, make_report
from numpy.testing import assert_allclose

import fedjax_fair as ff
from fedjax_fair.aggregators.fedlf import products
from fedjax_fair.types import as_method

KEY = jax.random.key(0)
CLOSE = {"rtol": 0, "atol": 1e-9}


@pytest.fixture(scope="module", autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def report(loss, updates=None, n=None, ids=None, layers=None):
    """A float64 report; updates [S, D] are cut into ``layers`` where these are given."""
    s = len(loss)
    flat = np.zeros((s, 1)) if updates is None else np.asarray(updates, float)
    return make_report(0, [0] * s)._replace(
        ids=jnp.arange(s, dtype=jnp.int32) if ids is None else jnp.asarray(ids, jnp.int32),
        n=jnp.ones(s) if n is None else jnp.asarray(n, float),
        loss=jnp.asarray(loss, float),
        gram=jnp.asarray(flat @ flat.T),
        updates=cut(flat, layers),
    )


def cut(flat, layers):
    flat = jnp.asarray(flat, float)
    if layers is None:
        return flat
    sizes = [int(np.prod(layer)) for layer in layers]
    return jnp.split(flat, np.cumsum(sizes)[:-1], axis=-1)


def relative(got, wanted):
    return np.linalg.norm(np.asarray(got) - np.asarray(wanted)) / np.linalg.norm(wanted)


def weights(rule, *args, state=None, **signals):
    rule = as_method(rule).aggregator
    now = report(*args, **signals)
    return np.asarray(rule.weigh(rule.init(now.n) if state is None else state, now, KEY)[0])


@jax.jit  # cases of one shape compile once
def of_fedmdfg(theta, state, now):
    return ff.fedmdfg(theta).weigh(state, now, KEY)


def test_fedmdfgs_direction():
    """The step along the common direction; a loss that exceeds what is usual forces the guidance."""
    for case in golden("fedmdfg")["cases"]:
        g, loss = np.array(case["gradients"]), np.array(case["losses"])
        state = ff.fedmdfg().init(jnp.ones(len(loss)))
        if case["force_active"]:  # one loss above its usual, all others below
            usual = loss + np.where(np.arange(len(loss)) == 0, -1e-3, 1e-3)
            state = state._replace(usual=jnp.asarray(usual), times=state.times + 1)
        coef, after = of_fedmdfg(case["theta_degrees"], state, report(loss, -g))
        assert relative(coef @ g, case["step"]) < 1e-9
        assert bool(after.guided) == bool(case["guidance_active"])


@jax.jit
def of_fairmoo(prefer, now):
    rule = ff.fairmoo(prefer, lr=1.0)
    return rule.weigh(rule.init(now.n), now, KEY)[0]


def test_fairmoos_direction():
    for case in golden("fairmoo")["cases"]["directions"]:
        g = np.array(case["gradients"])
        coef = np.asarray(of_fairmoo(case["prefer"], report(case["losses"], -g)))
        assert relative(coef @ g, case["d_exact"]) < 1e-7


def test_fairmoo_without_an_answer_takes_the_shortest_mixture():
    for case in golden("fairmoo")["cases"]["infeasible"]:
        g = np.array(case["gradients"])
        coef = weights(ff.fairmoo(case["prefer"], lr=1.0), case["losses"], -g)
        d = coef @ g
        assert_allclose(np.linalg.norm(d), 1)
        assert (coef >= 0).all()
        length = 1 / coef.sum()
        assert (g @ d >= length - 1e-9).all()  # every vector of the hull lies beyond the shortest one


def test_adafeds_direction():
    for case in golden("adafed")["cases"]:
        g = np.array(case["gradients"])
        coef = weights(ff.adafed(case["power"], lr=1.0), case["losses"], -g)
        assert relative(coef @ g, case["d"]) < 1e-8


def test_superquantiles_clients():
    for case in golden("superquantile")["cases"]:
        coef = weights(ff.superquantile(1 - case["nonconformity_level"]), case["losses"], n=case["sizes"])
        assert_allclose(coef, case["weights"], **CLOSE)


def test_gifairs_weights_are_huaweis():
    for case in golden("gifair")["cases"]["huawei"]:
        for played in case["rounds"]:
            sizes = 1000 * np.array(case["p"])
            assert_allclose(
                weights(ff.gifair(case["coeff"]), played["losses"], n=sizes), played["weights"], **CLOSE
            )


def test_gifairs_rates_are_the_authors():
    method = ff.gifair(reading="rate")
    for case in golden("gifair")["cases"]["authors"]:
        for played in case["rounds"]:
            known = jnp.asarray(played["losses_known_before"], float)
            state = method.aggregator.init(1000 * jnp.asarray(case["p"]))
            state = state._replace(loss=known, heard=state.heard + 1)
            factors = method.memory.broadcast(state)
            assert_allclose(factors[jnp.asarray(played["selected"])], played["rate_multiplier"], **CLOSE)


def test_gifairs_groups():
    for case in golden("gifair")["cases"]["groups_ours"]:
        coef = weights(ff.gifair(groups=case["groups"]), case["losses"], n=1000 * np.array(case["p"]))
        assert_allclose(coef, case["weights"], **CLOSE)


def test_drfas_weights_and_ascent():
    """The authors' weights under uniform sampling, and the mixture after the second look, for the clients asked."""
    method = ff.drfa(sampling="selector")
    for case in golden("drfa")["cases"]:
        n = case["n_clients"]
        for played in case["rounds"]:
            m = len(played["selected"])
            now = report(np.ones(m), ids=played["selected"])._replace(
                steps=jnp.full(m, case["local_steps"]), message=jnp.zeros((m, 1))
            )
            state = method.aggregator.init(jnp.ones(n))._replace(weights=jnp.asarray(played["lambda_before"]))
            coef, state = method.aggregator.weigh(state, now, KEY)
            assert_allclose(coef, played["aggregation_weights"], **CLOSE)

            asked = played["asked_for_losses"]
            heard = jnp.full(n, jnp.nan).at[jnp.asarray(asked)].set(jnp.asarray(played["probe_losses"]))
            key = next(key for key in map(jax.random.key, range(200)) if {*drawn(key, n, m)} == {*asked})
            rule = ff.drfa(played["gamma"], "selector")
            after = rule.revise(state, coef, now, key, lambda update, ids, heard=heard: heard[ids])[1]
            assert_allclose(after.weights, played["lambda_projected"], **CLOSE)


def drawn(key, n_clients, m):
    return np.asarray(jax.random.permutation(jax.random.split(key)[0], n_clients)[:m]).tolist()


def test_fedlfs_step():
    for case in golden("fedlf")["cases"]["directions"]:
        g, layers = np.array(case["gradients"]), case["layers"]
        here, absent = len(g), np.array(case["history_gradients"] or np.zeros((0, g.shape[1])))
        transform = ff.fedlf().transform(here + len(absent), here)
        params = cut(g[0], layers)
        state = transform.init(params)
        if len(absent):
            old = cut(np.vstack([0 * g, -absent]), layers)
            state = state._replace(
                round=jnp.int32(1), last=state.last * 0, updates=old, gram=[products(u, u) for u in old]
            )
        now = report(case["losses"], -g, layers=layers)
        step, _ = jax.jit(transform.update)(params, state, report=now)  # one program: else every operation is one
        assert relative(jnp.concatenate(step), case["step"]) < 1e-8


@pytest.mark.parametrize("case", golden("fedlf")["cases"]["rounds"], ids=lambda case: case["per_round"])
def test_fedlf_remembers_who_is_absent(case):
    """Full gradients of quadratics, a step a round: which absent clients still count, and what becomes of w."""
    A, a = (np.array(case["quadratic"][name]) for name in "Aa")
    layers, w = case["layers"], np.array(case["w0"])
    transform = ff.fedlf().transform(case["n_clients"], case["per_round"])
    state, update = transform.init(cut(w, layers)), jax.jit(transform.update)
    for played in case["rounds"]:
        ids = np.array(played["selected"])
        g = np.einsum("kij,kj->ki", A[ids], w - a[ids])
        now = report(played["losses"], -g, ids=ids, layers=layers)
        step, state = update(cut(w, layers), state, report=now)
        w = w - case["lr"] * np.concatenate(step)
        assert_allclose(w, played["model"], rtol=0, atol=1e-8)


@pytest.mark.parametrize("case", golden("fedheal")["cases"], ids=lambda case: case["name"])
def test_fedheals_rounds(case):
    """As long as everybody takes part; for the absent the authors count rounds that they never saw."""
    method, w, state = ff.fedheal(case["threshold"], case["beta"]), np.array(case["w0"]), None
    for played in case["rounds"]:
        ids = played["selected"]
        if len(ids) < case["n_clients"] and "after the first round" in case["name"] and state.rounds.min() > 1:
            break
        params = cut(w, case["layers"])
        transform = method.transform(case["n_clients"], len(ids))
        if state is None:
            state = transform.init(params)
            state = state._replace(weight=0 * state.weight + case["initial_weight"])
        now = report(np.ones(len(ids)), -np.array(played["updates"]), ids=ids, layers=case["layers"])
        step, state = transform.update(params, state, report=now)
        w = w - np.concatenate(step)
        if len(ids) == case["n_clients"]:
            assert_allclose(w, played["model"], **CLOSE)
            assert_allclose(state.weight[jnp.asarray(ids)], played["unnormalised_weights"], **CLOSE)

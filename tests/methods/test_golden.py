"""Clients that remember, against trajectories of the authors' own code, in float64 and by the whole engine."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from contract import golden, make_report
from numpy.testing import assert_allclose

import fedjax_fair as ff

CLOSE = {"rtol": 0, "atol": 1e-9}


@pytest.fixture(scope="module", autouse=True)
def float64():
    with jax.enable_x64(True), toy.optimized(False):
        yield


def federation(case):
    """The case's clients; every one is tested on its first example."""
    x, y = (
        np.concatenate([np.asarray(mine, kind) for mine in case[name]]) for name, kind in (("x", float), ("y", int))
    )
    owner = np.repeat(np.arange(len(case["x"])), [len(mine) for mine in case["x"]])
    first = np.unique(owner, return_index=True)[1]
    return ff.FederatedData.from_arrays(
        x, y, client_id=owner, split=(1, 0, 0), test=(x[first], y[first]), test_client_id=owner[first]
    )


def softmax(case):
    """Softmax regression on a flat vector: the classes' weights, then the biases."""
    dim, classes = case["dim"], case["classes"]

    def apply(w, x):
        return x @ w[: dim * classes].reshape(classes, dim).T + w[None, dim * classes :]

    return (lambda key, x: jnp.asarray(case["w0"])), apply


def logistic(case):
    return (lambda key, x: jnp.asarray(case["w0"])), (lambda w, x: x @ w[:-1, None] + w[-1])


def trajectory(case, method, model, decays=False, **settings):
    """The states after each round, with the case's cohorts and rates; weights decay in the loss, or ``decays``."""
    there = np.zeros((len(case["rounds"]), len(case["x"])), bool)
    for row, played in zip(there, case["rounds"]):
        row[played["selected"]] = True
    decay, shrink = case.get("lr_decay_per_round", 1.0), case.get("weight_decay", 0.0)

    def objective(losses, mask, params, anchor):
        return ff.erm(losses, mask, params, anchor) + (not decays) * shrink / 2 * (params**2).sum()

    data = federation(case)
    sim = ff.simulation(
        model,
        data,
        aggregator=method,
        available=ff.availability.trace(there),
        trainer=ff.local_sgd(
            optax.chain(optax.add_decayed_weights(shrink), optax.sgd(case["lr"]))
            if decays
            else optax.sgd(case["lr"]),
            steps=case["local_steps"],
            batch_size=None,
            schedule=lambda r: decay**r,
            objective=objective,
        ),
        server_optimizer=optax.sgd(case.get("global_lr", 1.0)),
        **settings,
    )

    def step(state, _):
        state = sim.step(state, data)[0]
        return state, (state.params, state.memory, state.server[0])

    start = sim.init(jax.random.key(0))
    return jax.jit(lambda s: jax.lax.scan(step, s, length=len(there))[1])(start)


def column(case, block, name):
    return np.array([played[name] for played in case[block]])


def named(method, keep=lambda case: True):
    return pytest.mark.parametrize("case", [c for c in golden(method)["cases"] if keep(c)], ids=lambda c: c["name"])


@named("scaffold")
def test_scaffold_is_the_papers(case):
    """Where sizes and rates are equal, the authors' code is, too."""
    params, controls, server = trajectory(case, ff.scaffold(), softmax(case))
    assert_allclose(params, column(case, "paper_reference", "server_model"), **CLOSE)
    assert_allclose(controls, column(case, "paper_reference", "client_controls"), **CLOSE)
    assert_allclose(server[0], column(case, "paper_reference", "server_control"), **CLOSE)
    if case["paper_equals_code"]:
        assert_allclose(params, column(case, "rounds", "server_model"), **CLOSE)


@named("scaffold", lambda case: case["weight_decay"])
def test_scaffold_controls_the_optimisers_weight_decay(case):
    params, controls, _ = trajectory(case, ff.scaffold(), softmax(case), decays=True)
    assert_allclose(params, column(case, "paper_reference", "server_model"), **CLOSE)
    assert_allclose(controls, column(case, "paper_reference", "client_controls"), **CLOSE)


@named("scaffold", lambda case: "decay" not in case["name"])
def test_scaffolds_other_option(case):
    params, _, server = trajectory(case, ff.scaffold(option=1), softmax(case), client_block=1)
    assert_allclose(params, column(case, "paper_reference_option_1", "server_model"), **CLOSE)
    assert_allclose(server[0], column(case, "paper_reference_option_1", "server_control"), **CLOSE)


@named("feddyn")
def test_feddyn_is_the_papers(case):
    params, moved, h = trajectory(case, ff.feddyn(case["alpha"]), softmax(case))
    assert_allclose(params, column(case, "paper_reference", "server_model"), **CLOSE)
    assert_allclose(-case["alpha"] * moved, column(case, "paper_reference", "client_gradients"), **CLOSE)
    assert_allclose(-case["alpha"] * h, column(case, "paper_reference", "server_h"), **CLOSE)
    assert_allclose(h, moved.mean(1), **CLOSE)
    if case["paper_equals_code"]:
        assert_allclose(params, column(case, "rounds", "server_model"), **CLOSE)
        assert_allclose(moved, column(case, "rounds", "client_memories"), **CLOSE)


@named("ditto", lambda case: not case["dynamic_lam"] and not case["q"])
@pytest.mark.parametrize("after", [False, True], ids=["in turn", "after"])
def test_ditto_is_the_authors(case, after):
    """A step of each model in turn, or the personal steps after the global: the anchor is the received model."""
    method = ff.ditto(case["lam"], case["local_steps"] if after else None, ff.fedavg("uniform"))
    settings = {"loss": ff.losses.sigmoid_cross_entropy, "client_block": 1 if after else None}
    params, own, _ = trajectory(case, method, logistic(case), **settings)
    assert_allclose(params, column(case, "rounds", "global_model"), **CLOSE)
    assert_allclose(own, column(case, "rounds", "personal_models"), **CLOSE)


@named("fednova", lambda case: not case["mu"])
def test_fednova_weighs_as_the_authors(case):
    rule, w = ff.fednova(case["momentum"]), np.array(case["w0"])
    weigh = jax.jit(rule.weigh)
    for played in case["rounds"]:
        report = make_report(0, range(len(case["sizes"])))._replace(
            n=jnp.asarray(case["sizes"], float), steps=jnp.asarray(played["steps"], jnp.int32)
        )
        coef, _ = weigh((), report, jax.random.key(0))
        assert_allclose(coef, played["coefficients"], **CLOSE)
        if not case["gmf"]:
            w = w + np.asarray(coef) @ (np.array(played["local_models"]) - w)
            assert_allclose(w, played["model"], **CLOSE)

"""Iterate averaging: the mean of the models is judged, the last one is trained on."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from contract import golden, make_report

import fedjax_fair as ff


def federation(**options):
    data = ff.data.synthetic(n_clients=6, seed=0, max_size=60)
    return ff.simulation(
        ff.models.logistic_regression(),
        data,
        aggregator=ff.afl(0.1),
        trainer=ff.local_sgd(optax.sgd(0.1), batch_size=20),
        **options,
    )


def test_the_deployed_model_is_the_mean_of_all_iterates():
    sim = federation(server_optimizer=ff.average_iterates(), deploy=ff.averaged)
    state, step = sim.init(jax.random.key(0)), jax.jit(sim.step)
    models = []
    for _ in range(4):
        state, _ = step(state, sim.data)
        models.append(state.params)
    mean = jax.tree.map(lambda *leaves: sum(leaves) / 4, *models)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), ff.averaged(state), mean)


def test_the_mean_of_a_bfloat16_model_does_not_stick():
    """A hundred models, whose mean moves by less than a bfloat16 tells apart."""
    params = {"w": jnp.ones(3, jnp.bfloat16)}
    outer = ff.average_iterates(optax.sgd(1.0))

    def step(carry, i):
        params, state = carry
        moves, state = outer.update({"w": jnp.full(3, -(2.0**-7), jnp.bfloat16)}, state, params)
        params = optax.apply_updates(params, moves)
        return (params, state), params["w"]

    (last, state), models = jax.lax.scan(step, (params, outer.init(params)), jnp.arange(127))
    mean = ff.averaged(SimpleNamespace(server=state, params=last))["w"]
    assert mean.dtype == jnp.bfloat16
    np.testing.assert_allclose(mean.astype(float), models.astype(jnp.float32).mean(0), rtol=4e-3)


def test_frozen_leaves_have_no_mean():
    sim = federation(server_optimizer=ff.average_iterates(), deploy=ff.averaged, freeze="bias")
    state, _ = ff.run(sim, 0, 2)
    assert ff.averaged(state)["Dense_0"]["bias"] is None
    assert ff.averaged(state)["Dense_0"]["kernel"].shape == state.params["Dense_0"]["kernel"].shape


def test_training_is_that_of_the_wrapped_optimiser():
    """Bit for bit, update by update; as two whole programs, which are compiled differently, to rounding."""
    params = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.ones(3)}
    inner, outer = optax.adam(0.1), ff.average_iterates(optax.adam(0.1))
    state, wrapped_state = inner.init(params), outer.init(params)
    for step in range(4):
        g = jax.tree.map(lambda p, s=step: jnp.sin(p + s), params)
        moved, state = inner.update(g, state, params)
        same, wrapped_state = outer.update(g, wrapped_state, params)
        jax.tree.map(np.testing.assert_array_equal, moved, same)
        params = optax.apply_updates(params, moved)
    plain, _ = ff.run(federation(server_optimizer=optax.adam(0.1)), 0, 4)
    wrapped, _ = ff.run(federation(server_optimizer=ff.average_iterates(optax.adam(0.1)), deploy=ff.averaged), 0, 4)
    to_rounding = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    jax.tree.map(to_rounding, plain.params, wrapped.params)


def test_the_history_is_of_the_mean():
    last = ff.run(federation(server_optimizer=ff.average_iterates()), 0, 6, eval_every=3)[1]
    mean = ff.run(federation(server_optimizer=ff.average_iterates(), deploy=ff.averaged), 0, 6, eval_every=3)[1]
    assert not np.allclose(last.loss, mean.loss)


def test_deploying_the_mean_needs_a_mean():
    with pytest.raises(ValueError, match=r"averaged needs server_optimizer=ff\.average_iterates"):
        ff.run(federation(deploy=ff.averaged), 0, 1)


def test_afl_with_averaging_is_the_authors_model():
    with jax.enable_x64(True):
        for case in golden("afl")["cases"]:
            rule, optimizer = ff.afl(case["lr_lambda"]), ff.average_iterates()
            w = jnp.asarray(case["w0"], jnp.float64)
            server, weights = optimizer.init(w), rule.init(jnp.ones(len(case["rounds"][0]["losses"])))
            for played in case["rounds"]:
                updates = -np.asarray(played["deltas"], np.float64)
                report = make_report(0, np.arange(len(updates)))
                losses = jnp.asarray(played["losses"], jnp.float64)
                report = report._replace(loss=losses, n=jnp.ones_like(losses))
                coef, weights = rule.weigh(weights, report, jax.random.key(0))
                move, server = optimizer.update(-(coef @ updates), server, w)
                w = w + move
                np.testing.assert_allclose(server.average, played["w_avg"], atol=1e-8)

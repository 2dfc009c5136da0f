"""Programs compiled with options of ours: only where they are meant, and with the same results."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy import KEY, close, compilations, optimized

import fedjax_fair as ff
from fedjax_fair.compiled import compiled, once
from fedjax_fair.run import STATIC, is_brief, play

WRONG = {"xla_no_such_option": True}
IMAGES = jnp.zeros((2, 16, 16, 1))


@pytest.fixture(autouse=True)
def optimising():
    """The options are left out where JAX was told not to optimise, as these tests are otherwise."""
    with optimized(True):
        yield


def test_options_reach_the_compiler_only_when_they_are_wanted():
    double = compiled(lambda x: 2 * x, WRONG, lambda x: x.ndim == 1)
    assert double(jnp.array(3)) == 6
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_no_such_option"):
        double(jnp.array([3]))
    with optimized(False):
        assert double(jnp.array([3])) == 6


def test_static_arguments_and_donation_are_those_of_jit():
    power = compiled(lambda x, *, by: x**by, {}, lambda x: True, static_argnames="by", donate_argnames="x")
    given = jnp.array([2.0, 3.0])
    assert power(given, by=3).tolist() == [8, 27]
    assert given.is_deleted()


def test_a_function_that_runs_once_has_options_only_where_it_is_a_program_of_its_own(monkeypatch):
    monkeypatch.setattr("fedjax_fair.compiled.ONCE", WRONG)
    double = once(lambda x: 2 * x)
    with pytest.raises(jax.errors.JaxRuntimeError, match="xla_no_such_option"):
        double(jnp.array(3))
    assert jax.jit(double)(3) == 6
    assert jax.vmap(double)(jnp.arange(3)).tolist() == [0, 2, 4]
    assert jax.eval_shape(double, jnp.array(3)).shape == ()


@pytest.mark.parametrize(
    "model", [ff.models.mlp((8,)), ff.models.cnn(channels=(2, 3), hidden=4)], ids=["mlp", "cnn"]
)
def test_a_models_first_draw_is_one_program_and_that_of_its_operations(model):
    model.init(KEY, IMAGES)  # what JAX itself compiles for the key
    with compilations() as made:
        drawn = model.init(jax.random.key(1), IMAGES[:1])
    assert made.names.count("jit(init)") == 1
    with jax.disable_jit():
        close(drawn, model.init(jax.random.key(1), IMAGES[:1]), rtol=1e-5, atol=1e-7)


def test_equal_stock_models_are_one():
    assert ff.models.mlp((8,)) is ff.models.mlp([8])
    assert ff.models.mlp((8,)) is not ff.models.mlp((9,))
    assert ff.models.cnn().init is ff.models.cnn().init


def small_and_large(width):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(120, 20)).astype(np.float32), rng.integers(0, 10, 120)
    data = ff.FederatedData.from_arrays(x, y, client_id=np.arange(120) % 4)
    trainer = ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=10)
    return ff.simulation(ff.models.mlp(width), data, aggregator=ff.fedmaba(), trainer=trainer)


def test_only_rounds_of_small_models_are_brief():
    small, large = (small_and_large(width).init(KEY).params for width in ((), (2000,)))
    assert is_brief(small) == (jax.default_backend() == "cpu")
    assert not is_brief(large)


def test_a_small_models_rounds_have_the_results_that_xlas_defaults_give():
    sim = small_and_large(())
    plain = jax.jit(play, static_argnames=STATIC)
    functions = {"step": sim.step, "evaluate": sim.evaluate, "deploy": sim.deploy}
    state, (info, scores) = plain(sim.init(KEY), sim.data, **functions, evaluations=3, every=5)
    mine, history = ff.run(sim, KEY, 15, eval_every=5, chunk=3)
    close(mine.params, state.params, rtol=1e-5, atol=1e-6)
    close(history.scores["test"].loss, scores["test"].loss, rtol=1e-5)
    np.testing.assert_array_equal(history.ids, np.asarray(info.ids).reshape(15, -1))

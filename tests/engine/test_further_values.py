"""Further inputs of the kinds that gave wrong numbers in silence, played for some rounds: right, or told."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from contract import coefficients, make_report
from engine.test_further_parts import told
from flax import nnx

import fedjax_fair as ff

X = np.random.default_rng(0).normal(size=(60, 3)).astype("f")
Y = (X[:, 0] > 0).astype(int)
SGD = ff.local_sgd(optax.sgd(0.1), steps=4, batch_size=5)
SLOPE = (lambda key, x: {"w": jnp.zeros(())}, lambda p, x: p["w"] + 0 * x[:, 0])  # a model of one number, w


def federation(x=X, y=Y, clients=3, **settings):
    return ff.FederatedData.from_arrays(x, y, client_id=np.arange(len(x)) % clients, **settings)


def play(model, data=None, rounds=5, eval_every=None, seed=0, **settings):
    settings = {"aggregator": ff.fedavg(), "trainer": SGD, "evaluate": ("train",)} | settings
    sim = ff.simulation(model, federation() if data is None else data, **settings)
    return ff.run(sim, seed, rounds, eval_every=eval_every or rounds)


def test_one_client_feature_output_width_step_and_example_train_as_by_hand():
    data = federation(np.ones((1, 1), "f"), [1], clients=1, split=(1, 0, 0))
    trainer = ff.local_sgd(optax.sgd(0.5), steps=1, batch_size=None)
    settings = {"loss": ff.losses.sigmoid_cross_entropy, "trainer": trainer}
    flat = (lambda key, x: {"w": jnp.zeros(1), "b": jnp.zeros(())}, lambda p, x: x @ p["w"] + p["b"])
    logistic = play(flat, data, 2, **settings)[1]
    w = b = 0.0
    for _ in range(2):
        w, b = (p + 0.5 / (1 + np.exp(w + b)) for p in (w, b))
    np.testing.assert_allclose(logistic.loss[-1], np.log1p(np.exp(-w - b)), rtol=1e-5)
    wide = play(ff.models.mlp((1,), classes=1), data, 2, **settings)[1]
    assert np.isfinite(wide.loss).all()


@pytest.mark.parametrize("rule", [ff.afl(), ff.term(1.0), ff.loss_proportional(), ff.aaggff_d()])
def test_the_only_client_has_all_the_weight(rule):
    alone = make_report(0, [0])
    np.testing.assert_allclose(coefficients(rule, alone, alone, sizes=np.ones(1)), 1, rtol=1e-5)


def test_the_only_client_has_all_the_weight_in_a_run():
    model, data = ff.models.logistic_regression(classes=2), federation(clients=1)
    history = play(model, data, 2, aggregator=ff.fedmaba())[1]
    np.testing.assert_allclose(history.coef, 1, rtol=1e-5)


def test_a_column_of_outputs_learns_plain_targets_by_the_stock_squared_error():
    y = X @ np.array([1, -2, 0.5], "f")
    settings = {"loss": ff.losses.squared_error, "metric": ff.losses.squared_error}
    state, history = play(ff.models.logistic_regression(classes=1), federation(y=y), 100, **settings)
    kernel = next(p for p in jax.tree.leaves(state.params) if p.ndim == 2)
    np.testing.assert_allclose(np.ravel(kernel), [1, -2, 0.5], atol=0.02)
    assert history.metric.higher_is_better is False


def test_class_labels_stored_as_floats_are_refused():
    data = federation(y=Y.astype("f"))
    with pytest.raises(ValueError, match="integer labels"):
        ff.simulation(ff.models.logistic_regression(classes=2), data, aggregator=ff.fedavg(), trainer=SGD)


class Unswitched(nnx.Module):
    """Dropout that only the module's own ``train()`` and ``eval()`` turn."""

    def __init__(self, rngs):
        self.w, self.drop = nnx.Param(jnp.ones(3)), nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.drop(jnp.ones_like(x)) @ self.w[...] / 3


class Switched(nn.Module):
    @nn.compact
    def __call__(self, x, *, training: bool):
        w = self.param("w", nn.initializers.ones, (3,))
        return nn.Dropout(0.5, broadcast_dims=(0,))(jnp.ones_like(x), deterministic=not training) @ w / 3


@pytest.mark.parametrize("model", [Unswitched, Switched()], ids=["nnx", "linen"])
def test_dropout_is_on_in_training_and_off_in_evaluations(model):
    still = {"trainer": ff.local_sgd(optax.sgd(1e-5), steps=8, batch_size=5), "loss": lambda o, y: o}
    _, history = play(model, rounds=1, aggregator=ff.qfedsgd(q=1.0, lipschitz=10.0), metric=lambda o, y: o, **still)
    np.testing.assert_allclose(history.loss, 1, rtol=1e-3)  # 1 whoever is evaluated
    assert np.ptp(history.coef) > 0  # the losses of training, which qfedsgd hears, are disturbed


def test_what_a_linen_module_sows_is_no_obstacle():
    class Sown(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.Dense(2)(x)
            self.sow("intermediates", "x", x)
            return x

    assert np.isfinite(play(Sown())[1].loss).all()


def test_a_model_in_half_precision_moves_by_small_steps_or_is_told():
    half = (lambda key, x: {"w": jnp.ones((), jnp.bfloat16)}, lambda p, x: p["w"] + 0 * x[:, 0])
    small = {
        "trainer": ff.local_sgd(optax.sgd(1e-3), steps=1, batch_size=5),
        "loss": lambda o, y: o,
        "metric": lambda o, y: o,
    }
    with told("moved the model"):  # a step is an eighth of the gap between neighbours at 1: rounded away
        play(half, rounds=50, **small)


def test_losses_below_0_are_told_where_a_rule_has_no_use_for_them():
    with told("below 0"):
        play(
            SLOPE,
            rounds=2,
            aggregator=ff.reweighted(jnp.log),
            loss=lambda o, y: o - 1,
            metric=lambda o, y: 0 * o,
        )


def test_a_server_that_blows_the_model_up_is_never_fair():
    infinite = optax.chain(optax.sgd(1.0), optax.scale(jnp.inf))
    history = play(ff.models.logistic_regression(classes=2), rounds=2, server_optimizer=infinite)[1]
    assert history.failed.all()
    assert "1.000" not in ff.table({"blown": history})
    assert "not finite" in ff.table({"blown": history})


def test_an_infinite_metric_is_a_failure_also_in_a_data_frame():
    pytest.importorskip("pandas")
    x = X.copy()
    x[0] = 50.0
    metric = ff.Metric(lambda o, y: jnp.where(o > 40, jnp.inf, 0.5), range=(0, jnp.inf), unit="")
    model = (lambda key, x: {"w": jnp.ones(())}, lambda p, x: p["w"] * x[:, 0])
    still = ff.local_sgd(optax.sgd(1e-6), steps=1, batch_size=5)
    data = federation(x, split=(1, 0, 0))
    history = play(model, data, 1, loss=ff.losses.squared_error, metric=metric, trainer=still)[1]
    assert history.failed.tolist() == [[True, False, False]]
    assert history.to_pandas().failed.tolist() == [True, False, False]


def test_rules_that_never_had_a_choice_are_flagged_in_a_table():
    model, alone = ff.models.logistic_regression(classes=2), ff.uniform(1)
    runs = {n: play(model, selector=alone, aggregator=r)[1] for n, r in (("term", ff.term(1.0)), ("afl", ff.afl()))}
    assert "Identical, bit for bit: term, afl" in ff.table(runs)


NOTHING = {
    "all crash": (
        {"faults": [ff.faults.not_finite(np.ones(3, bool))]},
        "no update was used in 3 rounds.*sent what is not finite",
    ),
    "a schedule of 0": (
        {"trainer": ff.local_sgd(optax.sgd(0.1), steps=1, batch_size=5, schedule=lambda r: 0.0 * r)},
        "no update moved the model in 3 rounds.*rates of trainer",
    ),
    "all parameters frozen": (
        {"trainer": ff.local_sgd(optax.set_to_zero(), steps=1, batch_size=5)},
        "no update moved the model in 3 rounds.*none that is large enough to change a weight",
    ),
}


@pytest.mark.parametrize("name", NOTHING)
def test_a_model_that_nobody_moves_is_told(name):
    settings, words = NOTHING[name]
    with told(words):
        play(ff.models.logistic_regression(classes=2), rounds=3, **settings)


def test_a_metric_that_is_the_loss_in_other_clothes_is_lower_the_better():
    huber = functools.partial(optax.huber_loss, delta=2.0)
    y = X[:, 1] * 3
    history = play(SLOPE, federation(y=y), loss=huber, metric=huber)[1]
    assert history.metric.higher_is_better is False
    jitted = play(SLOPE, federation(y=y), loss=huber, metric=jax.jit(ff.losses.squared_error))[1]
    assert jitted.metric.higher_is_better is False
    assert "acc %" not in ff.table({"r": history})


def test_an_error_above_1_that_nobody_called_one_is_refused_where_it_is_printed():
    history = play(SLOPE, federation(y=X[:, 1] * 9), loss=ff.losses.squared_error, metric=lambda o, y: abs(o - y))[
        1
    ]
    with pytest.raises(ValueError, match=r"Metric|range"):
        ff.table({"r": history})


def test_stopping_early_does_not_stop_an_error_that_falls():
    error = ff.Metric(lambda o, y: abs(o - y), higher_is_better=False, unit="", range=(0, jnp.inf))
    sim = ff.simulation(
        SLOPE,
        federation(y=np.full(60, 5.0, "f")),
        aggregator=ff.fedavg(),
        trainer=ff.local_sgd(optax.sgd(0.01), steps=1, batch_size=5),
        loss=ff.losses.squared_error,
        metric=error,
    )
    stop = ff.callbacks.early_stopping(patience=2, measure="worst5")
    history = ff.run(sim, 0, 8, eval_every=1, chunk=1, on_chunk=stop)[1]
    assert len(history.rounds) == 8


def test_a_step_by_hand_on_data_of_another_form_is_one_sentence():
    sim = ff.simulation(ff.models.logistic_regression(classes=2), federation(), aggregator=ff.fedavg(), trainer=SGD)
    state = sim.init(jax.random.key(0))
    for other in (federation(X[:, :2]), federation(clients=4), federation(X[:30], Y[:30])):
        with pytest.raises(ValueError, match="data") as refusal:
            jax.eval_shape(sim.step, state, other)
        assert "\n" not in str(refusal.value)


def test_a_label_without_an_output_has_no_loss():
    with pytest.raises(ValueError, match="label"):
        ff.losses.softmax_cross_entropy(jnp.array([[3.0, -1.0]]), jnp.array([2]))
    assert np.isnan(jax.jit(ff.losses.softmax_cross_entropy)(jnp.array([[3.0, -1.0]]), jnp.array([2])))
    with pytest.raises(ValueError, match="label"):
        ff.losses.sigmoid_cross_entropy(jnp.array([3.0]), jnp.array([2]))

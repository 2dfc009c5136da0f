"""What every part of a round is told: the right split, the received model, fresh keys, the round, dropout's key."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy import DRAWS, FULL, KEY, SIZES, close, examples, linear, linear_apply, mean_loss, play, simulation

import fedjax_fair as ff

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def test_the_accuracy_that_a_rule_hears_is_that_of_the_validation_split():
    """Twenty examples of each client in each split: no two agree by chance."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(180, 4)).astype(np.float32), rng.integers(0, 3, 180)
    data = ff.FederatedData.from_arrays(x, y, client_id=np.arange(180) % 3, split=(1 / 3, 1 / 3, 1 / 3))
    keep = ff.Aggregator(lambda sizes, key=None: jnp.zeros(3), lambda state, r, key: (0 * r.n, r.accuracy))
    sim = simulation(data, keep)
    heard, params = play(sim)[0].aggregator, sim.init(KEY).params
    right = {}
    for split in ("train", "validation", "test"):
        own = [examples(data, k, split) for k in range(3)]
        right[split] = [(linear_apply(params, a).argmax(1) == b).mean() for a, b in own]
    np.testing.assert_allclose(heard, right["validation"], rtol=1e-6)
    assert not np.isclose(right["validation"], right["test"]).all()
    assert not np.isclose(right["validation"], right["train"]).all()


def test_fedprox_pulls_every_step_towards_the_received_model(data):
    """By hand, three full-batch steps: v <- v - eta (g + mu (v - w)); without the anchor it would be FedAvg."""
    trainer = ff.local_sgd(optax.sgd(0.1), epochs=3, batch_size=None)
    sim = simulation(data, ff.fedprox(2.0), trainer)
    start, sent = sim.init(KEY).params, []
    for k in range(len(SIZES)):
        x, y = map(jnp.array, examples(data, k))
        v = start
        for _ in range(3):
            slope = jax.grad(mean_loss)(v, x, y)
            v = jax.tree.map(lambda v, g, w: v - 0.1 * (g + 2.0 * (v - w)), v, slope, start)
        sent.append(v)
    share = np.array(SIZES) / sum(SIZES)
    expected = jax.tree.map(lambda *models: sum(s * w for s, w in zip(share, models)), *sent)
    close(play(sim)[0].params, expected, rtol=1e-5, atol=1e-6)
    assert np.abs(play(simulation(data, trainer=trainer))[0].params["w"] - expected["w"]).max() > 1e-2


def test_every_round_draws_anew(data):
    """From the same model (all coefficients are 0): other batches, another key for the rule, other absences."""
    keep = ff.Aggregator(
        lambda sizes, key=None: (jnp.zeros((5, 4, 3)), jnp.zeros(())),
        lambda state, r, key: (0 * r.n, (r.updates["w"], jax.random.uniform(key))),
    )
    sim = simulation(data, keep, DRAWS)
    (first, number), (second, another) = (play(sim, rounds)[0].aggregator for rounds in (1, 2))
    assert (np.abs(first - second).max((1, 2)) > 1e-4).all()
    assert number != another
    _, infos = play(simulation(data, available=ff.availability.bernoulli(0.5)), 12)
    there = np.mean([info.active for info in infos], axis=0)
    assert (there > 0).all()
    assert (there < 1).all()


def test_trainer_and_selector_are_told_the_round(data):
    """The learning rate is 0 in round 1 alone; the clients take turns."""
    trainer = FULL._replace(schedule=lambda r: jnp.where(r == 1, 0.0, 1.0))

    def select(state, key, context):
        return (context.round + jnp.arange(2)) % context.n_clients, state

    turns = ff.Selector(lambda sizes, key=None: (), select, lambda state, report: state, 2)
    sim = simulation(data, trainer=trainer, selector=turns)
    w = [play(sim, rounds)[0].params["w"] for rounds in (0, 1, 2, 3)]
    assert [bool((a == b).all()) for a, b in pairwise(w)] == [False, True, False]
    assert [info.ids.tolist() for info in play(sim, 3)[1]] == [[0, 1], [1, 2], [2, 3]]


@pytest.mark.parametrize("server", [optax.adam(0.1), ff.average_iterates()], ids=["adam", "averaged"])
def test_a_round_without_anybody_leaves_the_server_as_it_was(data, server):
    """Momentum would move on, the mean would count the model twice."""
    sim = simulation(data, server_optimizer=server, available=ff.availability.trace([[1] * 5, [0] * 5]))
    (before, _), (after, _) = play(sim, 1), play(sim, 2)
    close((after.params, after.server), (before.params, before.server), rtol=0)


def test_dropout_is_on_in_training_and_off_everywhere_else(data):
    """A model that in training passes nothing on: no gradient; wherever losses are measured it is itself."""
    model = (linear[0], lambda params, x, key: linear_apply(params, x) * (1.0 if key is None else 0.0))
    sim = ff.simulation(model, data, aggregator=ff.fedmaba(), trainer=FULL)
    start = sim.init(KEY)
    state, (info,) = play(sim)
    close(state.params, start.params, rtol=0)
    plain = [mean_loss(start.params, *examples(data, k)) for k in range(5)]
    np.testing.assert_allclose(info.loss, plain, rtol=1e-5)
    tested = [mean_loss(start.params, *examples(data, k, "test")) for k in range(5)]
    np.testing.assert_allclose(sim.evaluate(state.params, data)["test"].loss, tested, rtol=1e-5)

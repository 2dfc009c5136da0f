"""One round: against the same round written by hand, whoever trains beside whom, paying only for what is read."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from toy import (
    DRAWS,
    FULL,
    KEY,
    SIZES,
    close,
    examples,
    federation,
    flop_of,
    linear,
    linear_apply,
    linear_init,
    mean_loss,
    play,
    simulation,
)

import fedjax_fair as ff
from fedjax_fair.engine.blocks import choose_eval_batch
from fedjax_fair.local.objectives import erm
from fedjax_fair.types import Client

TWICE = ff.local_sgd(optax.sgd(0.1), epochs=2, batch_size=None)
BATCHES = ff.local_sgd(optax.sgd(0.1), epochs=2, batch_size=3)


pytestmark = pytest.mark.usefixtures("quick_to_compile")


def rule(weigh):
    """A user's own rule: any function ``report -> coef``."""
    return ff.Aggregator(lambda sizes, key=None: (), lambda state, report, key: (weigh(report), state))


def mean(report):
    return jnp.full(report.n.shape, 1 / report.n.shape[0])


# A round by hand, in float64


def local_work_by_hand(sim, trainer, state, ids):
    """Parameters that each client sends back in the first round, trained one by one."""

    def loss(params, batch, anchor):
        logits = linear_apply(params, batch.x)
        losses = jax.nn.logsumexp(logits, axis=1) - jnp.take_along_axis(logits, batch.y[:, None], 1)[:, 0]
        return erm(losses, batch.mask, params, anchor), erm(losses, batch.mask, params, anchor)

    @jax.jit
    def train(id):
        train_key = jax.random.split(jax.random.fold_in(state.key, 0), 3)[1]
        table = sim.data.train
        rows = table.rows[jnp.minimum(table.start[id] + jnp.arange(max(SIZES)), sum(SIZES) - 1)]
        client = Client(id, rows, table.size[id], sim.data.take)
        return trainer(loss, state.params, client, jax.random.fold_in(train_key, id), jnp.int32(0))[0]

    return [train(id) for id in ids]


@pytest.mark.parametrize(("cohort", "trainer"), [(3, BATCHES), (5, DRAWS)], ids=["some", "all"])
def test_a_round_of_fedavg_is_the_papers(cohort, trainer):
    with jax.enable_x64(True):
        sim = simulation(federation(dtype=np.float64), trainer=trainer, selector=ff.uniform(cohort))
        state, (info,) = play(sim)
        start, n = sim.init(KEY), np.array(SIZES)[info.ids]
        sent = local_work_by_hand(sim, trainer, start, info.ids)
        expected = jax.tree.map(lambda *models: sum(share * w for share, w in zip(n / n.sum(), models)), *sent)
        close(state.params, expected, rtol=1e-12)
        np.testing.assert_allclose(info.coef, n / n.sum(), rtol=1e-12)
        assert info.active.all()
        assert int(state.round) == 1


@pytest.mark.parametrize("q", [1.0, 2.5])
def test_a_round_of_qfedavg_is_the_papers(q):
    with jax.enable_x64(True):
        sim = simulation(federation(dtype=np.float64), ff.qfedavg(q, lipschitz=10.0), TWICE, selector=ff.uniform(3))
        state, (info,) = play(sim)
        start = sim.init(KEY)
        w = ravel_pytree(start.params)[0]
        steps, weights = 0, 0
        for k, model in zip(info.ids, local_work_by_hand(sim, TWICE, start, info.ids)):
            loss = mean_loss(start.params, *map(jnp.array, examples(sim.data, int(k)))) + 1e-10
            v = 10.0 * (w - ravel_pytree(model)[0])
            steps += loss**q * v
            weights += q * loss ** (q - 1) * (v @ v) + 10.0 * loss**q
        np.testing.assert_allclose(ravel_pytree(state.params)[0], w - steps / weights, rtol=1e-10)


def test_the_report_holds_what_the_clients_would_say(data):
    """Read through a rule that hides each signal in its state."""
    keep = ff.Aggregator(
        lambda sizes, key=None: ff.Report(
            *[jnp.zeros(3)] * 7,
            jnp.zeros((3, 3)),
            {"w": jnp.zeros((3, 4, 3)), "b": jnp.zeros((3, 3))},
            steps=jnp.zeros(3),
        ),
        lambda state, report, key: (mean(report), jax.tree.map(lambda v: v.astype(jnp.float32), report)),
    )
    sim = simulation(data, keep, selector=ff.uniform(3))
    state, start = play(sim)[0], sim.init(KEY).params
    report, ids = state.aggregator, state.aggregator.ids.astype(int)
    own = [tuple(map(jnp.array, examples(data, k))) for k in ids]
    gradients = [jax.grad(mean_loss)(start, *mine) for mine in own]
    np.testing.assert_array_equal(report.n, np.array(SIZES)[ids])
    np.testing.assert_allclose(report.loss, [mean_loss(start, *mine) for mine in own], rtol=1e-5)
    np.testing.assert_allclose(report.train_loss, report.loss, rtol=1e-5)  # one full-batch step
    np.testing.assert_array_equal(report.train_loss_std, 0)
    np.testing.assert_array_equal(report.steps, 1)
    right = [
        (linear_apply(start, x).argmax(1) == y).mean() for x, y in (examples(data, k, "validation") for k in ids)
    ]
    np.testing.assert_allclose(report.accuracy, right)
    close(report.updates, jax.tree.map(lambda *g: -0.1 * jnp.stack(g), *gradients), atol=1e-6)
    flat = np.concatenate([np.reshape(leaf, (3, -1)) for leaf in jax.tree.leaves(report.updates)], axis=1)
    np.testing.assert_allclose(report.gram, flat @ flat.T, rtol=1e-4, atol=1e-6)


# Who trains beside whom makes no difference


def test_a_model_in_half_precision_is_measured_in_full():
    """600 examples, all classified rightly: counted in bfloat16, 256 and one are 256."""
    data = ff.FederatedData.from_arrays(
        np.ones((1200, 2), np.float32), np.zeros(1200, int), client_id=np.repeat([0, 1], 600), split=(0.5, 0, 0.5)
    )
    half = (
        lambda key, x: jnp.zeros((3,)),
        lambda w, x: jnp.array([[1.0, 0, 0]], jnp.bfloat16) + (x[:, :1] * w[None, :]).astype(jnp.bfloat16),
    )
    sim = ff.simulation(
        half,
        data,
        aggregator=rule(lambda report: jnp.where(report.loss > 0, mean(report), 0)),
        trainer=FULL,
        metric=lambda logits, y: logits.argmax(-1) == y,
    )
    _, history = ff.run(sim, 0, 1)
    assert history.accuracy.dtype == history.loss.dtype == np.float32
    np.testing.assert_array_equal(history.accuracy, 1)
    np.testing.assert_allclose(history.received_loss, np.log(np.e + 2) - 1, rtol=1e-2)


def example_by_example(loss, params, client, key, round):
    """A trainer of one step per example: clients of different sizes are done at different times."""

    def step(k, carry):
        params, _ = carry
        x, y = client.take(client.rows[k][None])
        grads, plain = jax.grad(loss, has_aux=True)(params, ff.Batch(x, y, jnp.ones(1, bool)), params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), plain

    params, plain = jax.lax.fori_loop(0, client.size, step, (params, jnp.zeros(())))
    return params, ff.Trace(plain, jnp.zeros(()))


def test_clients_in_blocks_of_any_size_train_the_same(data):
    """The last block of 2 or 3 among five clients is smaller."""

    def three_rounds(block):
        state, infos = play(
            simulation(data, rule(lambda r: r.train_loss), example_by_example, client_block=block), 3
        )
        return state.params, infos

    whole = three_rounds(None)
    for block in (1, 2, 3, "auto"):
        close(three_rounds(block), whole, rtol=1e-4, atol=1e-6)


def test_how_many_examples_a_forward_pass_takes():
    assert choose_eval_batch(None, {"w": np.zeros((60, 10))}) == 4096
    assert choose_eval_batch(None, {"w": np.zeros((784, 200))}) == 512
    assert choose_eval_batch(None, {"kernel": np.zeros((3, 3, 1, 8))}) == 512
    assert choose_eval_batch(7, {"w": np.zeros((60, 10))}) == 7


def test_losses_and_evaluation_are_the_same_in_batches_of_any_size(data):
    def after_a_round(size):
        """The received model's losses, and the scores of the new one."""
        sim = ff.simulation(
            linear,
            data,
            aggregator=ff.fedmaba(),
            trainer=ff.local_sgd(optax.sgd(0.1), batch_size=4),
            eval_batch=size,
        )
        state, info = jax.jit(sim.step)(sim.init(jax.random.key(0)), data)
        return info.loss, jax.jit(sim.evaluate)(state.params, data)["test"]

    usual = after_a_round(None)
    for size in (1, 4, 7, 512):
        close(after_a_round(size), usual, rtol=1e-5)


def test_fedsgd_is_fedavg_with_one_full_batch_step_whatever_the_trainer_says(data):
    one, _ = play(simulation(data, ff.fedsgd(), BATCHES), 3)
    other, _ = play(simulation(data, ff.fedavg(), FULL), 3)
    close(one.params, other.params, rtol=1e-6)


def test_rules_share_initial_model_selection_and_batches_for_the_same_seed(data):
    """With one client a round every weight rule gives it coefficient 1: nothing else may differ."""
    runs = [play(simulation(data, r, DRAWS, selector=ff.uniform(1)), 4) for r in (ff.fedavg(), ff.fedmaba())]
    ids = [[int(info.ids[0]) for info in infos] for _, infos in runs]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) > 1
    (one, _), (other, _) = runs
    close(one.params, other.params, rtol=1e-5)


def test_local_momentum_starts_afresh_each_round():
    data = federation((6,))
    state, _ = play(simulation(data, trainer=ff.local_sgd(optax.sgd(0.1, 0.9), epochs=2, batch_size=None)), 2)
    x, y = map(jnp.array, examples(data, 0))
    params = simulation(data).init(KEY).params
    for _ in range(2):
        memory = jax.tree.map(jnp.zeros_like, params)
        for _ in range(2):
            memory = jax.tree.map(lambda m, g: 0.9 * m + g, memory, jax.grad(mean_loss)(params, x, y))
            params = jax.tree.map(lambda p, m: p - 0.1 * m, params, memory)
    close(state.params, params, rtol=1e-5)


def test_the_server_optimiser_sees_the_negated_average_as_its_gradient(data):
    adam = optax.adam(0.01)
    sim, plain = simulation(data, server_optimizer=adam), simulation(data)
    state, _ = play(sim, 3)
    params, memory, step = sim.init(KEY).params, adam.init(sim.init(KEY).params), jax.jit(plain.step)
    for round in range(3):
        after, _ = step(plain.init(KEY)._replace(params=params, round=jnp.int32(round)), data)
        moved, memory = adam.update(jax.tree.map(jnp.subtract, params, after.params), memory)
        params = optax.apply_updates(params, moved)
    close(state.params, params, rtol=1e-5)


def test_a_transform_meets_the_report_before_the_server_optimiser(data):
    def update(moved, state, params=None, *, report, **_):
        return jax.tree.map(lambda leaf: leaf / report.n.sum(), moved), state

    transform = optax.GradientTransformationExtraArgs(lambda params: (), update)
    method = ff.Method(ff.fedavg(), transform=transform)
    (halved, _), (whole, _) = play(simulation(data, method)), play(simulation(data))
    start = simulation(data).init(KEY).params
    close(
        jax.tree.map(jnp.subtract, halved.params, start),
        jax.tree.map(lambda after, before: (after - before) / sum(SIZES), whole.params, start),
        rtol=1e-3,
        atol=1e-7,
    )


def test_evaluation_is_each_clients_mean_on_each_split(data):
    sim = simulation(data, evaluate=("validation", "train"))
    params = sim.init(KEY).params
    result = jax.jit(sim.evaluate)(params, data)
    assert list(result) == ["validation", "train"]
    for split, evaluation in result.items():
        own = [examples(data, k, split) for k in range(5)]
        np.testing.assert_allclose(evaluation.loss, [mean_loss(params, x, y) for x, y in own], rtol=1e-5, atol=1e-6)
        right = [(linear_apply(params, x).argmax(1) == y).mean() for x, y in own]
        np.testing.assert_allclose(evaluation.accuracy, right, rtol=1e-6)


# The cost of a signal


def reading(*signals):
    """A rule that reads these."""

    def coef(report):
        read = (jnp.asarray(getattr(report, name)).reshape(report.n.shape[0], -1).sum(1) for name in signals)
        return report.n / report.n.sum() + sum(read)

    return rule(coef)


@pytest.fixture(scope="module")
def flops():
    """Flop of one compiled round on ten clients with fifty examples of 256 features, by the signals read."""
    data = federation((50,) * 10, dim=256)

    def count(aggregator):
        sim = simulation(data, aggregator)
        return flop_of(sim.step, jax.eval_shape(sim.init, KEY), data)

    def stripped(params, data):
        def update(k):
            x, y = data.take(data.train.rows[data.train.start[k] + jnp.arange(50)])
            return jax.tree.map(lambda g: -0.1 * g, jax.grad(mean_loss)(params, x, y))

        updates = jax.vmap(update)(jnp.arange(10))
        return jax.tree.map(lambda p, u: p + jnp.tensordot(jnp.full(10, 0.1), u, 1), params, updates)

    by_hand = flop_of(stripped, jax.eval_shape(linear_init, KEY, data.x), data)
    names = ("train_loss", "train_loss_std", "accuracy", "gram", "loss")
    return {"by hand": by_hand, "fedavg": count(ff.fedavg())} | {name: count(reading(name)) for name in names}


def test_fedavg_pays_for_no_signal(flops):
    """Its round costs what the same round costs without an engine around it."""
    assert flops["fedavg"] < 1.1 * flops["by hand"]


def test_every_signal_that_is_read_is_paid_for_once(flops):
    forward = 2 * 256 * 3  # the model on one example
    extra = {name: flops[name] - flops["fedavg"] for name in flops}
    assert extra["loss"] == pytest.approx(500 * forward, rel=0.05)
    assert extra["accuracy"] == pytest.approx(10 * forward, rel=0.1)
    assert 1 <= extra["gram"] / (10 * 10 * 2 * 257 * 3) < 1.6  # the updates are read once more
    assert 0 <= extra["train_loss"] <= extra["train_loss_std"] < 0.01 * flops["fedavg"]

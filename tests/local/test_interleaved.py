"""Two clients in one loop: each does what it does alone, whatever the other has to do."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_fair as ff
from fedjax_fair.engine import training as cohort
from fedjax_fair.engine.training import by_blocks
from fedjax_fair.local.interleaved import Work, take_turns
from fedjax_fair.local.objectives import LocalLoss
from fedjax_fair.types import Client

EVEN, UNEVEN = [40] * 6, [12, 90, 33, 47, 21, 60]
MODEL = ff.models.mlp((40,), classes=7)
FEATURES = 900  # 40 * 900 entries are no small model


def federation(sizes):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(sum(sizes), FEATURES)).astype(np.float32)
    y = rng.integers(0, 7, len(x))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return ff.FederatedData.from_arrays(x, y, client_id=owner, split=(0.8, 0, 0.2), normalizer=None)


def simulation(data, block="auto", aggregator=None, count=5, limit=None):
    return ff.simulation(
        MODEL,
        data,
        aggregator=ff.qfedavg(1.0, lipschitz=10.0) if aggregator is None else aggregator,
        trainer=ff.local_sgd(optax.sgd(0.05), epochs=2, batch_size=7, limit=limit),
        selector=ff.uniform(count),
        client_block=block,
    )


@pytest.fixture
def asked(monkeypatch):
    """The sizes of cohorts that went by twos, as on a CPU."""
    sizes = []

    def by_twos(step, carry, items, width):
        if width == 2:
            sizes.append(len(jax.tree.leaves(items)[0]))
        return by_blocks(step, carry, items, width)

    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    monkeypatch.setattr(cohort, "by_blocks", by_twos)
    return sizes


TRAINERS = {
    "epochs": ff.local_sgd(optax.sgd(0.05), epochs=2, batch_size=7),
    "steps": ff.local_sgd(optax.sgd(0.05), steps=5, batch_size=7),
    "full batch": ff.local_sgd(optax.sgd(0.05), epochs=3, batch_size=None),
    "fedprox, decayed": ff.local_sgd(
        optax.sgd(0.05), epochs=2, batch_size=7, objective=ff.proximal(0.5), schedule=lambda r: 0.5**r
    ),
    "momentum, clipped": ff.local_sgd(
        optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.05, momentum=0.9)), epochs=2, batch_size=7
    ),
    "stragglers": ff.local_sgd(
        optax.sgd(0.05), epochs=2, batch_size=7, limit=lambda key, r, i: jax.random.randint(key, (), -3, 9)
    ),
}


@pytest.mark.parametrize("sizes", [(20, 33, 7), (21, 21, 21)], ids=["uneven", "even"])
@pytest.mark.parametrize("name", TRAINERS)
def test_clients_send_what_they_send_alone(name, sizes):
    """The models, the mean losses and their deviations."""
    trainer, even = TRAINERS[name], len(set(sizes)) == 1
    x = jax.random.normal(jax.random.key(1), (99, FEATURES))
    y = jnp.arange(99) % 7
    start = MODEL.init(jax.random.key(2), x[:1])
    loss = LocalLoss(
        lambda params, batch: ff.losses.softmax_cross_entropy(MODEL.apply(params, batch.x, None), batch.y),
        trainer.objective,
    )

    def both(start):
        clients = [
            Client(jnp.int32(i), jnp.arange(33) + 33 * i, size if even else jnp.int32(size), lambda r: (x[r], y[r]))
            for i, size in enumerate(sizes)
        ]
        keys = [jax.random.key(10 + i) for i in range(len(sizes))]
        alone = [trainer(loss, start, client, key, jnp.int32(1)) for client, key in zip(clients, keys)]
        return trainer.interleaved(loss, start, clients, keys, jnp.int32(1)), alone

    together, alone = jax.jit(both)(start)
    for got, want in zip(together, alone, strict=True):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), got, want)
    losses = [float(trace.loss) for _, trace in alone]
    assert len(set(losses)) == len(losses) or np.isnan(losses).any()  # else a mix-up would not show


@pytest.mark.parametrize("rule", [ff.qfedavg(1.0, lipschitz=10.0), ff.fedprox(0.5), ff.fedsgd()])
def test_rounds_are_those_of_one_after_another(rule, asked):
    data = federation(UNEVEN)  # five a round: two pairs and one alone
    together, seen = ff.run(simulation(data, "auto", rule), 0, rounds=2, progress=False)
    assert set(asked) == {5}
    alone, expected = ff.run(simulation(data, 1, rule), 0, rounds=2, progress=False)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), together.params, alone.params)
    np.testing.assert_array_equal(seen.ids, expected.ids)
    np.testing.assert_allclose(seen.coef, expected.coef, rtol=1e-5)


def test_they_go_abreast_where_there_are_two(asked):
    data = federation(EVEN)
    for block, count in (("auto", 5), (1, 5), (None, 5), ("auto", 1)):
        sim = simulation(data, block, count=count)
        jax.eval_shape(lambda key, sim=sim: sim.step(sim.init(key), sim.data), jax.random.key(0))
    assert asked == [5]


def test_a_client_that_makes_no_step_has_no_loss_beside_one_that_makes_some():
    rule = ff.Aggregator(lambda sizes, key=None: (), lambda state, report, key: (0.1 * report.train_loss, state))
    limit = lambda key, r, i: jnp.where(i % 2 == 0, i - 4, 3)  # noqa: E731  (-4, -2 or 0 steps)
    sim = simulation(federation(EVEN), aggregator=rule, count=6, limit=limit)
    _, info = jax.jit(sim.step)(sim.init(jax.random.key(0)), sim.data)
    np.testing.assert_array_equal(info.active, info.ids % 2 == 1)


def test_seeds_side_by_side_go_abreast_too(asked):
    data = federation(UNEVEN)
    swept = ff.sweep(lambda q: simulation(data, count=2), {"q": [1.0]}, seeds=2, rounds=2, side_by_side=2)
    assert set(asked) == {2}
    (runs,), one_by_one = swept.runs.values(), simulation(data, 1, count=2)
    for seed, history in enumerate(runs):
        _, alone = ff.run(one_by_one, seed, rounds=2, progress=False)
        np.testing.assert_allclose(history.scores["test"].loss, alone.scores["test"].loss, rtol=1e-4)


def count_to(steps, start, rows):
    """Adds rows up: a training whose result tells which steps were made, and in which order."""
    return Work(steps, rows, jnp.asarray(start), lambda k, row, carry: 3 * carry + row + k, lambda carry: carry)


@pytest.mark.parametrize("lengths", [(4,), (0, 4), (3, 3), (5, 1), (-1, 4), (-3, -1), (2, 0, 7)])
def test_everyone_makes_the_steps_that_are_its_own(lengths):
    def rows(k):
        return 10 * k

    traced = jax.jit(lambda given: take_turns([count_to(n, i, rows) for i, n in enumerate(given)], 1))
    for i, (length, got) in enumerate(zip(lengths, traced(jnp.array(lengths)), strict=True)):
        expected = i
        for k in range(length):
            expected = 3 * expected + 10 * k + k
        assert got == expected


@pytest.mark.parametrize("unroll", [1, 2])
def test_known_steps_read_rows_of_their_own(unroll):
    works = [count_to(3, 1, jnp.array([5, 0, 0])), count_to(3, 0, jnp.array([0, 0, 7]))]
    assert take_turns(works, unroll) == [27 + 45 + 3 + 2, 3 + 2 + 7]

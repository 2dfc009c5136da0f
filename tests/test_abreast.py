"""Two clients in one loop: each does what it does alone, whatever the other has to do."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_fair as ff
from fedjax_fair import cohort
from fedjax_fair.abreast import Work, play
from fedjax_fair.cohort import by_twos


def federation(sizes, features=60):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(sum(sizes), features)).astype(np.float32)
    y = rng.integers(0, 10, len(x))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return ff.FederatedData.from_arrays(x, y, client_id=owner, split=(0.8, 0, 0.2), normalizer=None)


def simulation(data, trainer, block, cohort):
    return ff.simulation(
        ff.models.mlp((64,)),  # 18 kB: large enough to go abreast
        data,
        aggregator=ff.qfedavg(1.0, lipschitz=10.0),
        trainer=trainer,
        selector=ff.uniform(cohort),
        client_block=block,
    )


def played(data, trainer, block, cohort):
    state, history = ff.run(simulation(data, trainer, block, cohort), 0, rounds=2, progress=False)
    return state.params, history


TRAINERS = {
    "epochs": ff.local_sgd(optax.sgd(0.1), epochs=2, batch_size=7),
    "steps": ff.local_sgd(optax.sgd(0.1), steps=5, batch_size=7),
    "full batch": ff.local_sgd(optax.sgd(0.1), batch_size=None),
    "momentum, clipped": ff.local_sgd(
        optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(0.1, momentum=0.9)), epochs=2, batch_size=7
    ),
    "stragglers": ff.local_sgd(
        optax.sgd(0.1), epochs=2, batch_size=7, limit=lambda key, r, i: jax.random.randint(key, (), 1, 9)
    ),
}


EVEN, UNEVEN = [40] * 6, [12, 90, 33, 47, 21, 60]


@pytest.mark.parametrize(
    ("name", "sizes"), [(name, UNEVEN) for name in TRAINERS] + [("epochs", EVEN), ("full batch", EVEN)]
)
def test_two_abreast_train_as_they_do_one_after_another(name, sizes):
    data = federation(sizes)
    together, seen = played(data, TRAINERS[name], "auto", 5)  # two pairs and one alone
    alone, expected = played(data, TRAINERS[name], 1, 5)
    for got, want in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(seen.ids, expected.ids)
    np.testing.assert_allclose(seen.coef, expected.coef, rtol=1e-5)


def test_they_do_go_abreast_where_there_are_two(monkeypatch):
    asked = []
    monkeypatch.setattr(cohort, "by_twos", lambda some, ids: asked.append(len(ids)) or by_twos(some, ids))
    data = federation(EVEN)
    for block, count in (("auto", 5), (1, 5), (None, 5), ("auto", 1)):
        sim = simulation(data, TRAINERS["epochs"], block, count)
        jax.eval_shape(lambda key, sim=sim: sim.step(sim.init(key), sim.data), jax.random.key(0))
    assert asked == [5]


def test_a_client_that_makes_no_step_has_no_loss_beside_one_that_makes_some():
    data = federation([40] * 4)
    late = ff.local_sgd(optax.sgd(0.1), batch_size=8, limit=lambda key, r, i: jnp.where(i % 2 == 0, 0, 3))
    rule = ff.Aggregator(lambda sizes, key=None: (), lambda state, report, key: (0.1 * report.train_loss, state))
    sim = ff.simulation(ff.models.mlp((64,)), data, aggregator=rule, trainer=late, selector=ff.uniform(4))
    _, info = sim.step(sim.init(jax.random.key(0)), sim.data)
    np.testing.assert_array_equal(info.active, info.ids % 2 == 1)


def count_to(steps, start, rows):
    """Adds rows up: a training whose result tells which steps were made, and in which order."""
    return Work(steps, rows, jnp.asarray(start), lambda k, row, carry: 3 * carry + row + k, lambda carry: carry)


@pytest.mark.parametrize("lengths", [(0, 4), (3, 3), (5, 1), (2, 0, 7)])
def test_everyone_makes_the_steps_that_are_its_own(lengths):
    def rows(k):
        return 10 * k

    traced = jax.jit(lambda given: play([count_to(n, i, rows) for i, n in enumerate(given)], 1))
    for i, (length, got) in enumerate(zip(lengths, traced(jnp.array(lengths)), strict=True)):
        expected = i
        for k in range(length):
            expected = 3 * expected + 10 * k + k
        assert got == expected


@pytest.mark.parametrize("unroll", [1, 2])
def test_known_steps_read_rows_of_their_own(unroll):
    first, second = play([count_to(3, 1, jnp.array([5, 0, 0])), count_to(3, 0, jnp.array([0, 0, 7]))], unroll)
    assert (first, second) == (27 + 45 + 3 + 2, 3 + 2 + 7)


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_by_twos_answers_in_order(count):
    ids = jnp.arange(count)[::-1]
    got = by_twos(lambda some: {"square": some**2, "pair": jnp.stack([some, -some], 1)}, ids)
    np.testing.assert_array_equal(got["square"], ids**2)
    np.testing.assert_array_equal(got["pair"], jnp.stack([ids, -ids], 1))


def test_seeds_side_by_side_go_abreast_too():
    data, trainer = federation([12, 90, 33, 47]), TRAINERS["epochs"]

    def build(lr):
        return ff.simulation(
            ff.models.mlp((64,)), data, aggregator=ff.fedavg(), trainer=trainer, selector=ff.uniform(2)
        )

    swept = ff.sweep(build, {"lr": [0.1]}, seeds=2, rounds=2, side_by_side=2)
    (runs,) = swept.runs.values()
    for seed, history in enumerate(runs):
        _, alone = ff.run(build(0.1), seed, rounds=2, progress=False)
        np.testing.assert_allclose(history.scores["test"].loss, alone.scores["test"].loss, rtol=1e-4)

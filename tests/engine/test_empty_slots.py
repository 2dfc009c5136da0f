"""Slots that a selector leaves empty, or fills twice: other clients stand there, who do not count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy

import fedjax_fair as ff
from fedjax_fair import registry
from fedjax_fair.engine.outcome import of_clients
from fedjax_fair.engine.selection import filled, is_ours, valid_ids
from fedjax_fair.results.table import left_out

pytestmark = pytest.mark.usefixtures("quick_to_compile")


def choosing(*ids):
    return ff.Selector(
        lambda sizes, key: (), lambda s, key, c: (jnp.array(ids), s), lambda s, r: s, cohort=len(ids)
    )


@pytest.mark.parametrize("n_clients", [4, 5, 9])
@pytest.mark.parametrize("ids", [(0, 1, 2), (0, -1, 2), (-1, -1, -1), (3, 3, 3), (1, 9, 1, 0), (-1, 3, 0, 9)])
def test_ids_are_different_ones_and_the_given_stay_in_their_slots(ids, n_clients):
    given = jnp.array(ids)
    known = valid_ids(given, n_clients)
    got = np.asarray(filled(given, known, n_clients))
    np.testing.assert_array_equal(got[np.asarray(known)], given[known])
    assert len(set(got.tolist())) == len(ids)
    assert ((got >= 0) & (got < n_clients)).all()


def by_mean():
    """Weighs by each client's running mean of losses, kept by its id: the rule of the guide."""

    def weigh(state, report, key):
        mean = 0.9 * state[report.ids] + 0.1 * jnp.where(report.active, report.loss, 0)
        mean = jnp.where(report.active, mean, state[report.ids])
        coef = jnp.where(report.active, mean, 0)
        return coef / coef.sum(), state.at[report.ids].set(mean)

    return ff.Aggregator(lambda sizes, key=None: jnp.ones_like(sizes, float), weigh)


def test_a_rule_that_keeps_a_number_per_client_does_not_lose_it_to_an_empty_slot(data):
    """In one program: the selector's state is the ids that it chooses."""
    by_state = ff.Selector(lambda sizes, key: jnp.arange(3), lambda ids, key, c: (ids, ids), lambda ids, r: ids, 3)
    sim = toy.simulation(data, by_mean(), selector=by_state)
    step = jax.jit(sim.step)
    for empty in (-1, 0, 1, 99):
        state = sim.init(toy.KEY)._replace(selector=jnp.array([0, 1, empty]))
        for _ in range(3):
            state, _ = step(state, data)
        moved = np.asarray(state.aggregator) != 1
        assert moved.tolist() == [True, True, False, False, False], empty


def test_examples_off_the_device_are_the_cohorts_own_where_slots_are_empty():
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(6), [60, 10, 10, 10, 10, 10])
    x, y = rng.normal(size=(110, 5)).astype(np.float32), rng.integers(0, 3, 110)

    def select(state, key, context):
        ids = jax.random.permutation(key, context.n_clients)[:4]
        return jnp.where(ids % 2 == 1, ids, -1), state

    odd = ff.Selector(lambda sizes, key: (), select, lambda state, report: state, cohort=4)
    ended = []
    for store in ("device", "host"):
        held = ff.FederatedData.from_arrays(x, y, client_id=owner, store=store)
        sim = toy.simulation(held, ff.qfedavg(q=1.0, lipschitz=10.0), trainer=toy.DRAWS, selector=odd)
        ended.append(ff.run(sim, 0, rounds=6, eval_every=6))
    (one, there), (other, here) = ended
    jax.tree.map(np.testing.assert_array_equal, one.params, other.params)
    np.testing.assert_array_equal(there.received_loss, here.received_loss)
    np.testing.assert_array_equal(there.loss, here.loss)


def test_the_history_has_nobody_in_an_empty_slot_and_counts_no_update_as_left_out(data):
    _, history = ff.run(toy.simulation(data, by_mean(), selector=choosing(3, -1, 4, 4, 9)), 0, rounds=2)
    np.testing.assert_array_equal(history.ids, [[3, -1, 4, -1, -1]] * 2)
    np.testing.assert_array_equal(history.active, history.ids >= 0)
    assert ff.run_table({"a": history}).iloc[0].left_out == 0
    assert left_out([history]) == ""
    honest = of_clients(history, np.array([False, False, True, True, True]))
    np.testing.assert_array_equal(honest.ids, [[1, -1, 2, -1, -1]] * 2)


@pytest.mark.parametrize(
    "ids", [np.array([3, 200, 3], np.uint8), np.array([3, 2**32 + 2, -1]), jnp.array([3, 2**32 - 1, 3], jnp.uint32)]
)
def test_ids_of_any_width_name_nobody_else(data, ids):
    one = ff.Selector(lambda sizes, key: (), lambda s, key, c: (ids, s), lambda s, r: s, cohort=3)
    _, history = ff.run(toy.simulation(data, ff.fedavg(), selector=one), 0, rounds=1)
    np.testing.assert_array_equal(history.ids, [[3, -1, -1]])
    assert history.ids.dtype == np.int32


def test_a_client_that_nobody_selects_does_not_train(data):
    """It only stands in an empty slot."""
    alone, _ = toy.play(toy.simulation(data, selector=choosing(3), trainer=toy.DRAWS), rounds=2)
    beside, infos = toy.play(toy.simulation(data, selector=choosing(3, -1, 3), trainer=toy.DRAWS), rounds=2)
    assert [info.active.tolist() for info in infos] == [[True, False, False]] * 2
    toy.close(alone.params, beside.params, rtol=1e-6, atol=1e-7)
    assert [int(info.downloads) for info in infos] == [1, 1]


@pytest.mark.parametrize("name", registry.SELECTORS)
def test_the_engine_leaves_the_ids_of_the_six_as_they_are(name):
    """They fill every slot, each with another client: test_composition.py sees it."""
    selector = registry.SELECTORS[name](3)
    assert is_ours(selector)
    assert not is_ours(ff.excluding([0], selector))


def test_the_engine_looks_at_the_ids_of_any_other_selector():
    assert not is_ours(choosing(0, 1))

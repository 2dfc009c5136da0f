"""Data larger than memory: with the examples off the device every result is the same."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from bits_of_stores import SGD, SIZES, federations, same
from toy import linear

import fedjax_fair as ff
from fedjax_fair.data.alike import alike
from fedjax_fair.data.host_store import HostStore
from fedjax_fair.engine import near
from fedjax_fair.engine.checkpoint import CheckpointError
from fedjax_fair.engine.near import check_store, largest_cohort


@pytest.fixture(scope="module")
def both():
    return federations()


@pytest.fixture(scope="module")
def sim(both):
    return ff.simulation(linear, both[1], aggregator=ff.fedavg(), trainer=SGD, selector=ff.uniform(2))


def test_results_have_the_same_bits_as_users_compile_them():
    """Known cohorts, probes, feedback, absence, faults, own models, a second look."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    script = [sys.executable, Path(__file__).parents[1] / "bits_of_stores.py"]
    ended = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stdout + ended.stderr


def test_cohorts_that_were_foreseen_wrongly_are_read_again(sim):
    ids = sim.coming.ids
    wrong = sim._replace(coming=sim.coming._replace(ids=lambda *args: (ids(*args) + 1) % 6))
    assert same(*(ff.run(each, 0, rounds=2) for each in (sim, wrong)))


def test_cohorts_that_move_with_the_selectors_own_state_are_not_foreseen(both):
    def turns(state, key, context):
        return (state + jnp.arange(2)) % 6, state + 2

    selector = ff.Selector(lambda sizes, key=None: jnp.int32(0), turns, lambda state, report: state, 2)
    sim = ff.simulation(linear, both[1], aggregator=ff.fedavg(), trainer=SGD, selector=selector)
    assert sim.coming is None


def test_a_selector_may_ask_for_losses_that_do_not_decide(both):
    drawn = ff.uniform(2)

    def select(state, key, context):
        context.probe(jnp.arange(2))
        return drawn.select(state, key, context)

    found = []
    for data in both:
        selector = drawn._replace(select=select)
        sim = ff.simulation(linear, data, aggregator=ff.fedavg(), trainer=SGD, selector=selector)
        found.append(ff.run(sim, 0, rounds=2)[1].loss)
    assert sim.coming is not None
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_the_data_may_be_replaced_by_the_same_on_the_device(both, sim):
    losses = [ff.run(each, 0, rounds=2)[1].loss for each in (sim, sim._replace(data=both[0]))]
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_a_run_goes_on_from_its_checkpoint_and_knows_other_examples(both, sim, tmp_path):
    def play(sim, **more):
        return ff.run(sim, 0, rounds=4, eval_every=2, chunk=1, **more)

    play(sim, checkpoint=tmp_path, on_chunk=lambda state, history: True)
    assert same(play(sim), play(sim, checkpoint=tmp_path))
    owner, y = np.repeat(np.arange(6), SIZES), np.asarray(both[1].y)
    other = ff.FederatedData.from_arrays(
        np.ones((47, 4), np.float32), y, client_id=owner, split=(0.8, 0.1, 0.1), store="host"
    )
    again = ff.simulation(linear, other, aggregator=ff.fedavg(), trainer=SGD, selector=ff.uniform(2))
    with pytest.raises(CheckpointError, match="the data is not the same"):
        play(again, checkpoint=tmp_path)


@pytest.mark.parametrize("selector", [ff.uniform(2), ff.pow_d(2, 3)], ids=["known", "unknown"])
def test_floats_of_64_bits_stay_so_where_jax_is_set_to_keep_them(selector):
    with jax.enable_x64(True):
        found = []
        for data in federations(np.float64):
            sim = ff.simulation(linear, data, aggregator=ff.fedavg(), trainer=SGD, selector=selector)
            assert jax.tree.leaves(data.take(np.arange(2)))[0].dtype == np.float64
            found.append(ff.run(sim, 0, rounds=2)[1].loss)
    np.testing.assert_allclose(*found, rtol=1e-12)


def test_a_sweep_reads_the_rows_of_all_its_runs_in_one_call(both, monkeypatch):
    shapes, read = [], HostStore.read

    def counted(store, rows):
        shapes.append(np.shape(rows))
        return read(store, rows)

    def losses(data):
        def build(lr):
            trainer = ff.local_sgd(optax.sgd(lr), epochs=1, batch_size=4)
            return ff.simulation(linear, data, aggregator=ff.fedavg(), trainer=trainer, selector=ff.uniform(2))

        histories = ff.sweep(build, {"lr": [0.1, 0.2]}, seeds=2, rounds=2).histories
        return [[history.loss for history in of_point] for of_point in histories]

    monkeypatch.setattr(HostStore, "read", counted)
    np.testing.assert_allclose(*map(losses, both), rtol=1e-5)
    cohort = largest_cohort(np.asarray(both[1].sizes), 2)
    calls = [shape for shape in shapes if shape[-1] == cohort]
    assert len(calls) == 2  # one a round
    assert {int(np.prod(shape)) for shape in calls} == {4 * cohort}


def test_several_devices_are_refused(both):
    with pytest.raises(ValueError, match=r"devices must be 1 for data with store='host', got 2"):
        check_store(both[1], SimpleNamespace(size=2), 2)


def test_a_cohort_must_fit_into_the_device(both, monkeypatch):
    monkeypatch.setattr(near, "room", lambda: 200)
    with pytest.raises(ValueError, match=r"the 2 largest clients' take 272 bytes, but the device has 200 bytes"):
        check_store(both[1], None, 2)
    check_store(both[1], None, 1)
    check_store(both[0], None, 2)


def test_several_federations_in_one_program_are_refused(both):
    with pytest.raises(ValueError, match="data must be one federation where store='host'"):
        alike(both)

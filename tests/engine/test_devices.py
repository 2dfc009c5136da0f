"""More devices, and more processes, than one: the same results."""

import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from jax.sharding import Mesh
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from fedjax_fair.engine import devices as between
from fedjax_fair.engine import signals
from fedjax_fair.engine.checkpoint import CheckpointError
from fedjax_fair.engine.devices import (
    CLIENTS,
    JOINED,
    added_and_gathered,
    dealt,
    everywhere,
    gather,
    on_shares,
    part,
    share,
)

RULES = ("fedmaba", "fedmgda_plus")
"""One that reads losses, and one that reads all updates."""

DEEP = ("fedavg", "fedmgda_plus")
"""One that reads no updates, and one that reads them all."""

SIZES = (3, 8, 5, 4, 6, 7, 3, 4, 9, 5, 6, 4)
UNEVEN = (3, 8, 5, 4, 6, 7, 3, 4, 19, 5, 6, 4)
"""The largest more than twice the mean: clients are then dealt out by their sizes."""

CASES = len(RULES) + len(DEEP) + 13

EIGHT = """
import sys; sys.path[:0] = [{tests!r}, {tests!r} + '/engine']
import jax, numpy as np, test_devices as t
devices = jax.device_count()
np.savez(sys.argv[1], **t.results(devices), **t.some_results(devices))
"""


def logistic(name, cohort, devices, block="auto"):
    data = toy.federation(sizes=SIZES if block == "auto" else UNEVEN)
    return ff.simulation(
        toy.linear,
        data,
        aggregator=rule(name),
        selector=ff.uniform(cohort),
        trainer=ff.local_sgd(optax.sgd(0.05), epochs=1, batch_size=3),
        devices=devices,
        client_block=block,
    )


def troubled(devices):
    """A cohort drawn by losses, of whom one sends NaN and one too much, and a server that reads all updates."""
    clients = np.arange(12)
    data = toy.federation(sizes=UNEVEN)
    return ff.simulation(
        toy.linear,
        data,
        aggregator=ff.fedmaba(alpha=0.5, eta_b=0.3),
        selector=ff.pow_d(5, d=9),
        trainer=ff.local_sgd(optax.sgd(0.05), epochs=1, batch_size=3),
        faults=[ff.faults.not_finite(clients == 3), ff.faults.scale_update(clients == 8, factor=4.0)],
        server_optimizer=optax.chain(ff.defences.trimmed_mean(0.2), optax.sgd(1.0)),
        devices=devices,
        eval_batch=2,  # more passes than devices
    )


def remembering(devices):
    """Personal models under a rule that reads losses, and the global one tuned: all of them judged."""
    train = ff.local_sgd(optax.sgd(0.05), epochs=1, batch_size=3)
    return ff.simulation(
        toy.linear,
        toy.federation(sizes=UNEVEN),
        aggregator=ff.ditto(0.5, aggregator=ff.fedmaba()),
        selector=ff.excluding([2], ff.pow_d(5, d=9)),
        trainer=train,
        faults=[ff.faults.not_finite(np.arange(12) == 3)],
        evaluate=("test@personal", "test", ff.fine_tune(train)),
        devices=devices,
    )


def one_by_one(devices):
    """Twelve clients whose updates are added up as they come; where one of two fails, all train again."""
    local = ff.local_sgd(optax.sgd(0.05), epochs=1, batch_size=3)

    def train(loss, params, client, key, round):
        params, trace = local(loss, params, client, key, round)
        bad = ((client.id == 3) & (round != 7)) | ((client.id == 11) & (round % 2 == 1))
        return jax.tree.map(lambda w: jnp.where(bad, jnp.nan, w), params), trace

    data = toy.federation(sizes=UNEVEN)
    everybody = {"trainer": train, "client_block": 1, "devices": devices}
    return ff.simulation(toy.linear, data, aggregator=ff.fedmaba(alpha=0.5, eta_b=0.3), **everybody)


def deep_init(key, x):
    first, last = jax.random.split(key)
    return {
        "in": jax.random.normal(first, (x.shape[-1], 16), x.dtype),
        "nothing": jnp.zeros((0, 3), x.dtype),
        "out": toy.linear_init(last, jnp.ones((1, 16), x.dtype)),
    }


def deep_apply(params, x):
    return toy.linear_apply(params["out"], jax.nn.relu(x @ params["in"]))


def rule(name):
    return ff.registry.make_rule(name, {}, learning_rate=0.05)


def alike(dtype):
    return toy.federation(sizes=(8,) * 12, dtype=dtype)


def deep(rule, devices, data, model=(deep_init, deep_apply), block="auto"):
    return ff.simulation(
        model,
        data,
        aggregator=rule,
        trainer=ff.local_sgd(optax.sgd(0.05), epochs=1, batch_size=4),
        devices=devices,
        client_block=block,
    )


def played(sim, rounds):
    state, history = ff.run(sim, 3, rounds, eval_every=rounds)
    leaves = [np.asarray(leaf).ravel() for leaf in jax.tree.leaves(state.params)]
    return {"params": np.concatenate(leaves), "coef": history.coef, "ids": history.ids, "loss": history.loss}


def given(devices):
    """From parameters of one's own, half of them frozen, evaluated before the first round; and what they say."""
    sim = ff.simulation(
        toy.linear,
        toy.federation(sizes=SIZES),
        aggregator=ff.ditto(0.5),
        trainer=ff.local_sgd(optax.sgd(0.05), epochs=1, batch_size=3),
        params={"w": np.ones((4, 3), np.float32), "b": np.arange(3, dtype=np.float32)},
        freeze="b",
        devices=devices,
    )
    state, history = ff.run(sim, 3, 4, eval_every=2, eval_first=True)
    said = [ff.predict(sim, state, personal=personal) for personal in (False, True)]
    outputs = np.concatenate([mine.outputs.ravel() for each in said for mine in each.values()])
    return {"params": outputs, "coef": history.coef, "ids": history.ids, "loss": history.loss}


def swept(clients, runs, block="auto"):
    """Three settings from three seeds in one program, over so many devices by clients or by runs."""
    data = alike(np.float32) if block == "auto" else toy.federation(sizes=UNEVEN)

    def build(alpha):
        return deep(ff.fedmaba(alpha=alpha), clients, data, toy.linear, block)

    settings = {"side_by_side": 2, "rounds": 3, "eval_every": 1, "chunk": 1}
    found = ff.sweep(build, {"alpha": [0.2, 0.5, 0.7]}, seeds=3, devices=runs, **settings)
    histories = [history for point in found.histories for history in point]
    return {name: np.stack([getattr(h, name) for h in histories]) for name in ("coef", "ids", "loss", "accuracy")}


def results(devices):
    """What must not depend on the devices."""
    found = {}
    for name, cohort in [(name, 8) for name in RULES] + [("fedmaba", 5)]:
        found[f"{name} {cohort}"] = played(logistic(name, cohort, devices), 50)
    found["troubled"] = played(troubled(devices), 50)
    found["remembering"] = played(remembering(devices), 50)
    for name in ("scaffold", "fednova"):  # of sizes that differ much; the second reads the steps of all
        found[f"{name} 5"] = played(logistic(name, 5, devices, block=1), 50)
    with patch.object(between, "JOINED", 10), patch.object(signals, "JOINED", 10):  # kernels travel by themselves
        for name in ("scaffold", "fedmgda_plus"):
            found[f"{name} apart"] = played(logistic(name, 5, devices, block=1), 50)
    found["drfa 5"] = played(logistic("drfa", 5, devices), 20)
    found["one by one"] = played(one_by_one(devices), 50)
    found["swept clients"] = swept(devices, 1)
    found["swept uneven"] = swept(devices, 1, block=1)
    with jax.enable_x64(True):
        for name in DEEP:
            found[f"mlp 64 {name}"] = played(deep(rule(name), devices, alike(np.float64)), 20)
    return flat(found)


def some_results(devices):
    """Those that several processes play, too: personal models and what they say, and a sweep's runs."""
    return flat({"given": given(devices), "swept runs": swept(1, devices)})


def flat(found):
    return {f"{case} {name}": value for case, values in found.items() for name, value in values.items()}


@pytest.fixture(scope="module")
def some_alone():
    return some_results(1)


@pytest.fixture(scope="module")
def alone(some_alone):
    return results(1) | some_alone


def environment(devices=None):
    flags = os.environ["XLA_FLAGS"]
    if devices is not None:
        flags += f" --xla_force_host_platform_device_count={devices}"
    return os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


def command(program, *words):
    text = textwrap.dedent(program.format(tests=str(Path(__file__).parents[1])))
    return [sys.executable, "-c", text, *map(str, words)]


def agree(path, alone, cases):
    with np.load(path) as found:
        assert len(found.files) == 4 * cases
        for name in found.files:
            tolerance = 1e-9 if name.startswith("mlp 64") else 1e-5
            assert found[name].dtype == alone[name].dtype
            assert_allclose(found[name], alone[name], rtol=tolerance, atol=tolerance, err_msg=name)


def test_eight_devices_are_as_good_as_one(tmp_path, alone):
    """Cohorts of 8, and of 5 and 12, which eight devices do not divide."""
    subprocess.run(command(EIGHT, tmp_path / "eight.npz"), env=environment(8), check=True, capture_output=True)
    agree(tmp_path / "eight.npz", alone, cases=CASES)


TWO = """
import sys; sys.path[:0] = [{tests!r}, {tests!r} + '/engine']
import jax
from fedjax_fair.engine import processes
folder, address, mine, life = sys.argv[1:]
jax.distributed.initialize(address, 2, int(mine))
processes.BEAT, processes.SOON = 0.1, 0.5
import numpy as np, test_devices as t
cases = t.first_life(folder) if life == "first" else t.second_life(folder)
if jax.process_index() == 0:
    np.savez(folder + ".npz", **cases)
"""


def kept(devices, folder=None, rule="fedmaba"):
    """The leaves of a run that is kept in a folder, chunk by chunk."""
    state, history = ff.run(logistic(rule, 5, devices), 3, 40, eval_every=2, chunk=1, checkpoint=folder)
    return [np.asarray(leaf) for leaf in jax.tree.leaves((state._replace(key=state.round), history))]


def first_life(folder):
    """Of the two processes, one of which is killed in it."""
    kept(jax.device_count(), folder)
    raise AssertionError("nobody was killed")


def second_life(folder):
    """Goes on, compares with a run that nothing cut off, and plays what must not depend on the processes."""
    devices = jax.device_count()
    with toy.rounds_played() as played:
        resumed = kept(devices, folder)
    assert 0 < sum(played) < 40
    for one, other in zip(resumed, kept(devices), strict=True):
        assert_array_equal(one, other)
    return some_results(devices)


def start_two(folder, life):
    """Two processes of two devices each, and where they write."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    compiled_once = environment(2) | {
        "JAX_COMPILATION_CACHE_DIR": str(folder.with_name("programs")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    started, logs = [], [folder.with_suffix(f".{life}.{mine}.log") for mine in range(2)]
    for mine, log in enumerate(logs):
        with log.open("w") as out:
            words = command(TWO, folder, address, mine, life)
            started.append(subprocess.Popen(words, env=compiled_once, stdout=out, stderr=out))
    return started, logs


def ended(*processes):
    for process in processes:
        process.kill()
        process.wait()


def test_two_processes_are_as_good_as_one_though_one_of_them_is_killed(tmp_path, some_alone):
    """The other one ends, in a sentence; two others go on bit for bit, and one alone to rounding."""
    folder = tmp_path / "kept"
    (stays, dies), logs = start_two(folder, "first")
    try:
        deadline = time.monotonic() + 300
        while not list(folder.glob("[0-9]*")) and stays.poll() is None:
            assert time.monotonic() < deadline, logs[0].read_text()[-2000:]
            time.sleep(0.02)
        dies.kill()
        dies.wait()
        assert stays.wait(60) == 75, logs[0].read_text()[-2000:]
    finally:
        ended(stays, dies)
    assert re.search(
        rf"process 1 of the 2 that share this run \(0 to 1\) is gone, so this one ends; .* goes on from {folder}",
        logs[0].read_text(),
    )
    shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(CheckpointError, match="is of another run: the simulation is not the same"):
        kept(1, tmp_path / "copy", "fedavg")
    processes, logs = start_two(folder, "second")
    try:
        with toy.rounds_played() as played:
            mine = kept(1, tmp_path / "copy")
        assert 0 < sum(played) < 40
        for one, other in zip(mine, kept(1), strict=True):
            assert_allclose(one, other, rtol=1e-6, atol=1e-6)
        codes = [process.wait(300) for process in processes]
    finally:
        ended(*processes)
    assert codes == [0, 0], logs[0].read_text()[-2000:]
    agree(tmp_path / "kept.npz", some_alone, cases=2)


TRAVELS = r"""
import sys; sys.path[:0] = [{tests!r}, {tests!r} + '/engine']
import jax, re
import fedjax_fair as ff
jax.config.update("jax_num_cpu_devices", 2)  # importing the package has not settled it
import test_devices as t
for name in ("fedavg", "fedmgda_plus"):
    sim = t.deep(t.rule(name), 2, t.alike("float32"))
    state = jax.eval_shape(sim.init, jax.random.key(0))
    text = jax.jit(sim.step).lower(state, sim.data).compile().as_text()
    print(*re.findall(r"= (\w+\[[0-9,]*\])\S* all-gather", text))
for name in ("fedavg", "fedmaba", "scaffold"):
    with jax.numpy_dtype_promotion("strict"):
        sim = t.logistic(name, 5, 2, block=1)
        state = jax.eval_shape(sim.init, jax.random.key(0))
        text = jax.jit(sim.step).lower(state, sim.data).compile().as_text()
    print(*map(" ".join, re.findall(r"= (\w+\[[0-9,]*\])\S* (all-\w+|collective-\w+|\w+-scatter)", text)), sep=", ")
try:
    t.swept(2, 2)
except ValueError as error:
    print(error)
print(*t.without_entries(2))
t.arrays_of_all_types_arrive()
"""


def test_updates_travel_only_where_a_rule_reads_them_all():
    """Twelve clients on two devices: FedAvg's tell each other who failed, a Gram matrix needs all updates.

    Of five that train one by one the sums, messages included, travel as one array, and the losses as another.
    """
    text = TRAVELS.format(tests=str(Path(__file__).parents[1]))
    done = subprocess.run(
        [sys.executable, "-c", text], env=environment(), check=True, capture_output=True, text=True
    )
    fedavg, fedmgda_plus, *added_up, both, nothing = done.stdout.splitlines()
    assert fedavg == "pred[2,6]"
    assert sorted(fedmgda_plus.split()) == ["f32[2,690]", "pred[2,6]"]  # 115 parameters of 6 clients each
    sums = "f32[21] all-reduce"  # 15 parameters, and who of 6 slots failed
    assert added_up[:2] == [sums, f"{sums}, f32[5] all-reduce"]
    assert added_up[2] == "f32[36] all-reduce, f32[2,45] all-gather"  # twice 15, and the memories of 3 clients
    assert both == "devices share out the sweep's runs, or build's clients, got both"
    assert nothing == "(2, 0) (4, 0)"


def without_entries(devices):
    """The shapes of four runs' arrays without entries, as a device finds them and as they come back."""
    mesh, seen = Mesh(np.array(jax.devices()[:devices]), (CLIENTS,)), []

    def function(nothing, runs):
        seen.append(runs[0].shape)
        return runs

    made = on_shares(function, mesh, (), (jnp.zeros((4, 0)), jnp.arange(4.0)))
    assert_array_equal(made[1], np.arange(4.0))
    return seen[0], made[0].shape


def arrays_of_all_types_arrive():
    """Bit for bit, on both of two devices, though small ones of one type are joined: also what is not finite."""
    mesh = Mesh(np.array(jax.devices()[:2]), (CLIENTS,))
    odd = jnp.array([2**24 + 1, 3, 5, 7], jnp.int32)
    items = {
        "half": [jnp.ones((4, 2), jnp.bfloat16) / 3, jnp.ones((4,), jnp.float16) / 3],
        "single": [jnp.arange(4.0), jnp.full((4, 3), jnp.nan), jnp.full((4,), jnp.inf), jnp.ones((4, 3, 2)) / 3],
        "whole": [odd, 2 * odd],
        "long": jnp.arange(4.0 * JOINED).reshape(4, -1),
        "nothing": [jnp.zeros((4, 0, 3)), jnp.zeros((4, 0), jnp.int32)],
    }
    flags = jnp.array([True, False, False, True])

    def there_and_back(items, flags):
        own = share((items, flags), mesh)
        return gather(own, 4, mesh), *added_and_gathered(own[0], own[1], 4, mesh)

    with jax.numpy_dtype_promotion("strict"):
        gathered, sums, arrived = everywhere(there_and_back, mesh)(items, flags)
    added_up = jax.tree.map(lambda leaf: leaf[:2] + leaf[2:], items)
    for found, right in ((gathered, (items, flags)), (sums, added_up), (arrived, flags)):
        assert jax.tree.map(jnp.dtype, found) == jax.tree.map(jnp.dtype, right)
        jax.tree.map(assert_array_equal, found, right)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("slots", "devices"), [(12, 3), (7, 3), (9, 4), (5, 8), (1, 2)])
def test_clients_of_different_sizes_are_dealt_out_largest_first(slots, devices, wide):
    """Everybody once, in any case; the devices that have one less train the smallest client a second time."""
    size = np.random.default_rng(slots).permutation(2 ** np.arange(slots))
    with jax.enable_x64(wide):
        deal = jax.tree.map(np.asarray, dealt(jnp.asarray(size), SimpleNamespace(size=devices)))
    assert sorted(deal.slots[deal.once]) == list(range(slots))
    assert_array_equal(deal.slots[deal.places], np.arange(slots))
    assert deal.once[deal.places].all()
    assert (size[deal.slots[~deal.once]] == 1).all()
    hands = size[deal.slots].reshape(devices, part(slots, SimpleNamespace(size=devices)))
    first, second = (np.arange(turn * devices, (turn + 1) * devices) for turn in (0, 1))
    assert_array_equal(hands[:, 0], 2.0 ** np.maximum(slots - 1 - first, 0))
    if slots >= 2 * devices:
        assert_array_equal(hands[::-1, 1], 2.0 ** (slots - 1 - second))


def test_a_mesh_of_one_device_is_no_different():
    mesh = Mesh(np.array(jax.devices()[:1]), ("anything",))
    one, other = (played(logistic("fedmaba", 5, devices), 3) for devices in (1, mesh))
    assert_array_equal(one["ids"], other["ids"])
    assert_allclose(one["params"], other["params"], rtol=1e-6)


def test_arrays_without_entries_pass_by_the_devices():
    """On which jaxlib 0.11 crashes; found anew in what is given and in what is made, with their shapes."""
    mesh = Mesh(np.array(jax.devices()[:1]), (CLIENTS,))
    given = {"nothing": jnp.zeros((0, 3)), "some": jnp.arange(2.0)}
    runs = {"nothing": jnp.zeros((4, 0), jnp.int32), "some": jnp.arange(4.0)}

    def function(given, runs):
        assert (given["nothing"].shape, runs["nothing"].shape) == ((0, 3), (4, 0))
        return {"nothing": jnp.tile(runs["nothing"], 3), "sum": runs["some"] + given["some"].sum()}

    for way in (
        everywhere(function, mesh),
        lambda *trees: on_shares(function, mesh, *trees),
    ):
        (region,) = [step for step in jax.make_jaxpr(way)(given, runs).eqns if step.primitive.name == "shard_map"]
        assert all(var.aval.size for var in (*region.invars, *region.outvars))
        jax.tree.map(assert_array_equal, way(given, runs), function(given, runs))


@pytest.mark.parametrize(
    ("devices", "sentence"),
    [
        (0, "devices must be from 1 to the 1 that JAX sees, got 0"),
        (64, "devices must be from 1 to the 1 that JAX sees, got 64; jax.config.update('jax_num_cpu_devices'"),
        ("all", "devices must be a number of devices or a jax.sharding.Mesh, got 'all'"),
        (True, "devices must be a number of devices or a jax.sharding.Mesh, got True"),
        (Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("a", "b")), "devices must be a mesh of one axis, got"),
    ],
    ids=str,
)
def test_devices_that_are_not_there(devices, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        logistic("fedavg", 5, devices)

"""The benchmarks measure what they say they do."""

import json
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import coefficients, random_report
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from benchmarks.papers import when_clients_lie
from benchmarks.papers.qffl_open_question import LR, own_steps
from benchmarks.speed import gpu, ours, prepared, workloads
from benchmarks.speed.flax_networks import network
from fedjax_fair.local.transposed import programs

REPORT = random_report(3, 5, active=[1, 1, 0, 1, 1])


def test_own_steps_are_each_clients_delta_over_its_h():
    """Of the models' moves: F^q L d / (q F^(q-1) |L d|^2 + L F^q), by hand."""
    F, L, q = np.asarray(REPORT.loss, float), 1 / LR, 1.5
    squared = np.diagonal(np.asarray(REPORT.gram)) * L**2
    wanted = np.where(REPORT.active, F**q * L / (q * F ** (q - 1) * squared + L * F**q), 0)
    assert_allclose(coefficients(own_steps(q, mean=False), REPORT), wanted, rtol=1e-5)
    assert_allclose(coefficients(own_steps(q, mean=True), REPORT), wanted / 4, rtol=1e-5)


def test_without_fairness_the_mean_of_own_steps_is_fedavg():
    assert_allclose(
        coefficients(own_steps(0.0, mean=True), REPORT), coefficients(ff.fedavg("uniform"), REPORT), rtol=1e-6
    )
    one = REPORT._replace(active=jnp.arange(5) == 1)  # a single client: all three forms are one
    q_ffl = coefficients(ff.qfedavg(2.0, lipschitz=1 / LR), one)
    assert_allclose(coefficients(own_steps(2.0, mean=True), one), q_ffl, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "gflop"),
    [("lr-synthetic", 0.0108), ("mlp-fmnist", 3.2), ("mlp-fmnist-all", 32), ("cnn-cifar", 216), ("pfl-cifar", 249)],
)
def test_the_count_of_operations_of_a_workload(name, gflop):
    assert workloads.flop(workloads.WORKLOADS[name]) / 1e9 == pytest.approx(gflop, rel=0.02)


def test_the_table_of_the_liars_has_a_row_per_measure_and_a_column_per_share():
    results = {
        "AFL, lr = .01; as reported": {"accuracy": [[70.0, 72.0], [60.0, 60.0]], "gini": [[0.1, 0.2], [0.3, 0.3]]}
    }
    lines = when_clients_lie.table(results, (0.0, 0.4)).splitlines()
    assert lines[0] == "| rule | measure | 0% lie | 40% lie |"
    assert lines[2] == "| AFL, lr = .01; as reported | acc % | 71.0 ± 1.4 | 60.0 ± 0.0 |"
    assert lines[3] == "| AFL, lr = .01; as reported | Gini | 0.150 ± 0.071 | 0.300 ± 0.000 |"


def test_only_the_honest_are_judged_among_liars():
    data = ff.data.synthetic(n_clients=10, alpha=1.0, beta=1.0, seed=0)
    liars = np.arange(10) >= 5
    sim = when_clients_lie.row("fedavg", data, ff.fedavg(), liars).build(0)
    _, history = ff.run(sim, 0, 10)
    honest, lying, all_of_them = (when_clients_lie.judged(history, who) for who in (~liars, liars, liars | ~liars))
    assert_allclose(honest["accuracy"] + lying["accuracy"], 2 * all_of_them["accuracy"], rtol=1e-5)
    assert_allclose(honest["accuracy"], 100 * history.accuracy[-10:, :5].mean(), rtol=1e-5)


def test_all_runs_of_the_liars_are_shared_out_at_once(tmp_path, monkeypatch):
    """One call of ``play``, and so one cluster; every cell is of its own row, and of the honest."""
    calls = []

    def play(rows, place, *, seeds, **how):
        names = [row.name for row in rows]
        calls.append(names)
        liars = [ff.faults.some(100, float(name.split()[-1][:-1]) / 100) for name in names]
        right = [np.where(lie, 0, i / 10)[None] for i, lie in enumerate(liars)]  # the honest of row i: 10 i %
        return {}, {name: [types.SimpleNamespace(accuracy=a)] * seeds for name, a in zip(names, right)}

    monkeypatch.setattr(when_clients_lie, "play", play)
    monkeypatch.setattr(ff.data, "load", lambda *args, **how: None)
    monkeypatch.setattr(when_clients_lie, "draw", lambda *args: None)
    when_clients_lie.run(True, tmp_path)
    assert [len(names) for names in calls] == [10]
    assert calls[0][:3] == ["FedAvg; as reported; 0%", "FedAvg; as reported; 40%", "AFL, lr = .01; as reported; 0%"]
    kept = json.loads((tmp_path / "when-clients-lie.json").read_text())["rows"]
    wanted = np.broadcast_to(10 * np.arange(10).reshape(5, 2, 1), (5, 2, 2))  # rules x shares x seeds
    assert_allclose([row["accuracy"] for row in kept.values()], wanted, rtol=1e-5)


USERS = ("resnet-user", "gru-shakespeare", "skewed-fedmaba", "transformer-text")


def roles_file(folder, roles=30, letters=900):
    """A file of roles as ``--data`` takes it: random letters, the last role's twice as many."""
    lengths = np.append(np.full(roles - 1, letters), 2 * letters)
    text = np.random.default_rng(0).integers(97, 123, lengths.sum(), dtype=np.uint8)
    np.savez(folder / "roles.npz", text=text, offsets=np.concatenate([[0], np.cumsum(lengths)]))
    return folder / "roles.npz"


@pytest.mark.parametrize("name", USERS)
def test_a_round_of_a_workload_of_users_begins_with_the_shared_parameters(name, tmp_path):
    """The quick form, of fewer clients still: what every opponent begins with is what our engine begins with."""
    work = workloads.quick(workloads.WORKLOADS[name])
    np.savez(tmp_path / "shared.npz", **prepared.prepare(work, roles_file(tmp_path)))
    x, y = workloads.load(work, tmp_path / "shared.npz")
    work, few = work._replace(cohort=2, clients=2), slice(0, 2)
    data = ours.federation([part[: work.batch] for part in x[few]], [part[: work.batch] for part in y[few]])
    sim = ours.simulate(work, data)
    state = sim.init(jax.random.key(0))
    state = state._replace(params=ours.start_from(state.params, work, tmp_path / "shared.npz"))
    before = ours.probe_loss(work, sim.data)(state.params)
    assert before == pytest.approx(np.log(ours.letters_of(work, data) if work.is_text else 10), rel=0.3)
    if work.network != "resnet":  # whose gradient takes too long to compile for a test
        after, _ = jax.jit(sim.step)(state, sim.data)
        assert ours.probe_loss(work, sim.data)(after.params) < before


def test_shakespeare_says_what_it_needs(tmp_path):
    work = workloads.WORKLOADS["gru-shakespeare"]
    for source, said in (
        (None, "gru-shakespeare needs --data, a file of roles or LEAF's folder of Shakespeare"),
        (tmp_path / "none.npz", "--data must be an .npz of text and offsets, got none.npz"),
        (
            roles_file(tmp_path, 29),
            "--data must have 30 roles with 10 sequences of 80 letters, got 29 in roles.npz",
        ),
    ):
        with pytest.raises(ValueError, match=said):
            prepared.prepare(work, source)


def test_the_gpus_script_writes_what_it_measured_and_says_what_it_could_not(tmp_path, monkeypatch, capsys):
    """On a CPU, without the parts that take minutes there."""
    for part in ("published_run", "full_cohort"):
        monkeypatch.setattr(gpu, part, lambda *_: [])
    users, options = ("skewed-fedmaba", "gru-shakespeare"), {"platform": "cpu", "quick": True, "out": tmp_path}
    assert gpu.main(gpu.Options(precisions=("highest",), users=users, loops=(), **options)) == 0
    found = json.loads((tmp_path / "gpu.json").read_text())["results"]
    assert [line["what"] for line in found] == ["lr-synthetic, 1 seeds", "lr-synthetic, 2 seeds", "skewed-fedmaba"]
    for line, seeds in zip(found, (1, 2, 1)):
        work = workloads.WORKLOADS[line["what"].split(",")[0]]
        work = workloads.quick(work)._replace(cohort=2) if line["what"] in users else work
        rate = seeds * workloads.flop(work) / np.median(line["round_s"])
        assert (line["flops"], line["of_peak"] * line["peak_flops"]) == (pytest.approx(rate), pytest.approx(rate))
    assert "gru-shakespeare was not run: gru-shakespeare needs --data" in capsys.readouterr().out


def test_labels_of_a_text_are_the_letters_that_follow(tmp_path):
    work = workloads.WORKLOADS["gru-shakespeare"]
    source = roles_file(tmp_path)
    text = np.load(source)["text"] - 97
    (x, y), *_, (last, _) = prepared.roles(work, source)
    assert (x.shape, last.shape) == ((11, 80), (22, 80))
    assert_array_equal(np.append(x[0], y[0, -1]), text[:81])
    x, y = workloads.make_data(workloads.quick(workloads.WORKLOADS["transformer-text"]))
    assert_array_equal(x[..., 1:], y[..., :-1])


def products_of(program, times=1):
    """FLOP of a program's products and convolutions, those of loops as often as they turn."""
    total = 0
    for step in program.eqns:
        outputs = math.prod(step.outvars[0].aval.shape) if step.outvars else 0
        if step.primitive.name == "dot_general":
            ((axes, _), _) = step.params["dimension_numbers"]
            total += 2 * outputs * math.prod(step.invars[0].aval.shape[axis] for axis in axes)
        elif step.primitive.name == "conv_general_dilated":
            total += 2 * outputs * math.prod(step.invars[1].aval.shape[:-1])
        turns = step.params["length"] if step.primitive.name == "scan" else 1
        total += sum(products_of(inner.jaxpr, turns) for inner in programs(step))
    return times * total


@pytest.mark.parametrize("name", workloads.FORWARD)
def test_the_products_of_a_network_are_those_of_its_program(name):
    work = next(w for w in workloads.WORKLOADS.values() if w.network == name)
    some = jax.ShapeDtypeStruct((1, *work.shape), jnp.int32 if work.is_text else jnp.float32)
    net = network(name, workloads.LETTERS)
    params = jax.eval_shape(net.init, jax.random.key(0), some)
    program = jax.make_jaxpr(net.apply)(params, some)
    assert products_of(program.jaxpr) == 2 * sum(m * k * n for m, k, n in workloads.FORWARD[name]())

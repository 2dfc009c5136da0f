"""The benchmarks measure what they say they do."""

import jax.numpy as jnp
import numpy as np
import pytest
from contract import coefficients, random_report
from numpy.testing import assert_allclose

import fedjax_fair as ff
from benchmarks.papers import when_clients_lie
from benchmarks.papers.qffl_open_question import LR, own_steps
from benchmarks.speed import workloads

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

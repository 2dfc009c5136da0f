"""PG-FFL's own studies: the grid of constant weights, its frontier, what is kept, and who is held out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy
from contract import make_report
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from benchmarks.papers import pgffl_reachable as reachable
from benchmarks.papers import pgffl_trained as trained


@pytest.mark.parametrize(("parts", "points"), [(6, 5), (9, 70), (10, 126)])
def test_the_grid_has_all_positive_weights_once_behind_those_of_fedavg(parts, points):
    """Compositions of ``parts`` into five: the binomial coefficient of parts - 1 over 4."""
    grid = reachable.grid(parts)
    assert grid.shape == (1 + points, 5)
    assert_allclose(grid[0], 0.2)
    assert_allclose(grid.sum(1), 1)
    assert_allclose(grid[1:] * parts, (grid[1:] * parts).round(), atol=1e-9)
    assert grid.min() > 0
    assert len(np.unique(grid[1:].round(6), axis=0)) == points


def test_the_constant_rule_gives_each_client_its_weight_whatever_its_slot():
    rule = reachable.constant([0.1, 0.2, 0.3, 0.2, 0.2])
    coef, _ = rule.weigh((), make_report(0, [4, 2, 0], active=[1, 1, 0]), jax.random.key(0))
    assert_allclose(coef, [0.4, 0.6, 0], rtol=1e-6)


def test_the_frontier_has_what_no_other_point_beats():
    accuracy, gini = np.array([0.9, 0.8, 0.85, 0.7, 0.9]), np.array([0.1, 0.05, 0.2, 0.04, 0.2])
    assert_array_equal(reachable.frontier_of(accuracy, gini), [0, 1, 3])


def test_fairer_points_may_cost_a_point_of_accuracy_and_validation_chooses_without_test():
    """FedAvg, a fairer one at half a point, a fairer one yet at five; on validation another is the fairest."""

    def clients(mean, spread):
        return [mean - spread, mean, mean, mean, mean + spread]

    test = np.array([clients(0.8, 0.1), clients(0.795, 0.05), clients(0.75, 0.01), clients(0.8, 0.09)])
    validation = np.array([clients(0.8, 0.1), clients(0.8, 0.09), clients(0.75, 0), clients(0.8, 0.02)])
    made = reachable.Reached(test, validation, np.array(clients(0.6, 0.2)))
    found = reachable.judged(made, np.arange(20).reshape(4, 5))
    assert found["FedAvg"]["gini"] == pytest.approx(ff.metrics.gini(test[0]))
    assert found["lowest Gini within a point of FedAvg's accuracy, chosen on test"]["weights"] == [5, 6, 7, 8, 9]
    chosen = found["lowest Gini within a point of FedAvg's accuracy, chosen on validation"]
    assert chosen["weights"] == [15, 16, 17, 18, 19]
    assert chosen["gini"] == pytest.approx(ff.metrics.gini(test[3]))
    assert found["lowest Gini of all, chosen on test"]["accuracy"] == pytest.approx(0.75)
    assert found["PG-FFL as printed"]["accuracy"] == pytest.approx(0.6)


def test_what_was_trained_is_read_and_other_weights_are_refused(tmp_path):
    path, calls = tmp_path / "parts" / "block.npz", []

    def train():
        calls.append(1)
        return {"test": np.arange(3.0)}

    asked = {"rounds": 4, "points": np.eye(2)}
    first, again = (reachable.once(path, train, asked) for _ in range(2))
    assert_array_equal(first["test"], again["test"])
    assert len(calls) == 1
    with pytest.raises(ValueError, match=r"block.npz is of other rounds or another grid: remove it to train again"):
        reachable.once(path, train, asked | {"points": np.ones((2, 2))})


def test_side_by_side_a_point_is_the_run_of_its_constant_rule():
    model, data = toy.linear, toy.federation((4, 4, 4, 4, 4))
    data = data._replace(test=data.train)
    points, rounds = reachable.grid(6)[:3], reachable.EVALUATIONS * reachable.GAP + 1
    with toy.optimized(False):
        sweep = jax.vmap(lambda w: reachable.trained(w, jax.random.key(3), model, data, rounds))
        together = jax.jit(sweep)(jnp.asarray(points, jnp.float32))["test"]
        sim = reachable.build(model, reachable.constant(points[2]), data)
        start, _ = ff.run(sim, jax.random.key(3), 1)
        _, alone = ff.run(sim, state=start, rounds=rounds - 1, eval_every=reachable.GAP)
    assert_allclose(together[2], alone.accuracy.mean(0), atol=0.01)
    assert len(alone.accuracy) == reachable.EVALUATIONS


def test_held_out_federations_share_no_training_image_with_those_that_are_trained_on():
    toy.need_data("fashion_mnist")
    mine, theirs = (trained.federation("Case II", held_out, 0) for held_out in (False, True))
    images = [{row.tobytes() for row in np.asarray(data.x)[np.asarray(data.train.rows)]} for data in (mine, theirs)]
    assert len(images[0] & images[1]) < 5  # Fashion-MNIST repeats a few images
    assert mine.n_clients == 5

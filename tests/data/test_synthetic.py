"""Synthetic(a, b) against what the authors' own program produced."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from fedjax_fair.data import partition, synthetic

FIGURES = json.loads((Path(__file__).parents[1] / "golden" / "synthetic.json").read_text())


def counts_of(data):
    return partition.describe(data)


def entropy(counts):
    p = counts / counts.sum(1, keepdims=True)
    return -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=1)


@pytest.mark.parametrize("run", FIGURES["runs"], ids=lambda run: f"({run['alpha']},{run['beta']})")
def test_the_authors_draws(run):
    """Sizes, labels per client and the very first example of np.random.seed(1)."""
    data = synthetic(30, run["alpha"], run["beta"], seed=run["seed"])
    counts = counts_of(data)
    assert counts.sum(1).tolist() == run["sizes"]
    assert counts.tolist() == run["label_hist"]
    np.testing.assert_array_equal(np.asarray(data.x[0]), np.float32(run["first_x_user0"]))
    assert np.asarray(data.y[:10]).tolist() == run["first_10_y_user0"]


@pytest.mark.parametrize("run", FIGURES["ensemble"], ids=lambda run: f"seed {run['seed']}")
def test_the_ensemble(run):
    counts = counts_of(synthetic(30, seed=run["seed"]))
    assert counts.sum() == run["total"]
    np.testing.assert_allclose((counts > 0).sum(1).mean(), run["mean_distinct"])
    np.testing.assert_allclose(entropy(counts).mean(), run["mean_entropy"], rtol=1e-6)


def test_moments():
    """Sizes int(LogNormal(4, 2)) + 50; v_k ~ N(B_k, 1), B_k ~ N(0, beta); x - v_k ~ N(0, j^-1.2)."""
    data = synthetic(2000, alpha=0.0, beta=3.0, seed=5, max_size=60)
    x = np.asarray(data.x).reshape(-1, 60)
    owner = np.repeat(np.arange(2000), counts_of(data).sum(1))
    n = np.bincount(owner)
    mean = np.stack([np.bincount(owner, x[:, j]) for j in range(60)], 1) / n[:, None]
    within = ((x - mean[owner]) ** 2).sum(0) / (len(x) - 2000)
    np.testing.assert_allclose(within, np.arange(1, 61) ** -1.2, rtol=0.03)
    assert abs(mean.mean(1).std() - np.sqrt(9 + 1 / 60)) < 0.2  # a standard deviation, not a variance
    assert abs((mean - mean.mean(1, keepdims=True))[:, -1].std() - 1) < 0.06


def test_size_law():
    sizes = counts_of(synthetic(3000, seed=2, max_size=100)).sum(1)
    assert sizes.min() == 50
    assert sizes.max() == 100
    assert abs((sizes < 100).mean() - 0.4823) < 0.03  # P(LogNormal(4, 2) < 50)


def test_iid_clients_share_a_model():
    counts = counts_of(synthetic(30, 0.0, 0.0, iid=True))
    assert (counts > 0).sum(1).mean() > 6
    share = counts / counts.sum(1, keepdims=True)
    assert share.std(0).max() < 0.1


def test_max_size_truncates_without_changing_examples():
    full, cut = synthetic(5, seed=3), synthetic(5, seed=3, max_size=55)
    np.testing.assert_array_equal(cut.x[:50], full.x[:50])
    assert counts_of(cut).sum(1).max() == 55


@pytest.mark.parametrize("alpha", [0.5, 50.0])
def test_alpha_moves_all_logits_alike_and_no_label(alpha):
    jax.tree.map(np.testing.assert_array_equal, synthetic(5, alpha=alpha), synthetic(5, alpha=0.0))


def test_seeded_and_apart_from_the_global_generator():
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    a, b, c = synthetic(5, seed=1), synthetic(5, seed=1), synthetic(5, seed=2)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    jax.tree.map(np.testing.assert_array_equal, a, b)
    assert a.x.shape != c.x.shape


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"n_clients": 0}, "n_clients must be at least 1"),
        ({"alpha": -1.0}, "alpha must be at least 0"),
        ({"beta": float("inf")}, "beta must be"),
        ({"seed": -1}, "seed must be from 0"),
        ({"iid": "no"}, "iid must be True or False, got 'no'"),
        ({"max_size": 0}, "max_size must be at least 1"),
        ({"max_size": 2}, "client 0 has 2 examples"),
        ({"split": (1, 1, 1)}, "that sum to 1"),
    ],
)
def test_wrong_calls_say_so_in_one_sentence(wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        synthetic(**wrong)

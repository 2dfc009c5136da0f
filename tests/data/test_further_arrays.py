"""Further arrays and partitions of the kinds that gave wrong numbers in silence: right, or said in one sentence."""

import itertools

import numpy as np
import pytest

import fedjax_fair as ff

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)).astype("f")
Y = np.arange(40) % 2
WHO = np.arange(40) // 10


def stored(x, y=Y, **settings):
    settings.setdefault("client_id", WHO)
    return ff.FederatedData.from_arrays(x, y, **settings)


def test_of_a_tree_only_the_image_is_scaled():
    x = {"image": np.full((40, 8, 8, 3), 255, np.uint8), "flags": np.full((40, 5), 1, np.uint8)}
    seen, _ = stored(x).take(np.arange(2))
    assert np.asarray(seen["image"]).max() == 1.0
    assert np.asarray(seen["flags"]).max() == 1


@pytest.mark.parametrize("shape", [(8, 8, 2), (2, 8, 8, 3), (64,), ()])
def test_bytes_that_may_or_may_not_be_pixels_are_refused(shape):
    with pytest.raises(ValueError, match="normalizer"):
        stored(RNG.integers(0, 256, size=(40, *shape)).astype(np.uint8))


def test_a_natural_partition_given_as_one_is_warned_of_as_natural_clients_are():
    with pytest.warns(UserWarning, match="test_client_id"):
        stored(X, client_id=None, partition=ff.partition.by_client(WHO), test=(X, Y))


def test_test_clients_named_by_strings_where_clients_are_numbers_are_refused():
    with pytest.raises(ValueError, match="test_client_id"):
        stored(X, test=(X, Y), test_client_id=[str(w) for w in WHO])


@pytest.mark.parametrize(
    "y",
    [np.array(["cat", "dog"] * 20), np.array([None, 1] * 20), np.array([np.nan, 1.0] * 20), np.array([0, -1] * 20)],
    ids=["words", "objects", "nan", "negative"],
)
def test_labels_that_are_no_numbers_from_0_are_refused(y):
    with pytest.raises(ValueError, match=r"^`?y\b|label|target"):
        stored(X, y)


def test_labels_true_and_false_are_1_and_0():
    assert np.asarray(stored(X, Y == 1).take(np.arange(4))[1]).astype(int).tolist() == [0, 1, 0, 1]


def test_clients_that_are_nan_are_refused():
    with pytest.raises(ValueError, match="client_id"):
        stored(X, client_id=np.where(WHO == 0, np.nan, WHO))


@pytest.mark.parametrize("who", [[0, 2], [0, 1, 1, 1], [0.0, 1.0, 1.0, 0.0]])
def test_liars_named_by_numbers_are_refused(who):
    who = np.array(who)
    for fault in (ff.faults.inflate_loss, ff.faults.scale_update, ff.faults.noisy_update, ff.faults.not_finite):
        with pytest.raises(ValueError, match="who"):
            fault(who)
    with pytest.raises(ValueError, match="who"):
        ff.faults.flip_labels(stored(X), who)


def test_absence_by_a_label_that_nobody_has_or_of_targets_is_refused():
    with pytest.raises(ValueError, match="label"):
        ff.availability.by_label(stored(X), 7, 0.1, 0.9)
    with pytest.raises(ValueError, match="label"):
        ff.availability.by_label(stored(X, X[:, 0]), 0, 0.1, 0.9)


def test_a_trace_of_shares_is_refused():
    with pytest.raises(ValueError, match="present"):
        ff.availability.trace(np.full((2, 4), 0.5))


@pytest.mark.parametrize("convention", ["client", "client_prior", "class"])
def test_skew_rises_as_alpha_falls_in_every_convention(convention):
    y = RNG.integers(0, 5, size=600)

    def skew(alpha):
        rows = ff.partition.dirichlet(20, alpha=alpha, convention=convention)(y, seed=0)
        shares = np.array([np.bincount(y[r], minlength=5) / len(r) for r in rows])
        return np.abs(shares - 0.2).sum(1).mean() / 2

    by_alpha = [skew(alpha) for alpha in (1e-6, 0.05, 0.5, 5.0, 500.0)]
    assert all(a > b - 0.02 for a, b in itertools.pairwise(by_alpha)), by_alpha
    assert by_alpha[0] > 0.6


@pytest.mark.parametrize("law", [lambda n, s: ff.partition.log_normal(n, sigma=s, min_size=1), None])
def test_sizes_differ_the_more_the_heavier_the_tail(law):
    law = law or (lambda n, s: ff.partition.power_law(n, exponent=1 + 1 / s, min_size=1))
    ginis = [float(ff.metrics.gini([len(r) for r in law(20, s)(Y.repeat(50), seed=1)])) for s in (0.1, 1.0, 3.0)]
    assert ginis == sorted(ginis), ginis
    assert ginis[-1] > 0.5


@pytest.mark.parametrize(
    "partition",
    [
        ff.partition.iid(1),
        ff.partition.iid(2),
        ff.partition.shards(1, 1),
        ff.partition.shards(2, 1),
        ff.partition.dirichlet(1, alpha=0.1),
        ff.partition.dirichlet(2, alpha=1e-300, convention="class", min_size=1),
        ff.partition.blocks(2, 1),
        ff.partition.power_law(2, min_size=1),
        ff.partition.log_normal(2, min_size=1),
    ],
)
def test_two_rows_are_dealt_out_once(partition):
    assert sorted(np.concatenate(partition(np.array([0, 1]), seed=0)).tolist()) == [0, 1]

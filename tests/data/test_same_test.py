"""Which federations judge their clients by the same examples."""

import numpy as np
import pytest

import fedjax_fair as ff
from fedjax_fair.data.same_test import same_clients, same_examples

Y, WHO = np.arange(24) % 2, np.arange(24) // 2 % 3
TESTED = np.random.default_rng(7).normal(size=(24, 3)).astype(np.float32)


def federation(seed, tested):
    x = np.random.default_rng(seed).normal(size=(24, 3)).astype(np.float32)
    given = {"client_id": WHO, "split": (1.0, 0.0, 0.0), "test": (tested, Y), "test_client_id": WHO}
    return ff.FederatedData.from_arrays(x, Y, **given)


def filled(seed):
    """Scaled by other numbers, with gaps that other means fill."""
    tested = TESTED.copy()
    tested[[3, 8], 0] = seed / 10
    return tested * (1 + seed) - seed


def drawn(seed):
    """Other examples, whose labels follow one pattern."""
    return (np.random.default_rng(100 + seed).normal(size=(24, 3)) + Y[:, None]).astype(np.float32)


@pytest.mark.parametrize(
    ("tested", "same"), [(lambda seed: TESTED, True), (filled, True), (drawn, False), (lambda s: 0 * TESTED, True)]
)
def test_examples_are_the_same_as_far_as_their_features_tell(tested, same):
    assert same_examples([federation(seed, tested(seed)) for seed in range(3)], "test") is same


def test_other_labels_are_other_examples():
    one = federation(0, TESTED)
    assert not same_examples([one, one._replace(y=1 - one.y)], "test")


X = np.random.default_rng(1).normal(size=(24, 3)).astype(np.float32)


def dealt(seed, x=X, **given):
    return ff.FederatedData.from_arrays(x, Y, seed=seed, split=(0.5, 0.25, 0.25), **({"client_id": WHO} | given))


@pytest.mark.parametrize("name", ["numbers", "words"])
def test_clients_are_the_same_by_their_examples_and_not_by_their_names(name):
    who = WHO if name == "numbers" else np.array(["ann", "bob", "cy"])[WHO]
    assert same_clients([dealt(seed, client_id=who) for seed in range(3)])
    anew = [dealt(seed, np.random.default_rng(seed).normal(size=X.shape), client_id=who) for seed in range(3)]
    assert not same_clients(anew)
    assert not same_clients([dealt(0, client_id=who), dealt(0, client_id=who)._replace(y=1 - dealt(0).y)])


def test_a_partition_drawn_anew_makes_other_clients():
    parted = [dealt(seed, client_id=None, partition=ff.partition.iid(3)) for seed in range(2)]
    assert not same_clients(parted)

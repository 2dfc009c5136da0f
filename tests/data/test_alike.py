"""Federations brought to one form: the same shapes, and every client keeps its own examples and no other."""

import jax
import numpy as np
import pytest
import toy
from numpy.testing import assert_array_equal

import fedjax_fair as ff
from fedjax_fair.data.alike import alike, with_union
from fedjax_fair.data.same_test import same_examples

SMALL, LARGE = toy.federation((2, 5, 3)), toy.federation((4, 1, 3), seed=1)


def rows_of(split, k):
    start, size = int(split.start[k]), int(split.size[k])
    return np.asarray(split.rows)[start : start + size]


def test_all_have_the_same_shapes_and_every_client_its_own_examples():
    form = alike([SMALL, LARGE])
    shapes = [[leaf.shape for leaf in jax.tree.leaves(data)] for data in form.each]
    assert shapes[0] == shapes[1]
    for data, padded in zip((SMALL, LARGE), form.each):
        for name in ("train", "validation", "test"):
            assert_array_equal(getattr(padded, name).size, getattr(data, name).size)
            for k in range(3):
                rows = rows_of(getattr(data, name), k)
                assert_array_equal(rows_of(getattr(padded, name), k), rows)
                assert_array_equal(np.asarray(padded.x)[rows], np.asarray(data.x)[rows])


def test_rows_that_were_added_are_nobodys():
    padded = alike([SMALL, LARGE]).each[1]
    assert (np.asarray(padded.train.owner) == 3).sum() == 2


def test_tables_are_as_long_as_the_longest():
    """Not as the sum of the largest sizes, 12: what passes over a table would cost that."""
    form = alike([SMALL, LARGE])
    assert [len(data.train.rows) for data in (form.largest, *form.each)] == [10, 10, 10]


def test_the_largest_has_of_every_client_the_most():
    largest = alike([SMALL, LARGE]).largest
    for name, most in (("train", [4, 5, 3]), ("validation", [1, 1, 1]), ("test", [1, 1, 1])):
        assert getattr(largest, name).size.tolist() == most
    assert_array_equal(largest.train.rows, SMALL.train.rows)
    assert_array_equal(largest.train.owner, SMALL.train.owner)


def test_federations_of_one_form_stay_as_they_are():
    other = toy.federation((2, 5, 3), seed=1)
    form = alike([SMALL, other])
    assert form.largest is SMALL
    assert form.each[1] is other


def test_stores_that_hold_the_same_are_held_once():
    x, y = np.zeros((9, 2), np.float32), np.arange(9) % 2
    one, other = (
        ff.FederatedData.from_arrays(x, y, client_id=np.repeat([0, 1], sizes)) for sizes in ([4, 5], [3, 6])
    )
    form = alike([one, other])
    assert form.each[0].x is form.each[1].x


def test_the_union_is_one_client_more_who_has_all_training_examples():
    union = with_union(alike([SMALL, LARGE]).each[1])
    assert union.sizes.tolist() == [4, 1, 3, 8]
    assert_array_equal(rows_of(union.train, 3), np.concatenate([rows_of(LARGE.train, k) for k in range(3)]))
    assert union.test.size.shape == (3,)
    assert union.train.rows.shape == with_union(alike([SMALL, LARGE]).each[0]).train.rows.shape


@pytest.mark.parametrize("datas", [[SMALL, LARGE], [LARGE, SMALL]])
def test_the_largest_of_unions_has_of_every_client_the_most(datas):
    largest = with_union(alike(datas).largest)
    assert largest.sizes.tolist() == [4, 5, 3, 10]
    shapes = [jax.tree.map(np.shape, with_union(data).train) for data in alike(datas).each]
    assert shapes == [jax.tree.map(np.shape, largest.train)] * 2


@pytest.mark.parametrize("sizes", [((4, 5), (5, 4)), ((4, 4), (5, 5)), ((5, 5), (4, 5))])
def test_where_the_largest_would_be_of_one_size_and_not_all_are_they_are_not(sizes):
    """A program takes clients of one size for granted, and would read a neighbour's rows."""
    form = alike([toy.federation(mine, seed=seed) for seed, mine in enumerate(sizes)])
    assert len(set(form.largest.sizes)) == 2
    longest = max(int(data.sizes.sum()) for data in form.each)
    assert {len(data.train.rows) for data in (form.largest, *form.each)} == {longest}


def test_a_single_client_of_another_size_in_every_federation_is_refused():
    with pytest.raises(ValueError, match=r"two clients or more .*, got one client with 4 to 6 training examples"):
        alike([toy.federation((4,)), toy.federation((6,), seed=1)])


def test_bringing_data_to_one_form_compiles_nothing():
    """Fifteen ms would go by for every new shape of an array, and each federation has shapes of its own."""
    rng, labels = np.random.default_rng(0), np.arange(97) % 3
    test = rng.normal(size=(31, 2)), labels[:31]
    given = {"partition": ff.partition.dirichlet(3, 1.0), "test": test}
    with toy.compilations() as made:
        datas = [ff.FederatedData.from_arrays(rng.normal(size=(97, 2)), labels, seed=k, **given) for k in range(2)]
        with_union(alike(datas).each[1])
        scaled = jax.device_put(2 * np.asarray(datas[0].x))
        assert same_examples([datas[0], datas[0]._replace(x=scaled)], "test")
    assert made.names == []
    with toy.compilations() as made:
        jax.jit(lambda: jax.numpy.zeros(23))()
    assert made.count == 1

"""Clients that have names keep them, in data, histories and tables; compiled programs know nothing of them."""

import jax
import numpy as np
import pytest

import fedjax_fair as ff
from fedjax_fair.data.alike import alike

X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
Y = np.arange(60) % 2


def named(names=("Bern", "Aarau", "Chur"), seed=0):
    return ff.FederatedData.from_arrays(X, Y, client_id=np.array(names * 20), seed=seed)


def test_clients_have_the_names_of_client_id_in_their_order():
    assert named().clients == ("Aarau", "Bern", "Chur")
    assert named((7, 12, 3)).clients == ("3", "7", "12")
    assert named((0, 1, 2)).clients is None  # which say nothing
    assert ff.FederatedData.from_arrays(X, Y, partition=ff.partition.iid(3)).clients is None


def test_names_are_no_arrays_and_two_federations_of_the_same_names_share_a_program():
    one, other = named(), named(seed=1)
    assert all(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(one))
    traced = []

    @jax.jit
    def mean(data):
        traced.append(1)
        return data.take(data.train.rows)[0].mean()

    assert float(mean(one)) != float(mean(other))
    assert len(traced) == 1


def test_federations_brought_to_one_form_keep_names_that_all_have():
    assert alike([named(), named(seed=1)]).each[1].clients == ("Aarau", "Bern", "Chur")
    assert alike([named(), named(("x", "y", "z"))]).each[0].clients is None  # client 0 is another one in each


def test_describe_shows_names(capsys):
    ff.partition.describe(named(("a[b]", "c", "d")))
    assert "a[b]" in capsys.readouterr().out


def test_a_client_too_small_is_named():
    with pytest.raises(ValueError, match=r"client 1 \('two'\) has 1 example"):
        ff.FederatedData.from_arrays(X[:4], Y[:4], client_id=["one", "one", "one", "two"])


def test_the_figure_of_a_partition_has_names():
    data = named()
    ax = ff.plot.partition(data._replace(names=data.names._replace(labels=("well", "ill"))))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["Aarau", "Bern", "Chur"]
    assert ax.get_legend_handles_labels()[1] == ["well", "ill"]

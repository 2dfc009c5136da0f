"""The table of a partition, and the counts behind it."""

import numpy as np
import pytest

from fedjax_fair.data import FederatedData, partition

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 200))


def test_describe_prints_counts_per_client(capsys):
    clients = partition.shards(4, 2)(LABELS, 0)
    counts = partition.describe(clients, LABELS)
    out = capsys.readouterr().out
    np.testing.assert_array_equal(counts, np.stack([np.bincount(LABELS[rows], minlength=10) for rows in clients]))
    assert "4 clients, 10 classes, 2000 examples" in out
    assert sum(line.split()[-1:] == ["500"] for line in out.splitlines()) == 4
    assert "…" not in out


def test_describe_summarises_large_federations(capsys):
    labels = np.repeat(np.arange(100), 50)
    partition.describe(partition.iid(100)(labels, 0), labels)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.split()[-1:] == ["50"]] == ["min", "median", "max"]
    assert "classes held" in "".join(lines)


def test_describe_shows_the_targets_of_a_regression_by_their_mean_and_spread(capsys):
    y = np.array([1.0, 3.0, 1000.5, 1000.5, 999.5])
    counts = partition.describe([np.array([0, 1]), np.array([2, 3, 4]), np.array([], int)], y)
    assert counts.tolist() == [[2], [3], [0]]
    out = capsys.readouterr().out
    assert "3 clients, 5 examples" in out
    assert "target mean" in out
    rows = [line.split() for line in out.splitlines()[-3:]]
    assert rows == [["0", "2", "1", "2"], ["1", "1000", "0.4714", "3"], ["2", "nan", "nan", "0"]]


def test_a_column_of_targets_is_a_vector_and_medians_of_counts_stand_in_full(capsys):
    partition.describe([np.array([0]), np.array([1])], np.array([[1.0], [3.0]]))
    assert "target mean" in capsys.readouterr().out
    partition.describe([np.zeros(k, int) for k in [12_345] * 21 + [12_346] * 21], np.zeros(1, int))
    assert "12345.5" in capsys.readouterr().out


def test_describe_of_several_targets_has_no_column_of_them(capsys):
    counts = partition.describe([np.array([0, 1]), np.array([2])], np.zeros((3, 4)))
    assert counts.tolist() == [[2], [1]]
    assert [line.split() for line in capsys.readouterr().out.splitlines()[-2:]] == [["0", "2"], ["1", "1"]]


def test_words_are_classes_in_sorted_order(capsys):
    labels = np.array(["dog", "cat", "dog", "cow"])
    counts = partition.describe([np.array([0, 1]), np.array([2, 3])], labels)
    assert counts.tolist() == [[1, 0, 1], [0, 1, 1]]
    assert ["client", "cat", "cow", "dog", "examples"] in [
        line.split() for line in capsys.readouterr().out.splitlines()
    ]


@pytest.mark.parametrize("largest", [2**31 - 1, 2**28])
def test_ids_are_no_classes_to_be_counted(largest):
    sentence = f"labels must be classes numbered from 0 .*, got 2 up to {largest}: number them, np.unique"
    with pytest.raises(ValueError, match=sentence):
        partition.describe([np.array([0]), np.array([1])], np.array([0, largest]))


def test_describe_counts_all_splits(capsys):
    y = np.arange(120) % 4
    data = FederatedData.from_arrays(np.zeros((120, 1)), y, partition=partition.iid(3))
    counts = partition.describe(data)
    assert counts.shape == (3, 4)
    np.testing.assert_array_equal(counts.sum(0), np.bincount(y))
    out = capsys.readouterr().out
    assert [line.split()[-3:] for line in out.splitlines()][3] == ["32", "4", "4"]

"""Public datasets and their cache; the real data is read where TFDS_DATA_DIR has it prepared."""

import logging
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from toy import need_data

from fedjax_fair.data import load, load_arrays, partition
from fedjax_fair.data.cache import cached
from fedjax_fair.data.sources.tfds import NotPreparedError


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One cache for the module: every dataset is decoded once."""
    with pytest.MonkeyPatch.context() as patch:
        path = tmp_path_factory.mktemp("cache")
        patch.setenv("FEDJAX_FAIR_CACHE", str(path))
        yield path


@pytest.fixture
def fashion(cache):
    need_data("fashion_mnist")
    return load_arrays("fashion_mnist")


def test_fashion_mnist(fashion):
    x, y, x_test, y_test = fashion
    assert x.shape == (60000, 28, 28, 1)
    assert x_test.shape == (10000, 28, 28, 1)
    assert x.dtype == np.uint8
    assert y.dtype == np.int32
    assert abs(x.mean() / 255 - 0.2860) < 5e-5
    assert abs(x.std() / 255 - 0.3530) < 5e-5
    assert (np.bincount(y) == 6000).all()
    assert (np.bincount(y_test) == 1000).all()


def test_second_load_takes_less_than_two_seconds(fashion):
    start = time.perf_counter()
    data = load("fashion_mnist", partition=partition.shards(100), test="official")
    assert time.perf_counter() - start < 2
    assert data.x.shape == (70000, 28, 28, 1)
    assert data.train.size.tolist() == [540] * 100
    assert int(data.test.size.sum()) == 10000


def test_own_test_examples_leave_the_official_ones_alone(fashion):
    data = load("fashion_mnist", partition=partition.shards(100), split=(5 / 6, 0, 1 / 6))
    assert len(data.x) == 60000
    assert data.train.size.tolist() == [500] * 100
    assert data.test.size.tolist() == [100] * 100


def test_three_clothes(fashion):
    x, y, *_ = fashion
    data = load("fashion_mnist_3")
    assert str(data.x.dtype) == "uint8"
    assert data.train.size.tolist() == [6000] * 3
    assert data.validation.size.tolist() == [0] * 3
    assert data.test.size.tolist() == [1000] * 3
    np.testing.assert_array_equal(data.y[data.train.rows], data.train.owner)
    np.testing.assert_array_equal(data.y[data.test.rows], data.test.owner)
    rows = data.train.rows[np.asarray(data.train.owner) == 2][:5]
    stored, flat = np.asarray(data.x[rows]), x.reshape(60000, -1).astype(np.float32)
    originals = {image.tobytes() for image in x[y == 6]}
    assert all(image.tobytes() in originals for image in stored)
    want = (stored.reshape(5, -1) - flat.mean(0, np.float64)) / (flat.std(0, dtype=np.float64) + 1e-3)
    np.testing.assert_allclose(np.asarray(data.take(rows)[0]).reshape(5, -1), want, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="takes no partition"):
        load("fashion_mnist_3", partition=partition.iid(3))


def test_cifar10(cache):
    need_data("cifar10")
    x, y, x_test, y_test = load_arrays("cifar10")
    assert x.shape == (50000, 32, 32, 3)
    assert x_test.shape == (10000, 32, 32, 3)
    assert (np.bincount(y) == 5000).all()
    assert (np.bincount(y_test) == 1000).all()
    np.testing.assert_allclose(x[::10].mean((0, 1, 2)) / 255, [0.4914, 0.4822, 0.4465], atol=5e-3)


def test_a_missing_dataset_says_how_to_prepare_it(tmp_path, monkeypatch, caplog):
    """Wherever the directory is named, one sentence and nothing in the log."""
    sentence = (
        "cifar100 is not prepared .looked in .*cifar100.*; prepare it once with: pip install tensorflow-cpu "
        "importlib_resources && python -c .*file_format='array_record'"
    )
    with caplog.at_level(logging.WARNING), pytest.raises(ValueError, match=sentence) as caught:
        load("cifar100", partition=partition.iid(3), data_dir=tmp_path / "given")
    assert str(tmp_path / "given") in str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)
    assert not caplog.records
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "environment"))
    with pytest.raises(NotPreparedError, match=str(tmp_path / "environment")):
        load_arrays("cifar100")


def test_another_format_is_named(tmp_path):
    need_data("cifar10")
    source = next(Path(os.environ["TFDS_DATA_DIR"]).expanduser().glob("cifar10/*"))
    there = tmp_path / "cifar10" / source.name
    there.mkdir(parents=True)
    for file in source.glob("*.json"):
        (there / file.name).write_text(file.read_text().replace('"array_record"', '"tfrecord"'))
    with pytest.raises(NotPreparedError, match="is there as tfrecord, which cannot be read without TensorFlow"):
        load_arrays("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: load("fashion_mnits", partition=partition.iid(3)), "did you mean 'fashion_mnist'"),
        (lambda: load("mnist"), "partition must say how to deal mnist"),
        (lambda: load("mnist", partition=partition.iid(3), test="oficial"), "did you mean 'official'"),
        (lambda: load_arrays("fashion_mnist_3"), "name must be one of"),
        (lambda: load("mnist", partition=partition.iid), "got the factory iid: call it"),
        (lambda: load("mnist", partition=partition.iid(3), seed=-1), "seed must be at least 0"),
        (lambda: load("mnist", partition=partition.iid(3), split=(0.9, 0.1)), "split must be three shares"),
        (lambda: load("fashion_mnist_3", split=(0.8, 0.1, 0.1)), "split's test share must be 0"),
    ],
)
def test_wrong_calls_say_so_in_one_sentence_and_before_anything_is_read(call, sentence, monkeypatch):
    monkeypatch.setitem(load.__globals__, "prepared", forbidden)
    with pytest.raises(ValueError, match=sentence):
        call()


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDJAX_FAIR_CACHE", str(tmp_path / "new" / "cache"))
    return tmp_path / "new" / "cache"


def make():
    return {"x": np.arange(1000), "y": np.ones((2, 3), np.uint8)}


def forbidden(*asked):
    raise AssertionError("built although cached")


def same(arrays):
    return all(np.array_equal(arrays[key], value) for key, value in make().items())


def test_cache_round_trip(store):
    assert same(cached("a", make))
    assert same(cached("a", forbidden))
    assert [file.name for file in store.iterdir()] == ["a.npz"]


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "garbage"])
def test_a_damaged_cache_is_reported_and_rebuilt(store, damage):
    cached("a", make)
    path = store / "a.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    ruined = {"flip": content, "truncate": content[:4000], "empty": b"", "garbage": b"no archive at all"}
    path.write_bytes(ruined[damage])
    with pytest.warns(RuntimeWarning, match="cannot be read .* and is built again") as caught:
        assert same(cached("a", make))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(cached("a", forbidden))


def test_every_flipped_byte_is_noticed_or_harmless(store):
    cached("a", make)
    path = store / "a.npz"
    content = path.read_bytes()
    for at in np.random.default_rng(0).integers(0, len(content), 60):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert same(cached("a", make))
        path.write_bytes(content)


def test_an_unwritable_cache_keeps_the_data(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FEDJAX_FAIR_CACHE", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="cannot be cached in"):
        assert same(cached("a", make))


def test_a_failed_write_leaves_no_rubbish(store, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.warns(RuntimeWarning, match="disk full"):
        assert same(cached("a", make))
    assert not list(store.iterdir())

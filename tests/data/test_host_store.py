"""The example store off the device: what is read, from where, and how little memory it takes."""

import os
import pickle
import subprocess
import sys

import jax
import numpy as np
import pytest

import fedjax_fair as ff
from fedjax_fair.data import host_store

OWNER = np.repeat(np.arange(4), 5)
Y = np.arange(20) % 3


def of(x, store="host", **more):
    return ff.FederatedData.from_arrays(x, Y, client_id=OWNER, store=store, **more)


def taken(data):
    rows = np.array([[0, 19, 3], [7, 7, 25]])  # 25 is clamped
    eager = data.take(rows)
    inside = jax.jit(lambda rows: data.take(rows))(rows)
    jax.tree.map(np.testing.assert_array_equal, eager, inside)
    return eager


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8, np.int16, bool])
def test_rows_have_the_types_and_values_of_the_device_store(dtype):
    x = (np.random.default_rng(0).random((20, 3)) * 100).astype(dtype)
    for a, b in zip(jax.tree.leaves(taken(of(x))), jax.tree.leaves(taken(of(x, "device")))):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_trees_images_and_official_test_examples_are_read_alike():
    rng = np.random.default_rng(0)
    x = {"image": rng.integers(0, 255, (20, 4, 4), np.uint8), "age": rng.normal(size=(20, 1)).astype(np.float32)}
    test = jax.tree.map(lambda leaf: leaf[:9], x), Y[:9]
    host, device = (of(x, store, test=test, test_client_id=OWNER[::2][:9]) for store in ("host", "device"))
    rows = np.arange(29)
    jax.tree.map(np.testing.assert_array_equal, host.take(rows), device.take(rows))
    assert repr(host) == repr(device)


def test_large_calls_come_in_pieces_and_large_reads_in_threads(monkeypatch):
    monkeypatch.setattr(host_store, "CALL", 4)
    monkeypatch.setattr(host_store, "ALONE", 24)
    x = np.arange(60, dtype=np.float32).reshape(20, 3)
    rows = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    np.testing.assert_array_equal(jax.jit(lambda r: of(x).take(r)[0])(rows), x[rows])


def test_the_path_of_an_array_is_mapped(tmp_path):
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    for store in ("host", "device"):
        data = of(tmp_path / "x.npy", store, test=(tmp_path / "x.npy", Y), test_client_id=OWNER)
        np.testing.assert_array_equal(data.take(np.arange(40))[0], np.concatenate([x, x]))
    with pytest.raises(ValueError, match=r"x must be an array.*the path of a file .npy, got 'x.csv'"):
        of("x.csv")
    (tmp_path / "bad.npy").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"bad\.npy cannot be read"):
        of(tmp_path / "bad.npy")


def test_a_folder_of_arrays_stays_where_it_is(tmp_path):
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    for name, array in {"x": x, "y": Y, "client": OWNER}.items():
        np.save(tmp_path / f"{name}.npy", array)
    data = ff.data.npz(tmp_path, store="host")
    assert isinstance(data.x, host_store.HostStore)
    np.testing.assert_array_equal(data.take(np.arange(20))[0], x)
    with pytest.raises(ValueError, match="missing must be None with store='host'"):
        ff.data.npz(tmp_path, store="host", missing="mean")


def test_what_was_written_to_a_copy_on_write_stays(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((20, 3), np.float32))
    x = np.load(tmp_path / "x.npy", mmap_mode="c")
    x[:] = 7
    assert (np.asarray(of(x).take(np.arange(20))[0]) == 7).all()


def test_a_store_is_known_by_all_its_examples_and_a_large_one_by_its_file_too(tmp_path, monkeypatch):
    x = np.zeros((20, 3), np.float32)
    changed = x.copy()
    changed[1] = 1
    monkeypatch.setattr(host_store, "SAMPLED", 2)
    assert of(x).x.fingerprint() == of(x.copy()).x.fingerprint() != of(changed).x.fingerprint()
    monkeypatch.setattr(host_store, "WHOLE", 100)
    assert of(x).x.fingerprint() == of(changed).x.fingerprint()  # the first row and the last
    np.save(tmp_path / "x.npy", x)
    before = of(tmp_path / "x.npy").x.fingerprint()
    assert before == of(tmp_path / "x.npy").x.fingerprint()
    os.utime(tmp_path / "x.npy", ns=(0, 0))
    assert before != of(tmp_path / "x.npy").x.fingerprint()


def test_bad_numbers_are_found_and_another_place_is_refused():
    x = np.zeros((20, 3), np.float32)
    x[[4, 9]] = np.nan
    with pytest.raises(ValueError, match="x holds NaN or infinity in 2 examples, first in example 4"):
        of(x)
    with pytest.raises(ValueError, match="integers in x must fit 32 bits"):
        of(np.full((20, 1), 2**40))
    with pytest.raises(ValueError, match="store must be"):
        of(np.zeros((20, 3)), "disk")
    with pytest.raises(TypeError, match="stay in the process"):
        pickle.dumps(of(np.zeros((20, 3))))


MEASURE = """
import resource, sys, numpy as np, fedjax_fair as ff, jax
path, kind = sys.argv[1:]
owner = np.repeat(np.arange(100), 500)
def of(x):
    return ff.FederatedData.from_arrays(x, np.zeros(len(x), np.int32), client_id=owner[:len(x)], store="host")
x = np.load(path, mmap_mode="r") if kind == "mapped" else np.load(path)
of(np.zeros((50000, 1), np.float32))  # what imports and tables take
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = of(x)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("kind", ["mapped", "in memory"])
def test_nothing_is_copied(tmp_path, kind):
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (50_000, 1000))  # 200 MB
    x[::100] = 1
    del x
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "x.npy"), kind]
    grown = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert grown < 0.1 * 200_000  # kB, beyond the array itself

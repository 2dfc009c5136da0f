"""Parameters written and read back are the same, bit for bit, and start a simulation."""

import builtins
import functools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy import FULL, KEY, close, simulation

import fedjax_fair as ff

TREE = {
    "body": {"kernel": np.arange(6, dtype=np.float32).reshape(2, 3).T, "scale": np.float32(3)},
    "half": jnp.array([0.1, -2, 3e9], jnp.bfloat16),
}
PLACES = ["model.safetensors", "folder", "deep/er"]


@pytest.mark.parametrize("name", PLACES)
def test_what_is_read_is_what_was_written(name, tmp_path):
    place = ff.export(TREE, tmp_path / name)
    assert place == tmp_path / name
    found = ff.load_params(str(place))
    assert jax.tree.structure(found) == jax.tree.structure(TREE)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(TREE)):
        assert isinstance(one, np.ndarray)
        assert (one.dtype, one.shape) == (other.dtype, np.shape(other))
        assert one.tobytes() == np.asarray(other).tobytes()


def test_a_model_of_one_bare_array_is_written_and_fits_again(tmp_path):
    pair = (lambda key, x: jnp.ones((60, 10)), lambda params, x: x @ params)
    data = ff.data.synthetic(3, max_size=20)
    make = functools.partial(ff.simulation, pair, data, aggregator=ff.fedavg(), trainer=FULL)
    state, _ = ff.run(make(), 0, rounds=1)
    for name in PLACES[:2]:
        found = ff.load_params(ff.export(state, tmp_path / name))
        close(make(params=found).init(jax.random.key(9)).params, state.params, rtol=0)


def test_a_run_goes_on_from_an_export(tmp_path, data):
    state, _ = ff.run(simulation(data), KEY, rounds=1)
    for name in PLACES[:2]:
        ff.export(state, tmp_path / name)
        again = simulation(data, params=ff.load_params(tmp_path / name))
        close(again.init(jax.random.key(9)).params, state.params, rtol=0)


def test_lists_come_back_as_the_model_has_them(tmp_path, data):
    model = (
        lambda key, x: [(jnp.ones((4, 3)), jnp.zeros(3))],
        lambda params, x: x @ params[0][0] + params[0][1][None, :],
    )
    given = [(np.full((4, 3), 2, np.float32), np.ones(3, np.float32))]
    ff.export(given, tmp_path / "list")
    assert set(ff.load_params(tmp_path / "list")) == {"0"}
    read = ff.load_params(tmp_path / "list")
    sim = ff.simulation(model, data, aggregator=ff.fedavg(), trainer=FULL, params=read)
    close(sim.init(KEY).params, given, rtol=0)


def test_others_read_the_file_without_this_package(tmp_path):
    from safetensors.numpy import load_file

    ff.export(TREE["body"], tmp_path / "model.safetensors")
    assert set(load_file(tmp_path / "model.safetensors")) == {"kernel", "scale"}


@pytest.mark.parametrize("name", PLACES[:2])
def test_an_export_is_written_over_only_if_asked_to(name, tmp_path):
    ff.export(TREE, tmp_path / name)
    with pytest.raises(ValueError, match="exists: give another, or overwrite=True"):
        ff.export(TREE, tmp_path / name)
    ff.export({"other": np.ones(2)}, tmp_path / name, overwrite=True)
    assert set(ff.load_params(tmp_path / name)) == {"other"}


def test_a_folder_of_something_else_is_never_written_over(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="must be an earlier export to be written over, got something else"):
        ff.export(TREE, tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def damaged(place):
    place.write_bytes(b"no safetensors")
    return place


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda d: ff.export(TREE, d / "model.npz"), "must end in .safetensors, or in nothing for an Orbax folder"),
        (lambda d: ff.export(TREE, None), "path must be a file or a folder, got None"),
        (lambda d: ff.export({"a": "b"}, d / "x"), "export takes a state or a tree of arrays, got a str at 'a'"),
        (lambda d: ff.export({}, d / "x"), "got {}, which has none"),
        (lambda d: ff.export({"a/b": np.ones(2), "a": {"b": np.ones(3)}}, d / "x"), "got two called 'a/b'"),
        (
            lambda d: ff.export({"w": np.ones(2), "w/b": np.ones(3)}, d / "x.safetensors"),
            "export needs parameters that are no folder of others, got 'w' and 'w/b'",
        ),
        (lambda d: ff.export(TREE, damaged(d / "file") / "x"), "cannot be written: File exists"),
        (lambda d: ff.export({"a": np.ones(0)}, d / "x"), r"a folder cannot keep 'a' of shape \[0\]"),
        (lambda d: ff.load_params(d / "none.safetensors"), "none.safetensors does not exist"),
        (lambda d: ff.load_params(d), "must be a folder that ff.export or Orbax wrote, got"),
        (lambda d: ff.load_params(damaged(d / "x.safetensors")), "x.safetensors cannot be read: SafetensorError"),
    ],
)
def test_what_cannot_be_written_or_read_is_refused(wrong, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        wrong(tmp_path)


def test_a_simulation_is_no_model(data, tmp_path):
    with pytest.raises(ValueError, match=r"got a simulation: pass what ff\.run left"):
        ff.export(simulation(data), tmp_path / "x")


def test_without_safetensors_the_command_is_named(monkeypatch, tmp_path):
    usual = builtins.__import__

    def missing(name, *args, **more):
        if name.startswith("safetensors"):
            raise ImportError(name)
        return usual(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ValueError, match=r"pip install 'fedjax-fair\[safetensors\]'"):
        ff.export(TREE, tmp_path / "model.safetensors")


def test_neither_the_package_nor_a_command_imports_safetensors_or_nnx_unasked():
    code = "import sys, fedjax_fair.cli.comparing; sys.exit(bool({'safetensors', 'flax.nnx'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["model", "model.safetensors"])
def test_a_disk_that_is_full_leaves_the_earlier_export(name, tmp_path, monkeypatch):
    place = ff.export({"w": np.ones(3)}, tmp_path / name)

    def full(*given, **more):
        raise (ValueError("OUT_OF_RANGE: No space") if name == "model" else OSError(28, "No space left on device"))

    with monkeypatch.context() as patched:
        patched.setattr("orbax.checkpoint.StandardCheckpointer.save", full)
        patched.setattr("fedjax_fair.engine.files.os.replace", full)
        with pytest.raises(ValueError, match=r"cannot be written: .*No space"):
            ff.export({"w": np.zeros(3)}, place, overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert ff.load_params(place)["w"].tolist() == [1, 1, 1]
    ff.export({"w": np.zeros(3)}, place, overwrite=True)
    assert ff.load_params(place)["w"].tolist() == [0, 0, 0]
    assert [file.name for file in tmp_path.iterdir()] == [name]

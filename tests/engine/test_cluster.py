"""Runs shared out among processes: the same results as in one, whoever dies."""

import errno
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import chex
import distributed
import jax
import numpy as np
import optax
import psutil
import pytest

import fedjax_fair as ff
from fedjax_fair.engine import cluster
from fedjax_fair.registry.plugins import own_factory

GRID = {"selector": ["uniform", "pow_d"], "q": [0.1, 1.0]}


def of(rule, data, selector="uniform", evaluate=("test",)):
    return ff.simulation(
        ff.models.logistic_regression(),
        data,
        aggregator=rule,
        selector=ff.uniform(3) if selector == "uniform" else ff.pow_d(3, d=5),
        trainer=ff.local_sgd(optax.sgd(0.05), steps=2, batch_size=10),
        evaluate=evaluate,
    )


def federation(seed):
    return ff.data.synthetic(6, 1.0, 1.0, seed=seed)


def contest(**settings):
    rules = {"fedavg": ff.fedavg(), "afl": ff.afl(), "term": ff.term(t=1.0)}
    of_all = {"federation": federation, "replicates": 3, "rounds": 60, "eval_every": 10, "progress": False}
    return ff.compare(rules, of, **of_all, **settings)


@pytest.fixture(scope="module")
def here():
    return contest()


@pytest.fixture(scope="module")
def scheduler():
    settings = {"processes": False, "n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    page = {"dashboard_address": "127.0.0.1:0"}  # else it asks for port 8787 all the same
    with distributed.LocalCluster(**settings, scheduler_kwargs=page) as started:
        yield started.scheduler_address


def kill_all_once_something_is_kept(folder, killed):
    while not killed:
        time.sleep(0.05)
        if any(folder.glob("*/[0-9]*")):
            workers = [p for p in psutil.Process().children() if "spawn_main" in " ".join(p.cmdline())]
            for worker in workers:
                os.kill(worker.pid, signal.SIGKILL)
                killed.append(worker.pid)


def test_workers_that_are_killed_lose_nothing_and_a_second_call_reads_what_is_there(here, tmp_path):
    """All that there are, here one, with what they held."""
    killed = []
    threading.Thread(target=kill_all_once_something_is_kept, args=(tmp_path, killed), daemon=True).start()
    far = contest(workers=1, checkpoint=tmp_path, every=10)
    assert len(killed) == 1
    chex.assert_trees_all_equal(here.runs, far.runs)
    chex.assert_trees_all_equal(here.references, far.references)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/[0-9]*")}
    chex.assert_trees_all_equal(here.runs, contest(checkpoint=tmp_path, every=10, references=False).runs)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/[0-9]*")} == kept


def test_a_cluster_that_runs_already_plays_comparisons_and_sweeps(here, scheduler, capsys):
    chex.assert_trees_all_equal(here.runs, contest(scheduler=scheduler, references=False).runs)
    data = federation(0)

    def build(selector, q):
        return of(ff.qfedavg(q=q, lipschitz=20.0), data, selector)

    one = {"rounds": 4, "eval_every": 2, "side_by_side": 1, "progress": False}
    alone = ff.sweep(build, GRID, seeds=[3, 5], **one)
    found = ff.sweep(build, GRID, seeds=[3, 5], scheduler=scheduler, **one)
    assert found.points == alone.points
    assert capsys.readouterr().err == ""  # progress=False
    chex.assert_trees_all_equal(alone.histories, found.histories)


def test_a_second_call_reads_its_files_anew(scheduler, tmp_path):
    """The workers are those of the first call, whose arguments were the same, byte by byte."""
    file = tmp_path / "beta"
    where = str(file)

    def read(seed):
        with open(where) as held:
            return ff.data.synthetic(6, 1.0, float(held.read()), seed=seed)

    short = {"federation": read, "replicates": 1, "rounds": 2, "references": False, "progress": False}
    for beta in ("0", "2"):
        file.write_text(beta)
        ways = ({}, {"scheduler": scheduler})
        alone, shared = (ff.compare({"fedavg": ff.fedavg()}, of, **short, **way) for way in ways)
        chex.assert_trees_all_equal(alone.runs, shared.runs)


def test_a_call_says_once_what_it_has_for_how_many_workers(scheduler, capsys, tmp_path):
    data = federation(0)

    def build(q):
        return of(ff.qfedavg(q=q, lipschitz=20.0), data)

    one = {"rounds": 1, "scheduler": scheduler}  # no progress=, and no terminal: no bar
    ff.sweep(build, {"q": [0.1, 1.0]}, seeds=2, checkpoint=tmp_path, **one)
    said = capsys.readouterr().err
    assert re.fullmatch(r"4 runs in 2 pieces on 1 worker\n1 of 2 pieces, about \d+ s left\n2 of 2 pieces\n", said)
    ff.sweep(build, {"q": [0.1, 1.0]}, seeds=2, checkpoint=tmp_path, **one)  # what is read tells no pace
    kept = "4 runs in 2 pieces on 1 worker; of 2 pieces the results are kept"
    assert capsys.readouterr().err == f"{kept}\n1 of 2 pieces\n2 of 2 pieces\n"
    grid = {"q": {"q": [0.1, 1.0]}}
    both = {"federation": data, "replicates": 2, "tune": grid}
    rules = {"q": lambda q: ff.qfedavg(q=q, lipschitz=20.0)}
    tried = partial(of, evaluate=("test", "validation"))
    ff.compare(rules, tried, **both, **one)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "4 runs in 2 pieces and 4 pieces of the rows (local) and (pooled) on 1 worker"
    assert re.fullmatch(r"1 of 2 pieces, about \d+ s left", said[1])


def test_a_call_waits_for_the_first_worker(monkeypatch, capsys):
    monkeypatch.setattr("fedjax_fair.engine.workers.WAIT", 1)
    page = {"dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(
        processes=False, n_workers=0, dashboard_address=None, scheduler_kwargs=page
    ) as none:
        address = none.scheduler_address
        with pytest.raises(ValueError, match=f"scheduler '{address}' has had no workers for 1 seconds: start some"):
            contest(scheduler=address, references=False)
    assert capsys.readouterr().err == f"waiting for the first worker of {address}\n"


def test_pieces_are_computed_under_the_settings_of_jax_that_are_here(scheduler):
    """Also by a worker that has laid out the same sweep under others before."""
    x = np.random.default_rng(0).normal(size=(30, 2))
    small = {"rounds": 1, "progress": False}

    def build(q):
        data = ff.FederatedData.from_arrays(x, x[:, 0], client_id=np.repeat([0, 1, 2], 10))
        local = ff.local_sgd(optax.sgd(0.05), steps=1, batch_size=5)
        rule = ff.qfedavg(q=q, lipschitz=20.0)
        net = ff.models.logistic_regression(classes=1)
        return ff.simulation(net, data, aggregator=rule, trainer=local, loss=ff.losses.squared_error)

    ff.sweep(build, {"q": [0.1]}, scheduler=scheduler, **small)
    with jax.enable_x64(True):
        alone, found = (ff.sweep(build, {"q": [0.1]}, **small, **far) for far in ({}, {"scheduler": scheduler}))
    assert found.histories[0][0].loss.dtype == np.float64
    chex.assert_trees_all_equal(alone.histories, found.histories)
    asked = {"federation": federation(0), "replicates": 2, "references": False, **small}
    with jax.default_prng_impl("rbg"):
        alone, found = (
            ff.compare({"fedavg": ff.fedavg()}, of, **asked, **far) for far in ({}, {"scheduler": scheduler})
        )
    chex.assert_trees_all_equal(alone.runs, found.runs)


def test_a_relative_checkpoint_is_where_it_was_named(scheduler, tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)

    def build(q):
        if threading.current_thread() is not threading.main_thread():
            os.chdir(there)
        return of(ff.qfedavg(q=q, lipschitz=20.0), federation(0))

    ff.sweep(build, {"q": [0.1]}, rounds=1, scheduler=scheduler, checkpoint="kept", progress=False)
    assert [*here.glob("kept/*/1")]
    assert not [*there.iterdir()]


def test_what_a_file_of_the_users_holds_is_sent_along(tmp_path, monkeypatch):
    """No process can import it by the name that it has here."""
    (tmp_path / "sent.py").write_text("def half(y):\n    return share * y\n\nshare = 0.5\n")
    half = own_factory(f"{tmp_path / 'sent.py'}:half", "loss")
    pickled = cluster._pickled({"loss": half}, {})
    monkeypatch.delitem(sys.modules, half.__module__)
    assert pickle.loads(pickled)[0]["loss"](3.0) == 1.5


def test_what_fails_there_is_raised_here(scheduler):
    def build(q):
        if threading.current_thread() is not threading.main_thread():
            raise ValueError("no room on the cluster")
        return of(ff.qfedavg(q=q, lipschitz=20.0), federation(0))

    with pytest.raises(ValueError, match="no room on the cluster"):
        ff.sweep(build, {"q": [0.1]}, rounds=1, scheduler=scheduler, progress=False)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"workers": 0}, "workers must be at least 1, got 0"),
        ({"workers": "two"}, "workers must be a whole number"),
        ({"scheduler": "localhost"}, "scheduler must be an address such as 'tcp://10.0.0.1:8786', got 'localhost'"),
        ({"workers": 2, "scheduler": "tcp://x:1"}, "workers are started here, scheduler has its own, got both"),
        ({"workers": 2, "devices": 2}, "devices share out runs within a process"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_wrong_call_is_one_sentence(settings, sentence, monkeypatch):
    monkeypatch.setattr("fedjax_fair.engine.sweep.as_mesh", lambda devices: None if devices == 1 else devices)
    with pytest.raises(ValueError, match=sentence):
        ff.sweep(lambda q: of(ff.qfedavg(q=q, lipschitz=20.0), federation(0)), {"q": [0.1]}, **settings)


def test_a_build_that_cannot_be_pickled_is_named():
    lock = threading.Lock()

    def build(q):
        with lock:
            return of(ff.qfedavg(q=q, lipschitz=20.0), federation(0))

    with pytest.raises(ValueError, match=r"build must be what can be pickled, .* got cannot pickle '_thread.lock'"):
        ff.sweep(build, {"q": [0.1]}, rounds=1, workers=1, progress=False)


SCRIPT = """
from fedjax_fair.engine.cluster import cluster_of, on_cluster

on_cluster(cluster_of(1, None), len, (len,), [1], print)
"""


def test_a_script_without_its_guard_ends_in_one_sentence(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert 'ValueError: workers must be asked for below if __name__ == "__main__":' in ended.stderr
    assert ended.stderr.count("Traceback") == 1
    assert "8787" not in ended.stderr


def test_dask_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ValueError, match=r"pip install 'fedjax-fair\[cluster\]'"):
        contest(workers=2)


def other_piece(shared, i):
    return "another", None, 1


def lost_file(shared, i):
    own_factory("lost.py:mine")


def full_disk(shared, i):
    raise OSError(errno.ENOSPC, "No space left on device")


def wrong_labels(shared, i):
    raise ValueError("labels cannot be negative")


def test_a_worker_in_another_folder_is_told_of_where_a_file_is_not_found(tmp_path, monkeypatch):
    call = pickle.dumps(()), 0, {name: getattr(jax.config, name) for name in cluster.SETTINGS}
    with pytest.raises(ValueError, match=rf"there is no such file, from {re.escape(os.getcwd())}$"):
        cluster._do(lost_file, *call, os.getcwd())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ValueError,
        match=f"no such file, from {tmp_path}, for a worker that runs in {tmp_path}, and the call in /away",
    ):
        cluster._do(lost_file, *call, "/away")
    with pytest.raises(OSError, match=r"device$"):
        cluster._do(full_disk, *call, "/away")
    with pytest.raises(ValueError, match=r"negative$"):
        cluster._do(wrong_labels, *call, "/away")


def test_workers_that_make_something_else_of_a_call_are_found_out(scheduler):
    with pytest.raises(ValueError, match="must make of this call what this process does, 'mine', got 'another'"):
        cluster.on_cluster(
            cluster.Cluster(None, scheduler), other_piece, (), [cluster.Piece("mine", 1)], lambda rounds: None
        )

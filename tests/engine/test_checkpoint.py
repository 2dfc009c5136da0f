"""Nothing is lost: a run that is cut off anywhere ends where it would have ended."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from jax._src import pretty_printer
from numpy.testing import assert_array_equal
from tensorboardX.proto.event_pb2 import Event

import fedjax_fair as ff
from fedjax_fair.engine import checkpoint as checkpoints
from fedjax_fair.engine.checkpoint import CheckpointError
from fedjax_fair.engine.digests import digest_of

DATA = toy.federation()


def build(rule=None, **more):
    rule = ff.fedmaba() if rule is None else rule
    trainer = ff.local_sgd(optax.sgd(0.1), steps=2, batch_size=4)
    return ff.simulation(toy.linear, DATA, aggregator=rule, trainer=trainer, **{"selector": ff.uniform(3)} | more)


SIM = build()


def play(folder, sim=SIM, key=0, rounds=11, **more):
    return ff.run(sim, key, rounds, **{"eval_every": 3, "chunk": 1, "checkpoint": folder} | more)


def same(one, other):
    """Bit for bit, the states' keys included."""
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert a.dtype == b.dtype
        if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert_array_equal(a, b)


class Cut(Exception):
    pass


def cut_after(chunks):
    calls = []

    def on_chunk(state, history):
        calls.append(0)
        if len(calls) > chunks:
            raise Cut

    return on_chunk


STATEFUL = {
    "fedmaba": lambda: SIM,
    "pg_ffl": lambda: build(ff.pg_ffl(), selector=ff.ucb_cs(2)),
    "fedfv": lambda: build(ff.fedfv(tau=2), server_optimizer=optax.adam(0.1), selector=ff.rpow_d(2)),
    "averaged": lambda: build(ff.fedavg(), server_optimizer=ff.average_iterates(), deploy=ff.averaged),
    "scaffold": lambda: build(ff.scaffold(), client_block=1),
    "ditto": lambda: build(ff.ditto(aggregator=ff.fedmaba()), evaluate=("test", "test@personal")),
    "drfa": lambda: build(ff.drfa()),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_a_run_that_was_cut_off_goes_on_to_the_same_end(name, tmp_path):
    """With fedmaba also where the last stretch is a shorter one, which is a program of its own."""
    sim, rounds = STATEFUL[name](), 11 if name == "fedmaba" else 12
    whole = play(None, sim, rounds=rounds)
    for chunks in (1, 3):
        with pytest.raises(Cut):
            play(tmp_path / str(chunks), sim, rounds=rounds, on_chunk=cut_after(chunks))
        assert sorted(p.name for p in (tmp_path / str(chunks)).iterdir())[-1] == str(3 * chunks)
        with toy.rounds_played() as played:
            same(play(tmp_path / str(chunks), sim, rounds=rounds), whole)
        assert sum(played) == rounds - 3 * chunks


def test_a_finished_run_is_read_and_not_played_again(tmp_path):
    whole = play(tmp_path)
    with toy.rounds_played() as played:
        same(play(tmp_path), whole)
    assert played == []


def test_a_continued_state_has_checkpoints_of_its_own(tmp_path):
    state, _ = ff.run(SIM, 0, 5)
    whole = ff.run(SIM, state=state, rounds=7, eval_every=2)
    more = {"state": state, "key": None, "rounds": 7, "eval_every": 2}
    with pytest.raises(Cut):
        play(tmp_path, on_chunk=cut_after(1), **more)
    with toy.rounds_played() as played:
        same(play(tmp_path, **more), whole)
    assert sum(played) == 5


def test_rounds_between_checkpoints(tmp_path):
    for chunk, expected, called in ((None, [6, 11], [6, 9, 11]), (1, [6, 11], [3, 6, 9, 11])):
        saved, calls = [], []
        with pytest.MonkeyPatch.context() as patch:
            keep = checkpoints.Keeper.save
            patch.setattr(checkpoints.Keeper, "save", lambda k, *what: (saved.append(what[0]), keep(k, *what))[1])  # noqa: B023
            play(tmp_path / str(chunk), chunk=chunk, every=5, on_chunk=lambda s, h: calls.append(int(s.round)))  # noqa: B023
        assert (saved, calls) == (expected, called)


def test_a_checkpoint_that_is_not_taken_is_an_error(tmp_path):
    play(tmp_path)
    keeper = checkpoints.keeper(tmp_path, {})
    with pytest.raises(CheckpointError, match=r"takes no round 5: the one after round 11 is whole"):
        keeper.save(5, SIM.init(jax.random.key(0)), ff.run(SIM, 0, 1)[1])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rounds": 12}, "rounds was 11 and is 12"),
        ({"eval_every": 4}, "eval_every was 3 and is 4"),
        ({"key": 1}, "the key or state to start from is not the same"),
        ({"sim": lambda: build(ff.fedmaba(alpha=0.7))}, "the simulation is not the same"),
        ({"sim": lambda: build(ff.fedavg())}, "the simulation is not the same"),  # whose state differs, too
        (
            {"sim": lambda: build(available=ff.availability.trace([[1, 1, 1, 1, 0]]))},
            "the simulation is not the same",
        ),
        ({"sim": lambda: SIM._replace(data=DATA._replace(x=DATA.x + 1))}, "the data is not the same"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_checkpoint_of_another_run_is_refused_by_the_difference(change, sentence, finished):
    if "sim" in change:
        change = {"sim": change["sim"]()}
    with pytest.raises(CheckpointError, match=f"is of another run: {re.escape(sentence)}$"):
        play(finished, **change)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    play(folder)
    return folder


def scheduled(rates):
    """A simulation of which only a constant inside a function under jit is special."""
    table = np.asarray(rates)
    schedule = jax.jit(lambda round: jax.numpy.asarray(table)[round % 3])
    trainer = ff.local_sgd(optax.sgd(0.1), steps=2, batch_size=4, schedule=schedule)
    return ff.simulation(toy.linear, DATA, aggregator=ff.fedmaba(), trainer=trainer, selector=ff.uniform(3))


def test_a_checkpoint_tells_constants_apart_wherever_they_are(tmp_path):
    play(tmp_path, scheduled([1.0, 0.5, 0.2]), rounds=3)
    with toy.rounds_played() as played:
        play(tmp_path, scheduled([1.0, 0.5, 0.2]), rounds=3)
    assert played == []
    with pytest.raises(CheckpointError, match="the simulation is not the same"):
        play(tmp_path, scheduled([1.0, 0.5, 0.3]), rounds=3)


def test_a_checkpoint_of_another_device_is_refused(finished, monkeypatch):
    monkeypatch.setattr("fedjax_fair.engine.checkpoint.device", lambda: "TPU v9")
    with pytest.raises(CheckpointError, match=r"device was 'cpu' and is 'TPU v9'"):
        play(finished)


def test_a_checkpoint_and_a_state_of_other_floats_are_refused(finished):
    state, _ = play(finished)
    with jax.enable_x64(True):
        with pytest.raises(CheckpointError, match=r"jax_enable_x64 was False and is True"):
            play(finished, build())
        with pytest.raises(
            ValueError, match=r"^state must hold .*, got float32 for float64, as of another jax_enable_x64$"
        ):
            ff.run(build(), state=state, rounds=3)


def test_a_checkpoint_of_another_version_is_refused(finished, monkeypatch):
    monkeypatch.setattr("fedjax_fair.engine.checkpoint.metadata.version", lambda name: "9.9")
    with pytest.raises(CheckpointError, match=r"fedjax-fair was '0.1.0' and is '9.9'"):
        play(finished)


def test_a_damaged_checkpoint_says_what_to_do(tmp_path):
    whole = play(tmp_path)
    for path in (tmp_path / "11" / "arrays").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"cannot be read after round 11 .*remove .*/11 to go on") as refusal:
        play(tmp_path)
    assert "\n" not in str(refusal.value)
    for path in sorted((tmp_path / "11").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / "11").rmdir()
    same(play(tmp_path), whole)


def test_no_flipped_bit_changes_a_result(tmp_path):
    """Orbax has checksums of its own tables, and none of large arrays."""
    kept = checkpoints.keeper(tmp_path, {"of": "a test"})
    whole = {"w": np.random.default_rng(0).normal(size=20_000), "n": np.arange(3), "b": jnp.ones(9, jnp.bfloat16)}
    kept.save(1, whole, {"rounds": np.arange(4)})
    values = max(filter(Path.is_file, (tmp_path / "1" / "arrays").rglob("*")), key=lambda path: path.stat().st_size)
    content = values.read_bytes()
    for at in range(1000, len(content), len(content) // 4):
        values.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(CheckpointError, match=r"cannot be read after round 1 .*not those that were written"):
            kept.load(whole, {"rounds": np.arange(4)})
    values.write_bytes(content)
    same(kept.load(whole, {"rounds": np.arange(4)})[1], whole)


def test_a_place_that_cannot_be_written_is_refused_before_the_first_round(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot be written: Not a directory|cannot be written: File exists"):
        play(tmp_path / "file")
    with pytest.raises(ValueError, match="every is the rounds between checkpoints, got 5 without checkpoint"):
        play(None, every=5)


SCRIPT = """
import sys; sys.path[:0] = [{tests!r}, {tests!r} + '/engine']
import numpy as np, jax, resource
import test_checkpoint as t
import fedjax_fair as ff
folder, rounds = sys.argv[1], int(sys.argv[2])
{extra}
state, history = t.play(folder, rounds=rounds, eval_every=2)
state = state._replace(key=jax.random.key_data(state.key))
np.savez(folder + ".npz", *[np.asarray(v) for v in jax.tree.leaves((state, history))])
"""


def command(folder, rounds, extra=""):
    text = textwrap.dedent(SCRIPT.format(tests=str(Path(__file__).parents[1]), extra=extra))
    return [sys.executable, "-c", text, str(folder), str(rounds)]


def test_a_run_killed_at_random_moments_ends_the_same(tmp_path):
    """SIGKILL, while computing or while writing; every life goes on from the last whole checkpoint."""
    rounds, rng = 160, random.Random(int(os.environ.get("KILL_SEED", "0")))
    environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs")}
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    subprocess.run(command(tmp_path / "whole", rounds), env=environment, check=True, capture_output=True)
    killed, lives = 0, []
    while killed < 3:
        process = subprocess.Popen(command(tmp_path / "cut", rounds), env=environment, stderr=subprocess.DEVNULL)
        kept = newest(tmp_path / "cut")
        while process.poll() is None and newest(tmp_path / "cut") == kept:  # let every life get somewhere
            time.sleep(0.01)
        time.sleep(rng.random() * 0.5)
        if process.poll() is not None:
            break
        process.kill()
        process.wait()
        killed += 1
        lives.append(newest(tmp_path / "cut"))
    assert killed == 3, f"only {killed} kills, at {lives}"
    assert lives == sorted(lives)
    assert lives[0] < lives[-1] < rounds
    subprocess.run(command(tmp_path / "cut", rounds), env=environment, check=True, capture_output=True)
    one, other = (np.load(tmp_path / f"{name}.npz") for name in ("whole", "cut"))
    assert one.files == other.files
    for name in one.files:
        assert_array_equal(one[name], other[name])


def newest(folder):
    """Rounds in the last committed checkpoint."""
    return max((int(p.name) for p in folder.glob("*") if p.name.isdigit()), default=0)


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path):
    """No file may grow beyond a few bytes once the first checkpoint is there."""
    limit = """
    def on_chunk(state, history):
        if len(history.rounds) == 2:
            import signal
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))
    import functools
    t.play = functools.partial(t.play, on_chunk=on_chunk)
    """
    done = subprocess.run(
        command(tmp_path / "cut", 8, textwrap.dedent(limit)), capture_output=True, text=True, check=False
    )
    assert "CheckpointError" in done.stderr
    assert "could not be written after round 4" in done.stderr
    assert "the one after round 2 is whole" in done.stderr
    assert newest(tmp_path / "cut") == 2
    same(play(tmp_path / "cut", rounds=8, eval_every=2), play(None, rounds=8, eval_every=2))


def test_a_process_that_ignores_ctrl_c_goes_on(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = play(tmp_path, on_chunk=lambda state, history: os.kill(os.getpid(), signal.SIGINT))
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    same(done, play(None))


def test_ctrl_c_finishes_the_chunk_and_keeps_it(tmp_path, capsys):
    def interrupt(state, history):
        if len(history.rounds) == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt, match="stopped after round 6, which is kept in"):
        play(tmp_path, on_chunk=interrupt)
    assert "Stopping at the next checkpoint; Ctrl-C again stops at once." in capsys.readouterr().err
    assert newest(tmp_path) == 6
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    same(play(tmp_path), play(None))


def test_memory_and_open_files_are_flat_with_checkpoints_on(tmp_path):
    files, arrays = [], []

    def look(state, history):
        files.append(len(os.listdir("/proc/self/fd")))
        arrays.append(len(jax.live_arrays()))

    play(tmp_path, rounds=10_000, eval_every=500, on_chunk=look)
    assert len(files) == 20
    assert max(files[2:]) <= files[2] + 2
    assert max(arrays[2:]) <= arrays[2]


# Between chunks


def test_early_stopping_waits_its_patience(tmp_path):
    stop = ff.callbacks.early_stopping(2, "variance", "lowest")
    _, history = ff.run(SIM, 0, 300, eval_every=3, chunk=1, on_chunk=stop)
    variances = [ff.metrics.summary(a)["variance"] for a in history.accuracy]
    assert len(variances) - 1 - int(np.argmin(variances)) == 2
    assert len(variances) < 100
    play(tmp_path, rounds=300, on_chunk=stop)
    assert len(play(tmp_path, rounds=300, on_chunk=stop)[1].rounds) == len(variances)  # and stays stopped


def course(accuracies, split="test"):
    scores = {"test": 0.5, "validation": 0.5} | {split: np.array(accuracies)[:, None]}
    scores = {s: ff.types.Evaluation(np.broadcast_to(a, (len(accuracies), 2)), None) for s, a in scores.items()}
    scores = {s: of._replace(loss=of.accuracy) for s, of in scores.items()}
    return ff.History(np.arange(len(accuracies)), scores, *[np.zeros((0, 0))] * 3, None, *[np.zeros(0)] * 2)


@pytest.mark.parametrize(
    ("accuracies", "enough"),
    [
        ([0.5, 0.6, 0.5, 0.4], True),
        ([0.5, 0.4, 0.3, 0.6, 0.5], True),  # a later rise in the same chunk is too late
        ([0.5, 0.4, 0.6, 0.5], False),
        ([np.nan, np.nan], True),
        ([np.nan, 0.1], False),
    ],
)
def test_early_stopping_goes_by_every_evaluation_of_its_split(accuracies, enough):
    for split in ("test", "validation"):
        assert ff.callbacks.early_stopping(2, split=split)(None, course(accuracies, split)) is enough
    assert ff.callbacks.early_stopping(2)(None, course(accuracies)) is enough  # the first split
    with pytest.raises(ValueError, match="split must be one of test, validation, got 'train'"):
        ff.callbacks.early_stopping(2, split="train")(None, course(accuracies))


@pytest.mark.parametrize("measure", ["loss", "loss_jain", "loss_gini"])
def test_early_stopping_may_go_by_the_losses(measure):
    stop = ff.callbacks.early_stopping(2, measure, "lowest")
    assert stop(None, course([0.5, 0.5, 0.5]))
    assert not stop(None, course([0.5, 0.5]))
    assert ff.callbacks.early_stopping(1, "loss", "lowest")(None, course([0.5, 0.6]))
    assert not ff.callbacks.early_stopping(1, "loss", "lowest")(None, course([0.5, 0.4]))


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_the_stream_holds_every_evaluation_once(ending, tmp_path):
    path = tmp_path / f"history.{ending}"
    seen = []

    def count(state, history):
        seen.append(len(path.read_text().splitlines()))

    _, history = play(None, on_chunk=ff.callbacks.together(ff.callbacks.stream(path), count))
    assert seen == [n + (ending == "csv") for n in (1, 2, 3, 4)]
    lines = path.read_text().splitlines()
    if ending == "jsonl":
        last = json.loads(lines[-1])
    else:
        last = dict(zip(lines[0].split(","), map(float, lines[-1].split(","))))
    assert last["round"] == 11
    assert last["accuracy"] == pytest.approx(100 * history.accuracy[-1].mean())
    with pytest.raises(ValueError, match=r"path's ending must be one of .csv, .jsonl, got '.txt'"):
        ff.callbacks.stream("history.txt")
    assert ff.callbacks.stream(tmp_path / "new" / f"history.{ending}")
    (tmp_path / f"folder.{ending}").mkdir()
    with pytest.raises(ValueError, match="path must be a file, got the folder"):
        ff.callbacks.stream(tmp_path / f"folder.{ending}")


def points(folder, measure):
    """(round, value) of a measure, for all that TensorBoard finds in the folder."""
    found = set()
    for path in folder.glob("events*"):
        raw = path.read_bytes()
        while raw:  # length u64, its checksum u32, the event, its checksum u32
            size = int.from_bytes(raw[:8], "little")
            event, raw = Event.FromString(raw[12 : 12 + size]), raw[16 + size :]
            found |= {(event.step, value.simple_value) for value in event.summary.value if value.tag == measure}
    return found


def test_tensorboard_holds_every_evaluation(tmp_path):
    play(None, on_chunk=ff.callbacks.tensorboard(tmp_path))
    assert {round for round, _ in points(tmp_path, "gini")} == {3, 6, 9, 11}


@pytest.mark.parametrize("second", [[0.75], [0.75, 0.25], [0.75, 0.25, 0.125]], ids=["shorter", "equal", "longer"])
def test_a_second_run_with_the_same_callback_is_written_as_well(second, tmp_path):
    write = ff.callbacks.tensorboard(tmp_path)
    for length in (1, 2):
        write(None, course([0.5, 0.5][:length]))
    for length in range(1, len(second) + 1):
        write(None, course(second[:length]))
    assert points(tmp_path, "accuracy") >= {(round, 100 * value) for round, value in enumerate(second)}


def test_a_second_run_with_other_rounds_is_written_whole_though_it_is_longer(tmp_path):
    write = ff.callbacks.tensorboard(tmp_path)
    write(None, course([0.5, 0.5]))
    later = course([0.75, 0.25, 0.125])
    write(None, later._replace(rounds=later.rounds + 1))
    assert points(tmp_path, "accuracy") >= {(1, 75), (2, 25), (3, 12.5)}


def test_a_second_run_is_written_whole_though_its_first_call_is_longer_than_the_first_run(tmp_path):
    write = ff.callbacks.tensorboard(tmp_path)
    write(None, course([0.5]))
    write(None, course([0.75, 0.25, 0.125]))
    assert points(tmp_path, "accuracy") >= {(0, 75), (1, 25), (2, 12.5)}


def test_tensorboard_is_an_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ValueError, match=r"pip install 'fedjax-fair\[tensorboard\]'"):
        ff.callbacks.tensorboard(tmp_path)


def test_a_program_is_the_same_in_a_terminal(monkeypatch):
    """Where JAX writes it in colours, as it does in notebooks."""
    program = jax.make_jaxpr(jnp.sin)(1.0)
    plain = digest_of(program)
    monkeypatch.setattr(pretty_printer, "CAN_USE_COLOR", True)
    assert "\x1b" in str(program)
    assert digest_of(program) == plain


@pytest.mark.parametrize("name", ["7", "2023"])
def test_numbered_folders_that_are_no_rounds_are_refused_and_stay(name, tmp_path):
    """Orbax would take them for rounds, and remove those that are not the last two."""
    checkpoints.keeper(tmp_path / name, {}).save(3, {"x": np.ones(3)}, {"h": np.zeros(1)})  # another run's
    with pytest.raises(
        CheckpointError, match=rf"holds the folder {name}, which is no round of a run: name a folder"
    ):
        play(tmp_path)
    assert [*(tmp_path / name / "3").iterdir()]


def test_what_is_left_of_a_rounds_removal_does_not_stop_a_run(tmp_path):
    kept = checkpoints.keeper(tmp_path, {})
    kept.save(10, {"x": np.ones(3)}, {"h": np.zeros(1)})
    (tmp_path / "3" / "arrays").mkdir(parents=True)
    (tmp_path / "4").mkdir()
    assert checkpoints.keeper(tmp_path, {}).load({"x": np.zeros(3)}, {"h": np.zeros(1)})[0] == 10


def test_a_folder_that_two_runs_have_opened_is_the_first_ones(tmp_path):
    """Orbax, which looks when it opens a folder, would let the second write over what the first has kept."""
    first, second = (checkpoints.keeper(tmp_path, {"who": who}) for who in ("first", "second"))
    first.save(10, {"x": np.ones(3)}, {"h": np.zeros(1)})
    with pytest.raises(CheckpointError, match=r"is in use by another run, which has kept round 10: name another"):
        second.save(10, {"x": np.zeros(3)}, {"h": np.zeros(1)})
    _, state, _ = checkpoints.keeper(tmp_path, {"who": "first"}).load({"x": np.zeros(3)}, {"h": np.zeros(1)})
    assert state["x"].tolist() == [1, 1, 1]

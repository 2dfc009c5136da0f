"""Ctrl-C that waits while other processes start and end."""

import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from fedjax_fair.cli.train import said_of_seeds
from fedjax_fair.engine import progress, workers
from fedjax_fair.engine.progress import bar, beyond, undisturbed

BLOCKED = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.05)  # until it is heard


def test_an_interrupt_waits_for_the_end_of_the_work():
    done = []

    def work():
        interrupt()
        done.append("all of it")
        return 3

    assert undisturbed(work) == (3, True)
    assert done == ["all of it"]
    assert undisturbed(lambda: 3) == (3, False)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_the_third_interrupt_ends_work_that_hangs(monkeypatch):
    hanging, heard = threading.Event(), threading.Semaphore(0)
    install = signal.signal

    def installed(number, handler):
        """As ``signal.signal``, and every interrupt that was heard is counted: two at once would be one."""

        def counted(*args):
            try:
                handler(*args)
            finally:
                heard.release()

        return install(number, counted if handler.__name__ == "hear" else handler)

    monkeypatch.setattr(signal, "signal", installed)

    def work():
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            heard.acquire(timeout=20)
        hanging.wait(20)

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt, match=r"^stopped$"):
        undisturbed(work)
    hanging.set()
    assert time.monotonic() - start < 5
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_the_work_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        undisturbed(lambda: 1 / 0)


def test_processes_and_threads_of_the_work_hear_none():
    found = []

    def start():
        found.append(
            subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=True).stdout
        )

    def work():
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()

    undisturbed(work)
    start()
    assert found == ["True\n", "False\n"]


def test_a_process_that_ignores_interrupts_goes_on_ignoring_them():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert undisturbed(interrupt) == (None, False)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def pieces_of(monkeypatch, start=lambda: None, work=lambda: None, close=lambda: None):
    """Work among new workers, all of them made up."""

    def started(count, ends):
        ends.callback(close)
        start()

    monkeypatch.setattr(workers, "_started", started)
    with workers.connected(2, None):
        work()
    return "all pieces"


def test_an_interrupt_while_workers_start_says_stopped_as_one_between_pieces_does(monkeypatch):
    with pytest.raises(KeyboardInterrupt, match=r"^stopped$"):
        pieces_of(monkeypatch, start=interrupt)
    with pytest.raises(KeyboardInterrupt, match=r"^stopped$"):
        pieces_of(monkeypatch, work=interrupt)


def test_an_interrupt_while_workers_close_takes_nothing_back(monkeypatch):
    assert pieces_of(monkeypatch, close=interrupt) == "all pieces"

    def fail():
        raise KeyboardInterrupt("stopped; go on")

    with pytest.raises(KeyboardInterrupt, match=r"^stopped; go on$"):
        pieces_of(monkeypatch, work=fail, close=interrupt)


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when they are added to it."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def log_of(clock, capsys, seconds, rounds=1000, step=50, **settings):
    """What a job's log gets of a call whose every ``step`` rounds take ``seconds``."""
    with bar(settings.pop("progress", None), rounds, **settings) as advance:
        for _ in range(rounds // step):
            clock[0] += seconds
            advance(step)
    return capsys.readouterr().err.splitlines()


def test_a_job_s_log_gets_a_line_for_each_tenth_from_the_second_on_with_the_time_left(clock, capsys):
    lines = log_of(clock, capsys, 60, progress="fedavg, seed 1 of 3")
    assert lines[:2] == [
        "fedavg, seed 1 of 3: 100 of 1,000",
        "fedavg, seed 1 of 3: 200 of 1,000, about 16 min left",
    ]
    assert [line.split(" of 1,000")[0][-3:] for line in lines] == [str(n) for n in range(100, 1000, 100)]


def test_a_log_gets_at_most_a_line_a_minute_and_none_of_a_call_shorter_than_that(clock, capsys):
    assert log_of(clock, capsys, 6) == ["rounds: 500 of 1,000"]  # the second minute ends with the call
    assert log_of(clock, capsys, 2.9) == []


def test_a_log_gets_lines_and_no_bar_also_where_colours_are_forced(clock, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as CI services do
    assert log_of(clock, capsys, 6, progress=True) == ["rounds: 500 of 1,000"]


def test_a_log_of_many_short_seeds_tells_how_many_are_done(clock, capsys):
    done = said_of_seeds(SimpleNamespace(seeds=40, quiet=False), "afl")
    for _ in range(40):
        clock[0] += 25  # too short for a line of its own
        done(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["afl, seeds: 4 of 40", "afl, seeds: 8 of 40, about 13 min left"]
    assert len(lines) == 9
    said_of_seeds(SimpleNamespace(seeds=40, quiet=True), "afl")(20)
    assert capsys.readouterr().err == ""


def test_a_log_gets_no_line_where_progress_is_false_or_others_are_printed(clock, capsys):
    assert log_of(clock, capsys, 60, progress=False) == []
    assert log_of(clock, capsys, 60, lines=False) == []


def test_the_rounds_that_a_checkpoint_kept_are_not_taken_for_fast_ones(clock, capsys):
    with bar(None, 1000, "episodes") as advance:
        advance(800)
        part = beyond(300, advance)  # one of those that the 800 are of
        part(300)
        for _ in range(2):
            clock[0] += 120
            part(80)
    assert capsys.readouterr().err.splitlines() == [
        "episodes: 880 of 1,000",
        "episodes: 960 of 1,000, about 60 s left",
    ]

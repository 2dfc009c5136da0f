"""Ctrl-C that waits while other processes start and end."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from fedjax_fair.engine.progress import kept_waiting

BLOCKED = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))"


def test_an_interrupt_waits_for_the_end_of_the_block():
    done = []

    def block():
        with kept_waiting():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("all of it")

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_processes_and_threads_of_the_block_hear_none():
    found = []

    def start():
        found.append(
            subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True, check=True).stdout
        )

    with kept_waiting():
        thread = threading.Thread(target=start)
        thread.start()
    thread.join()
    start()
    assert found == ["True\n", "False\n"]


def test_a_process_that_ignores_interrupts_goes_on_ignoring_them():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with kept_waiting():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)

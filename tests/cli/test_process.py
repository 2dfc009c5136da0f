"""What a command settles for its process."""

import sys
import time

import pytest

from fedjax_fair.cli.process import hear_interrupts


class Collected:
    """Interrupted where Python can only print it."""

    def __del__(self):
        raise KeyboardInterrupt


def test_an_interrupt_that_falls_into_the_garbage_collector_is_heard(monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", print)
    hear_interrupts()
    left = Collected()
    del left
    with pytest.raises(KeyboardInterrupt):
        time.sleep(5)

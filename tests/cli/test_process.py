"""What a command settles for its process."""

import inspect
import os
import subprocess
import sys
import threading
import time

import pytest

from fedjax_fair.cli import commands, comparing
from fedjax_fair.cli.process import hear_interrupts


class Collected:
    """Interrupted where Python can only print it."""

    def __del__(self):
        raise KeyboardInterrupt


def test_an_interrupt_that_falls_into_the_garbage_collector_is_heard_though_the_main_thread_waits(monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", print)
    hear_interrupts()
    left = Collected()
    del left
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        threading.Event().wait(5)
    assert time.monotonic() - start < 1


INTERRUPTED = f"""
import sys, threading
from fedjax_fair.cli import commands
{inspect.getsource(Collected)}
def read_command(words):
    print("what nobody reads")
    Collected()
    threading.Event().wait(60)

commands.read_command = read_command
sys.argv = ["fedjax-fair", "list"]
commands.main()
"""


def test_an_interrupt_before_the_call_is_read_and_after_the_reader_has_gone_is_one_line():
    """As of ``fedjax-fair list | cat``, whose ``cat`` the terminal interrupts too."""
    reader, writer = os.pipe()
    os.close(reader)
    call, late = [sys.executable, "-c", INTERRUPTED], os.environ | {"PYTHONUNBUFFERED": ""}
    ended = subprocess.run(
        call, env=late, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=50, check=False
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (130, "fedjax-fair: stopped\n")


@pytest.mark.parametrize(
    ("claimed", "told"), [(True, "; go on with: fedjax-fair compare --resume {}"), (False, "")]
)
def test_an_interrupt_before_the_first_checkpoint_tells_how_to_go_on(claimed, told, tmp_path, monkeypatch, capsys):
    """Once the folder is this call's: another one's may lie there before."""
    (tmp_path / "resume.json").touch()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "set_up", (lambda *_: (None, tmp_path)) if claimed else interrupted)
    monkeypatch.setattr(comparing, "train_comparison", interrupted)
    with pytest.raises(SystemExit) as end:
        commands.main(["compare", "--checkpoint", str(tmp_path)])
    assert end.value.code == 130
    assert capsys.readouterr().err == f"fedjax-fair: stopped{told.format(tmp_path)}\n"

"""What a command settles for its process."""

import inspect
import os
import subprocess
import sys
import threading
import time

import jax
import pytest

from fedjax_fair.cli import commands, comparing
from fedjax_fair.cli.process import hear_interrupts, split_cpu


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


def test_a_cpu_is_split_into_a_device_for_each_core_at_most(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2, 3}, raising=False)
    settled = []
    monkeypatch.setattr(jax.config, "update", lambda name, value: settled.append((name, value)))
    for devices in (1, 2, 3, 4, 10**6):
        split_cpu(devices)
    assert settled == [("jax_num_cpu_devices", devices) for devices in (2, 3, 3, 3)]
    for name, value in (("JAX_NUM_CPU_DEVICES", "2"), ("XLA_FLAGS", "--xla_force_host_platform_device_count=2")):
        with monkeypatch.context() as said:
            said.setenv(name, value)
            split_cpu(3)
    assert len(settled) == 4

"""One run over several processes, started on the command line."""

import dataclasses
import os
import socket
import subprocess
import sys

from fedjax_fair.cli.several import alone_again

SMALL = "run --dataset synthetic --clients 4 --cohort 4 --rounds 2 --quiet"


def ends_of_two(folder, *flags):
    """Exit status and standard error of two processes of one device each, every one with flags of its own."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        shared = [*SMALL.split(), "--coordinator", f"localhost:{free.getsockname()[1]}", "--processes", "2"]
    command = [sys.executable, "-m", "fedjax_fair", *shared, "--out", str(folder / "found")]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    started = [
        subprocess.Popen(
            [*command, "--process", str(mine), *own.split()], env=environment, stderr=subprocess.PIPE, text=True
        )
        for mine, own in enumerate(flags)
    ]
    try:
        said = [process.communicate(timeout=60)[1] for process in started]
        return [(process.returncode, text) for process, text in zip(started, said, strict=True)]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_processes_with_other_settings_do_not_begin(tmp_path):
    for status, text in ends_of_two(tmp_path, "--lr 0.1", "--lr 2.0"):
        assert status == 2, text
        assert "fedjax-fair: processes must be given the same settings, got others in process 1\n" in text
    assert not (tmp_path / "found").exists()


@dataclasses.dataclass
class Shared:
    coordinator: str | None = "host0:1234"
    processes: int | None = 4
    process: int | None = 0
    devices: int = 8


def test_a_configuration_does_not_keep_the_devices_of_all_processes():
    """Another number of processes may go on, and nobody gave devices."""
    assert alone_again(Shared()) == Shared(None, None, None, devices=1)

"""Pieces of work in threads, of which some share a compiled program."""

import contextlib
import os
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import NamedTuple, TypeVar

import jax

T = TypeVar("T")


class Task(NamedTuple):
    """A piece of work."""

    program: Hashable
    """Tasks of one program: the first, which compiles it, is done before the others begin."""
    work: Callable[..., object]
    rounds: int = 0
    """That it plays, for the progress."""
    name: str = ""
    """What it is, to tell it by where another process does it."""
    kept: int = 0
    """Rounds of it that a checkpoint holds."""


def threads_for(threads: int | None) -> int:
    """As given; else one per core on a CPU, where a small model keeps one core busy, and one on an accelerator."""
    if threads is not None:
        return threads
    if jax.default_backend() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(tasks: Sequence[Task], threads: int, halted: threading.Event | None = None) -> list[object]:
    """What each task returns, in their order; the first error, or Ctrl-C, ends those that have not begun, and is
    raised. Those that have begun may look at ``halted``, which is then set.

    Every thread computes as the caller does: in its float type, its precision, on its device.
    """
    halted = threading.Event() if halted is None else halted
    if threads == 1 or len(tasks) < 2:
        return [task.work() for task in tasks]
    firsts: dict[Hashable, int] = {}
    for i, task in enumerate(tasks):
        firsts.setdefault(task.program, i)
    order = sorted(range(len(tasks)), key=lambda i: firsts[tasks[i].program] != i)  # what compiles goes first
    compiled = {program: threading.Event() for program in firsts}
    settled = _settings()

    def work(i: int) -> object:
        event = compiled[tasks[i].program]
        with _as_caller(settled):
            if firsts[tasks[i].program] != i:
                event.wait()
                return tasks[i].work()
            try:
                return tasks[i].work()
            finally:
                event.set()

    with ThreadPoolExecutor(threads) as pool:
        futures = {i: pool.submit(work, i) for i in order}
        try:
            wait(futures.values(), return_when=FIRST_EXCEPTION)
            for future in futures.values():
                if future.done() and not future.cancelled() and (error := future.exception()) is not None:
                    raise error
        except BaseException:
            halted.set()
            raise
        finally:
            for future in futures.values():
                future.cancel()
    return [futures[i].result() for i in range(len(tasks))]


def _settings() -> tuple[bool, str | None, object]:
    names = ("jax_enable_x64", "jax_default_matmul_precision", "jax_default_device")
    x64, precision, device = (getattr(jax.config, name) for name in names)
    return x64, precision, device


@contextlib.contextmanager
def _as_caller(settled: tuple[bool, str | None, object]) -> Iterator[None]:
    x64, precision, device = settled
    with jax.enable_x64(x64), jax.default_matmul_precision(precision), jax.default_device(device):
        yield

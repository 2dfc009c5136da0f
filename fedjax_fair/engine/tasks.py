"""Pieces of work in threads, of which some share a compiled program."""

import contextlib
import os
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, NamedTuple

import jax

SETTINGS: dict[str, Callable[[Any], Any]] = {
    "jax_enable_x64": jax.enable_x64,
    "jax_default_matmul_precision": jax.default_matmul_precision,
    "jax_default_prng_impl": jax.default_prng_impl,
    "jax_threefry_partitionable": jax.threefry_partitionable,
}
"""Of JAX, on which a result depends, and what sets them for a while."""


class Task(NamedTuple):
    """A piece of work."""

    program: Hashable
    """Tasks of one program: the first compiles it before the others begin."""
    work: Callable[..., object]
    """Takes a function to call as soon as the program is compiled; if it does not, it is by the end of the work."""
    rounds: int = 0
    """That it plays, for the progress."""
    name: str = ""
    """What it is, to tell it by where another process does it."""
    kept: int = 0
    """Rounds of it that a checkpoint holds."""
    trace: Callable[[], object] | None = None
    """Traces its program, ahead of the first of its tasks."""


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

    Every thread computes as the caller does: in its float type and precision, by its random numbers, on its device.
    """
    halted = threading.Event() if halted is None else halted
    if threads == 1 or len(tasks) < 2:
        return [task.work(lambda: None) for task in tasks]
    queue, found = _Queue(tasks), dict[int, object]()
    settled = {name: getattr(jax.config, name) for name in (*SETTINGS, "jax_default_device")}

    def work() -> None:
        with settled_as(settled), jax.default_device(settled["jax_default_device"]):
            try:
                while (i := queue.take()) is not None:
                    found[i] = tasks[i].work(partial(queue.compiled, i))
                    queue.compiled(i)
            except BaseException:
                queue.end()
                raise

    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work) for _ in range(threads)]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
            for future in futures:
                if future.done() and (error := future.exception()) is not None:
                    raise error
        except BaseException:
            halted.set()
            raise
        finally:
            queue.end()
    return [found[i] for i in range(len(tasks))]


class _Queue:
    """Which task comes next: the first of a program, which compiles it; while one is traced, which keeps Python
    busy, rather a task whose program is compiled."""

    def __init__(self, tasks: Sequence[Task]):
        self.tasks = tasks
        self.left = list(range(len(tasks)))
        self.begun: set[Hashable] = set()
        self.ready: set[Hashable] = set()
        self.changed = threading.Condition()
        self.tracing = self.ended = False

    def take(self) -> int | None:
        """A task that may begin, its program traced where it is the first of it; None where there is none left."""
        with self.changed:
            while (i := self._next()) is None and self.left:
                self.changed.wait()
            if i is None:
                return None
            self.left.remove(i)
            trace = self.tasks[i].trace if self.tasks[i].program not in self.begun else None
            self.begun.add(self.tasks[i].program)
            if trace is None:
                return i
            self.tracing = True
        try:
            trace()
        except BaseException:
            self.end()
            raise
        with self.changed:
            self.tracing = False
            self.changed.notify_all()
            return None if self.ended else i

    def _next(self) -> int | None:
        """The first of a program; while one is traced, rather one whose program is compiled, or needs no trace."""
        busy = self.tracing
        ready = next((i for i in self.left if self.tasks[i].program in self.ready), None)
        fresh = (i for i in self.left if self.tasks[i].program not in self.begun)
        first = next((i for i in fresh if not busy or self.tasks[i].trace is None), None)
        return ready if first is None or (busy and ready is not None) else first

    def compiled(self, i: int) -> None:
        """Those that share its program may begin."""
        with self.changed:
            self.ready.add(self.tasks[i].program)
            self.changed.notify_all()

    def end(self) -> None:
        """No other task begins."""
        with self.changed:
            self.ended = True
            self.left.clear()
            self.changed.notify_all()


@contextlib.contextmanager
def settled_as(settings: Mapping[str, Any]) -> Iterator[None]:
    """JAX as ``settings``, of all of :data:`SETTINGS`, say."""
    with contextlib.ExitStack() as stack:
        for name, as_there in SETTINGS.items():
            stack.enter_context(as_there(settings[name]))
        yield

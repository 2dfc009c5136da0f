"""What a long run hears and shows: Ctrl-C, and how far it is."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from multiprocessing import resource_tracker
from typing import Any


@contextlib.contextmanager
def asked_to_stop(watch: bool) -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C only be noted, where ``watch`` and in the main thread; the second one interrupts.

    A process that ignores Ctrl-C, as one started by nohup or in a script's background does, goes on ignoring it.
    """
    noted: list[int] = []
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if not watch or ignored or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def note(number: int, frame: Any) -> None:
        noted.append(number)
        signal.signal(signal.SIGINT, old)
        if sys.stderr is not None:
            with contextlib.suppress(OSError, RuntimeError):  # nobody reads on, or it came in the middle of a print
                print(HEARD, file=sys.stderr, flush=True)

    old = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(noted)
    finally:
        signal.signal(signal.SIGINT, old)


HEARD = "\nStopping at the next checkpoint; Ctrl-C again stops at once."
"""Below a progress bar, whose line is not ended."""
ENOUGH = 3
"""So many times Ctrl-C, and it interrupts whatever was not to be."""
AWAKE = 0.2
"""Seconds after which the main thread, which alone hears interrupts, looks for them."""


def undisturbed(work: Callable[[], Any]) -> tuple[Any, bool]:
    """What ``work()`` returns, and whether a Ctrl-C came meanwhile, in the main thread: the third one interrupts.

    ``work`` has a thread of its own, and neither this nor threads and processes that it starts ever hear one. A
    terminal sends it to all of them, and one that is just starting would print a traceback.

    Raises:
      KeyboardInterrupt: "stopped", at the third; the thread goes on until the process ends.
    """
    old = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(old):
        return work(), False
    heard: list[int] = []

    def hear(number: int, frame: Any) -> None:
        heard.append(number)
        if len(heard) == ENOUGH:
            raise KeyboardInterrupt("stopped")

    found: Future[Any] = Future()

    def settle() -> None:
        try:
            found.set_result(work())
        except BaseException as error:  # raised in the main thread
            found.set_exception(error)

    signal.signal(signal.SIGINT, hear)
    try:
        _start_deaf(threading.Thread(target=settle, daemon=True))
        while not wait([found], timeout=AWAKE).done:
            pass  # an interrupt that the system gave to another thread is heard now
        return found.result(), bool(heard)
    finally:
        signal.signal(signal.SIGINT, old)


def _start_deaf(thread: threading.Thread) -> None:
    """Start a thread that no Ctrl-C reaches, nor what it starts: they inherit what is blocked."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows, where the main thread alone hears it
        thread.start()
        return
    resource_tracker.ensure_running()  # which unblocks what is blocked, where it is started later
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def time_left(seconds: float, done: int, rounds: int) -> str:
    """How long the rest may take, at the pace so far; nothing where there is no rest.

    >>> time_left(30, 100, 400), time_left(600, 1, 5), time_left(30, 400, 400)
    (', about 90 s left', ', about 40 min left', '')
    """
    rest = seconds * (rounds - done) / max(done, 1)
    if done >= rounds:
        return ""
    unit, length = next((u, s) for u, s in (("s", 1), ("min", 60), ("h", 3600)) if rest < 120 * s or u == "h")
    return f", about {rest / length:.0f} {unit} left"


class bar:
    """How far a long call is, on standard error; a context that gives ``advance(rounds)``.

    In a terminal a bar, and in a notebook where it is asked for. Elsewhere, as in a job's log, a line whenever
    another tenth is done, at most one a minute (:data:`PAUSE`).
    """

    def __init__(self, progress: bool | str | None, rounds: int, label: str = "rounds", lines: bool = True) -> None:
        self.shown = sys.stderr.isatty() if progress is None else bool(progress)
        self.lines = lines and progress is not False
        self.label = progress if isinstance(progress, str) else label
        self.rounds = rounds
        self.bar: Any = None

    def __enter__(self) -> Callable[[int], None]:
        if self.shown and (console := _console()):
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, console=console, transient=True)
            self.bar.__enter__()
            task = self.bar.add_task(self.label, total=self.rounds)
            return lambda rounds: self.bar.advance(task, rounds)
        return lines(self.label, self.rounds) if self.lines else lambda rounds: None

    def __exit__(self, *error: Any) -> None:
        if self.bar is not None:
            self.bar.__exit__(*error)


PAUSE = 60.0
"""Seconds between two lines, at the least."""


def lines(label: str, rounds: int) -> Callable[[int], None]:
    """``advance(rounds)``, by any thread, which prints the lines.

    The time left is told at the pace since the line before. The first line tells none: what came before it holds
    the compilation, and rounds that a checkpoint had kept (:func:`beyond`).
    """
    lock, done, said, since = threading.Lock(), 0, None, time.monotonic()

    def advance(more: int) -> None:
        nonlocal done, said, since
        with lock:
            done, now = done + more, time.monotonic()
            if now - since < PAUSE or done >= rounds or 10 * done // rounds == 10 * (said or 0) // rounds:
                return
            left = "" if said is None else time_left(now - since, done - said, rounds - said)
            print(f"{label}: {done:,} of {rounds:,}{left}", file=sys.stderr, flush=True)
            said, since = done, now

    return advance


def beyond(kept: int, advance: Callable[[int], None]) -> Callable[[int], None]:
    """``advance`` for a part whose kept rounds were told at the start: its first call, of those, tells the rest."""
    told = [kept]
    return lambda rounds: advance(rounds - told.pop() if told else rounds)


def _console() -> Any:
    """Standard error, if a bar can be drawn there: in a terminal or a notebook, whatever $FORCE_COLOR says."""
    from rich.console import Console

    console = Console(stderr=True)
    drawn = sys.stderr.isatty() and not console.is_dumb_terminal
    return console if drawn or console.is_jupyter else None

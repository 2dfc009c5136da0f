"""Connections to the processes that do pieces of work: new ones on this machine, or a Dask scheduler's."""

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

from fedjax_fair.engine.progress import undisturbed

GUARD = 'if __name__ == "__main__":'
"""What keeps a worker that runs a script from running all of it."""

WAIT = 300
"""Seconds for workers to come, or to come back: batch systems start them when they like."""


@contextlib.contextmanager
def connected(workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """A connection to so many new processes, which end with it, or to the workers of a scheduler.

    Raises:
      KeyboardInterrupt: "stopped", or what it said. While new workers start it waits until they have; while they
        close it takes three, for the work is done by then, or an error is under way.
      ValueError: workers that do not start or do not come.
    """
    ends = contextlib.ExitStack()
    try:
        if workers is None:
            yield _reached(scheduler, ends)
            return
        client, stopped = undisturbed(lambda: _started(workers, ends))
        if stopped:
            raise KeyboardInterrupt("stopped")
        yield client
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(str(stop) or "stopped") from None
    finally:
        undisturbed(ends.close)


def _started(workers: int, ends: contextlib.ExitStack) -> Any:
    """A connection to so many new processes, which end with ``ends``."""
    try:
        local = dask().LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,  # JAX's memory is its own affair
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # else it asks for port 8787 all the same
            silence_logs=logging.CRITICAL,  # a worker that died is replaced
        )
    except RuntimeError as error:
        raise ValueError(
            f"workers must be asked for below {GUARD} where a script does, for each runs the script up to there; "
            f"they did not start: {' '.join(str(error.__cause__ or error).split())}"
        ) from None
    client = dask().Client(ends.enter_context(local))
    ends.callback(client.close)  # in another thread than this, maybe
    return client


def _reached(scheduler: str | None, ends: contextlib.ExitStack) -> Any:
    """A connection to a scheduler that has a worker at least, which ends with ``ends``."""
    try:
        client = dask().Client(scheduler, timeout="30s")
    except (OSError, TimeoutError) as error:
        raise ValueError(f"scheduler {scheduler!r} does not answer: {' '.join(str(error).split())}") from error
    ends.callback(client.close)
    if not client.scheduler_info()["workers"]:
        print(f"waiting for the first worker of {scheduler}", file=sys.stderr, flush=True)
        try:
            client.wait_for_workers(1, timeout=WAIT)
        except TimeoutError:
            none = f"scheduler {scheduler!r} has had no workers for {WAIT} seconds"
            raise ValueError(f"{none}: start some, dask worker {scheduler}") from None
    return client


def dask() -> Any:
    """Dask's ``distributed``; ValueError where it is not installed."""
    try:
        import distributed
    except ImportError as error:
        raise ValueError("workers and scheduler need Dask: pip install 'fedjax-fair[cluster]'") from error
    return distributed

"""Independent pieces of work by many processes: Dask's, of this machine or of a cluster that runs already."""

import contextlib
import functools
import multiprocessing
import os
import pickle
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from fedjax_fair.checks import check_count
from fedjax_fair.engine.pieces import answers
from fedjax_fair.engine.progress import time_left
from fedjax_fair.engine.tasks import SETTINGS, settled_as
from fedjax_fair.engine.workers import connected, dask
from fedjax_fair.registry.plugins import OWN

UNFIT = (TypeError, AttributeError, pickle.PicklingError)
"""What pickle raises."""


LOST = FileNotFoundError, ModuleNotFoundError
"""What a worker in another folder than the call's may raise; readers make ValueErrors of it."""


class Piece(NamedTuple):
    """What one worker does at a time."""

    name: str
    rounds: int
    kept: int = 0
    """Rounds that a checkpoint holds: they are read."""


class Cluster(NamedTuple):
    """Who does the work."""

    workers: int | None
    """Processes to start on this machine. XLA starts as many threads in each as in this one: with fewer it shares
    out sums, and so rounds them, otherwise."""
    scheduler: str | None
    """The address of a Dask scheduler, whose workers can import what this process can."""


def cluster_of(workers: Any, scheduler: Any) -> Cluster | None:
    """The cluster that is asked for; None for this process.

    Raises:
      ValueError: both, a count below 1, something else than an address, or Dask is not installed.
    """
    if workers is None and scheduler is None:
        return None
    if workers is not None and scheduler is not None:
        raise ValueError(f"workers are started here, scheduler has its own, got both ({workers} and {scheduler!r})")
    if workers is not None:
        check_count("workers", workers)
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise SystemExit(1)  # a worker that runs the script that starts it: that process says so, once
    elif not isinstance(scheduler, str) or "://" not in scheduler:
        raise ValueError(f"scheduler must be an address such as 'tcp://10.0.0.1:8786', got {scheduler!r}")
    dask()
    return Cluster(workers, scheduler)


def on_cluster(
    cluster: Cluster,
    work: Callable[[bytes, int], tuple[str, Any, int]],
    shared: Any,
    pieces: Sequence[Piece],
    advance: Callable[[int], Any],
    remark: str | None = None,
) -> list[Any]:
    """What ``work(shared, i)`` finds for every i of ``pieces``, in their order.

    ``work`` is a function of a module that returns the name of the piece that it did, what it found, and how many
    rounds it played, without those that a checkpoint held. It gets ``(shared, settings)`` pickled, the same bytes
    for all pieces of this call and for no other: what it has laid out for them it may keep.
    A piece whose process dies is given to another. ``advance`` is told a piece's rounds when it is done.
    ``remark``, what the pieces are, is printed on standard error, with the number of workers; where that is no
    terminal, so is a line for every piece that is done.

    Raises:
      ValueError: what cannot be pickled, workers that do not start or that all go for good, or another process
        that makes other pieces of ``shared``, as with other data or another module.
    """
    settings = {name: getattr(jax.config, name) for name in SETTINGS}
    # Of this call alone: what a worker has laid out for another one may be of files that have changed since.
    pickled = _pickled(shared, settings | {"call": uuid.uuid4().hex})
    doing, rest = functools.partial(_do, work), (settings, os.getcwd())
    with (
        connected(*cluster) as client,
        contextlib.closing(answers(client, doing, pickled, len(pieces), rest)) as ended,
    ):
        if remark is not None:
            workers = cluster.workers or len(client.nthreads())
            print(f"{remark} on {counted(workers, 'worker')}{kept_of(pieces)}", file=sys.stderr, flush=True)
        at_once = cluster.workers or sum(client.nthreads().values())
        found, done, fresh, played = [None] * len(pieces), 0, 0, 0
        start, left = time.monotonic(), sum(piece.rounds - piece.kept for piece in pieces)
        try:
            for i, (name, result, mine) in ended:
                piece = pieces[i]
                if name != piece.name:
                    raise ValueError(
                        f"workers must make of this call what this process does, {piece.name!r}, got {name!r}"
                    )
                found[i] = result
                advance(piece.rounds)
                done, fresh, played = done + 1, fresh + (mine > 0), played + mine
                left -= piece.rounds - piece.kept
                if remark is not None and not sys.stderr.isatty():
                    # The first piece's time is that of all that run beside it.
                    soon = time_left(time.monotonic() - start, played, played + left) if fresh >= at_once else ""
                    print(f"{done} of {len(pieces)} pieces{soon}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            if cluster.workers is not None:  # they end with this process
                raise KeyboardInterrupt("stopped") from None
            raise KeyboardInterrupt("stopped; the scheduler's workers finish the pieces that they are at") from None
    return found


def kept_of(pieces: Sequence[Piece]) -> str:
    """What a checkpoint holds of the pieces, to be added to a sentence; empty where it holds none.

    >>> kept_of([Piece("a", 4, 4), Piece("b", 4, 2), Piece("c", 4)]), kept_of([Piece("b", 4, 2)])
    ('; of 1 piece the results are kept, of 1 piece a part', '; of 1 piece a part is kept')
    """
    whole = sum(piece.kept >= piece.rounds for piece in pieces)
    part = sum(0 < piece.kept < piece.rounds for piece in pieces)
    begun = f"of {counted(part, 'piece')} a part"
    if whole:
        return f"; of {counted(whole, 'piece')} the results are kept" + f", {begun}" * bool(part)
    return f"; {begun} is kept" * bool(part)


def counted(number: int, thing: str) -> str:
    """A number of things, in words such as "1 piece" and "4 pieces"."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _pickled(shared: Any, settings: Mapping[str, Any]) -> bytes:
    """The arguments and JAX's settings as bytes, with the code of a user's files, which others do not find.

    Raises:
      ValueError: an argument that exists in this process only, by name.
    """
    import cloudpickle

    for name, module in [*sys.modules.items()]:
        if name.startswith(OWN):
            cloudpickle.register_pickle_by_value(module)
    try:
        pickled: bytes = cloudpickle.dumps((shared, settings))
    except UNFIT as error:
        raise ValueError(
            f"{_unfit(shared[0])} must be what can be pickled, for every worker is sent it, got {error}: make what "
            "it holds, such as open files and locks, inside of a function"
        ) from error
    return pickled


def _unfit(first: Any) -> str:
    """Which argument it is, of a call's arguments by name or of ``build`` alone."""
    import cloudpickle

    for name, value in (first._asdict() if hasattr(first, "_asdict") else {"build": first}).items():
        try:
            cloudpickle.dumps(value)
        except UNFIT:
            return str(name)
    return "every argument"


def _do(
    work: Callable[[bytes, int], tuple[str, Any, int]],
    shared: bytes,
    i: int,
    settings: Mapping[str, Any],
    caller: str,
) -> tuple[str, Any, int]:
    """One piece, computed as the process that asks for it would, from its folder.

    Raises:
      ValueError: a file that is not where it was named, if this process runs in another folder.
    """
    with settled_as(settings):
        try:
            return work(shared, i)
        except (ValueError, OSError, ImportError) as error:
            here = os.getcwd()
            if here == caller or not (isinstance(error, LOST) or isinstance(error.__cause__, LOST)):
                raise
            raise ValueError(
                f"{error}, for a worker that runs in {here}, and the call in {caller}: start workers in the folder "
                "of the call, or name files by their whole paths"
            ) from error

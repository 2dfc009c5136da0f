"""Pieces of work at Dask's workers: sent, and sent again where all that held them have gone."""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from fedjax_fair.engine.progress import undisturbed
from fedjax_fair.engine.workers import WAIT, dask

TRIES = 3
"""As often as Dask gives a piece to one worker after another."""

GONE = (
    "workers must stay until their pieces are done, but all of them, or their scheduler, have gone: what a "
    "checkpoint holds is kept, and the same call goes on from it, on the command line with --resume"
)


def answers(
    client: Any, work: Callable[..., Any], shared: bytes, count: int, rest: Sequence[Any]
) -> Generator[tuple[int, Any]]:
    """``(i, work(shared, i, *rest))`` for every i below ``count``, in the order in which they end.

    A piece whose worker dies is another worker's, by Dask. ``shared`` lies at all workers: where all of them die it
    is sent again, with the pieces that are left, to those that come in their place.

    Raises:
      ValueError: none comes, their scheduler has gone, or three times they die before a piece has ended.
    """
    left, in_vain = [*range(count)], 0
    while left:
        there = client.scatter([shared], broadcast=True, hash=False)[0]
        futures = [client.submit(work, there, i, *rest, pure=False) for i in left]
        numbers, before = {future.key: i for future, i in zip(futures, left, strict=True)}, len(left)
        try:
            for future, answer in dask().as_completed(futures, with_results=True):
                if future.cancelled():
                    break
                left.remove(numbers[future.key])
                yield numbers[future.key], answer
        finally:
            undisturbed(partial(client.cancel, futures))
        if left:
            in_vain = in_vain + 1 if len(left) == before else 0
            if in_vain == TRIES:
                raise ValueError(GONE)
            try:
                client.wait_for_workers(1, timeout=WAIT)
            except (TimeoutError, OSError):
                raise ValueError(GONE) from None

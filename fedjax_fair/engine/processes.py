"""One run over several processes: all hear the first one, all do what one wants, and nobody waits for the dead.

Such a run has a simulation on the devices of all processes of ``jax.distributed``. The processes play the same
rounds in step, so all have the whole state and the whole history. The first alone writes and prints.
"""

import contextlib
import os
import pickle
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

PIECE = 2**24
"""Bytes that are told at a time."""
BEAT = 2
"""Seconds between signs of life."""
LOST = 60
"""Seconds without a sign after which a process is gone; after 100 JAX ends the others in words of its own."""
SOON = 10
"""The same where a sum over the processes has failed, or the process has said that it leaves."""
LEFT, OVER = "left", "over"
TRY_AGAIN = 75
"""The exit status of a process that another one has left alone: EX_TEMPFAIL of sysexits.h."""


def processes_of(tree: Any) -> set[int]:
    """The processes on whose devices arrays are."""
    arrays = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]
    return {device.process_index for leaf in arrays for device in leaf.devices()}


def is_shared(tree: Any) -> bool:
    """Whether arrays are on devices of several processes."""
    return len(processes_of(tree)) > 1


def writes(tree: Any) -> bool:
    """Whether this process is the one to write and print of a run with these arrays."""
    return not is_shared(tree) or jax.process_index() == 0


def told_by_first(say: Callable[[], Any]) -> Any:
    """What ``say()`` returns in the first process, in all of them.

    Raises:
      ValueError: of ``say``, in all of them; any other error is raised in the first, and told by the others.
    """
    from jax.experimental.multihost_utils import broadcast_one_to_all

    first = jax.process_index() == 0
    found: tuple[Any, ValueError | None] = (None, None)
    own: Exception | None = None
    if first:
        try:
            found = (say(), None)
        except ValueError as raised:
            found = (None, raised)
        except Exception as raised:  # of any class, which the others may be unable to make again
            own = raised
            found = (None, ValueError(f"process 0 failed with {type(raised).__name__}: {raised}"))
    words = np.frombuffer(pickle.dumps(found), np.uint8)
    millions, rest = broadcast_one_to_all(np.array(divmod(words.size, 2**20), np.int32))  # JAX has no i64
    size = int(millions) * 2**20 + int(rest)
    words = words if first else np.zeros(size, np.uint8)
    pieces = [broadcast_one_to_all(words[i : i + PIECE]) for i in range(0, size, PIECE)]
    answer, error = pickle.loads(np.concatenate(pieces).tobytes())
    if own is not None:
        raise own
    if error is not None:
        raise error
    return answer


def in_any(data: Any, *wishes: bool) -> list[bool]:
    """Of each wish whether any process of a run on these data has it; all must ask at the same time."""
    if not is_shared(data):
        return [*wishes]
    from jax.experimental.multihost_utils import process_allgather

    everybody: Any = process_allgather(np.array(wishes))
    return [bool(of) for of in everybody.any(axis=0)]


@contextlib.contextmanager
def watched(data: Any, kept: Path | None) -> Iterator[None]:
    """Around a run on these data: as soon as one of its processes is gone, the others end.

    They say so in a sentence on standard error, and end with status 75. There is no other way: who waits for a sum
    over all processes hears nothing else. The first process looks for the others' signs of life in the store of
    ``jax.distributed``, and its word is what they wait for.
    """
    if not is_shared(data):
        yield
        return
    from jax._src.distributed import global_state  # Orbax takes it from there, too: JAX has no other way to it

    client: Any
    client, me, count = global_state.client, jax.process_index(), jax.process_count()
    place = f"fedjax_fair/{told_by_first(lambda: secrets.token_hex(8))}"
    over, broken = threading.Event(), threading.Event()
    end = partial(_end, count, kept)
    work = (
        [partial(_look, client, place, count, over, broken, end)]
        if me == 0
        else [partial(_beat, client, place, me, over), partial(_listen, client, place, me, over, end)]
    )
    threads = [threading.Thread(target=each, daemon=True) for each in work]
    for thread in threads:
        thread.start()
    last = LEFT
    try:
        yield
        last = OVER
    except Exception as error:
        if re.match("[A-Z_]+: ", str(error)):  # a status of XLA, which is a JaxRuntimeError or a ValueError
            broken.set()
            if not str(error).startswith("RESOURCE_EXHAUSTED"):  # which is this process's own
                time.sleep(LOST + SOON)  # where a process is gone, this one ends here
        raise
    finally:
        over.set()
        if me:
            threads[0].join(SOON)  # a sign of life that comes late would stand in place of the last word
        client.key_value_set(_word(place) if me == 0 else _sign(place, me), last, allow_overwrite=True)
        for thread in threads if last == OVER else ():
            thread.join()


def _word(place: str) -> str:
    return f"{place}/word"


def _sign(place: str, process: int) -> str:
    return f"{place}/signs/{process}"


def _beat(client: Any, place: str, me: int, over: threading.Event) -> None:
    """Give signs of life."""
    beats = 0
    while not over.is_set():
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # the next one may be heard
            client.key_value_set(_sign(place, me), str(beats), allow_overwrite=True)
        beats += 1
        over.wait(BEAT)


def _look(
    client: Any, place: str, count: int, over: threading.Event, broken: threading.Event, end: Callable[[int], None]
) -> None:
    """Look for the others' signs of life, and say who is gone."""
    seen: dict[str, str] = {}
    silent = dict.fromkeys(range(1, count), 0)  # looks, not seconds: this process may have been held up itself
    while not over.wait(BEAT):
        try:
            now = dict(client.key_value_dir_get(f"{place}/signs/"))
        except jax.errors.JaxRuntimeError:  # nobody's silence: the next look may be answered
            continue
        for process in silent:
            sign = now.get(_sign(place, process))
            quiet = sign == seen.get(_sign(place, process)) and sign != OVER
            silent[process] = silent[process] + 1 if quiet else 0
            patience = SOON if sign == LEFT or broken.is_set() else LOST
            if silent[process] * BEAT >= patience and not over.is_set():
                with contextlib.suppress(jax.errors.JaxRuntimeError):  # this one ends in any case
                    client.key_value_set(_word(place), str(process))
                time.sleep(1)  # for the others to hear it
                end(process)
        seen = now


def _listen(client: Any, place: str, me: int, over: threading.Event, end: Callable[[int], None]) -> None:
    """Wait for the first process's word; where none can come any more, it is gone."""
    while True:
        try:
            word = client.blocking_key_value_get(_word(place), 10**9)
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                continue
            word = "0"
        if word == str(me):  # it has left with an error of its own, and now waits for the others to leave as well
            sys.stdout.flush()
            os._exit(1)
        if word != OVER and not (word == LEFT and over.wait(SOON)):
            end(0 if word == LEFT else int(word))
        return


def _end(count: int, kept: Path | None, gone: int) -> None:
    """End this process with a sentence."""
    again = (
        "there is no checkpoint to go on from"
        if kept is None
        else f"start all of them again, on the command line with --resume, and the run goes on from {kept}"
    )
    who = f"process {gone} of the {count} that share this run (0 to {count - 1})"
    sentence = f"fedjax_fair: {who} is gone, so this one ends; {again}\n"
    os.write(2, sentence.encode())
    sys.stdout.flush()
    os._exit(TRY_AGAIN)

"""One run over several processes, on the command line: they join, and the first one alone writes and prints."""

import dataclasses
import hashlib
import re
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from fedjax_fair.checks import check_count

FLAGS = ("coordinator", "process", "processes")
OWN = ("coordinator", "process", "out", "overwrite", "quiet", "json")
"""What each process of a run may be told in its own way."""

Made = TypeVar("Made")


def is_shared(experiment: Any) -> bool:
    """Whether the command is one of several processes of a run."""
    return getattr(experiment, "coordinator", None) is not None


def checked(experiment: Any) -> None:
    """Look at the flags of several processes.

    Raises:
      ValueError: some of them without the others, an address without a port, or a number that is none of a process.
    """
    given: dict[str, Any] = {name: getattr(experiment, name, None) for name in FLAGS}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(FLAGS):
        return
    if missing:
        raise ValueError(f"{', '.join(FLAGS)} go together, got no {' and no '.join(missing)}")
    if not re.fullmatch(r".+:\d+", given["coordinator"]):
        raise ValueError(f"coordinator must be HOST:PORT of the first process, got {given['coordinator']!r}")
    count = check_count("processes", given["processes"], low=2)
    if not 0 <= given["process"] < count:
        raise ValueError(f"process must be from 0 to {count - 1}, got {given['process']}")
    if experiment.devices > 1 and experiment.devices % count:
        raise ValueError(f"devices must be as many for each of the {count} processes, got {experiment.devices}")


def joined(experiment: Any) -> Any:
    """The experiment on the devices of all its processes, once they have come together.

    Raises:
      ValueError: not all of them came, or they have other devices together.
    """
    import jax

    if not is_shared(experiment):
        return experiment
    try:
        jax.distributed.initialize(experiment.coordinator, experiment.processes, experiment.process)
        there = jax.device_count()
    except RuntimeError as error:  # of which JAX's own are
        raise ValueError(
            f"coordinator {experiment.coordinator} did not bring {experiment.processes} processes together "
            f"({' '.join(str(error).split())[:200]})"
        ) from error
    if experiment.devices not in (1, there):
        raise ValueError(f"devices must be the {there} of all processes, or left out, got {experiment.devices}")
    return dataclasses.replace(experiment, devices=there)


def check_same(experiment: Any, *more: Any) -> None:
    """Look whether all processes of a run are given the same, but for what the first one alone does with results.

    Raises:
      ValueError: in all of them, where some are not.
    """
    own = {name: None for name in OWN if hasattr(experiment, name)} | {
        "checkpoint": experiment.checkpoint is not None
    }
    settings = repr((dataclasses.replace(experiment, **own), *more))
    digests = _gathered(np.frombuffer(hashlib.sha256(settings.encode()).digest(), np.uint8))
    if others := np.flatnonzero((digests != digests[0]).any(axis=1)).tolist():
        raise ValueError(f"processes must be given the same settings, got others in {_named(others)}")


def made_by_all(experiment: Any, make: Callable[[], Made]) -> Made:
    """``make()``, once all processes of the run have made theirs: a sum over them would wait for one that failed.

    Raises:
      ValueError: others have failed; what ``make`` raises here is raised here.
    """
    if not is_shared(experiment):
        return make()
    try:
        made = make()
    except Exception:
        _gathered(np.array(True))
        raise
    if failed := np.flatnonzero(_gathered(np.array(False))).tolist():
        raise ValueError(f"{_named(failed)} failed before the run: see what was said there")
    return made


def _gathered(mine: np.ndarray) -> np.ndarray:
    """Every process's array: [processes, ...]."""
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(mine))


def _named(processes: list[int]) -> str:
    return f"process{'es' * (len(processes) > 1)} {', '.join(map(str, processes))}"


def alone_again(experiment: Any) -> Any:
    """The experiment without who does the work: what a configuration keeps, for another may go on."""
    elsewhere = (*FLAGS, "workers", "scheduler")
    alone = {name: None for name in elsewhere if hasattr(experiment, name)}
    devices = {"devices": 1} if is_shared(experiment) else {}  # joined took those of all that there were
    return dataclasses.replace(experiment, **alone, **devices)

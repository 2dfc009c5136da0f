"""Where one run is kept, by one process or the first of several."""

import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax

from fedjax_fair.checks import check_count
from fedjax_fair.engine.checkpoint import (
    DATA,
    DEVICES,
    ON_ONE,
    PROGRAM,
    START,
    Keeper,
    describe,
    keeper,
    pack,
    program_of,
    unpack,
)
from fedjax_fair.engine.devices import as_mesh
from fedjax_fair.engine.processes import is_shared, processes_of, told_by_first
from fedjax_fair.engine.simulation import simulation
from fedjax_fair.types import SimState, Simulation


class SharedKeeper(NamedTuple):
    """A run's place on disk, which the first process alone has to see."""

    folder: Path
    mine: Keeper | None
    """The first process's."""

    def save(self, played: int, state: Any, history: Any) -> None:
        """As :meth:`Keeper.save`, by the first process; what it raises is raised in all."""
        told_by_first(lambda: None if self.mine is None else self.mine.save(played, state, history))

    def load(self, state: Any, history: Any) -> tuple[int, Any, Any] | None:
        """As :meth:`Keeper.load`, by the first process, which tells the others."""

        def read() -> Any:
            found = None if self.mine is None else self.mine.load(state, history)
            return found and (found[0], *pack({"state": found[1], "history": found[2]}))

        heard = told_by_first(read)
        if heard is None:
            return None
        found = unpack({"state": state, "history": history}, *heard[1:])
        return heard[0], found["state"], found["history"]


def check_keeping(checkpoint: Any, every: int | None, gap: int, chunk: int | None, sim: Any = None) -> int | None:
    """``chunk`` as given, else what makes chunks of ``every`` rounds, evaluated every ``gap``. ``sim``: of one run.

    Raises:
      ValueError: ``checkpoint`` is no folder or cannot be used here, or ``every`` does not go with it.
    """
    if checkpoint is not None and not isinstance(checkpoint, str | os.PathLike):
        raise ValueError(f"checkpoint must be a folder, got {checkpoint!r}")
    count = jax.process_count()
    if checkpoint is not None and count > 1 and len(processes_of(getattr(sim, "data", None))) < count:
        raise ValueError(
            f"checkpoint among {count} processes is for ff.run of a simulation on the devices of all of them, "
            "devices=jax.device_count(), got another"
        )
    if every is None:
        return chunk
    if checkpoint is None:
        raise ValueError(f"every is the rounds between checkpoints, got {every} without checkpoint")
    check_count("every", every)
    return -(-every // gap) if chunk is None else chunk


def keeper_of_run(
    folder: Path, sim: Simulation, state: SimState, rounds: int, every: int, first: bool
) -> Keeper | SharedKeeper:
    """A run's place on disk; the first process's alone where it is a run over several.

    Raises:
      CheckpointError: the folder cannot be made or written.
    """
    settings = {
        "first round": int(state.round),
        "rounds": rounds,
        "eval_every": f"{every} and round 0" if first else every,
    }

    def make() -> Keeper:
        about = describe(sim, state, settings)
        devices, single = _on_one_device(sim)
        program = about[PROGRAM] if devices == 1 else program_of(single)
        last = {name: about.pop(name) for name in (PROGRAM, DATA, START)}  # the first difference is what is told
        return keeper(folder, about | {DEVICES: devices, ON_ONE: program} | last)

    if not is_shared(sim.data):
        return make()
    made: list[Keeper] = []
    told_by_first(lambda: made.append(make()))
    return SharedKeeper(folder, made[0] if made else None)


def _on_one_device(sim: Simulation) -> tuple[int, Simulation]:
    """How many devices share a round, and the same simulation on one: by that a run is known on any number."""
    mesh = as_mesh((sim.arguments or {}).get("devices", 1))
    if mesh is None or mesh.size == 1:
        return 1, sim
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were said when it was made
        single = simulation(**((sim.arguments or {}) | {"devices": 1}))
    return mesh.size, single._replace(data=sim.data)

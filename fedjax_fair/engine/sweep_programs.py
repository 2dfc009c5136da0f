"""The programs of a sweep, played by this process or another: what they hold, where they are kept."""

import pickle
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from fedjax_fair.engine.checkpoint import Keeper
from fedjax_fair.engine.grid import floats_of, groups, numbered, points_of
from fedjax_fair.engine.keys import picked
from fedjax_fair.engine.program_run import keeper_of, train
from fedjax_fair.engine.programs import Build, Program, program_of
from fedjax_fair.engine.run import chunks


class Course(NamedTuple):
    """How long runs are, and where they are kept."""

    rounds: int
    gap: int
    """Rounds between evaluations."""
    chunk: int | None
    every: int
    checkpoint: Path | None
    eval_first: bool

    def keeper(self, program: Program, place: Path | None) -> Keeper | None:
        """The program's place on disk."""
        if place is None:
            return None
        seeds = program.owners.count(program.owners[0])
        gap = f"{self.gap} and round 0" if self.eval_first else self.gap
        return keeper_of(program, place, {"rounds": self.rounds, "eval_every": gap, "seeds": seeds})


def programs_of(
    build: Build, axes: Mapping[str, list[Any]], keys: Any, side_by_side: Any, mesh: Mesh | None, apart: bool
) -> list[Program]:
    """One for each combination of the values that are no floats; ``apart``: and for each seed."""
    points, swept = points_of(axes), floats_of(axes)
    found = []
    for static, members in groups(points, swept):
        mine = [(i, points[i]) for i in members]
        first = program_of(build, static, mine, swept, keys[:1] if apart else keys, side_by_side, mesh)
        seeds = [picked(keys, np.full(len(first.keys), i)) for i in range(len(keys))] if apart else [first.keys]
        found += [first._replace(keys=seed) for seed in seeds]
    return found


def play_program(shared: bytes, i: int) -> tuple[str, Any, int]:
    """The i-th program of a sweep that another process has laid out, and pickled, on this machine; the rounds that
    this process played of it."""
    programs, places, course = _laid(shared)
    keeper = course.keeper(programs[i], places[i])
    told: list[int] = []  # the first are those that were kept
    found = play(programs[i], keeper, course, lambda: False, told.append)
    return called(programs[i]), found, sum(told[1:])


def called(program: Program) -> str:
    """A name by which two processes know that they mean one program and its points."""
    return f"{program.name}: points {sorted(set(program.owners))}"


@lru_cache(maxsize=1)  # what is laid out once compiles each program once, however many seeds come
def _laid(shared: bytes) -> tuple[list[Program], list[Path | None], Course]:
    (build, axes, (bits, impl), side_by_side, course), _ = pickle.loads(shared)
    keys = jax.random.wrap_key_data(bits, impl=impl)
    programs = programs_of(build, axes, keys, side_by_side, None, apart=True)
    return programs, places_of(course.checkpoint, programs), course


def play(program: Program, keeper: Keeper | None, course: Course, stop: Any, advance: Any) -> Any:
    """The histories of its runs, and whose model stayed as it was: ``stop() -> bool``, ``advance(rounds)``."""
    if stop():
        raise KeyboardInterrupt(f"stopped before {program.name}; what is trained is kept in {course.checkpoint}")
    cuts = partial(chunks, course.rounds, course.gap, course.chunk)
    return train(program, keeper, cuts, course.every, stop, advance, course.eval_first)


def places_of(checkpoint: Path | None, programs: Sequence[Program]) -> list[Path | None]:
    """A folder per program, whose name does not depend on the others but where two are called alike."""
    if checkpoint is None:
        return [None] * len(programs)
    names = [re.sub(r"[^\w.,=@-]+", "_", program.name) for program in programs]
    short = [f"{name[:80]}-{sha256(name.encode()).hexdigest()[:8]}" if len(name) > 80 else name for name in names]
    return [checkpoint / name for name in numbered(short)]

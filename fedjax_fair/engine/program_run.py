"""The runs of one program, chunk by chunk, from their checkpoint on."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_fair.engine import checkpoint as checkpoints
from fedjax_fair.engine import watch
from fedjax_fair.engine.checkpoint import PROGRAM, Keeper
from fedjax_fair.engine.devices import replicate
from fedjax_fair.engine.history import History, after, join
from fedjax_fair.engine.programs import Program, go_on
from fedjax_fair.engine.run import blank
from fedjax_fair.types import Evaluation


def train(
    program: Program,
    keeper: Keeper | None,
    cuts: Callable[[int, bool], Iterable[tuple[int, int]]],
    every: int,
    stop: Callable[[], bool],
    advance: Callable[[int], None],
    first: bool = False,
    seen: Callable[[dict[str, Evaluation]], None] | None = None,
    compiled: Callable[[], None] = lambda: None,
) -> tuple[list[History], list[bool]]:
    """One history per run, as ``run`` makes it: from the keeper's checkpoint on, and with new ones; and whether its
    model stayed as it was. ``first``: an evaluation comes ahead of any round. ``seen`` is
    given every chunk's scores, f32[runs, T_eval, N] each, and may refuse them. ``compiled`` is called as
    soon as the programs of all chunks are there, and after every later chunk."""
    runs, states, began = range(len(program.owners)), program.start(), 0
    past: list[History] = []
    begun = watch.kept(states.params)
    mesh = program.call["mesh"]
    data, numbers = replicate((program.sim.data, program.numbers), mesh)
    if keeper is not None and (found := keeper.load(states, blank(program.sim))):
        began, kept_states, stacked = found
        past = [_of(r, stacked) for r in runs]
        states = kept_states if mesh is None else jax.tree.map(_where, kept_states, states)
    pieces: list[tuple[np.ndarray, Any]] = []
    played = kept = began
    advance(began * len(runs))

    def so_far() -> list[History]:
        now = [join([(gaps, _of(r, record)) for gaps, record in pieces], began) for r in runs] if pieces else past
        return [*map(after, past, now)] if past and pieces else now

    cut = [*cuts(began, first and not past)]
    lacking = {*cut}
    for evaluations, length in cut:
        states, record = go_on(states, numbers, data, evaluations=evaluations, every=length, **program.call)
        lacking.discard((evaluations, length))
        if not lacking:  # and the rounds are being played
            compiled()
        pieces.append((np.full(evaluations, length), jax.device_get(record)))
        played += evaluations * length
        if seen is not None:
            seen(pieces[-1][1][1])
        if keeper is not None and (stop() or played - kept >= every):
            keeper.save(played, states, jax.tree.map(lambda *each: np.stack(each), *so_far()))
            kept = played
        if keeper is not None and stop() and kept == played:
            raise KeyboardInterrupt(f"stopped after round {played}, which is kept in {keeper.folder}")
        advance(evaluations * length * len(runs))  # may end the work: what was played is kept by now
    if keeper is not None and kept < played:
        keeper.save(played, states, jax.tree.map(lambda *each: np.stack(each), *so_far()))
    ended = watch.kept(states.params)
    return so_far(), [watch.same(begun, ended, r) for r in runs]


def _where(new: Any, old: Any) -> Any:
    """An array on the devices that another one is on."""
    return jax.device_put(new, old.sharding)


def _of(r: int, stacked: Any) -> Any:
    """One run's part."""
    return jax.tree.map(lambda a: a[r], stacked)


def keeper_of(program: Program, place: Path, settings: Mapping[str, Any]) -> Keeper:
    """A program's place on disk; refused before anything is trained where it holds another sweep's."""
    grid = {f"grid[{name!r}]": values for name, values in program.values.items()}
    mesh = program.call["mesh"]
    settings = {**grid, **settings, "devices": 1 if mesh is None else mesh.size}
    settings["side_by_side"] = program.call["width"]
    about = checkpoints.describe(program.sim, program.start(), settings)
    # The first point's simulation may be the same where others' are not: fedprox(mu) and fedprox(mu / 2) at mu = 0.
    about[PROGRAM] += program.call["made"]
    found = checkpoints.keeper(place, about)
    found.check()
    return found

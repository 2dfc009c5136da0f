"""Seeds and hyper-parameters in one compiled program."""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_fair import checkpoint as checkpoints
from fedjax_fair.checks import check_count
from fedjax_fair.grid import Point, check_names, extremes, groups, label, values_of
from fedjax_fair.history import History, after, join
from fedjax_fair.run import as_key, asked_to_stop, bar, blank, check_keeping, chunks, play
from fedjax_fair.types import Simulation

Build = Callable[..., Simulation]


class Sweep(NamedTuple):
    """What :func:`sweep` leaves behind: P points of the grid, each played from every seed."""

    points: list[Point]
    """The P settings, in the grid's order: the last name varies fastest."""
    histories: list[list[History]]
    """[P][seeds]."""

    @property
    def runs(self) -> dict[str, list[History]]:
        """The histories by a label of their point, such as "alpha=0.5,eta_b=1.0": what tables and plots take."""
        found: dict[str, list[History]] = {}
        for point, runs in zip(self.points, self.histories):
            again = sum(name.partition(" #")[0] == label(point) for name in found)  # two functions of one name
            found[label(point) + (f" #{again + 1}" if again else "")] = runs
        return found


def sweep(
    build: Build,
    grid: Mapping[str, Iterable[Any]],
    *,
    seeds: int | Sequence[Any] = 1,
    rounds: int = 100,
    eval_every: int = 10,
    side_by_side: int | str | None = "auto",
    chunk: int | None = None,
    progress: bool | str | None = None,
    checkpoint: str | Path | None = None,
    every: int | None = None,
) -> Sweep:
    """Play a simulation for every point of a grid and every seed.

    Settings that are floats are swept inside one program, which is compiled once for all of them; any other value
    (a whole number, a word, a function) is part of the program, and each of its values compiles one.
    The results are those of ``run`` at every point and seed, up to rounding where runs go side by side.

    .. code-block:: python

       ff.sweep(lambda eta_b: ff.simulation(model, data, aggregator=ff.fedmaba(eta_b=eta_b), trainer=trainer),
                {"eta_b": [.1, .5, 1.]}, seeds=3, rounds=1000)

    Args:
      build: settings to an ``ff.simulation(...)``; called with tracers in the place of swept floats. All points
        must have the same data. Called again with the same function (and floats), it compiles nothing.
      grid: values of every setting; all their combinations are played. ``{}`` is one point.
      seeds: how many (0, 1, ...), or a list of seeds or JAX keys.
      rounds: of every run.
      eval_every: rounds between evaluations.
      side_by_side: how many runs are vmapped at a time: None for all, 1 for one after another. "auto": one after
        another on a CPU with a model of more than 20,000 parameters, else all.
      chunk: as in ``run``.
      progress: as in ``run``.
      checkpoint: a folder to keep all runs in, as in ``run``; the same sweep goes on from it. A program (of one
        combination of the values that are no floats) has a folder of its own there: values added to such a
        setting are trained, and those before are not trained again.
      every: as in ``run``.

    Raises:
      ValueError: a setting without values, seeds without any, and whatever ``build`` refuses: it is tried at the
        smallest and the largest of every setting before anything is compiled.
      CheckpointError: a ValueError; the checkpoint is of another sweep, as in ``run``.
    """
    check_count("rounds", rounds)
    gap = min(check_count("eval_every", eval_every), rounds)
    chunk = check_keeping(checkpoint, every, gap, chunk)
    keys = _keys(seeds)
    axes = {name: values_of(name, values) for name, values in grid.items()}
    points = [dict(zip(axes, combination)) for combination in itertools.product(*axes.values())]
    swept = tuple(name for name, values in axes.items() if all(isinstance(v, float) for v in values))
    check_names(build, axes)
    for point in extremes(axes):
        sim = build(**point)
        if not isinstance(sim, Simulation):
            raise ValueError(f"build must return an ff.simulation(...), got {type(sim).__name__}")

    histories: dict[int, list[History]] = {}
    total = rounds * len(points) * len(keys)
    with asked_to_stop(checkpoint is not None) as stop, bar(progress, total) as advance:
        for group, (static, members) in enumerate(groups(points, swept)):
            numbers = {name: jnp.asarray([points[i][name] for i in members]) for name in swept}
            runs = [(i, key) for i in range(len(members)) for key in range(len(keys))]
            columns = jnp.asarray([i for i, _ in runs]), jnp.asarray([k for _, k in runs])
            numbers = {name: values[columns[0]] for name, values in numbers.items()}
            sim = build(**points[members[0]])
            width = _width(side_by_side, sim, len(runs))
            call = {"build": build, "static": static, "width": width}
            states = _start(keys[columns[1]], numbers, **call)
            keeper, played, past = None, 0, None
            if checkpoint is not None:
                settings: Point = {f"grid[{name!r}]": values.tolist() for name, values in numbers.items()}
                settings |= {"rounds": rounds, "eval_every": gap, "side_by_side": width}
                about = checkpoints.describe(sim, states, settings)
                keeper = checkpoints.keeper(_place(checkpoint, group, static), about)
                if found := keeper.load(states, blank(sim)):
                    played, states, stacked = found
                    past = [jax.tree.map(lambda a, r=r: a[r], stacked) for r in range(len(runs))]
            kept = played
            advance(played * len(runs))
            for evaluations, length in chunks(rounds, gap, chunk, played):
                states, record = _go_on(states, numbers, sim.data, evaluations=evaluations, every=length, **call)
                now = _apart(jax.device_get(record), np.full(evaluations, length), played)
                past = now if past is None else list(map(after, past, now))
                played += evaluations * length
                advance(evaluations * length * len(runs))
                if keeper is not None and (stop() or played == rounds or played - kept >= (every or 1)):
                    keeper.save(played, states, jax.tree.map(lambda *each: np.stack(each), *past))
                    kept = played
                if keeper is not None and stop():
                    raise KeyboardInterrupt(f"stopped after round {played}, which is kept in {keeper.folder}")
            for (i, _), history in zip(runs, past or ()):
                histories.setdefault(members[i], []).append(history)
    return Sweep(points, [histories[i] for i in range(len(points))])


def _place(checkpoint: str | Path, group: int, static: tuple) -> Path:
    """The folder of one program's runs."""
    return Path(checkpoint) / re.sub(r"[^\w.,=@-]+", "_", f"{group}-{label(dict(static))}"[:100])


def _apart(record: Any, gaps: np.ndarray, played: int) -> list[History]:
    """One history for each of the runs in a call's record; ``played`` rounds came before."""
    return [join([(gaps, jax.tree.map(lambda a, r=r: a[r], record))], played) for r in range(len(record[0].ids))]


@partial(jax.jit, static_argnames=("build", "static", "width"))
def _start(keys: Any, numbers: Any, *, build: Build, static: tuple, width: int | None) -> Any:
    return _each(lambda key, mine: build(**dict(static), **mine).init(key), width, keys, numbers)


@partial(jax.jit, static_argnames=("build", "static", "width", "evaluations", "every"), donate_argnames="states")
def _go_on(
    states: Any,
    numbers: Any,
    data: Any,
    *,
    build: Build,
    static: tuple,
    width: int | None,
    evaluations: int,
    every: int,
) -> Any:
    def one(state: Any, mine: Point) -> Any:
        sim = build(**dict(static), **mine)
        of_sim = partial(play, step=sim.step, evaluate=sim.evaluate, deploy=sim.deploy)
        return of_sim(state, data, evaluations=evaluations, every=every)

    return _each(one, width, states, numbers)


def _each(one: Callable, width: int | None, *stacked: Any) -> Any:
    """``one`` of every run, ``width`` side by side."""
    if width is None:
        return jax.vmap(one)(*stacked)
    return jax.lax.map(lambda run: one(*run), stacked, batch_size=None if width == 1 else width)


def _width(side_by_side: int | str | None, sim: Simulation, runs: int) -> int | None:
    if side_by_side == "auto":
        return 1 if jax.default_backend() == "cpu" and _is_large(sim) else None
    width = runs if side_by_side is None else check_count("side_by_side", side_by_side)
    return None if width >= runs else width


def _is_large(sim: Simulation) -> bool:
    """Whether one run alone keeps a CPU busy."""
    params = jax.eval_shape(sim.init, jax.random.key(0)).params
    return sum(leaf.size for leaf in jax.tree.leaves(params)) > LARGE


LARGE = 20_000
"""Parameters from which vmapped runs were slower than one after another on a CPU (a logistic regression of 784 x 10
has 7,850, an MLP 784-200-10 159,010)."""


def _keys(seeds: int | Sequence[Any]) -> Any:
    if isinstance(seeds, int):
        seeds = range(check_count("seeds", seeds))
    if not len(seeds):
        raise ValueError("seeds must be a number or a list of seeds or keys, got an empty list")
    return jnp.stack([as_key(seed) for seed in seeds])

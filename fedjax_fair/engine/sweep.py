"""Seeds and hyper-parameters in one compiled program."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from fedjax_fair.checks import check_count, check_truth
from fedjax_fair.data.alike import equal
from fedjax_fair.engine import watch
from fedjax_fair.engine.checkpoint import place_of
from fedjax_fair.engine.cluster import Piece, cluster_of, counted, on_cluster
from fedjax_fair.engine.devices import as_mesh
from fedjax_fair.engine.grid import (
    Point,
    check_names,
    extremes,
    floats_of,
    groups,
    label,
    numbered,
    points_of,
    values_of,
)
from fedjax_fair.engine.history import History, told
from fedjax_fair.engine.keeping import check_keeping
from fedjax_fair.engine.keys import as_key, stacked
from fedjax_fair.engine.programs import Build, Program
from fedjax_fair.engine.progress import asked_to_stop, bar, beyond
from fedjax_fair.engine.sweep_programs import Course, called, places_of, play, play_program, programs_of
from fedjax_fair.reads import explained, used_inputs
from fedjax_fair.types import Simulation


class Sweep(NamedTuple):
    """What :func:`sweep` leaves behind: P points of the grid, each run from every seed."""

    points: list[Point]
    """The P settings, in the grid's order: the last name varies fastest."""
    histories: list[list[History]]
    """[P][seeds]."""
    seeds: list[int] | None = None
    """Of the runs of every point; None unless all were given as whole numbers."""

    @property
    def runs(self) -> dict[str, list[History]]:
        """The histories by a label of their point, such as "alpha=0.5,eta_b=1": what tables and plots take.

        Points called alike (two functions of one name) are numbered.
        """
        return dict(zip(numbered([label(point) for point in self.points]), self.histories))


def sweep(
    build: Build,
    grid: Mapping[str, Iterable[Any]],
    *,
    seeds: int | Sequence[Any] = 1,
    rounds: int = 100,
    eval_every: int = 10,
    eval_first: bool = False,
    side_by_side: int | str | None = "auto",
    devices: int | Mesh = 1,
    chunk: int | None = None,
    progress: bool | str | None = None,
    checkpoint: str | Path | None = None,
    every: int | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
) -> Sweep:
    """Run a simulation for every point of a grid and every seed.

    Settings that are floats are swept inside one program, which is compiled once for all of them; any other value
    (a whole number, a word, a function) is part of the program, and each of its values compiles one.
    The results are those of ``run`` at every point and seed, up to rounding where runs go side by side.

    Args:
      build: settings to an ``ff.simulation(...)``; called with tracers in the place of swept floats. All points
        must have the same data. Called again with the same function (and floats), it compiles nothing, unless the
        simulations that it makes have changed.
      grid: values of every setting; all their combinations are run. ``{}`` is one point.
      seeds: how many (0, 1, ...), or a list of seeds or JAX keys.
      rounds: of every run.
      eval_every: rounds between evaluations.
      eval_first: as in ``run``.
      side_by_side: how many runs are vmapped at a time on a device: None for all, 1 for one after another. "auto":
        one after another on a CPU with a model of more than 20,000 parameters, or with convolutions or
        attention; else all.
      devices: how many of JAX's devices the runs of a program are shared out over, or a mesh of one axis. Each
        has runs of its own, and they meet between chunks; ``build`` must leave the clients on one device. Where
        the devices do not divide the runs, some repeat the last one.
      chunk: as in ``run``.
      progress: as in ``run``.
      checkpoint: a folder to keep all runs in, as in ``run``; the same sweep goes on from it. There is a program
        for each combination of the values that are no floats, with a folder of its own there. So values added to
        such a setting are all that is trained. Other floats, seeds or rounds are another sweep, and refused.
      every: as in ``run``.
      workers: processes of this machine that share out the programs and the seeds, as in ``ff.compare``. The runs
        of a program and a seed stay together. How many pieces that makes is said on standard error, unless
        ``progress=False``.
      scheduler: the address of a Dask scheduler instead, as in ``ff.compare``.

    Raises:
      ValueError: a setting without values, seeds without any, and whatever ``build`` refuses: it is tried at the
        smallest and the largest of every setting before anything is compiled.
      CheckpointError: a ValueError; the checkpoint is of another sweep, as in ``run``.

    >>> def build(mu):  # on the data of the example of ff.run
    ...     model = ff.models.logistic_regression()
    ...     return ff.simulation(model, data, aggregator=ff.fedprox(mu), trainer=trainer)
    >>> found = ff.sweep(build, {"mu": [0.0, 0.1]}, seeds=2, rounds=2)
    >>> found.points, len(found.histories[0])
    ([{'mu': 0.0}, {'mu': 0.1}], 2)
    """
    rounds = check_count("rounds", rounds)
    gap = min(check_count("eval_every", eval_every), rounds)
    chunk = check_keeping(checkpoint, every, gap, chunk)
    check_truth("eval_first", eval_first)
    keys, mesh, cluster = _keys(seeds), as_mesh(devices), cluster_of(workers, scheduler)
    if not isinstance(grid, Mapping):
        raise ValueError(f"grid must map settings to their values, such as {{'alpha': [.1, .5]}}, got {grid!r}")
    if not callable(build):
        raise ValueError(f"build must be a function of the settings, got {type(build).__name__}")
    if cluster is not None and mesh is not None:
        raise ValueError("devices share out runs within a process, workers and scheduler among several, got both")
    axes = {name: values_of(name, values) for name, values in grid.items()}
    folder = None if checkpoint is None else place_of(checkpoint)
    course = Course(rounds, gap, chunk, every or 1, folder, eval_first)
    check_names(build, axes)
    _check_build(build, axes, floats_of(axes), mesh)
    for static, _ in groups(points_of(axes), floats_of(axes)):
        _check_data(build, static, floats_of(axes))

    programs = programs_of(build, axes, keys, side_by_side, mesh, apart=cluster is not None)
    keepers = [course.keeper(*placed) for placed in zip(programs, places_of(folder, programs))]
    runs = [rounds * len(program.owners) for program in programs]
    with (
        asked_to_stop(folder is not None and cluster is None) as stop,
        bar(progress, sum(runs), lines=cluster is None) as advance,
    ):
        kept = [0 if k is None else k.played() * len(p.owners) for p, k in zip(programs, keepers)]
        if cluster is None:
            advance(sum(kept))
            parts = zip(programs, keepers, kept)
            found = [play(p, keeper, course, stop, beyond(known, advance)) for p, keeper, known in parts]
        else:
            data = jax.random.key_data(keys), str(jax.random.key_impl(keys))
            shared = (build, axes, data, side_by_side, course)
            pieces = [Piece(called(program), *counts) for program, *counts in zip(programs, runs, kept)]
            many = f"{counted(sum(runs) // rounds, 'run')} in {counted(len(pieces), 'piece')}"
            found = on_cluster(cluster, play_program, shared, pieces, advance, None if progress is False else many)
    return _told(points_of(axes), programs, found)._replace(seeds=_whole(seeds))


def _told(points: list[Point], programs: Sequence[Program], found: Sequence[Any]) -> Sweep:
    """The histories by point and seed, after what there is to say of them."""
    histories: dict[int, list[History]] = {}
    warned = False
    for program, (trained, stayed) in zip(programs, found):
        for i, history, still in zip(program.owners, trained, stayed):
            bad = watch.below_zero(program.sim, history)
            watch.say([] if warned else bad) if bad else watch.say(watch.unused(program.sim, history, still))
            warned = warned or bool(bad)
            histories.setdefault(i, []).append(told(history, program.sim))
    return Sweep(points, [histories[i] for i in range(len(points))])


def _check_build(build: Build, axes: Mapping[str, list[Any]], swept: Sequence[str], mesh: Mesh | None) -> None:
    """Build the smallest and the largest of every setting; all that share a program have the same data."""
    datas: dict[tuple, Any] = {}  # of every program, whose points play on the data of the first
    for point in extremes(axes):
        sim = build(**point)
        if not isinstance(sim, Simulation):
            raise ValueError(f"build must return an ff.simulation(...), got {type(sim).__name__}")
        if sim.check is not None:
            sim.check(sim.data)
        if mesh is not None and len(jax.tree.leaves(sim.data)[0].devices()) > 1:
            raise ValueError("devices share out the sweep's runs, or build's clients, got both")
        static = tuple(value for name, value in point.items() if name not in swept)
        if not equal(datas.setdefault(static, sim.data), sim.data):
            raise ValueError(
                f"build must give points that differ in floats the same data, got others at {label(point)}: "
                "take whole numbers, words or functions for what the data depend on"
            )


def _check_data(build: Build, static: tuple, swept: tuple[str, ...]) -> None:
    """Raise ValueError where the data depend on a swept float: a program's points are played on the first's."""
    floats = dict.fromkeys(swept, 0.0)
    with explained():
        program = jax.make_jaxpr(lambda mine: jax.tree.leaves(build(**dict(static), **mine).data))(floats)
    for name, used in zip(sorted(floats), used_inputs(program.jaxpr)):
        if used:
            raise ValueError(
                f"build must give points that differ in floats the same data, got others for other {name}: "
                "take whole numbers, words or functions for what the data depend on"
            )


def _keys(seeds: int | Sequence[Any]) -> Any:
    if isinstance(seeds, int | np.integer):
        seeds = range(check_count("seeds", seeds))
    listed = isinstance(seeds, Sequence) and not isinstance(seeds, str | bytes)
    if not listed and not (isinstance(seeds, np.ndarray | jax.Array) and seeds.ndim):
        raise ValueError(f"seeds must be a number or a list of seeds or keys, got {seeds!r}")
    if not len(seeds):
        raise ValueError("seeds must be a number or a list of seeds or keys, got an empty list")
    keys = stacked([as_key(seed) for seed in seeds])
    places: dict[tuple[int, ...], int] = {}
    for i, bits in enumerate(map(tuple, np.asarray(jax.random.key_data(keys)).tolist())):
        if (first := places.setdefault(bits, i)) != i:
            raise ValueError(
                f"seeds must be different, or runs count twice, got the same at places {first} and {i}"
            )
    return keys


def _whole(seeds: int | Sequence[Any]) -> list[int] | None:
    """The seeds where all are whole numbers."""
    listed = range(int(seeds)) if isinstance(seeds, int | np.integer) else seeds
    return [int(seed) for seed in listed] if all(isinstance(s, int | np.integer) for s in listed) else None

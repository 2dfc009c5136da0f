"""Seeds and hyper-parameters in one compiled program."""

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_fair.checks import check_count
from fedjax_fair.history import History, join
from fedjax_fair.run import as_key, bar, chunks, play
from fedjax_fair.types import Simulation

Build = Callable[..., Simulation]
Point = dict[str, Any]


class Sweep(NamedTuple):
    """What :func:`sweep` leaves behind: P points of the grid, each played from every seed."""

    points: list[Point]
    """The P settings, in the grid's order: the last name varies fastest."""
    histories: list[list[History]]
    """[P][seeds]."""

    @property
    def runs(self) -> dict[str, list[History]]:
        """The histories by a label of their point, such as "alpha=0.5,eta_b=1.0": what tables and plots take."""
        return {_label(point): runs for point, runs in zip(self.points, self.histories)}


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

    Raises:
      ValueError: a setting without values, seeds without any, and whatever ``build`` refuses: it is tried at the
        smallest and the largest of every setting before anything is compiled.
    """
    check_count("rounds", rounds)
    every = min(check_count("eval_every", eval_every), rounds)
    keys = _keys(seeds)
    axes = {name: _values(name, values) for name, values in grid.items()}
    points = [dict(zip(axes, combination)) for combination in itertools.product(*axes.values())]
    swept = tuple(name for name, values in axes.items() if all(isinstance(v, float) for v in values))
    _check_names(build, axes)
    for point in extremes(axes):
        sim = build(**point)
        if not isinstance(sim, Simulation):
            raise ValueError(f"build must return an ff.simulation(...), got {type(sim).__name__}")

    histories: dict[int, list[History]] = {}
    with bar(progress, rounds * len(points) * len(keys)) as advance:
        for static, members in _groups(points, swept):
            numbers = {name: jnp.asarray([points[i][name] for i in members]) for name in swept}
            runs = [(i, key) for i in range(len(members)) for key in range(len(keys))]
            columns = jnp.asarray([i for i, _ in runs]), jnp.asarray([k for _, k in runs])
            numbers = {name: values[columns[0]] for name, values in numbers.items()}
            sim = build(**points[members[0]])
            width = _width(side_by_side, sim, len(runs))
            call = {"build": build, "static": static, "width": width}
            states = _start(keys[columns[1]], numbers, **call)
            pieces = []
            for evaluations, length in chunks(rounds, every, chunk):
                states, record = _go_on(states, numbers, sim.data, evaluations=evaluations, every=length, **call)
                pieces.append((np.full(evaluations, length), jax.device_get(record)))
                advance(evaluations * length * len(runs))
            for place, (i, _) in enumerate(runs):
                mine = [(gap, jax.tree.map(lambda a, p=place: a[p], record)) for gap, record in pieces]
                histories.setdefault(members[i], []).append(join(mine, 0))
    return Sweep(points, [histories[i] for i in range(len(points))])


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


def _values(name: str, values: Iterable[Any]) -> list[Any]:
    """The values of one setting as a list of floats where all are numbers and one is a float."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"grid[{name!r}] must be a list of values, got {values!r}")
    found = [v.item() if isinstance(v, (np.generic, np.ndarray, jax.Array)) and v.ndim == 0 else v for v in values]
    if not found:
        raise ValueError(f"grid[{name!r}] must have at least one value, got an empty list")
    doubles = [v for v in found if isinstance(v, int | float | str) and found.count(v) > 1]
    if doubles:
        raise ValueError(f"grid[{name!r}] must have every value once, got {doubles[0]!r} twice")
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in found)
    return [float(v) for v in found] if numbers and any(isinstance(v, float) for v in found) else found


def _check_names(build: Build, axes: Mapping[str, list[Any]]) -> None:
    try:
        inspect.signature(build).bind(**axes)
    except TypeError as error:
        takes = ", ".join(inspect.signature(build).parameters) or "nothing"
        raise ValueError(f"grid must name the arguments of build, {takes}, got {', '.join(axes)}") from error


def extremes(axes: Mapping[str, list[Any]]) -> list[Point]:
    """All combinations of what is no float; and of every float its smallest and its largest."""
    first = {name: values[0] for name, values in axes.items()}
    floats = [name for name, values in axes.items() if all(isinstance(v, float) for v in values)]
    others = [[(name, value) for value in values] for name, values in axes.items() if name not in floats]
    tried = [first | dict(combination) for combination in itertools.product(*others)]
    return tried + [
        first | {name: value} for name in floats for value in sorted({min(axes[name]), max(axes[name])})
    ]


def _groups(points: list[Point], swept: tuple[str, ...]) -> list[tuple[tuple, list[int]]]:
    """The points that share a program: its fixed settings, and their places in ``points``."""
    groups: dict[tuple, list[int]] = {}
    for i, point in enumerate(points):
        fixed = tuple((name, value) for name, value in point.items() if name not in swept)
        groups.setdefault(fixed, []).append(i)
    return [*groups.items()]


def _word(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return str(getattr(value, "__name__", value))


def _label(point: Point) -> str:
    return ",".join(f"{name}={_word(value)}" for name, value in point.items()) or "one point"

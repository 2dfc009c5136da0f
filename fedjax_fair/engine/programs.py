"""Runs that share a program: compiled once, and played side by side or one after another, on one device or more."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fedjax_fair.engine.devices import on_shares, part
from fedjax_fair.engine.digests import digest_of
from fedjax_fair.engine.evaluation import scored
from fedjax_fair.engine.grid import Point, label
from fedjax_fair.engine.keys import picked
from fedjax_fair.engine.run import play
from fedjax_fair.engine.side_by_side import width_of
from fedjax_fair.models import Model
from fedjax_fair.models.stock import is_stock
from fedjax_fair.numerics.model_size import is_tiny
from fedjax_fair.numerics.xla_options import ONCE, QUICK, TINY_QUICK, Compiled, compiled, of_rounds
from fedjax_fair.types import Simulation

Build = Callable[..., Simulation]


class Program(NamedTuple):
    """The runs of all points that share a program, from every seed: R of them."""

    name: str
    """What the points share, such as "cdf=weibull"."""
    sim: Simulation
    """Of the first point; its data are what the runs play on."""
    values: dict[str, list[float]]
    """Of every swept setting, point by point."""
    numbers: dict[str, Any]
    """The same, f[R'], run by run; the seeds of a point are neighbours. R' is R filled up with the last run to what
    the devices divide."""
    keys: Any
    """[R']"""
    owners: list[int]
    """The point of each run, [R]."""
    call: dict[str, Any]
    """Settings of the compiled functions."""
    other: bool
    """Whether its data are others than those that ``build`` takes, of the same form."""

    def start(self) -> Any:
        """The runs' first states, stacked."""
        return self._starting()(*self._start_arguments(), **self.call)

    def trace(self, evaluations: int, every: int) -> None:
        """Trace the first states, and ``evaluations`` times ``every`` rounds: what is left is to compile them."""
        given = self._start_arguments()
        states = self._starting().chosen(*given, **self.call).eval_shape(*given, **self.call)
        go_on.trace(states, self.numbers, self.sim.data, evaluations=evaluations, every=every, **self.call)

    def _starting(self) -> Compiled:
        """The first states' program, compiled as a run alone compiles its model's draw."""
        model = (self.sim.arguments or {}).get("model")
        own = model is not None and not (isinstance(model, Model) and is_stock(model))
        return _start_own if own else _start

    def _start_arguments(self) -> tuple[Any, ...]:
        return self.keys, self.numbers, self.sim.data if self.other else None


def program_of(
    build: Build,
    static: tuple,
    members: list[tuple[int, Point]],
    swept: tuple[str, ...],
    keys: Any,
    side_by_side: int | str | None,
    mesh: Mesh | None,
    digested: bool = True,
    sim: Simulation | None = None,
) -> Program:
    """Of ``members``, the points that share a program with their places in the grid, from every key.

    ``digested``: whether ``build`` may be called again, or the runs be kept: what it makes is then looked at.
    ``sim`` is what it makes of the first point, where that is there.
    """
    owners, sim = [i for i, _ in members for _ in keys], sim or build(**members[0][1])
    width = width_of(side_by_side, sim, part(len(owners), mesh))
    values = {name: [point[name] for _, point in members] for name in swept}
    slots = np.arange(len(owners) if mesh is None else part(len(owners), mesh) * mesh.size)
    runs = np.minimum(slots, len(owners) - 1)
    return Program(
        name=label(dict(static)),
        sim=sim,
        values=values,
        numbers={name: _numbers(mine, runs // len(keys)) for name, mine in values.items()},
        keys=keys if len(keys) == len(runs) else picked(keys, runs % len(keys)),
        owners=owners,
        call={
            "build": build,
            "static": static,
            "width": width,
            "mesh": mesh,
            "made": _made(build, static, sim, {n: mine[0] for n, mine in values.items()}) if digested else "",
        },
        other=False,
    )


def _numbers(values: list[float], points: Any) -> Any:
    """``values[points]``, weakly typed: an array of float32 would make a bfloat16 optimiser's state float32."""
    if all(isinstance(value, int) for value in values):  # which rule it is
        return jax.device_put(np.array(values, np.int32)[points])
    numbers = jnp.full(points.shape, values[0])
    for point, value in enumerate(values):
        numbers = jnp.where(points == point, value, numbers)
    return numbers


def _made(build: Build, static: tuple, sim: Simulation, numbers: Point) -> str:
    """A digest of what ``build`` makes now: what it reads may have changed since it was called last."""

    def everything(mine: Point, key: Any, data: Any) -> Any:
        made = build(**dict(static), **mine)
        state, info = made.step(made.init(key), data)
        return state, info, scored(made.evaluate, made.deploy, state, data)

    return digest_of(jax.make_jaxpr(everything)(numbers, jax.random.key(0), jax.eval_shape(lambda: sim.data)))


# In the compiled functions ``made`` is for JAX's cache alone: without it the same ``build`` would find the program
# of what it made before. In checkpoints it tells one ``build`` from another.
STATIC = ("build", "static", "width", "mesh", "made")


def _first_states(
    keys: Any,
    numbers: Any,
    data: Any,
    *,
    build: Build,
    static: tuple,
    width: int | None,
    mesh: Mesh | None,
    made: str,
) -> Any:
    def one(data: Any, key: Any, mine: Point) -> Any:
        sim = build(**dict(static), **mine)
        return sim.init(key) if data is None else sim.init(key, data)

    return _each(one, width, mesh, data, keys, numbers)


# Compiled as the model's own first draw is, or a run of the simulation alone would begin with other last bits.
_start, _start_own = (
    compiled(_first_states, [(level, lambda *_, **__: True)], static_argnames=STATIC) for level in (ONCE, QUICK)
)


def _one_model(states: Any, *_: Any, **__: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), states.params)


def _are_tiny_and_several(states: Any, *_: Any, width: int | None, mesh: Mesh | None, **__: Any) -> bool:
    return width != 1 and part(states.round.shape[0], mesh) > 1 and is_tiny(_one_model(states))


@partial(
    compiled,
    choices=[(TINY_QUICK, _are_tiny_and_several), *of_rounds(_one_model)],
    static_argnames=(*STATIC, "evaluations", "every"),
    donate_argnames="states",
)
def go_on(
    states: Any,
    numbers: Any,
    data: Any,
    *,
    build: Build,
    static: tuple,
    width: int | None,
    mesh: Mesh | None,
    made: str,
    evaluations: int,
    every: int,
) -> Any:
    """Some rounds of every run: the states after them, which take the place of those given, and the records."""

    def one(data: Any, state: Any, mine: Point) -> Any:
        sim = build(**dict(static), **mine)
        of_sim = partial(play, step=sim.step, evaluate=sim.evaluate, deploy=sim.deploy)
        return of_sim(state, data, evaluations=evaluations, every=every)

    states, record = _each(one, width, mesh, data, states, numbers)
    if mesh is not None:  # every process hears of all runs
        record = jax.lax.with_sharding_constraint(record, NamedSharding(mesh, PartitionSpec()))
    return states, record


def _each(one: Callable, width: int | None, mesh: Mesh | None, shared: Any, *stacked: Any) -> Any:
    """``one(shared, ...)`` of every run, ``width`` side by side on each device."""

    def some(shared: Any, stacked: Any) -> Any:
        if width is None:
            return jax.vmap(partial(one, shared))(*stacked)
        return jax.lax.map(lambda run: one(shared, *run), stacked, batch_size=None if width == 1 else width)

    if mesh is None:
        return some(shared, stacked)
    return on_shares(some, mesh, shared, stacked)  # the mesh's one axis carries runs here

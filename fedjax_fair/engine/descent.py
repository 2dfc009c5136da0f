"""Optimisers tried on a handful of numbers before anything runs: whether they descend."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend.core import ClosedJaxpr

from fedjax_fair.numerics.by_numpy import UNKNOWN, evaluate
from fedjax_fair.types import Method, Params, Report

SMALL = 2
"""Entries of a toy model's arrays along each axis."""
STEPS = 2
"""Of sharpness-aware minimisers the first climbs and the second descends."""
SLIGHT = 1e-3
"""Cosine of the angle between step and gradient up to which it counts as a right one."""


class Trial(NamedTuple):
    """An optimiser on a toy model: its two functions traced once, to be played with NumPy."""

    params: Params
    gradient: Params
    begin: ClosedJaxpr
    """``params -> state``, leaf by leaf."""
    update: ClosedJaxpr
    """``(gradient, state, params, what else is sent) -> (step, state)``, leaf by leaf."""
    state: Any
    """The state's form."""
    sent: Callable[[Params], Any]
    """What else the optimiser is sent with a gradient; None for nothing."""

    def start(self) -> list[Any]:
        """The first state's leaves."""
        return evaluate(self.begin, *jax.tree.leaves(self.params))

    def step(self, gradient: list[Any], state: list[Any], params: list[Any]) -> tuple[list[Any], list[Any]]:
        """The leaves of a step and of the state after it."""
        more = self.sent(jax.tree.unflatten(jax.tree.structure(self.params), gradient))
        made = evaluate(self.update, *gradient, *state, *params, *jax.tree.leaves(more))
        return made[: len(params)], made[len(params) :]

    def moved(self, sign: int, steps: int = STEPS) -> list[Any]:
        """How far each array goes in some steps along one gradient, times ``sign``."""
        gradient = [sign * g for g in jax.tree.leaves(self.gradient)]
        begun = params = jax.tree.leaves(self.params)
        state = self.start()
        for _ in range(steps):
            moves, state = self.step(gradient, state, params)
            params = [UNKNOWN if p is UNKNOWN or u is UNKNOWN else p + u for p, u in zip(params, moves)]
        return [UNKNOWN if p is UNKNOWN else p - b for p, b in zip(params, begun)]


def trial(optimizer: Any, shapes: Params, sent: Callable[[Params], Any] = lambda gradient: None) -> Trial:
    """Trace an optimiser on a model of this structure with two entries along every axis of its arrays, or of these
    very shapes where it takes no others."""
    small = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((SMALL,) * len(leaf.shape), leaf.dtype), shapes)
    try:
        return _trial(optimizer, small, sent)
    except Exception:  # whatever an optimiser made for these shapes alone raises when it meets others
        return _trial(optimizer, shapes, sent)


def _trial(optimizer: Any, shapes: Params, sent: Callable[[Params], Any]) -> Trial:
    rng = np.random.default_rng(0)

    gradient = jax.tree.map(lambda leaf: np.asarray(rng.normal(size=leaf.shape), leaf.dtype), shapes)
    params = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    more = sent(gradient)
    begin, first = jax.make_jaxpr(optimizer.init, return_shape=True)(params)

    def update(gradient: Params, state: Any, params: Params, more: Any) -> Any:
        return optimizer.update(gradient, state, params, **(more or {}))

    return Trial(params, gradient, begin, jax.make_jaxpr(update)(gradient, first, params, more), first, sent)


def check_descent(name: str, tried: Trial, like: str) -> None:
    """Raise ValueError where a step follows the gradient instead of going against it, in any array of the model.

    What does not depend on the gradient (noise, a decay of the weights) cancels: looked at is the difference
    between the steps for a gradient and for its negative. Arrays that a tracer decides (a swept rate) are left
    alone.
    """
    there, back = tried.moved(1), tried.moved(-1)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tried.params)]
    climbing = [
        path
        for path, gradient, one, other in zip(paths, jax.tree.leaves(tried.gradient), there, back)
        if one is not UNKNOWN and other is not UNKNOWN and _climbs(gradient, one, other)
    ]
    if not climbing:
        return
    where = "" if len(climbing) == len(paths) else f" in {', '.join(climbing[:3])}"
    frozen = " (what optax.masked leaves out it hands on: optax.set_to_zero freezes)" if where else ""
    raise ValueError(
        f"{name} must step against the gradient, as {like} does, got one that follows it{where}: give it a rate "
        f"above 0, or end the chain in optax.scale(-rate){frozen}"
    )


def _climbs(gradient: Any, there: Any, back: Any) -> bool:
    one, other, g = (np.asarray(v, float).ravel() for v in (there, back, gradient))
    apart, size = one - other, np.linalg.norm(g) * np.linalg.norm(one - other)
    rounding = 4 * float(jnp.finfo(gradient.dtype).eps) * max(np.linalg.norm(one), np.linalg.norm(other))
    return bool(np.linalg.norm(apart) > rounding and apart @ g > SLIGHT * size)


def check_server(
    method: Method, optimizer: optax.GradientTransformation | None, shapes: Params, cohort: int
) -> None:
    """The server's optimiser descends, a user's own transform and defences included: clients that all send one
    update make its negative the gradient."""
    # FedFV's memory is made for N and S, and a message has no toy form.
    own = isinstance(method.transform, optax.GradientTransformation) and method.memory is None
    if optimizer is None and not own:
        return
    first = method.transform if own else optax.identity()
    server = optax.chain(first, optax.sgd(1.0) if optimizer is None else optimizer)
    key = jax.eval_shape(lambda: jax.random.key(0))  # nothing that is drawn depends on it
    ids: Any = np.arange(cohort, dtype=np.int32)
    one: Any = np.ones(cohort, np.float32)
    gram: Any = np.ones((cohort, cohort), np.float32)

    def sent(gradient: Params) -> dict[str, Any]:
        updates = jax.tree.map(lambda g: np.broadcast_to(-g, (cohort, *g.shape)), gradient)
        report = Report(ids, one, one > 0, one, one, one, one, gram, updates)
        return {"report": report, "coef": one / np.float32(cohort), "key": key}

    check_descent("server_optimizer", trial(server, shapes, sent), "optax.sgd(1.)")

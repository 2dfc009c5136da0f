"""Local optimisers whose state counts steps: it starts afresh with every round, and so does what depends on it."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_fair.checks import said, warn
from fedjax_fair.engine.descent import Trial, check_descent, trial
from fedjax_fair.local.sgd import LocalSGD
from fedjax_fair.numerics.by_numpy import UNKNOWN
from fedjax_fair.types import Params

GATHERING = ("MultiStepsState", "ApplyEvery", "ApplyEveryState")
"""optax's states that count up to a step which moves for several."""
SCHEDULED = (
    "ScaleByScheduleState",
    "WrappedScheduleState",
    "InjectHyperparamsState",
    "InjectStatefulHyperparamsState",
    "ConditionallyTransformState",
    "MaybeUpdateState",
    "AddNoiseState",
)
"""optax's states whose count a user's function turns into a number. Others' corrects a bias, as Adam's: a round may
well begin anew with it."""
TRIED = (1, 3, 10, 100, 1_000, 10_000)
LONGEST = 100
"""Local steps that are played."""


def check_local(train: Any, shapes: Params, sizes: np.ndarray) -> None:
    """Raise ValueError where the clients' optimiser ascends, or moves nothing in a round; warn where its schedule
    starts afresh in every round. ``sizes`` are the clients' numbers of examples; trainers of a user's own are not
    looked at."""
    if not isinstance(train, LocalSGD):
        return
    tried = check_descends(train, shapes)
    flags = list(counters(tried.state))
    names = sorted({name for name in flags if name})
    if not names:
        return
    steps = np.unique(steps_of(train, sizes))
    longest = int(steps.max())
    played = [not _still(step) for step in _walk(tried, min(longest, LONGEST))]
    if longest <= LONGEST and not any(played):
        raise ValueError(
            f"optimizer moves nothing in the {longest} local steps of a round: it counts them "
            f"({', '.join(names)}) and starts afresh in every round; for a rate that follows the rounds give "
            "local_sgd(schedule=...)"
        )
    uneven = len(steps) > 1 or train.limit is not None or longest > LONGEST
    gathers = any(name in GATHERING for name in names) and (uneven or not played[-1])
    if gathers or _varies(tried, flags, 1 + played.index(True) if any(played) else 1):
        warn(
            f"optimizer counts its steps ({', '.join(names)}) and starts afresh in every round, after "
            f"{longest} local steps or fewer: for a rate that follows the rounds give local_sgd(schedule=...)"
        )


def check_descends(train: Any, shapes: Params) -> Any:
    """The trial of the clients' optimiser; ValueError where it ascends, or wants more than it gets. None of a
    trainer of a user's own."""
    if not isinstance(train, LocalSGD):
        return None
    try:
        tried = trial(train.optimizer, shapes)
    except Exception as error:  # whatever an optimiser raises that wants more, such as the loss (value=)
        raise ValueError(
            f"optimizer must take the model's gradient, its state and params, got {said(error)}"
        ) from error
    check_descent("optimizer", tried, "optax.sgd(.1)")
    return tried


def steps_of(train: LocalSGD, sizes: np.ndarray) -> np.ndarray:
    """The local steps of clients with these sizes, where nothing limits them."""
    if train.steps is not None and train.batch_size is not None:
        return np.full(len(sizes), train.steps)
    epochs = train.epochs or 1
    if train.batch_size is None:
        return np.full(len(sizes), epochs)
    return epochs * -(-np.asarray(sizes) // min(train.batch_size, int(np.max(sizes))))


def counters(node: Any, owner: type | None = None) -> Iterator[str]:
    """For every leaf of an optimiser's state, the name of the state that counts steps with it, or ""."""
    inside = type(node) if isinstance(node, tuple) and hasattr(node, "_fields") else owner
    children = jax.tree.leaves(node, is_leaf=lambda other: other is not node)
    if len(children) == 1 and children[0] is node:
        counts = node.shape == () and jnp.issubdtype(node.dtype, jnp.integer)
        known = owner is not None and owner.__module__.partition(".")[0] == "optax"
        name = "its own state" if owner is None else owner.__name__
        yield name if counts and (not known or name in GATHERING + SCHEDULED) else ""
        return
    for child in children:
        yield from counters(child, inside)


def _walk(tried: Trial, steps: int, start: list[Any] | None = None) -> Iterator[list[Any]]:
    """Steps along one gradient, all from one place."""
    state = tried.start() if start is None else start
    gradient, params = jax.tree.leaves(tried.gradient), jax.tree.leaves(tried.params)
    for _ in range(steps):
        step, state = tried.step(gradient, state, params)
        yield step


def _still(step: list[Any]) -> bool:
    return all(u is not UNKNOWN and not np.any(u) for u in step)


def _varies(tried: Trial, flags: list[str], first: int) -> bool:
    """Whether another count makes another step, of the one that is the ``first`` to move.

    Of states that are not optax's, only where steps along one gradient differ as well: those of Adam's many
    forms are alike, and its count is no schedule.
    """
    theirs = [name in SCHEDULED for name in flags]
    own = [bool(name) and name not in GATHERING + SCHEDULED for name in flags]
    if any(theirs) and _depends(tried, theirs, first):
        return True
    if not any(own) or not _depends(tried, own, first):
        return False
    one, *later = _walk(tried, 3)
    return any(_differ(one, step) for step in later)


def _depends(tried: Trial, flags: list[bool], first: int) -> bool:
    start = tried.start()
    *_, usual = _walk(tried, first)
    for count in TRIED:
        other = [np.full_like(v, count) if flag and v is not UNKNOWN else v for v, flag in zip(start, flags)]
        *_, step = _walk(tried, first, other)
        if _differ(usual, step):
            return True
    return False


def _differ(one: list[Any], other: list[Any]) -> bool:
    known = [(a, b) for a, b in zip(one, other) if a is not UNKNOWN and b is not UNKNOWN]
    return any(not np.allclose(np.asarray(a, float), np.asarray(b, float), rtol=1e-4, atol=0) for a, b in known)

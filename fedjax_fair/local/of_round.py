"""What a user's functions say about a round, checked as they are traced: the rate's factor, and the most steps."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.types import Key


def factor_of(schedule: Callable[[Array], Any], round: Array) -> Array:
    """``schedule(round)``, f[]; ValueError unless it is one number that JAX can trace."""
    form = "a function of the round, i32[], to one number"
    return _one_number("schedule", form, "jnp.where(r < 300, 1., .5)", (jnp.integer, jnp.floating), schedule, round)


def limit_key(key: Key) -> Key:
    """What the limit of a training is drawn by, of the training's key."""
    return jax.random.fold_in(key, 2)


def most_steps(limit: Callable[[Key, Array, Array], Any], key: Key, round: Array, id: Array) -> Array:
    """``limit(key, round, id)``, i32[]; ValueError unless it is one whole number that JAX can trace."""
    form = "a function (key, round i32[], id i32[]) to one whole number"
    number = _one_number("limit", form, "jnp.where(id < 5, 1, 20)", (jnp.integer,), limit, key, round, id)
    return number.astype(jnp.int32)


def check_of_round(schedule: Callable | None, limit: Callable | None) -> None:
    """Trace both, before anything is compiled."""
    key, number = jax.eval_shape(lambda: jax.random.key(0)), jax.ShapeDtypeStruct((), jnp.int32)
    try:
        if schedule is not None:
            jax.eval_shape(lambda r: factor_of(schedule, r), number)
        if limit is not None:
            jax.eval_shape(lambda k, r, i: most_steps(limit, k, r, i), key, number, number)
    except ValueError as error:  # anew: to what passes through a trace, JAX adds lines of its own
        raise ValueError(*error.args) from error


def _one_number(name: str, form: str, example: str, kinds: tuple, function: Callable, *arguments: Any) -> Array:
    wanted = f"{name} must be {form}, computed by JAX, such as {example} in the place of an if"
    try:
        result = function(*arguments)
    except (TypeError, IndexError, jax.errors.JAXTypeError) as error:  # an if on what is traced, or other arguments
        first = str(error).strip().splitlines()[0].rstrip(".")
        name = getattr(function, "__name__", type(function).__name__)
        raise ValueError(f"{wanted}, got {name}: {first}") from error
    try:
        number = jnp.asarray(result)
    except (TypeError, ValueError):
        number = None
    fits = number is not None and any(jnp.issubdtype(number.dtype, kind) for kind in kinds)
    if number is None or number.shape or not fits:
        got = type(result).__name__ if number is None else f"{number.dtype}{list(number.shape)}"
        raise ValueError(f"{wanted}, got {got}")
    return number

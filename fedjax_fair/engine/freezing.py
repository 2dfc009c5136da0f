"""Leaves of a model that never change: a round is played on the others, and the model put together around it.

What is frozen is no parameter of the round: it has no gradient, no place in an optimiser's or a client's memory,
and is in no update, so that nothing that a rule, a defence or the server does can reach it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.engine.components import Components
from fedjax_fair.engine.round import play_round
from fedjax_fair.methods.layers import Personal, check_personal, chosen, taken
from fedjax_fair.models import Model
from fedjax_fair.types import Info, Key, Params, SimState

Freeze = Personal | Sequence[str]
"""As ``personal`` of ``ff.fedper``: "last", a regular expression or a predicate of paths; or some expressions."""


class Freezing(NamedTuple):
    """Which leaves of a model are frozen; built by :func:`freezing`."""

    flags: tuple[bool, ...]
    """Of each leaf."""
    structure: Any
    """The whole model's."""
    forms: tuple[jax.ShapeDtypeStruct, ...]
    """Shapes of the frozen leaves."""

    def trained(self, params: Params) -> Params:
        """The model with None in the place of what is frozen, which JAX takes for an empty tree."""
        if not any(self.flags):
            return params
        leaves = [None if flag else leaf for leaf, flag in zip(jax.tree.leaves(params), self.flags)]
        return jax.tree.unflatten(self.structure, leaves)

    def split(self, params: Params) -> tuple[Params, list[Any]]:
        """``(what is trained, the frozen leaves)``."""
        return self.trained(params), taken(params, list(self.flags))

    def whole(self, trained: Params, frozen: Sequence[Any]) -> Params:
        """The model of both."""
        if not any(self.flags):
            return trained
        mine, others = iter(jax.tree.leaves(trained)), iter(frozen)
        return jax.tree.unflatten(self.structure, [next(others if flag else mine) for flag in self.flags])

    def holding(self, net: Model, frozen: Sequence[Any] | None = None) -> Model:
        """The model as a function of what is trained; zeros stand for frozen leaves where nothing is computed."""
        if not any(self.flags):
            return net

        def apply(params: Params, x: Any, key: Key | None) -> Array:
            others = [jnp.zeros(form.shape, form.dtype) for form in self.forms] if frozen is None else frozen
            return net.apply(self.whole(params, others), x, key)

        def init(key: Key, x: Any) -> Params:
            return self.trained(net.init(key, x))

        return Model(init, apply)


def freezing(freeze: Freeze | None, shapes: Params) -> Freezing:
    """What ``freeze`` asks for, of a model by its shapes.

    Raises:
      ValueError: neither patterns nor a predicate, a pattern that matches nothing, or nothing left to train.
    """
    flags = _flags(freeze, shapes)
    if all(flags):
        raise ValueError(f"freeze must leave some parameters to train, got {freeze!r}, which freezes all of them")
    leaves, structure = jax.tree.flatten(shapes)
    return Freezing(tuple(flags), structure, tuple(leaf for leaf, flag in zip(leaves, flags) if flag))


def _flags(freeze: Any, shapes: Params) -> list[bool]:
    if isinstance(freeze, list | tuple):
        for pattern in freeze:
            if not isinstance(pattern, str):
                raise ValueError(f"freeze must be a list of patterns of parameters' paths, got {pattern!r} in it")
        found = [_flags(pattern, shapes) for pattern in freeze]
        return [any(flags) for flags in zip(*found)] if found else _flags(None, shapes)
    if freeze is None:
        return [False] * len(jax.tree.leaves(shapes))
    check_personal(freeze, "freeze")
    return chosen(freeze, shapes, "freeze")


def step_of(
    frozen: Freezing, net: Model, parts_of: Callable[[Model], Components]
) -> Callable[[SimState, Any], tuple[SimState, Info]]:
    """``(state, data) -> (state, info)``: a round of ``parts_of(model)``."""
    if not any(frozen.flags):
        return functools.partial(play_round, parts_of(net))

    def step(state: SimState, data: Any) -> tuple[SimState, Info]:
        params, rest = frozen.split(state.params)
        after, info = play_round(parts_of(frozen.holding(net, rest)), state._replace(params=params), data)
        return after._replace(params=frozen.whole(after.params, rest)), info

    return step


def of_whole(
    frozen: Freezing, net: Model, function_of: Callable[[Model], Callable[..., Any]]
) -> Callable[..., Any]:
    """``(params, ...) -> function_of(model)(what is trained, ...)``: an evaluation of a model."""
    plain = function_of(frozen.holding(net))  # whose arguments are checked here
    if not any(frozen.flags):
        return plain

    def function(params: Params, *more: Any, **named: Any) -> Any:
        trained, rest = frozen.split(params)
        return function_of(frozen.holding(net, rest))(trained, *more, **named)

    return function


def deploying(frozen: Freezing, deploy: Callable[[SimState], Params]) -> Callable[[SimState], Params]:
    """A user's ``deploy``, which finds in the state what is trained, with the frozen leaves put back."""
    if not any(frozen.flags):
        return deploy

    def deployed(state: SimState) -> Params:
        trained, rest = frozen.split(state.params)
        made = deploy(state._replace(params=trained))
        # What has another form is refused by the caller.
        same: Any = jax.tree.structure(made) == jax.tree.structure(trained)  # type: ignore[operator]
        return frozen.whole(made, rest) if same else made

    return deployed

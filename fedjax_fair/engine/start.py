"""The state that a run begins with: a model that is drawn, or the user's own, and everybody's first memories."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from fedjax_fair.data import FederatedData
from fedjax_fair.engine.devices import replicate
from fedjax_fair.engine.first_draw import drawer
from fedjax_fair.engine.fit import check_parameters
from fedjax_fair.engine.freezing import Freezing
from fedjax_fair.engine.memory import first_memory
from fedjax_fair.engine.scaled import check_init
from fedjax_fair.methods.layers import by_path
from fedjax_fair.models import Model
from fedjax_fair.models.flax_modules import is_nnx
from fedjax_fair.models.stock import is_stock
from fedjax_fair.types import Key, Method, Params, Selector, SimState, Simulation

MANY = 3
"""Paths that a sentence names."""


def shapes_of(net: Model, data: FederatedData) -> tuple[Any, Params]:
    """One example and the model's parameters, by their shapes alone.

    Raises:
      ValueError: parameters that cannot be averaged, or an example that the model takes in another form only.
    """
    example, _ = data.form(1)
    try:
        shapes = jax.eval_shape(net.init, jax.random.key(0), example)
    except Exception as error:  # whatever a user's model raises
        check_init(net, data, example, error)
        if is_stock(net) and not hasattr(example, "shape"):
            parts = ", ".join(jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(example))
            raise ValueError(
                f"model must be one of your own for data of several arrays ({parts}): stock models take one"
            ) from error
        raise
    return example, check_parameters(shapes)


def initializer(
    draw: Callable[[Key], Params],
    frozen: Freezing,
    method: Method,
    server: Any,
    selector: Selector,
    data: FederatedData,
    mesh: Mesh | None,
) -> Callable[..., SimState]:
    """``(key, data) -> the state before the first round``, whose model is ``draw(key)``."""

    def init(key: Key, data: FederatedData = data) -> SimState:
        model_key, rule_key, selector_key, run_key = jax.random.split(key, 4)
        sizes = data.train.size.astype(jnp.result_type(float))
        params = draw(model_key)
        trained = frozen.trained(params)
        start = SimState(
            round=jnp.zeros((), jnp.int32),
            key=run_key,
            params=params,
            server=server.init(trained),
            aggregator=method.aggregator.init(sizes, rule_key),
            selector=selector.init(sizes, selector_key),
            memory=first_memory(method.memory, trained, data.n_clients),
        )
        return replicate(start, mesh)

    return init


def first_model(params: Params | None, shapes: Params, net: Model, example: Any) -> Callable[[Key], Params]:
    """``key -> model``: the one given, whatever the key, or one that is drawn.

    Raises:
      ValueError: ``params`` are not of the model's form; see :func:`fitting`.
    """
    if params is None:
        return drawer(net, example)
    given = fitting(params, shapes)
    return lambda key: jax.tree.map(jnp.asarray, given)


def fitting(params: Any, shapes: Params, name: str = "params") -> Params:
    """``params`` in the structure of the model's, of ``shapes``; leaves are known by their paths.

    Raises:
      ValueError: other paths, shapes or types than the model's, numbers that are not finite, or something that
        holds parameters and is none.
    """
    _check_kind(params, shapes, name)
    wanted, given = by_path(shapes, "model"), by_path(params, name)
    if wanted.keys() != given.keys():
        raise ValueError(
            f"{name} must have the model's parameters, {_few(wanted)}, got {_few(given) or 'none'}: "
            + " and ".join(
                f"{_few(paths)} {what}"
                for paths, what in (
                    ([path for path in wanted if path not in given], "missing"),
                    ([path for path in given if path not in wanted], "unknown"),
                )
                if paths
            )
        )
    for path, form in wanted.items():
        _check_leaf(f"{name} at {path}", given[path], form)
    return jax.tree.unflatten(jax.tree.structure(shapes), [given[path] for path in wanted])


def _few(paths: Any) -> str:
    listed = list(paths)
    return ", ".join(listed[:MANY]) + (f" and {len(listed) - MANY} more" if len(listed) > MANY else "")


def _check_kind(params: Any, shapes: Params, name: str) -> None:
    """What parameters are often taken for."""
    if isinstance(params, SimState):
        raise ValueError(f"{name} must be a model's parameters, got a state: pass state.params")
    if is_nnx(params, "Module", "State"):
        raise ValueError(
            f"{name} must be a tree of arrays, got nnx's {type(params).__name__}: pass "
            "nnx.to_pure_dict(nnx.state(model, nnx.Param))"
        )
    if isinstance(params, str | Path):
        raise ValueError(f"{name} must be a tree of arrays, got {str(params)!r}: pass ff.load_params(path)")
    whole = isinstance(params, Mapping) and "params" in params
    if whole and not (isinstance(shapes, Mapping) and "params" in shapes):
        others = sorted(str(key) for key in params if key != "params")
        more = f" beside {', '.join(others)}" if others else ""
        raise ValueError(
            f"{name} must be the model's parameters alone, got flax's variables {{\"params\": ...}}{more}: pass "
            'variables["params"]'
        )


def _check_leaf(name: str, leaf: Any, form: Any) -> None:
    if isinstance(leaf, float):
        leaf = np.asarray(leaf, form.dtype)
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
        raise ValueError(f"{name} must be an array of JAX or NumPy, got a {type(leaf).__name__}")
    if leaf.shape != form.shape:
        raise ValueError(f"{name} must have the model's shape, {list(form.shape)}, got {list(leaf.shape)}")
    if leaf.dtype != form.dtype:
        raise ValueError(
            f"{name} must have the model's type, {form.dtype}, got {leaf.dtype}: cast it, "
            f'jax.tree.map(lambda leaf: leaf.astype("{form.dtype}"), params)'
        )
    if not isinstance(leaf, jax.core.Tracer) and (bad := ~np.isfinite(np.asarray(leaf))).any():
        raise ValueError(f"{name} must be finite, got {int(bad.sum())} of {leaf.size} numbers that are not")


@partial(jax.jit, static_argnames="init")
def _first_state(key: Key, *, init: Callable) -> SimState:
    """Never called: its shapes are looked up where those of ``sim.init`` would be traced anew for every call."""
    return init(key)


@cache
def _any_key() -> Any:
    """A key's shape and type, which to ask for takes as long as the rest of a look at a state."""
    return jax.eval_shape(lambda: jax.random.key(0))


def own_state(state: Any, sim: Simulation) -> SimState:
    """``state``, or ValueError unless it is one of this simulation."""
    if not isinstance(state, SimState):
        raise ValueError(f"state must be what a run of this simulation left, got {type(state).__name__}")
    wanted = _first_state.eval_shape(_any_key(), init=sim.init)
    mine, like = (_form(tree) for tree in (state, wanted))
    if mine[:2] != like[:2]:
        fitting(state.params, wanted.params, "state.params")
        parts = ((name, getattr(state, name), getattr(wanted, name)) for name in SimState._fields)
        odd = next((name for name, got, due in parts if _form(got)[:2] != _form(due)[:2]), "state")
        raise ValueError(
            f"state must be what a run of this simulation left, got another one's {odd}: "
            f"state._replace({odd}=sim.init(key).{odd}) begins it anew"
        )
    if mine[2] != like[2]:
        fitting(state.params, wanted.params, "state.params")
        got, due = next(pair for pair in zip(mine[2], like[2]) if pair[0] != pair[1])
        raise ValueError(
            f"state must hold numbers of this simulation's types, got {got} for {due}, as of another jax_enable_x64"
        )
    return state


def _form(tree: Any) -> tuple[Any, list[tuple[int, ...]], list[Any]]:
    """Its structure, and the leaves' shapes and types."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [jnp.shape(leaf) for leaf in leaves], [jnp.result_type(leaf) for leaf in leaves]

"""Modules of flax's nnx as the engine's models: their switches for training, their streams of keys."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from fedjax_fair.checks import said
from fedjax_fair.models.call_arguments import arguments_of, check_switches, flags
from fedjax_fair.models.flax_modules import Model, check_layer, refuse
from fedjax_fair.reads import used_inputs
from fedjax_fair.types import Key, Params


def from_nnx_instance(module: nnx.Module) -> Model:
    """A module that exists already, whose weights every seed starts from."""
    return from_nnx(lambda rngs: nnx.clone(module))  # a copy: tracing must not touch the user's


def from_nnx(factory: Callable[[nnx.Rngs], nnx.Module]) -> Model:
    """What a factory of nnx modules builds, as a model; ValueError for what is none, or keeps batch statistics."""

    def build(key: Key) -> nnx.Module:
        module = _called(factory, nnx.Rngs(key))
        if not isinstance(module, nnx.Module):
            raise ValueError(f"model must build an nnx.Module, but its factory returned {type(module).__name__}")
        if jax.tree.leaves(nnx.state(module, nnx.BatchStat)):
            raise refuse("batch_stats")
        others = nnx.to_flat_state(nnx.state(module, nnx.Not(nnx.Any(nnx.Param, nnx.RngState))))
        kinds = sorted({type(leaf).__name__ for _, leaf in others if isinstance(leaf, nnx.Variable)})
        if kinds:
            raise ValueError(
                f"model keeps variables of type {' and '.join(kinds)} besides its nnx.Param, which would be reset "
                "in every pass; make them nnx.Param, or plain arrays if they never change"
            )
        return module

    def plain(key: Key) -> list[Any]:
        """Arrays that are no variables."""
        values = [list(vars(module).values()) for _, module in nnx.iter_modules(build(key))]
        leaves = jax.tree.leaves(values, is_leaf=lambda value: isinstance(value, nnx.Variable | nnx.Module))
        return [v for v in leaves if isinstance(v, Array) and jnp.issubdtype(v.dtype, jnp.number)]

    def init(key: Key, x: Any) -> Params:
        del x
        params = nnx.to_pure_dict(nnx.state(build(key), nnx.Param))
        if any(used_inputs(jax.make_jaxpr(plain)(key).jaxpr)):
            raise ValueError(
                "model keeps arrays that are drawn from rngs but are no nnx.Param, so that every seed would have "
                "the same; make them nnx.Param, or draw them from a key of their own"
            )
        return params

    def ready(params: Params, key: Key | None) -> tuple[nnx.Module, dict[str, Any]]:
        """The module with these weights, and what its call is given."""
        # The skeleton's own weights are overwritten below; the compiler drops their initialisation.
        module = build(jax.random.key(0))
        state = nnx.state(module, nnx.Param)
        nnx.replace_by_pure_dict(state, params)
        nnx.update(module, state)
        arguments = check_switches(type(module), ("rngs",))
        for layer in module.layers if isinstance(module, nnx.Sequential) else ():
            check_layer(layer)
        given: dict[str, Any] = {name: on for name, on in flags(key is not None).items() if name in arguments}
        if key is None:
            module.eval()
        else:
            module.train()
            _reseed(module, key)
            if "rngs" in arguments:
                given["rngs"] = nnx.Rngs(key)
        return module, given

    def apply(params: Params, x: Any, key: Key | None) -> Array:
        module, given = ready(params, key)
        before = _drawn(module)
        outputs = module(x, **given)
        drew = any(old is not new for old, new in zip(before, _drawn(module)))
        if key is None and drew and depends_on_draws(params, x):
            raise ValueError(
                "model must draw random numbers in training only, got a module that draws some in an evaluation"
            )
        return outputs

    def depends_on_draws(params: Params, x: Any) -> bool:
        """Whether an evaluation does: a recurrent cell draws a key for its first state, which is zeros."""

        def outputs(key: Key) -> Array:
            module, given = ready(params, None)
            _reseed(module, key)
            return module(x, **given)

        return any(used_inputs(jax.make_jaxpr(outputs)(jax.random.key(0)).jaxpr))

    return Model(init, apply)


def _called(factory: Callable, rngs: nnx.Rngs) -> Any:
    """What a factory builds; ValueError where it raises anything, as one of another library's models does."""
    of = factory.func if isinstance(factory, partial) else factory
    # A class of nnx has the signature (*args, **kwargs), its __init__ its own.
    own = arguments_of(getattr(of, "__init__", of) if isinstance(of, type) else of)
    by_name = "rngs" in own and own["rngs"].kind is not inspect.Parameter.POSITIONAL_ONLY
    if isinstance(factory, partial) and "rngs" in factory.keywords:
        raise ValueError(
            "model must leave rngs open, got a functools.partial that gives it: every seed has its own"
        )
    try:
        return factory(rngs=rngs) if by_name else factory(rngs)
    except Exception as error:  # whatever a user's function raises
        name = getattr(of, "__name__", type(of).__name__)
        raise ValueError(
            "model must be a flax module (linen, or a function rngs -> nnx.Module) or an (init, apply) pair; "
            f"{name} was taken for such a function, and raised {said(error)}"
        ) from error


def _reseed(module: nnx.Module, key: Key) -> None:
    """A key for every stream that the module keeps: the default, or dropout, has this one, each other its own."""
    kept = {node.tag for _, node in nnx.iter_graph(module) if isinstance(node, nnx.RngStream)}
    first = "default" if "default" in kept else "dropout"
    others = sorted(kept - {"default", "dropout"}) + ["dropout"] * (first == "default")
    streams = {first: key} | {tag: jax.random.fold_in(key, i) for i, tag in enumerate(others)}
    nnx.reseed(module, policy="match_shape", **streams)  # type: ignore[arg-type]


def _drawn(module: nnx.Module) -> list[Any]:
    """How much has been drawn from every stream: values that are replaced by others in every draw."""
    flat = nnx.to_flat_state(nnx.state(module, nnx.RngCount))
    return [count.get_value() for _, count in flat]

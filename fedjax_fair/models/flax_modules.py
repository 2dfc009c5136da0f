"""Flax modules as the engine's models: linen and nnx, their switches for training, their keys."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import nnx
from flax.errors import InvalidRngError
from jax import Array

from fedjax_fair.models.call_arguments import check_switches, flags
from fedjax_fair.reads import used_inputs
from fedjax_fair.types import Key, Params


class Model(NamedTuple):
    """A model as the engine sees it."""

    init: Callable[[Key, Any], Params]
    """``(key, x [B, ...]) -> params``."""
    apply: Callable[[Params, Any, Key | None], Array]
    """``(params, x [B, ...], key) -> outputs [B, ...]``; a key means training (dropout), None evaluation."""


def _refuse(collections: str) -> ValueError:
    return ValueError(
        f"model keeps {collections} besides its parameters, which cannot be averaged over clients; "
        "replace batch normalisation by nn.GroupNorm or nn.LayerNorm"
    )


def from_linen(module: nn.Module) -> Model:
    """A linen module as a model; ValueError for collections beside the parameters, or a switch of another name."""
    arguments = check_switches(type(module))
    for layer in module.layers if isinstance(module, nn.Sequential) else ():
        _check_layer(layer)

    def mode(training: bool) -> dict[str, bool]:
        return {name: value for name, value in flags(training).items() if name in arguments}

    def init(key: Key, x: Any) -> Params:
        variables = module.init(key, x, **mode(False))  # type: ignore[arg-type]
        extra = sorted(set(variables) - {"params"})
        if extra:
            raise _refuse(" and ".join(extra))
        return variables.get("params", {})

    def apply(params: Params, x: Any, key: Key | None) -> Array:
        rngs, missed = None if key is None else {"dropout": key}, set[str]()
        try:
            with nn.intercept_methods(_noting(missed)):
                outputs = module.apply({"params": params}, x, rngs=rngs, **mode(key is not None))  # type: ignore
        except InvalidRngError as error:
            when = "an evaluation, which has no key" if key is None else "training, which has a key for dropout"
            raise ValueError(
                f'model must draw random numbers from the rng collection "dropout", and in training only, got '
                f"{_collection(error)} in {when}"
            ) from error
        if key is not None and missed:
            raise ValueError(
                f'model must draw random numbers from the rng collection "dropout" alone, got has_rng of '
                f"{', '.join(sorted(missed))}, which would be False also in training"
            )
        return outputs  # type: ignore[return-value]

    apply.module = module  # type: ignore[attr-defined]
    return Model(init, apply)


class _Noting(dict):
    """A scope's keys by collection, which notes for what others it is asked: ``has_rng`` asks so."""

    def __init__(self, keys: Any, missed: set[str]):
        super().__init__(keys)
        self.missed = missed

    def __contains__(self, name: object) -> bool:
        found = super().__contains__(name)
        if not found and name != "params":
            self.missed.add(str(name))
        return found


def _noting(missed: set[str]) -> Callable[..., Any]:
    def intercept(method: Callable, args: Any, kwargs: Any, context: Any) -> Any:
        scope = context.module.scope
        if scope is not None and not isinstance(scope.rngs, _Noting):
            scope.rngs = _Noting(scope.rngs, missed)
        return method(*args, **kwargs)

    return intercept


def _check_layer(layer: Any) -> None:
    """A layer is called with its inputs alone."""
    own = type(layer).__module__.split(".")[0] != "flax"
    if (
        own
        and isinstance(layer, nn.Module | nnx.Module)
        and set(flags(True)).intersection(check_switches(type(layer)))
    ):
        raise ValueError(
            f"model must have no layer in a Sequential that is told whether it trains, got {type(layer).__name__}: "
            "call it in a module of your own, which is told by train"
        )


def _collection(error: Exception) -> str:
    found = re.search(r'needs PRNG for ("[^"]*")', str(error))
    return found[1] if found else "another"


def from_nnx(factory: Callable[[nnx.Rngs], nnx.Module]) -> Model:
    """What a factory of nnx modules builds, as a model; ValueError for what is none, or keeps batch statistics."""

    def build(key: Key) -> nnx.Module:
        module = factory(nnx.Rngs(key))
        if not isinstance(module, nnx.Module):
            raise ValueError(f"model must build an nnx.Module, but its factory returned {type(module).__name__}")
        if jax.tree.leaves(nnx.state(module, nnx.BatchStat)):
            raise _refuse("batch_stats")
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

    def apply(params: Params, x: Any, key: Key | None) -> Array:
        # The skeleton's own weights are overwritten below; the compiler drops their initialisation.
        module = build(jax.random.key(0))
        state = nnx.state(module, nnx.Param)
        nnx.replace_by_pure_dict(state, params)
        nnx.update(module, state)
        arguments = check_switches(type(module), ("rngs",))
        for layer in module.layers if isinstance(module, nnx.Sequential) else ():
            _check_layer(layer)
        given: dict[str, Any] = {name: on for name, on in flags(key is not None).items() if name in arguments}
        if key is None:
            module.eval()
        else:
            module.train()
            nnx.reseed(module, default=key, dropout=key)
            if "rngs" in arguments:
                given["rngs"] = nnx.Rngs(key)
        before = _drawn(module)
        outputs = module(x, **given)
        if key is None and any(old is not new for old, new in zip(before, _drawn(module))):
            raise ValueError(
                "model must draw random numbers in training only, got a module that draws some in an evaluation"
            )
        return outputs

    return Model(init, apply)


def _drawn(module: nnx.Module) -> list[Any]:
    """How much has been drawn from every stream: values that are replaced by others in every draw."""
    flat = nnx.to_flat_state(nnx.state(module, nnx.RngCount))
    return [count.get_value() for _, count in flat]

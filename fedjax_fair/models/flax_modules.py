"""Flax modules as the engine's models: linen and nnx, their switches for training, their keys."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
from flax import nnx
from jax import Array

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


SWITCHES = {"train", "training", "deterministic", "eval", "evaluate", "evaluation", "inference"}
"""Words in the name of an argument that says whether a module trains."""


def from_linen(module: nn.Module) -> Model:
    """A linen module as a model; ValueError for collections beside the parameters, or a switch of another name."""
    arguments = inspect.signature(type(module).__call__).parameters

    def flags(training: bool) -> dict[str, bool]:
        return {"train": training, "training": training, "is_training": training, "deterministic": not training}

    for name, argument in arguments.items():  # left at its default, dropout would never be on, or never off
        says = SWITCHES.intersection(name.lower().split("_")) and isinstance(argument.default, bool | None | type)
        if says and name not in flags(True):
            raise ValueError(
                f"model's __call__ must say whether it trains by one of {', '.join(flags(True))}, got {name}"
            )

    def mode(training: bool) -> dict[str, bool]:
        return {name: value for name, value in flags(training).items() if name in arguments}

    def init(key: Key, x: Any) -> Params:
        variables = module.init(key, x, **mode(False))  # type: ignore[arg-type]
        extra = sorted(set(variables) - {"params"})
        if extra:
            raise _refuse(" and ".join(extra))
        return variables.get("params", {})

    def apply(params: Params, x: Any, key: Key | None) -> Array:
        rngs = None if key is None else {"dropout": key}
        return module.apply({"params": params}, x, rngs=rngs, **mode(key is not None))  # type: ignore

    return Model(init, apply)


def from_nnx(factory: Callable[[nnx.Rngs], nnx.Module]) -> Model:
    """What a factory of nnx modules builds, as a model; ValueError for what is none, or keeps batch statistics."""

    def build(key: Key) -> nnx.Module:
        module = factory(nnx.Rngs(key))
        if not isinstance(module, nnx.Module):
            raise ValueError(f"model must build an nnx.Module, but its factory returned {type(module).__name__}")
        if jax.tree.leaves(nnx.state(module, nnx.BatchStat)):
            raise _refuse("batch_stats")
        return module

    def init(key: Key, x: Any) -> Params:
        del x
        return nnx.to_pure_dict(nnx.state(build(key), nnx.Param))

    def apply(params: Params, x: Any, key: Key | None) -> Array:
        # The skeleton's own weights are overwritten below; the compiler drops their initialisation.
        module = build(jax.random.key(0))
        state = nnx.state(module, nnx.Param)
        nnx.replace_by_pure_dict(state, params)
        nnx.update(module, state)
        if key is None:
            module.eval()
        else:
            module.train()
            nnx.reseed(module, default=key, dropout=key)
        return module(x)

    return Model(init, apply)

"""Flax modules as the engine's models: linen's switches for training, its keys, what nnx shares with it."""

import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
from flax.errors import InvalidRngError
from jax import Array

from fedjax_fair.models.call_arguments import check_switches, flags
from fedjax_fair.types import Key, Params


class Model(NamedTuple):
    """A model as the engine sees it."""

    init: Callable[[Key, Any], Params]
    """``(key, x [B, ...]) -> params``."""
    apply: Callable[[Params, Any, Key | None], Array]
    """``(params, x [B, ...], key) -> outputs [B, ...]``; a key means training (dropout), None evaluation."""


def is_nnx(value: Any, *kinds: str) -> bool:
    """Whether it is one of these classes of ``flax.nnx``, which is imported only with a model of it: that takes a
    sixth of this package's import."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(value, tuple(getattr(nnx, kind) for kind in kinds))


def is_nnx_class(value: Any) -> bool:
    """Whether it is a class of nnx's modules."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(value, type) and issubclass(value, nnx.Module)


def refuse(collections: str) -> ValueError:
    """The error of a model that keeps more than parameters."""
    instead = "make it a parameter, or an array of the module that never changes"
    if "batch_stats" in collections:
        instead = "replace batch normalisation by nn.GroupNorm or nn.LayerNorm"
    return ValueError(
        f"model keeps {collections} besides its parameters, which cannot be averaged over clients; {instead}"
    )


def from_linen(module: nn.Module) -> Model:
    """A linen module as a model; ValueError for collections beside the parameters, or a switch of another name."""
    layers = module.layers if isinstance(module, nn.Sequential) else ()
    if any(getattr(of, "scope", None) is not None for of in (module, *layers)):
        raise ValueError(
            "model must be an unbound module, got one that is bound to variables: pass module.unbind()[0], and "
            'params=variables["params"] to begin with them'
        )
    arguments = check_switches(type(module))
    for layer in layers:
        check_layer(layer)

    def mode(training: bool) -> dict[str, bool]:
        return {name: value for name, value in flags(training).items() if name in arguments}

    def init(key: Key, x: Any) -> Params:
        variables = module.init(key, x, **mode(False))  # type: ignore[arg-type]
        extra = sorted(set(variables) - {"params"})
        if extra:
            raise refuse(" and ".join(extra))
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


def check_layer(layer: Any) -> None:
    """A layer is called with its inputs alone."""
    own = type(layer).__module__.split(".")[0] != "flax"
    if (
        own
        and (isinstance(layer, nn.Module) or is_nnx(layer, "Module"))
        and set(flags(True)).intersection(check_switches(type(layer)))
    ):
        raise ValueError(
            f"model must have no layer in a Sequential that is told whether it trains, got {type(layer).__name__}: "
            "call it in a module of your own, which is told by train"
        )


def _collection(error: Exception) -> str:
    found = re.search(r'needs PRNG for ("[^"]*")', str(error))
    return found[1] if found else "another"

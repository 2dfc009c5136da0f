"""Models: three stock ones, and one door for any flax module or ``(init, apply)`` pair of the user's.

No stock model has batch normalisation: its running statistics have no meaning when clients' weights are averaged.
"""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
from flax import nnx
from jax import Array

from fedjax_fair.checks import check_count
from fedjax_fair.compiled import once
from fedjax_fair.nets import CNN, MLP
from fedjax_fair.nets import PatchConv as PatchConv
from fedjax_fair.pooling import max_pool_2x2 as max_pool_2x2
from fedjax_fair.types import Key, Params


class Model(NamedTuple):
    """A model as the engine sees it."""

    init: Callable[[Key, Any], Params]
    """``(key, x [B, ...]) -> params``."""
    apply: Callable[[Params, Any, Key | None], Array]
    """``(params, x [B, ...], key) -> outputs [B, ...]``; a key means training (dropout), None evaluation."""


def logistic_regression(classes: int = 10) -> Model:
    """Multinomial logistic regression on the flattened input, ``x W + b``.

    Args:
      classes: number of logits.
    """
    return mlp((), classes)


def mlp(features: Sequence[int] = (200, 200), classes: int = 10) -> Model:
    """Multi-layer perceptron: dense layers with ReLU between them.

    Args:
      features: widths of the hidden layers; 784-200-200-10 is FedFV's network on CIFAR-10's vectors, and our
        reading of FedMABA's on Fashion-MNIST.
      classes: number of logits.
    """
    widths = tuple(check_count(f"features[{i}]", width) for i, width in enumerate(features))
    return _stock(MLP(widths, check_count("classes", classes)))


def cnn(
    classes: int = 10,
    channels: tuple[int, int] = (32, 64),
    hidden: int = 512,
    padding: Literal["SAME", "VALID"] = "VALID",
) -> Model:
    """The FedAvg CNN (McMahan et al., 2017): two 5 x 5 convolutions, 2 x 2 max pooling, one dense layer.

    Args:
      classes: number of logits.
      channels: output channels of the two convolutions.
      hidden: width of the dense layer.
      padding: "VALID" for images of at least 16 x 16 pixels, "SAME" (as in FedAvg's code) of at least 4 x 4.
    """
    if padding not in ("SAME", "VALID"):
        raise ValueError(f"padding must be 'SAME' or 'VALID', got {padding!r}")
    first, second = (check_count(f"channels[{i}]", width) for i, width in enumerate(channels))
    return _stock(CNN((first, second), check_count("hidden", hidden), check_count("classes", classes), padding))


def _stock(module: nn.Module) -> Model:
    return Model(partial(_draw, module=module), _from_linen(module).apply)


@partial(once, static_argnames="module")
def _draw(key: Key, x: Any, *, module: nn.Module) -> Params:
    """One program for all equal models; a user's module, which may read what changes, is drawn step by step."""
    return module.init(key, x)["params"]


def as_model(model: Any) -> Model:
    """Take a linen module, a factory ``rngs -> nnx.Module``, or an ``(init, apply)`` pair.

    * linen: dropout draws from the rng collection "dropout"; a ``train``, ``training``, ``is_training`` or
      ``deterministic`` argument of ``__call__`` is set by the engine;
    * nnx: the factory (the class itself, where it takes nothing but ``rngs``) is called for every seed; an
      instance is accepted too, and then every seed starts from its weights;
    * a pair: ``init(key, x) -> params`` and ``apply(params, x)`` or ``apply(params, x, key)``.

    Raises:
      ValueError: anything else; a linen module with a switch of another name, which nobody would set.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, nn.Module):
        return _from_linen(model)
    if isinstance(model, nnx.Module):
        return _from_nnx(lambda rngs: nnx.clone(model))  # a copy: tracing must not touch the user's
    if isinstance(model, tuple) and len(model) == 2 and all(map(callable, model)):
        init, apply = model
        parameters = inspect.signature(apply).parameters
        required = [p for p in parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
        if "key" in parameters or len(required) >= 3:
            return Model(init, apply)
        return Model(init, lambda params, x, key: apply(params, x))
    if model in (logistic_regression, mlp, cnn):
        raise ValueError(f"model must be a model, got the factory {model.__name__}: call it")
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise ValueError(f"model must be a model, got the class {model.__name__}: call it")
    if callable(model):
        return _from_nnx(model)
    raise ValueError(
        "model must be a flax module (linen, or a function rngs -> nnx.Module) or an (init, apply) pair, "
        f"got {type(model).__name__}"
    )


def _refuse(collections: str) -> ValueError:
    return ValueError(
        f"model keeps {collections} besides its parameters, which cannot be averaged over clients; "
        "replace batch normalisation by nn.GroupNorm or nn.LayerNorm"
    )


SWITCHES = {"train", "training", "deterministic", "eval", "evaluate", "evaluation", "inference"}
"""Words in the name of an argument that says whether a module trains."""


def _from_linen(module: nn.Module) -> Model:
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


def _from_nnx(factory: Callable[[nnx.Rngs], nnx.Module]) -> Model:
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

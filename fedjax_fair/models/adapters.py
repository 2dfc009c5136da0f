"""One door for any model of the user's: a flax module, linen or nnx, or an ``(init, apply)`` pair."""

import inspect
from typing import Any

import flax.linen as nn
from flax import nnx

from fedjax_fair.models.flax_modules import Model, from_linen, from_nnx
from fedjax_fair.models.stock import cnn, logistic_regression, mlp


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
        return from_linen(model)
    if isinstance(model, nnx.Module):
        return from_nnx(lambda rngs: nnx.clone(model))  # a copy: tracing must not touch the user's
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
        return from_nnx(model)
    raise ValueError(
        "model must be a flax module (linen, or a function rngs -> nnx.Module) or an (init, apply) pair, "
        f"got {type(model).__name__}"
    )

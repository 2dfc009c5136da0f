"""One door for any model of the user's: a flax module, linen or nnx, or an ``(init, apply)`` pair."""

import inspect
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from fedjax_fair.models.call_arguments import arguments_of, check_switches, flags, is_switch, takes_key
from fedjax_fair.models.flax_modules import Model, from_linen, is_nnx
from fedjax_fair.models.stock import cnn, logistic_regression, mlp


def as_model(model: Any) -> Model:
    """Take a linen module, a factory ``rngs -> nnx.Module``, or an ``(init, apply)`` pair.

    * linen: dropout draws from the rng collection "dropout";
    * nnx: the factory (the class itself, where it takes nothing but ``rngs``) is called for every seed; an
      instance is accepted too, and then every seed starts from its weights. An argument ``rngs`` of ``__call__`` is
      given in training;
    * a pair: ``init(key, x) -> params`` and ``apply(params, x)`` or ``apply(params, x, key)``, whose key is None in
      evaluations. A Python float among the parameters becomes an array.

    A ``train``, ``training``, ``is_training`` or ``deterministic`` argument of a module's ``__call__`` is set by
    the engine.

    Raises:
      ValueError: anything else; a switch or a key of another name, which nobody would set; variables of a
        module that are no parameters.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, nn.Module):
        return from_linen(model)
    if is_nnx(model, "Module"):
        from fedjax_fair.models.nnx_modules import from_nnx_instance

        return from_nnx_instance(model)
    if isinstance(model, tuple) and len(model) == 2 and all(map(callable, model)):
        return from_pair(*model)
    if model in (logistic_regression, mlp, cnn):
        raise ValueError(f"model must be a model, got the factory {model.__name__}: call it")
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise ValueError(f"model must be a model, got the class {model.__name__}: call it")
    if any(of.__module__.partition(".")[0] == "equinox" for of in type(model).__mro__):
        raise ValueError(
            f"model must be an (init, apply) pair where it is of equinox, got {type(model).__name__}: params are "
            "its arrays, eqx.filter(model, eqx.is_inexact_array), and apply vmaps eqx.combine(params, model) over x"
        )
    if callable(model):
        from fedjax_fair.models.nnx_modules import from_nnx

        return from_nnx(model)
    raise ValueError(
        "model must be a flax module (linen, or a function rngs -> nnx.Module) or an (init, apply) pair, "
        f"got {type(model).__name__}"
    )


def from_pair(init: Callable, apply: Callable) -> Model:
    """An ``(init, apply)`` pair as a model; ValueError for arguments of ``apply`` that nobody would set."""
    arguments = arguments_of(apply)
    names = list(arguments)
    module = getattr(apply, "__self__", None)
    if isinstance(module, nn.Module):  # (module.init, module.apply): its own switches would stay at their defaults
        if set(flags(True)).intersection(check_switches(type(module))):
            raise ValueError(
                "model must be the module itself where its __call__ says whether it trains, got its pair"
            )
        return Model(_as_arrays(init), lambda params, x, key: apply(params, x))
    if names[1:2] == ["state"] and any(p.kind is p.VAR_POSITIONAL for p in arguments.values()):
        raise ValueError(
            "model's apply must be (params, x) or (params, x, key), got (params, state, ...): batch statistics and "
            "other states are not kept; transform the model without them"
        )
    required = [
        p for p in arguments.values() if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.KEYWORD_ONLY)
    ]
    by_name, in_place = "key" in arguments, len(required) >= 3
    for place, name in enumerate(names[1:], 1):
        key = by_name and name == "key" and (place == 2 or arguments[name].kind is inspect.Parameter.KEYWORD_ONLY)
        third = place == 2 and in_place and not is_switch(name, arguments[name])
        if key or (third and not by_name):
            continue
        if is_switch(name, arguments[name]) or takes_key(name, arguments):
            raise ValueError(
                f"model's apply must be (params, x) or (params, x, key), whose key is None in evaluations, "
                f"got an argument {name}"
            )
    if by_name and arguments["key"].kind is inspect.Parameter.KEYWORD_ONLY:
        return Model(_as_arrays(init), lambda params, x, key: apply(params, x, key=key))
    if by_name or in_place:
        return Model(_as_arrays(init), apply)
    return Model(_as_arrays(init), lambda params, x, key: apply(params, x))


def _as_arrays(init: Callable) -> Callable:
    """``init`` with arrays in the place of Python's floats and of NumPy's arrays, which are in no type of JAX's."""

    def array(leaf: Any) -> Any:
        if isinstance(leaf, float | np.ndarray | np.generic):
            return jnp.asarray(leaf, jnp.result_type(float) if isinstance(leaf, float) else None)
        if not isinstance(leaf, jax.Array | int):
            raise ValueError(f"model's init must return a pytree of arrays, got a {type(leaf).__name__} among them")
        return leaf

    return lambda key, x: jax.tree.map(array, init(key, x))

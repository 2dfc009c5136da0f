"""Bytes that were scaled as images are, in a model that takes them as they are: tokens, not pixels."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_fair.checks import said
from fedjax_fair.data import FederatedData
from fedjax_fair.data.host_store import forms_of
from fedjax_fair.engine.alone import outputs_alone, two_and_three
from fedjax_fair.models import Model
from fedjax_fair.types import Params

ADVICE = "for tokens give FederatedData.from_arrays(..., normalizer=None)"


def check_init(net: Model, data: FederatedData, example: Any, error: Exception) -> None:
    """Say what is wrong with an example that a model failed on, where another form of it passes.

    Raises:
      ValueError: the model takes bytes that are not scaled, or images that have a channel axis.
    """
    form = ", ".join(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(example))
    raw = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype), forms_of(data.x))
    if _is_scaled(data) and _takes(net, raw):
        hint = f"x is uint8 and was scaled as images are, and the model takes it unscaled; {ADVICE}"
    elif _takes(net, jax.tree.map(_with_channel, example)):
        hint = "images without a channel axis get one by x[..., None]"
    else:
        return
    raise ValueError(f"model must take one example, {form}, got {said(error)}: {hint}") from error


def _is_scaled(data: FederatedData) -> bool:
    leaves = jax.tree.leaves(forms_of(data.x))
    return data.normalizer is not None and any(leaf.dtype == jnp.uint8 for leaf in leaves)


def _with_channel(leaf: Any) -> Any:
    return jax.ShapeDtypeStruct((*leaf.shape, 1), leaf.dtype) if len(leaf.shape) == 3 else leaf


def _takes(net: Model, example: Any) -> bool:
    """Whether the model has a first pass for such an example."""
    try:
        jax.eval_shape(net.init, jax.random.key(0), example)
    except Exception:  # then the first error is about something else
        return False
    return True


def told_apart(net: Model, shapes: Params, data: FederatedData, x: Any, outputs: np.ndarray | None) -> None:
    """ValueError where a model says the same of three different examples ``x`` of bytes, but not of unscaled ones:
    tokens in [0, 1] that it takes for whole numbers are nearly all 0.

    Args:
      net: the model.
      shapes: its parameters' shapes.
      data: the federation.
      x: three raw examples.
      outputs: of these, under random parameters; None where they are not known.
    """
    if outputs is None or not _is_scaled(data) or _differ(outputs) or not any(map(_differ, jax.tree.leaves(x))):
        return
    try:
        programs = two_and_three(net, shapes, data._replace(normalizer=None), x)
        raw = None if programs is None else outputs_alone(*programs[1:], shapes, x)
    except Exception:  # it does not take bytes: it may well say the same of all images
        return
    if raw is not None and _differ(raw):
        raise ValueError(
            "model must tell examples apart, but says the same of three different ones: x is uint8 and was scaled "
            f"to [0, 1] as images are, where unscaled ones are told apart; {ADVICE}"
        )


def _differ(rows: Any) -> bool:
    return any(not np.array_equal(row, rows[0], equal_nan=rows.dtype.kind in "fc") for row in rows[1:])

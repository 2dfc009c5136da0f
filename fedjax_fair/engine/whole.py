"""A metric of whole clients fits the model, gives one number, and does not look at what is behind the mask."""

from typing import Any

import jax
import numpy as np

from fedjax_fair.checks import said
from fedjax_fair.models.client_metrics import Whole
from fedjax_fair.numerics.by_numpy import by_jax, evaluate, is_concrete


def check_whole(metric: Whole, outputs: jax.ShapeDtypeStruct, y: jax.ShapeDtypeStruct) -> None:
    """One number of a client."""
    try:
        value = jax.eval_shape(lambda *of: metric(*of), outputs, y, jax.ShapeDtypeStruct((2,), bool))
    except ValueError as error:
        raise ValueError(f"metric must fit the model and the labels: {error}") from error
    except Exception as error:  # whatever a user's function raises
        raise ValueError(
            f"metric must take a client's outputs, labels and mask, {outputs.dtype}{list(outputs.shape)}, "
            f"{y.dtype}{list(y.shape)} and bool[2] of two examples, got {said(error)}"
        ) from error
    if getattr(value, "shape", None) != ():
        got = f"shape {value.shape}" if hasattr(value, "shape") else type(value).__name__
        raise ValueError(f"metric must return one number of a whole client, got {got}")


def whole_alone(metric: Whole, outputs: np.ndarray, y: np.ndarray, dtype: Any) -> None:
    """ValueError where what is behind a client's examples, other clients' in truth, changes its number.

    Args:
      metric: of whole clients.
      outputs: of three examples.
      y: their labels.
      dtype: the outputs' type.
    """

    def of(n: int) -> Any:
        some = (jax.ShapeDtypeStruct((n, *v.shape[1:]), kind) for v, kind in ((outputs, dtype), (y, y.dtype)))
        return jax.make_jaxpr(lambda *of: metric(*of))(*some, jax.ShapeDtypeStruct((n,), bool))

    padded, alone = of(3), of(2)
    if not (is_concrete(padded) and is_concrete(alone)):
        return
    mask = np.array([True, True, False])
    for by in (evaluate, by_jax):  # JAX has the last word
        wanted = float(by(alone, outputs[:2], y[:2], mask[:2])[0])
        for sign in (1, -10):  # of what is behind, which may decide otherwise
            behind = np.array([1, 1, sign], outputs.dtype).reshape(-1, *[1] * (outputs.ndim - 1))
            got = float(by(padded, behind * outputs, y, mask)[0])
            if not np.isclose(got, wanted, rtol=1e-3, atol=1e-5, equal_nan=True):
                break
        else:
            return
    raise ValueError(
        "metric must leave out examples whose mask is False, which are other clients' or nobody's, but one of them "
        f"changes {wanted:.4g} of two examples to {got:.4g}: average with (values * mask).sum() / mask.sum()"
    )

"""Model inputs out of stored examples, computed as they are read."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array


class Normalizer(NamedTuple):
    """Model input = ``(x - shift) * scale``, computed as examples are read: uint8 images stay uint8."""

    shift: Any
    """float array that broadcasts to one example, in the units of ``x``."""
    scale: Any
    """float array that broadcasts to one example, per unit of ``x``."""


def normalize(x: Array, normalizer: Normalizer) -> Array:
    """``(x - shift) * scale`` in the float type of ``x``, or of ``shift`` where ``x`` holds integers."""
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else normalizer.shift.dtype
    shift, scale = (jnp.broadcast_to(part.astype(dtype), x.shape) for part in normalizer)
    return (x.astype(dtype) - shift) * scale


def check_normalizer(normalizer: Any, x: Any) -> Normalizer | None:
    """Make the parts float arrays, or raise ValueError where they do not broadcast to an example."""
    if normalizer is None:
        return None
    single = isinstance(x, Array)
    if isinstance(normalizer, str) and normalizer == "auto":
        if single and x.dtype == jnp.uint8:
            return Normalizer(jnp.zeros((), jnp.float32), jnp.array(1 / 255, jnp.float32))
        return None
    if not isinstance(normalizer, Normalizer):
        raise ValueError(f'normalizer must be a Normalizer, None or "auto", got {normalizer!r}')
    if not single:
        raise ValueError("a normalizer needs x to be one array, got a pytree; normalise its arrays beforehand")
    parts = []
    for name, value in normalizer._asdict().items():
        part = np.asarray(value, None if getattr(value, "dtype", None) == np.float64 else np.float32)
        if part.ndim >= x.ndim or any(p not in (1, n) for p, n in zip(part.shape[::-1], x.shape[:0:-1])):
            raise ValueError(
                f"normalizer.{name} must broadcast to an example of shape {x.shape[1:]}, got {part.shape}"
            )
        if not np.isfinite(part).all():
            raise ValueError(f"normalizer.{name} must be finite")
        parts.append(jnp.array(part))
    return Normalizer(*parts)

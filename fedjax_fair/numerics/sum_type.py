"""The type in which sums are made."""

from typing import Any

import jax.numpy as jnp


def sum_type(dtype: Any) -> Any:
    """At least float32: sums and running means in half precision stick, for what is added rounds away."""
    return jnp.promote_types(dtype, jnp.float32)

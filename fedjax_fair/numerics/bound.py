"""An operation of a traced program, applied again."""

from collections.abc import Mapping, Sequence
from typing import Any


def bind(step: Any, values: Sequence[Any], settings: Mapping[str, Any] | None = None) -> list[Any]:
    """What the operation makes of other values, with its settings or with others."""
    named = step.primitive.get_bind_params(step.params if settings is None else settings)
    if isinstance(named, tuple):  # before JAX 0.10.2, with the functions beside them
        functions, named = named
        values = [*functions, *values]
    made = step.primitive.bind(*values, **named)
    return list(made) if step.primitive.multiple_results else [made]

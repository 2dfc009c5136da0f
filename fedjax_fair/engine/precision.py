"""The precision of matrix products where the hardware has a choice."""

import functools
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import jax

Precision = Literal["highest", "high", "default"]
F = TypeVar("F", bound=Callable[..., Any])


def computing(precision: str, function: F) -> F:
    """``function`` with this precision in its matrix products, unless a product names its own."""

    @functools.wraps(function)
    def precise(*args: Any, **kwargs: Any) -> Any:
        with jax.default_matmul_precision(precision):
            return function(*args, **kwargs)

    return precise  # type: ignore[return-value]

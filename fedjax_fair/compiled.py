"""XLA's options for two kinds of programs on a CPU: those that run once, and rounds of small models."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

ONCE = {"xla_backend_optimization_level": 1}
"""For a program that runs once, such as the first draw of a model's parameters: compiled in a sixth to a quarter of
the time that its operations take one by one."""
SMALL = {"xla_backend_optimization_level": 2, "xla_cpu_enable_concurrency_optimized_scheduler": False}
"""For a small model's rounds: up to a tenth faster than with XLA's own level (3) and an order of operations that is
made to overlap, of which there is little."""


@dataclasses.dataclass(frozen=True, eq=False)  # a function is itself alone
class Compiled:
    """A function jitted in two ways, of which each call takes one; built by :func:`compiled`."""

    plain: Callable[..., Any]
    tuned: Callable[..., Any]
    options: Mapping[str, Any]
    when: Callable[..., bool]

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Tuned on a CPU, where ``when`` says so, JAX may optimise and $XLA_FLAGS names none of the options."""
        given = os.environ.get("XLA_FLAGS", "")
        free = not jax.config.read("jax_disable_most_optimizations") and not any(n in given for n in self.options)
        wanted = free and jax.default_backend() == "cpu" and self.when(*args, **named)
        return (self.tuned if wanted else self.plain)(*args, **named)


def compiled(
    function: Callable, options: dict[str, Any], when: Callable[..., bool] = lambda *_, **__: True, **settings: Any
) -> Compiled:
    """``jax.jit(function, **settings)``, compiled with ``options`` where ``when(*args, **named)`` says so."""
    tuned = jax.jit(function, compiler_options=options, **settings)
    return Compiled(jax.jit(function, **settings), tuned, options, when)


def once(function: Callable, **settings: Any) -> Compiled:
    """``jax.jit(function, **settings)``, compiled quickly where it is no part of another program."""
    return compiled(function, ONCE, _are_concrete, **settings)


def _are_concrete(*args: Any, **named: Any) -> bool:
    """Whether nothing is traced: no argument (vmap, grad), nor what is made here (jit, scan)."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, named, jnp.zeros(()))))

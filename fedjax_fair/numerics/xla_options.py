"""XLA's options on a CPU: for programs that run once, and for rounds of small models and convolutional networks."""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_fair.numerics.model_size import is_convolutional, is_small
from fedjax_fair.types import Params, SimState

ONCE = {"xla_backend_optimization_level": 1}
"""For a program that runs once, such as the first draw of a model's parameters: compiled in a sixth to a quarter of
the time that its operations take one by one."""
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
"""For the first draw of any model: under JAX 0.10 compiled in two fifths of the time that :data:`ONCE` takes."""
SMALL = {
    "xla_backend_optimization_level": 2,
    "xla_cpu_enable_concurrency_optimized_scheduler": False,
    "xla_cpu_prefer_vector_width": 512,
}
"""For a small model's rounds: up to a tenth faster than with XLA's own level (3) and an order of operations that is
made to overlap, of which there is little; up to another tenth with vectors as long as the processor's."""
TINY_QUICK = SMALL | {"xla_cpu_use_fusion_emitters": False}
"""For a tiny model's: under JAX 0.10 compiled in .6 of the time. It is for several side by side, which are as fast,
and for a comparison's references. A long run alone would be slower, by up to a third where rounds are short and the
machine is busy."""
CONVOLUTIONAL = {"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE"}
"""For rounds of a narrow convolutional network: YNNPACK makes its sums, and not its products. Two cores share
products of 8 to 64 channels better by Eigen; by YNNPACK a round of a ResNet of 8 channels takes 1.07 times as long,
its forward pass 1.15. Wide products are YNNPACK's: without it a ResNet of 64 channels takes 1.1 times as long, a
network with a dense layer of 512 units 1.2."""
PASSING = frozenset(["xla_cpu_use_fusion_emitters", *CONVOLUTIONAL])
"""Options that not every version has: jaxlib 0.11 refuses every program that names the first."""

Choice = tuple[dict[str, Any], Callable[..., bool]]
"""Options, and for which calls: ``(*args, **named) -> bool``."""


def _of_state(state: SimState, *_: Any, **__: Any) -> Params:
    return state.params


def of_rounds(params_of: Callable[..., Params] = _of_state) -> list[Choice]:
    """Those of a run's rounds, for all that plays or judges them: else the same operations would round otherwise.

    ``params_of(*args, **named)`` are the model's parameters, or their shapes, of one run; by default those of a
    state, which is the first argument.
    """
    return [
        (SMALL, lambda *args, **named: is_small(params_of(*args, **named))),
        (CONVOLUTIONAL, lambda *args, **named: is_convolutional(params_of(*args, **named))),
    ]


@dataclasses.dataclass(frozen=True, eq=False)  # a function is itself alone
class Compiled:
    """A function jitted in several ways, of which each call takes one; built by :func:`compiled`."""

    function: Callable
    choices: Sequence[Choice]
    settings: dict[str, Any]

    @functools.cached_property
    def plain(self) -> Any:
        """As JAX compiles it."""
        return jax.jit(self.function, **self.settings)

    @functools.cached_property
    def tuned(self) -> list[tuple[Choice, Any]]:
        """By every choice, with those of its options that this XLA has, which is tried: so made when asked for."""
        found = []
        for options, when in self.choices:
            there = of_this_xla(options)
            found.append(((there, when), jax.jit(self.function, compiler_options=there, **self.settings)))
        return found

    def __call__(self, *args: Any, **named: Any) -> Any:
        """What the function returns."""
        return self.chosen(*args, **named)(*args, **named)

    def trace(self, *args: Any, **named: Any) -> None:
        """Trace a call, of arguments or of their shapes: what is left is to compile it."""
        self.chosen(*args, **named).lower(*args, **named)

    def chosen(self, *args: Any, **named: Any) -> Any:
        """On a CPU the first that is meant for the call, where JAX may optimise and $XLA_FLAGS names none of its
        options; of arguments, or of their shapes."""
        if jax.default_backend() == "cpu" and not jax.config.read("jax_disable_most_optimizations"):
            given = os.environ.get("XLA_FLAGS", "")
            for (options, when), tuned in self.tuned:
                if when(*args, **named) and not any(name in given for name in options):
                    return tuned
        return self.plain


def compiled(function: Callable, choices: Sequence[Choice], **settings: Any) -> Compiled:
    """``jax.jit(function, **settings)``, compiled with the options of the first choice that is meant for a call."""
    return Compiled(function, choices, settings)


def of_this_xla(options: dict[str, Any]) -> dict[str, Any]:
    """The options, without those of :data:`PASSING` that this XLA refuses."""
    return {name: value for name, value in options.items() if name not in PASSING or has(name, value)}


@functools.cache
def has(name: str, value: Any) -> bool:
    """Whether this XLA has an option, with this value if it is a name; another error than that is raised."""
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError as error:
        if not any(words in str(error) for words in ("No such compile option", "is not a valid enum value")):
            raise
        return False
    return True


def once(function: Callable, **settings: Any) -> Compiled:
    """``jax.jit(function, **settings)``, compiled quickly where it is no part of another program."""
    return compiled(function, [(ONCE, is_concrete)], **settings)


def is_concrete(*args: Any, **named: Any) -> bool:
    """Whether nothing is traced: no argument (vmap, grad), nor what is made here (jit, scan)."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((args, named, jnp.zeros(()))))

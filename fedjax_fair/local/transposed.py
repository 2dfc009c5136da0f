"""Matrices of few outputs kept transposed during local training: a CPU makes their gradients faster as [out, in].

With batches of 50, an x86 CPU and XLA's products, steps of a dense layer with 10 outputs take .6 of the time, and
the transposition at both ends of local training costs as much as a step or two gain. On an accelerator nothing is
transposed. The optimiser then sees transposed matrices, so this is done only where it provably cannot tell.
"""

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr

FEWEST_STEPS = 4
LARGEST = 2**20
"""Entries of a matrix (four megabytes, out of a core's cache) beyond which transposing costs more than it gains."""
NARROW = 64
"""Outputs up to which a matrix is transposed, if it has more inputs. With 784 inputs and batches of 50, steps took
.6 of the time with 10 outputs, .85 with 26, 1.0 to 1.2 with 62 and 1.2 to 1.4 with 200; with batches of 10, .8 with
26 and .85 with 62. With 20 to 60 inputs and 200 outputs they took 1.2 times as long."""
# fmt: off
ELEMENTWISE = frozenset([
    "abs", "add", "add_any", "and", "cbrt", "ceil", "clamp", "convert_element_type", "copy", "cos", "div",
    "eq", "erf", "exp", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p",
    "logistic", "lt", "max", "min", "mul", "ne", "neg", "not", "or", "pow", "rem", "round", "rsqrt",
    "select_n", "sign", "sin", "sqrt", "square", "stop_gradient", "sub", "tanh", "xor",
])
# fmt: on
WHOLE = frozenset(["reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_prod"])
CALLS = frozenset(["jit", "cond", "custom_jvp_call", "custom_vjp_call"])


def transposing(params: Any) -> Callable[[Any], Any]:
    """A function that transposes what of trees like ``params`` is worth it; twice, it gives the tree back."""
    flags = jax.tree.map(_turns, params)
    return lambda tree: jax.tree.map(lambda leaf, turns: leaf.T if turns else leaf, tree, flags)


def as_it_is(tree: Any) -> Any:
    """The tree itself."""
    return tree


def worth_transposing(optimizer: Any, params: Any, steps: int | Array) -> bool:
    """Whether local training on transposed matrices is the same, to rounding, and is expected to be faster.

    Expected for dense layers. ``steps`` may be traced: then they are taken to be many.
    """
    if jax.default_backend() != "cpu" or (isinstance(steps, int) and steps < FEWEST_STEPS):
        return False
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), params)
    return any(map(_turns, jax.tree.leaves(shapes))) and is_entrywise(optimizer, shapes)


def _turns(leaf: Any) -> bool:
    return leaf.ndim == 2 and leaf.shape[1] <= NARROW and leaf.shape[1] < leaf.shape[0] and leaf.size <= LARGEST


def is_entrywise(optimizer: Any, params: Any) -> bool:
    """Whether an optimiser treats all entries of a matrix alike: shown in its traced program, or False.

    Entry by entry, with numbers that may depend on the sum or the maximum of a whole array (clipping by the global
    norm), the update of a transposed matrix is the transposed update. Anything else (factored moments, products,
    noise, a mask with a matrix in it) counts as different, though it may not be. So does what is not the same
    program, with the same constants, for the transposed shapes: a rate that depends on the shape.
    """

    def program(grads: Any, params: Any) -> Any:
        return optimizer.update(grads, optimizer.init(params), params)

    straight, transposed = jax.make_jaxpr(program)(params, params), jax.eval_shape(transposing(params), params)
    if not _is_entrywise(straight):
        return False
    try:
        across = jax.make_jaxpr(program)(transposed, transposed)
    except Exception:  # whatever an optimiser made for these shapes alone raises when it meets others
        return False
    return _words(straight) == _words(across) and all(map(_same, _constants(straight), _constants(across)))


def _words(program: ClosedJaxpr) -> str:
    """A program's text without the shapes of matrices and larger arrays."""
    return re.sub(r"\[\d+(,\d+)+\]|shape=\(\d+(, \d+)+\)", "", str(program))


def _constants(program: ClosedJaxpr) -> list[Any]:
    """What a traced program closes over, inner programs included: the text does not show it."""
    inner = [part for step in program.jaxpr.eqns for part in programs(step)]
    return [*program.consts, *(const for part in inner for const in _constants(part))]


def _same(one: Any, other: Any) -> bool:
    traced = isinstance(one, jax.core.Tracer) or isinstance(other, jax.core.Tracer)
    return one is other or (not traced and bool(np.array_equal(one, other)))


def _is_entrywise(closed: ClosedJaxpr) -> bool:
    flat = all(getattr(const, "ndim", 0) < 2 for const in closed.consts)
    return flat and all(_keeps_entries(step) for step in closed.jaxpr.eqns)


def _keeps_entries(step: Any) -> bool:
    """One operation: on matrices only entry by entry, from a number to a matrix or back, or a call of such."""
    name = step.primitive.name
    given, made = ([v.aval.ndim for v in variables] for variables in (step.invars, step.outvars))
    if max([*given, *made], default=0) < 2 or name in ELEMENTWISE:
        return True
    if name == "broadcast_in_dim":
        return given[0] == 0
    if name in WHOLE:
        return made[0] == 0
    return name in CALLS and bool(programs(step)) and all(map(_is_entrywise, programs(step)))


def programs(step: Any) -> list[ClosedJaxpr]:
    """The programs that an operation calls."""
    inner = [part for value in step.params.values() for part in (value if isinstance(value, tuple) else (value,))]
    found = [part for part in inner if isinstance(part, ClosedJaxpr | Jaxpr)]
    return [part if isinstance(part, ClosedJaxpr) else ClosedJaxpr(part, ()) for part in found]

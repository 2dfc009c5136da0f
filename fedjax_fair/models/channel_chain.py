"""Sums and products with an entry for every channel, one after another, as normalisations end: one operation.

y = (x - mean) * scale + shift is, in every channel of every example, y = a x + b. As JAX derives it, the mean, the
scale and the shift have each a sum over all pixels, of an array of its own. But all follow from two,

    sum y'      and      sum x y',

where y' is the gradient that reaches y: those towards b and a, which are functions of the few entries. The
gradients of the entries are so to rounding; y and the gradient of x are as they were.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Jaxpr, Literal

from fedjax_fair.models.pixel_sums import repeat_pixels

Read = Callable[[Any], Array]
"""From a variable of a program to its value."""
SHIFTS: dict[str, Callable[..., Array]] = {"add": jnp.add, "sub": jnp.subtract}
SCALES: dict[str, Callable[..., Array]] = {"mul": jnp.multiply, "div": jnp.divide}
LARGE, FEWER = 2**12, 4
"""Entries of x from which it pays, and how many times fewer a and b must have."""


def channel_chains(program: Jaxpr) -> tuple[dict[int, Callable[[Read], Array]], set[int]]:
    """By the place of a chain's last operation, how all of it is made; and the places of the others."""
    uses: Counter[Any] = Counter(v for step in program.eqns for v in step.invars if not isinstance(v, Literal))
    uses.update(v for v in program.outvars if not isinstance(v, Literal))
    ending: dict[Any, list[int]] = {}
    for at, step in enumerate(program.eqns):
        if (whole := _whole(step)) is not None:
            before = ending.pop(whole, []) if uses[whole] == 1 else []
            ending[step.outvars[0]] = [*before, at]
    chains = [places for places in ending.values() if _pays([program.eqns[at] for at in places])]
    found = {places[-1]: _together([program.eqns[at] for at in places]) for places in chains}
    return found, {at for places in chains for at in places[:-1]}


def _whole(step: Any) -> Any:
    """The operand that has an entry for each of the result's, where the other one has fewer; else None."""
    name = step.primitive.name
    if name not in SHIFTS | SCALES or not jnp.issubdtype((made := step.outvars[0].aval).dtype, jnp.floating):
        return None
    left, right = (v.aval.shape == made.shape for v in step.invars)
    if left == right or (name == "div" and right):
        return None
    whole = step.invars[0 if left else 1]
    return None if isinstance(whole, Literal) else whole


def _pays(steps: Sequence[Any]) -> bool:
    """Whether some are sums, others products, and the entries of two or more of them few."""
    whole = steps[0].outvars[0].aval
    few = [v.aval.shape for step in steps for v in step.invars if v.aval.shape not in ((), whole.shape)]
    names = {step.primitive.name for step in steps}
    if len(few) < 2 or names <= SHIFTS.keys() or names <= SCALES.keys() or whole.size < LARGE:
        return False
    return FEWER * math.prod(jnp.broadcast_shapes(*few)) <= whole.size


def _together(steps: Sequence[Any]) -> Callable[[Read], Array]:
    chain = _chain(steps)

    def make(read: Read) -> Array:
        x = read(_whole(steps[0]))
        others = [read(v) for step in steps for v in step.invars if v.aval.shape != x.shape]
        return chain(x, *[jnp.asarray(v, x.dtype).reshape(v.shape or (1,) * x.ndim) for v in others])

    return make


def _chain(steps: Sequence[Any]) -> Callable[..., Array]:
    """``(x, *entries) -> y``, with an entry, or an array of them, for each operation."""
    names = [step.primitive.name for step in steps]
    ahead = [step.invars[0] is _whole(step) for step in steps]
    functions = [(SHIFTS | SCALES)[name] for name in names]

    @jax.custom_jvp
    def chain(x: Array, *entries: Array) -> Array:
        for function, first, each in zip(functions, ahead, entries):
            x = function(x, each) if first else function(each, x)
        return x

    def line(*entries: Array) -> tuple[Array, Array]:
        """a and b of y = a x + b."""
        a, b = jnp.ones_like(entries[0]), jnp.zeros_like(entries[0])
        for name, function, first, each in zip(names, functions, ahead, entries):
            if name in SCALES:
                a, b = function(a, each), function(b, each)
            elif first:
                b = function(b, each)
            else:
                a, b = function(0, a), function(each, b)
        return a, b

    @chain.defjvp
    def along(primals: Sequence[Array], tangents: Sequence[Array]) -> tuple[Array, Array]:
        (x, *entries), (towards, *others) = primals, tangents
        (a, _), (to_a, to_b) = jax.jvp(line, tuple(entries), tuple(others))
        return chain(*primals), a * towards + x * _repeated(to_a, x) + _repeated(to_b, x)

    return chain


def _repeated(entries: Array, like: Array) -> Array:
    axes = tuple(axis for axis in range(-like.ndim, 0) if entries.shape[axis] != like.shape[axis])
    return repeat_pixels(entries, axes, tuple(like.shape[axis] for axis in axes))

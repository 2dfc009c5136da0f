"""Sums and products with an entry for every channel, one after another, as normalisations end: one operation.

y = (x - mean) * scale + shift is, in every channel of every example, a line in u = x - mean. As JAX derives it, the
mean, the scale and the shift have each a sum over all pixels, of an array of its own. But all follow from two,

    sum y'      and      sum u y',

where y' is the gradient that reaches y. Values keep their bits; gradients are the same to rounding. A model that
squares x as it is, for a variance that is a mean of squares, has lost as much to a large mean as the sum of x y'
loses; that is then taken in place of the other, and nothing is written for it.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Jaxpr, Literal

from fedjax_fair.models.pixel_sums import repeat_pixels
from fedjax_fair.numerics.bound import Read, uses

SHIFTS: dict[str, Callable[..., Array]] = {"add": jnp.add, "sub": jnp.subtract}
SCALES: dict[str, Callable[..., Array]] = {"mul": jnp.multiply, "div": jnp.divide}
LARGE, FEWER = 2**12, 4
"""Entries of x from which it pays, and how many times fewer all others together must have."""


def channel_chains(program: Jaxpr) -> tuple[dict[int, Callable[[Read], Array]], set[int]]:
    """By the place of a chain's last operation, how all of it is made; and the places of the others."""
    used = uses(program)
    ending: dict[Any, list[int]] = {}
    for at, step in enumerate(program.eqns):
        if (whole := _whole(step)) is not None:
            before = ending.get(whole, []) if used[whole] == 1 else []
            goes_on = bool(before) and _is_line([*(program.eqns[i] for i in before), step])
            ending[step.outvars[0]] = [*ending.pop(whole), at] if goes_on else [at]
    chains = [places for places in ending.values() if _pays([program.eqns[at] for at in places])]
    squared = _squared(program)
    found = {places[-1]: _together([program.eqns[at] for at in places], squared) for places in chains}
    return found, {at for places in chains for at in places[:-1]}


def _whole(step: Any) -> Any:
    """The operand that has an entry for each of the result's, where the other one has fewer; else None."""
    name = step.primitive.name
    if name not in SHIFTS | SCALES or not jnp.issubdtype((made := step.outvars[0].aval).dtype, jnp.floating):
        return None
    left, right = (v.aval.shape == made.shape for v in step.invars)
    if left == right or (right and name in ("sub", "div")):
        return None
    whole = step.invars[0 if left else 1]
    return None if isinstance(whole, Literal) else whole


def _is_line(steps: Sequence[Any]) -> bool:
    """Whether they are sums, then products, then sums: u is what the first sums make."""
    kinds = "".join("+" if step.primitive.name in SHIFTS else "*" for step in steps)
    return "+" not in kinds.strip("+")


def _pays(steps: Sequence[Any]) -> bool:
    """Whether some are sums, others products, and the entries of two or more of them few."""
    whole = steps[0].outvars[0].aval
    few = [v.aval.shape for step in steps for v in step.invars if v.aval.shape not in ((), whole.shape)]
    names = {step.primitive.name for step in steps}
    if len(few) < 2 or names <= SHIFTS.keys() or names <= SCALES.keys() or whole.size < LARGE:
        return False
    return FEWER * math.prod(jnp.broadcast_shapes(*few)) <= whole.size


def _squared(program: Jaxpr) -> set[Any]:
    """The variables whose squares the program takes, also after they got another shape."""
    shaped = {step.outvars[0]: step.invars[0] for step in program.eqns if step.primitive.name == "reshape"}
    squares = [step.invars[0] for step in program.eqns if step.primitive.name == "square"]
    return {shaped.get(v, v) for v in squares if not isinstance(v, Literal)}


def _together(steps: Sequence[Any], squared: set[Any]) -> Callable[[Read], Array]:
    chain = _chain([step.primitive.name for step in steps], centred=_whole(steps[0]) not in squared)
    entries = [v for step in steps for v in step.invars if v.aval.shape != step.outvars[0].aval.shape]

    def make(read: Read) -> Array:
        x = jnp.asarray(read(_whole(steps[0])))
        others = [jnp.asarray(read(v)).astype(x.dtype) for v in entries]
        return chain(x, *[v.reshape(v.shape or (1,) * x.ndim) for v in others])

    return make


def _chain(names: Sequence[str], centred: bool) -> Callable[..., Array]:
    """``(x, *entries) -> y``, with an array of entries for each operation; its gradients from u, or from x."""
    scales = [at for at, name in enumerate(names) if name in SCALES]
    before, after = range(scales[0]), range(scales[-1] + 1, len(names))
    signs = [-1 if name == "sub" else 1 for name in names]

    def play(x: Array, entries: Sequence[Array], places: Iterable[int]) -> Array:
        return functools.reduce(lambda x, at: (SHIFTS | SCALES)[names[at]](x, entries[at]), places, x)

    @jax.custom_jvp
    def chain(x: Array, *entries: Array) -> Array:
        return play(x, entries, range(len(names)))

    @functools.partial(chain.defjvp, symbolic_zeros=True)
    def along(primals: Sequence[Array], tangents: Sequence[Any]) -> tuple[Array, Array]:
        """y' = a x' + [a (shifts before)' + (shifts after)'] + (x + shifts before) a', but for what stays."""
        (x, *entries), (towards, *others) = primals, tangents
        changes = [at for at, tangent in enumerate(others) if not isinstance(tangent, SymbolicZero)]
        slope = lambda entries: play(jnp.ones_like(entries[scales[0]]), entries, scales)  # noqa: E731
        a = slope(entries)
        shifts = [a * (signs[at] * others[at]) for at in before if at in changes]
        shifts += [signs[at] * others[at] for at in after if at in changes]
        terms = [] if isinstance(towards, SymbolicZero) else [a * towards]
        if set(changes) & set(scales):
            given = [others[at] if at in changes else jnp.zeros_like(e) for at, e in enumerate(entries)]
            by_slope = jax.jvp(slope, (entries,), (given,))[1]
            terms.append((play(x, entries, before) if centred else x) * _repeated(by_slope, x))
            shifts += [] if centred else [play(jnp.zeros_like(entries[0]), entries, before) * by_slope]
        if shifts:
            terms.append(_repeated(functools.reduce(jnp.add, shifts), x))
        return chain(*primals), functools.reduce(jnp.add, terms)

    return chain


def _repeated(entries: Array, like: Array) -> Array:
    axes = tuple(axis for axis in range(-like.ndim, 0) if entries.shape[axis] != like.shape[axis])
    return repeat_pixels(entries, axes, tuple(like.shape[axis] for axis in axes))

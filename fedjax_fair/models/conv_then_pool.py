"""Where a traced program pools a convolution: both in one step, the bias and the ReLU after it.

The largest of ReLUs of sums is the ReLU of the sum with the largest, so that a quarter of the work is left, and
the four outputs of a window can be made by one product.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array
from jax.extend.core import Jaxpr, Literal

from fedjax_fair.local.transposed import programs
from fedjax_fair.models.any_convolution import convolve_any, why_not
from fedjax_fair.models.any_pooling import pools
from fedjax_fair.numerics.bound import Read, bind, uses


def chains(program: Jaxpr) -> tuple[dict[int, Callable[[Read], Array]], set[int]]:
    """By the place of a pooling, how it and all from its convolution on are made; and the places of the others."""
    found: dict[int, Callable[[Read], Array]] = {}
    skipped: set[int] = set()
    if not any(step.primitive.name == "conv_general_dilated" for step in program.eqns):
        return found, skipped
    made_at: dict[Any, int] = {v: at for at, step in enumerate(program.eqns) for v in step.outvars}
    used = uses(program)
    for at, step in enumerate(program.eqns):
        if step.primitive.name != "reduce_window_max" or not pools(step):
            continue
        window, between, came = step.params["window_dimensions"], list[int](), step.invars[0]
        while came in made_at and used[came] == 1:
            through = _through(program.eqns[made_at[came]], window)
            if through is None:
                break
            between.append(made_at[came])
            came = through
        start = made_at.get(came)
        if start is not None and used[came] == 1 and _is_pooled(program.eqns[start], window):
            found[at] = _together(program.eqns[start], [program.eqns[i] for i in reversed(between)])
            skipped |= {start, *between}
    return found, skipped


def _is_pooled(start: Any, window: tuple[int, ...]) -> bool:
    """Whether it is a convolution of two dimensions, whose windows of 2 x 2 are pooled."""
    if start.primitive.name != "conv_general_dilated" or why_not(start):
        return False
    _, _, *places = start.params["dimension_numbers"].out_spec
    return len(places) == 2 and all(side == (2 if axis in places else 1) for axis, side in enumerate(window))


def _through(step: Any, window: tuple[int, ...]) -> Any:
    """The input of a rising function of each entry, the same for all of a window; else None."""
    if step.primitive.name == "custom_jvp_call":
        return step.invars[0] if _is_relu(step) else None
    if step.primitive.name != "add":
        return None
    whole = step.outvars[0].aval.shape
    for this, other in (step.invars, step.invars[::-1]):
        flat = other.aval.shape or (1,) * len(whole)
        same = len(flat) == len(whole) and all(a == 1 for a, side in zip(flat, window) if side > 1)
        if same and this.aval.shape == whole and not isinstance(this, Literal):
            return this
    return None


def _is_relu(step: Any) -> bool:
    """Whether a function with a derivative of its own is ``jax.nn.relu``, its derivative included."""
    aval, inner = step.invars[0].aval, programs(step)
    given = jax.ShapeDtypeStruct(aval.shape, aval.dtype)
    plain = programs(jax.make_jaxpr(jax.nn.relu)(given).eqns[0])

    def slope(function: Callable[[Array], Array]) -> str:
        return str(jax.make_jaxpr(lambda x, along: jax.jvp(function, (x,), (along,)))(given, given))

    same = len(step.invars) == len(inner) == 1 and str(inner[0]) == str(plain[0])
    return same and slope(lambda x: bind(step, [x])[0]) == slope(jax.nn.relu)


def _together(start: Any, between: list[Any]) -> Callable[[Read], Array]:
    def make(read: Read) -> Array:
        x, kernel = map(read, start.invars)
        y = convolve_any(x, kernel, pool=True, **start.params)
        came = start.outvars[0]
        for step in between:
            if step.primitive.name == "add":
                y = y + next(read(v) for v in step.invars if v is not came)
            else:
                y = jax.nn.relu(y)
            came = step.outvars[0]
        return y

    return make

"""Gradients that a loop over time only adds to, computed after it; kernels' as products of matrices.

As JAX derives it, the loop through a recurrent network's derivative adds a product of a few rows to the gradient of
every kernel in every turn. The sum over all turns is one product of all their rows, which comes after the loop
here: rounds of a GRU of 128 units and batches of 10 take .74 of the time. :mod:`.kernel_gradients` then makes it.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax import Array
from jax.extend.core import Jaxpr, Literal

from fedjax_fair.local.kernel_gradients import bind_product, sums_rows
from fedjax_fair.local.transposed import programs
from fedjax_fair.numerics.bound import INLINED, bind, replayed, uses

ADDED = frozenset(["add_any", "add"])
MOVED = frozenset(["transpose", "reshape", "split"])
"""What may come between the sum of a turn and where it is added."""
FEW = 64
"""Rows of a turn up to which it pays: a product of 200 is itself so long that nothing was gained."""


class Later(NamedTuple):
    """A carry of a loop to which every turn adds a sum."""

    add: Any
    added: Any
    """The variable that it adds."""
    made: Sequence[Any]
    """The operations that it comes of: ``dot_general`` or ``reduce_sum``, then what moves its entries."""


def after_loops(function: Callable[..., Any], most: float = math.inf) -> Callable[..., Any]:
    """A function of arrays that plays another one's program, on a CPU with sums after loops for sums in them.

    Kernels' gradients that sum up to ``most`` rows over several axes become products of matrices. Not so inside
    loops that stay as they are.

    To rounding: a kernel's gradient is one sum over all turns and rows, not a sum of the turns' sums. The rows of
    all turns are kept for it, as those of the forward pass are. Loops under ``jax.checkpoint`` stay as they are,
    and sums that are converted to another type before they are added.
    """
    if jax.default_backend() != "cpu":  # not measured elsewhere
        return function
    return replayed(function, functools.partial(_run, most))


def _run(most: float, program: Jaxpr, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    known = _known(most, program, consts, inputs)
    return [_read(known, atom) for atom in program.outvars]


def _known(
    most: float, program: Jaxpr, consts: Sequence[Any], inputs: Sequence[Any], without: Sequence[Any] = ()
) -> dict:
    """The values of a program's variables, but those of operations that are left out."""
    known = dict(zip((*program.constvars, *program.invars), (*consts, *inputs)))
    for step in program.eqns:
        if all(step is not each for each in without):
            known.update(zip(step.outvars, _step(most, step, [_read(known, atom) for atom in step.invars])))
    return known


def _read(known: dict, atom: Any) -> Any:
    return atom.val if isinstance(atom, Literal) else known[atom]


def _step(most: float, step: Any, values: list[Any]) -> list[Any]:
    if later := _found(step):
        return _loop(most, step, later, values)
    if step.primitive.name in INLINED and any(_changes(most, inner) for inner in programs(step)):
        (inner, *_) = programs(step)
        return _run(most, inner.jaxpr, inner.consts, values)
    return bind_product(step, values, step.params, most)


def _changes(most: float, program: Any) -> bool:
    return any(
        _found(step)
        or sums_rows(step, [atom.aval for atom in step.invars], step.params, most)
        or (step.primitive.name in INLINED and any(_changes(most, inner) for inner in programs(step)))
        for step in program.jaxpr.eqns
    )


def _found(step: Any) -> dict[int, Later]:
    """The carries of a loop that it only adds sums to, by their place."""
    if step.primitive.name != "scan":
        return {}
    (inner,) = programs(step)
    body, first = inner.jaxpr, step.params["num_consts"]
    makers = {var: each for each in body.eqns for var in each.outvars}
    used = uses(body)
    found = {}
    for place in range(step.params["num_carry"]):
        carry, out = body.invars[first + place], body.outvars[place]
        add = None if isinstance(out, Literal) else makers.get(out)
        if add is None or add.primitive.name not in ADDED or carry not in add.invars:
            continue
        added = add.invars[1 - add.invars.index(carry)]
        made = _made_of(added, makers)
        if made and used[carry] == used[out] == 1:  # else the loop itself reads the sum
            found[place] = Later(add, added, made)
    sums = {place: each.made[0] for place, each in found.items()}
    same = _representatives([atom for each in sums.values() for atom in each.invars], body)
    stacked = set(body.invars[first + step.params["num_carry"] :])
    stacked.update(same[atom] for each in sums.values() if _is_large(each) for atom in each.invars)
    stacked.difference_update(body.constvars, body.invars[:first])  # the same in every turn
    return {place: each for place, each in found.items() if all(same[a] in stacked for a in sums[place].invars)}


def _made_of(added: Any, makers: dict[Any, Any]) -> list[Any]:
    """The operations from a sum over few rows to a variable; none where it is no such sum."""
    made: list[Any] = []
    while (step := None if isinstance(added, Literal) else makers.get(added)) is not None:
        made.insert(0, step)
        if step.primitive.name not in MOVED:
            return made if _is_sum(step) else []
        (added,) = step.invars
    return []


def _is_sum(step: Any) -> bool:
    """Whether it is over few rows, which more of them may join."""
    x = step.invars[0].aval
    if step.primitive.name == "dot_general":
        axes = step.params["dimension_numbers"][0][0]
    elif step.primitive.name == "reduce_sum":
        axes = step.params["axes"]
    else:
        return False
    few = len(axes) > 0 and math.prod(x.shape[axis] for axis in axes) <= FEW
    return few and not any(isinstance(atom, Literal) for atom in step.invars)


def _is_large(step: Any) -> bool:
    """Whether the sum is as large as its operands, whose rows of all turns are then kept: a kernel's gradient is.

    Other sums of the same rows come with it, such as a bias's gradient.
    """
    return all(atom.aval.size <= step.outvars[0].aval.size for atom in step.invars)


def _loop(most: float, step: Any, later: dict[int, Later], values: list[Any]) -> list[Any]:
    """The loop without these carries, and what they come to."""
    (inner,) = programs(step)
    body, n_consts, n_carry = inner.jaxpr, step.params["num_consts"], step.params["num_carry"]
    first = n_consts + n_carry
    consts, starts, xs = values[:n_consts], values[n_consts:first], values[first:]
    kept = [place for place in range(n_carry) if place not in later]
    parts = list(dict.fromkeys(atom for each in later.values() for atom in each.made[0].invars))
    given = dict(zip(body.invars[first:], xs))
    same = _representatives(parts, body)
    asked = [atom for atom in parts if atom not in given and same[atom] is atom]
    without = [each.add for each in later.values()]

    def turn(carry: list[Array], x: list[Array]) -> tuple[list[Array], tuple[list[Array], list[Array]]]:
        now = dict(zip(kept, carry))
        unread = [now.get(place, starts[place]) for place in range(n_carry)]
        known = _known(most, body, inner.consts, [*consts, *unread, *x], without)
        made = [_read(known, body.outvars[place]) for place in kept]
        return made, ([_read(known, atom) for atom in body.outvars[n_carry:]], [known[atom] for atom in asked])

    settings = {name: step.params[name] for name in ("length", "reverse", "unroll")}
    ends, (ys, rows) = jax.lax.scan(turn, [starts[place] for place in kept], xs, **settings)
    stacked = given | dict(zip(asked, rows))
    stacked |= {atom: stacked[same[atom]] for atom in parts}
    totals: dict[Any, Array] = {}
    for each in later.values():
        total, *moves = each.made
        if total.outvars[0] not in totals:
            totals[total.outvars[0]] = _over_time(most, total, [stacked[atom] for atom in total.invars])
        for move in moves:
            if move.outvars[0] not in totals:
                totals.update(zip(move.outvars, bind(move, [totals[move.invars[0]]])))
    carries = dict(zip(kept, ends))
    carries |= {place: bind(each.add, [starts[place], totals[each.added]])[0] for place, each in later.items()}
    return [*(carries[place] for place in range(n_carry)), *ys]


def _representatives(atoms: Sequence[Any], body: Jaxpr) -> dict[Any, Any]:
    """For each variable the first that is the same arrays put together: as LSTMs do with their gates."""
    makers = {step.outvars[0]: step for step in body.eqns if step.primitive.name == "concatenate"}

    def are_same(one: Any, other: Any) -> bool:
        first, second = makers.get(one), makers.get(other)
        if first is None or second is None:
            return one is other
        return first.invars == second.invars and first.params == second.params

    return {atom: next(each for each in atoms if are_same(each, atom)) for atom in atoms}


def _over_time(most: float, step: Any, values: Sequence[Array]) -> Array:
    """The operation's sum over all turns, of its operands [T, ...] in all of them."""
    settings = dict(step.params)
    if step.primitive.name == "reduce_sum":
        settings["axes"] = (0, *(axis + 1 for axis in settings["axes"]))
    else:
        (left, right), aside = settings["dimension_numbers"]
        summed = tuple((0, *(axis + 1 for axis in axes)) for axes in (left, right))
        settings["dimension_numbers"] = summed, tuple(tuple(axis + 1 for axis in axes) for axes in aside)
    return bind_product(step, values, settings, most)[0]

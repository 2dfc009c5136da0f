"""A model whose traced program has, on a CPU, other operations in the place of those that are slow inside a loop.

Convolutions become products of matrices (:mod:`fedjax_fair.models.any_convolution`), poolings maxima of a reshaped
image (:mod:`fedjax_fair.models.any_pooling`), together where one follows the other
(:mod:`fedjax_fair.models.conv_then_pool`). Sums over the groups of a normalisation are taken in two steps, and the
sums and products that it ends with become one operation (:mod:`fedjax_fair.models.channel_chain`). The program is
rewritten before it is differentiated, so that gradients are of the new operations, too.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from fedjax_fair.local.transposed import programs
from fedjax_fair.models.any_convolution import convolve_any, why_not
from fedjax_fair.models.any_pooling import pool_any, pools
from fedjax_fair.models.channel_chain import channel_chains
from fedjax_fair.models.conv_then_pool import chains
from fedjax_fair.models.flax_modules import Model
from fedjax_fair.models.pixel_sums import sum_pixels
from fedjax_fair.models.stock import is_stock
from fedjax_fair.numerics.bound import INLINED, bind, replayed
from fedjax_fair.types import Params

AGAIN = frozenset(["checkpoint", "remat", "remat2"])
LOOPS = frozenset(["scan", "while", "cond"])
RULED = frozenset(["custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"])
"""Functions with a derivative of their own, which is kept; what is inside them stays as it is."""
LARGE, FEW = 2**12, 32
"""Entries of an array, and channels of a group, from and up to which a sum over groups is taken in two steps."""


def fast(net: Model) -> Model:
    """The same model, to rounding, faster inside a loop on a CPU; on an accelerator the model itself."""
    if jax.default_backend() != "cpu" or is_stock(net):
        return net
    return net._replace(apply=rewritten(net.apply))


def rewritten(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays that plays the rewritten program of another one."""
    return replayed(function, _run)


def slow_parts(net: Model, params: Params, x: Any) -> list[str]:
    """A sentence where a model has convolutions that stay as they are, given the shapes of its inputs."""
    if jax.default_backend() != "cpu" or is_stock(net):
        return []
    program = jax.make_jaxpr(lambda params, x: net.apply(params, x, None))(params, x)
    reasons = sorted(set(_kept(program.jaxpr)))
    if not reasons:
        return []
    return [
        f"model has convolutions that stay as they are, because of {' and '.join(reasons)}: inside a loop on a CPU "
        "they take some twenty times as long as others (jax-ml/jax#12868)"
    ]


def _kept(program: Jaxpr) -> Iterator[str]:
    for step in program.eqns:
        name = step.primitive.name
        if name == "conv_general_dilated" and (reason := why_not(step)):
            yield reason
        for inner in programs(step):
            if name in INLINED | AGAIN | LOOPS:
                yield from _kept(inner.jaxpr)
            elif _has_convolution(inner.jaxpr):
                yield "a derivative of their own" if name in RULED else f"the operation {name} around them"


def _has_convolution(program: Jaxpr) -> bool:
    return any(
        step.primitive.name == "conv_general_dilated"
        or any(_has_convolution(inner.jaxpr) for inner in programs(step))
        for step in program.eqns
    )


def _changes(program: Jaxpr) -> bool:
    alone = any(_new(step) is not None or _changes_inside(step) for step in program.eqns)
    return alone or bool(channel_chains(program)[0])


def _changes_inside(step: Any) -> bool:
    return step.primitive.name in INLINED | AGAIN | LOOPS and any(_changes(part.jaxpr) for part in programs(step))


def _new(step: Any) -> Callable[..., Array] | None:
    """What takes the place of an operation, if anything."""
    name, settings = step.primitive.name, step.params
    if name == "conv_general_dilated" and not why_not(step):
        return lambda x, kernel: convolve_any(x, kernel, **settings)
    if pools(step):
        return lambda x: pool_any(step, x)
    if name == "reduce_sum" and _is_over_groups(step):
        return lambda x: _in_two(x, settings["axes"])
    return None


def _is_over_groups(step: Any) -> bool:
    """Whether a sum is over the last axis and some that end before the one before it: group normalisation's."""
    x, axes = step.invars[0].aval, sorted(step.params["axes"])
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return False  # whole numbers are summed as they are
    others, apart = axes[:-1], x.ndim - 2
    return (
        len(others) > 0
        and axes[-1] == x.ndim - 1
        and others == [*range(apart - len(others), apart)]
        and x.size >= LARGE
        and x.shape[-1] <= FEW
    )


def _in_two(x: Array, axes: Sequence[int]) -> Array:
    """First over all axes but the last, whose few entries a processor would add one by one."""
    first, groups = min(axes), x.shape[-2:]
    pixels = x.reshape(*x.shape[:-2], math.prod(groups))
    sums = sum_pixels(pixels, tuple(range(first - pixels.ndim, -1)))
    return sums.reshape(*x.shape[:first], *groups).sum(-1)


def _run(program: Jaxpr, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    known = dict(zip((*program.constvars, *program.invars), (*consts, *inputs)))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else known[atom]

    (pooled, skipped), (chained, others) = chains(program), channel_chains(program)
    together, skipped = pooled | chained, skipped | others
    for at, step in enumerate(program.eqns):
        if at in together:
            known[step.outvars[0]] = together[at](read)
        elif at not in skipped:
            known.update(zip(step.outvars, _step(step, [read(atom) for atom in step.invars])))
    return [read(atom) for atom in program.outvars]


def _step(step: Any, values: list[Any]) -> list[Any]:
    name, settings, new = step.primitive.name, step.params, _new(step)
    if new is not None:
        return [new(*values)]
    if _changes_inside(step):
        (inner, *_) = programs(step)
        if name in LOOPS:
            settings = {key: _inside(value) for key, value in settings.items()}
        else:
            whole = lambda *values: _run(inner.jaxpr, inner.consts, values)  # noqa: E731
            again = {key: settings[key] for key in ("prevent_cse", "policy") if key in settings}
            return (jax.checkpoint(whole, **again) if name in AGAIN else whole)(*values)
    return bind(step, values, settings)


def _inside(value: Any) -> Any:
    """The programs of a loop or of branches, rewritten."""
    if isinstance(value, tuple):
        return tuple(map(_inside, value))
    if not isinstance(value, ClosedJaxpr) or not _changes(value.jaxpr):
        return value
    given = [
        jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))
        for aval in value.in_avals
    ]
    return jax.make_jaxpr(lambda *values: _run(value.jaxpr, value.consts, values))(*given)

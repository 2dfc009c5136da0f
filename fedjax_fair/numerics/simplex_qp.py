"""Quadratic programs on a masked simplex: an accelerated projected gradient that ends where it has arrived."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.numerics.solvers import project_box_simplex, project_simplex, uniform_over

STILL = 16  # roundings of the largest entry; rounding alone moves a solver's iterate by two or three


class Quadratic(NamedTuple):
    """A quadratic form on the simplex, prepared by :func:`quadratic`."""

    hessian: Array  # f[M, M], without what is common to its rows and columns
    common: Array  # f[M], which belongs to the linear term
    step: Array  # f[]


def qp_simplex(hessian: Array, linear: Array, start: Array, where: Array, iterations: int = 300) -> Array:
    r"""Minimise :math:`\tfrac12 p^\top Q p + c^\top p` over the simplex on ``where``; Q f[M, M] is PSD."""
    return descend_on_simplex(quadratic(hessian, where), linear, start, where, iterations)


def descend_on_simplex(of: Quadratic, linear: Array, start: Array, where: Array, iterations: int = 300) -> Array:
    """:func:`qp_simplex` of a Q that is prepared: several linear terms share what is made of it."""
    return _fista(of, linear, start, lambda y: project_simplex(y, where), iterations)


def qp_box_simplex(
    hessian: Array, linear: Array, start: Array, low: Array, high: Array, where: Array, iterations: int = 300
) -> Array:
    """The same with ``low <= p <= high`` besides; feasible iff ``sum low <= 1 <= sum high`` over ``where``."""
    of = quadratic(hessian, where)
    return _fista(of, linear, start, lambda y: project_box_simplex(y, low, high, where), iterations)


class Descent(NamedTuple):
    """An accelerated projected gradient on its way."""

    k: Array  # i32[], steps made
    still: Array  # bool[], whether the last moved nothing beyond rounding
    p: Array
    ahead: Array  # where the next gradient is taken
    t: Array  # f[], the momentum's


def quadratic(hessian: Array, where: Array) -> Quadratic:
    """Q over ``where`` without its common part, and a step that its curvature allows.

    The sum of p is given, so what is common to all rows and columns of Q only shifts the objective: with the row
    means in c it is out of Q. Of the Gram matrix of updates that are much alike it is all but a little, and would
    make the step a little of what it may be.
    """
    pairs, everybody = where[:, None] & where[None, :], uniform_over(where, hessian.dtype)
    common = jnp.where(pairs, hessian, 0) @ everybody
    whole = jnp.trace(jnp.where(pairs, hessian, 0))
    hessian = jnp.where(pairs, hessian - common[:, None] - common[None, :] + everybody @ common, 0)
    curvature = _largest_eigenvalue(hessian)
    rounding = 4 * jnp.finfo(hessian.dtype).eps * whole  # where no more is left, it must not decide
    return Quadratic(
        hessian, common, 1 / jnp.where(curvature > rounding, curvature, jnp.where(whole > 0, whole, 1))
    )


def _fista(of: Quadratic, linear: Array, start: Array, project: Callable[[Array], Array], iterations: int) -> Array:
    """Accelerated projected gradient whose step is 1 / a bound on the curvature of Q without its common part.

    The momentum starts afresh whenever it points uphill (adaptive restart). Ends early at a fixed point: where
    a step moves neither the iterate nor the point ahead, from which it was made, beyond rounding.
    """
    linear = linear + of.common

    def goes_on(now: Descent) -> Array:
        return (now.k < iterations) & ~now.still

    def improve(now: Descent) -> Descent:
        better = project(now.ahead - of.step * (of.hessian @ now.ahead + linear))
        uphill = ((now.ahead - better) * (better - now.p)).sum() > 0
        t = jnp.where(uphill, 1, now.t)
        t_next = (1 + jnp.sqrt(1 + 4 * t * t)) / 2
        moved = jnp.maximum(jnp.abs(better - now.p), jnp.abs(better - now.ahead)).max()
        still = moved <= STILL * jnp.finfo(better.dtype).eps * better.max()
        return Descent(now.k + 1, still, better, better + (t - 1) / t_next * (better - now.p), t_next)

    start = project(start)
    begun = Descent(jnp.zeros((), jnp.int32), jnp.zeros((), bool), start, start, jnp.ones((), start.dtype))
    return jax.lax.while_loop(goes_on, improve, begun).p


def _largest_eigenvalue(hessian: Array) -> Array:
    """An upper bound of a PSD matrix's largest eigenvalue, at most m^(1/8) times it."""
    trace = jnp.trace(hessian)
    scale = jnp.where(trace > 0, trace, 1)
    square = (hessian / scale) @ (hessian / scale)
    fourth = square @ square
    return scale * jnp.sqrt(jnp.sqrt(jnp.sqrt(jnp.square(fourth).sum())))

"""Quadratic programs on a masked simplex: an accelerated projected gradient that ends where it has arrived."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.numerics.solvers import normalize, project_box_simplex, project_simplex

SHORTEST = 1e-6  # of the largest d in `quadratic`: what is less may be rounding alone
STILL = 16  # roundings of the largest entry; rounding alone moves a solver's iterate by two or three


class Quadratic(NamedTuple):
    """A quadratic form on the simplex, prepared by :func:`quadratic`."""

    hessian: Array  # f[M, M], without what is common to its rows and columns
    common: Array  # f[M], which belongs to the linear term
    step: Array  # f[M], of every entry, or f[], of all


def qp_simplex(
    hessian: Array, linear: Array, start: Array, where: Array, iterations: int = 300, even: bool = False
) -> Array:
    r"""Minimise :math:`\tfrac12 p^\top Q p + c^\top p` over the simplex on ``where``; Q f[M, M] is PSD.

    ``even`` as :func:`quadratic` has it.
    """
    return descend_on_simplex(quadratic(hessian, where, even), linear, start, where, iterations)


def descend_on_simplex(of: Quadratic, linear: Array, start: Array, where: Array, iterations: int = 300) -> Array:
    """:func:`qp_simplex` of a Q that is prepared: several linear terms share what is made of it."""
    pace = of.step / of.step.max() if of.step.ndim else 1.0
    return _fista(of, linear, start, lambda y: project_simplex(y, where, pace=pace), iterations)


def qp_box_simplex(
    hessian: Array, linear: Array, start: Array, low: Array, high: Array, where: Array, iterations: int = 300
) -> Array:
    """The same with ``low <= p <= high`` besides; feasible iff ``sum low <= 1 <= sum high`` over ``where``."""
    of = quadratic(hessian, where, even=True)
    return _fista(of, linear, start, lambda y: project_box_simplex(y, low, high, where), iterations)


class Descent(NamedTuple):
    """An accelerated projected gradient on its way."""

    k: Array  # i32[], steps made
    still: Array  # bool[], whether the last moved nothing beyond rounding
    p: Array
    ahead: Array  # where the next gradient is taken
    t: Array  # f[], the momentum's


def quadratic(hessian: Array, where: Array, even: bool = False) -> Quadratic:
    r"""Q over ``where`` without what is common to its rows and columns, and the steps that its curvature allows.

    The sum of p is given, so that for any w whose sum is 1

    .. math:: p^\top Q p = \sum_{ij} p_i p_j \langle g_i - \bar g, g_j - \bar g \rangle + 2\, p^\top Q w
              - w^\top Q w, \qquad \bar g = \sum_i w_i g_i, \quad Q_{ij} = \langle g_i, g_j \rangle

    The first term's matrix H is what is left of Q. Of updates that are much alike it is a little of it, and allows
    steps that are as much longer. With :math:`w_i \propto 1 / Q_{ii}` long updates are not in all the others'.

    Every entry has a step of its own, in inverse proportion to :math:`d_i = H_{ii}`, so that short updates beside
    long ones arrive as soon: with :math:`\kappa` the largest eigenvalue of :math:`H_{ij} / \sqrt{d_i d_j}` it is
    :math:`x^\top H x \le \kappa \sum_i d_i x_i^2`. With ``even``, for vectors of one length, all have the same;
    that takes a tenth less time.
    """
    pairs, own = where[:, None] & where[None, :], jnp.where(where, jnp.diagonal(hessian), 0)
    rounding, whole = jnp.finfo(own.dtype).eps, own.sum()
    safe = jnp.where(whole > 0, whole, 1)
    middle = normalize(1 / jnp.maximum(own / safe, rounding), where)
    common = jnp.where(pairs, hessian, 0) @ middle
    left = jnp.where(pairs, hessian - common[:, None] - common[None, :] + middle @ common, 0)
    own = jnp.diagonal(left)
    longest = own.max()
    part = jnp.maximum(own / jnp.where(longest > 0, longest, 1), SHORTEST)
    part = jnp.ones((), own.dtype) if even else jnp.where(where & (longest > 0), part, 1)
    root = jnp.broadcast_to(jnp.sqrt(part), own.shape)
    curvature = _largest_eigenvalue(left / root[:, None] / root[None, :])
    rounded = curvature <= 4 * rounding * whole  # where no more is left, it must not decide
    return Quadratic(left, common - middle @ common, 1 / jnp.where(rounded, safe, curvature * part))


def _fista(of: Quadratic, linear: Array, start: Array, project: Callable[[Array], Array], iterations: int) -> Array:
    """Accelerated projected gradient by the steps of :func:`quadratic`, in the distance that they measure.

    The momentum starts afresh whenever it points uphill (adaptive restart). Ends early at a fixed point: where
    a step moves neither the iterate nor the point ahead, from which it was made, beyond rounding.
    """
    linear, slow = linear + of.common, of.step.min() / of.step

    def goes_on(now: Descent) -> Array:
        return (now.k < iterations) & ~now.still

    def improve(now: Descent) -> Descent:
        better = project(now.ahead - of.step * (of.hessian @ now.ahead + linear))
        uphill = ((now.ahead - better) * (better - now.p) * slow).sum() > 0
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

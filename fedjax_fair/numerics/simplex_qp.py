"""Quadratic programs on a masked simplex: an accelerated projected gradient that ends where it has arrived."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.numerics.solvers import normalize, project_box_simplex, project_simplex, sums

SHORTEST = 1e-6  # part of the largest squared distance: vectors that are nearer count as if they were so far
MORE = 1.1  # times the curvature that a step met: half as many steps fail as with 1, and they are hardly shorter
STILL = 16  # roundings of the largest p and of the largest p / s; rounding alone moves an iterate by two or three


class Quadratic(NamedTuple):
    """A quadratic form on the simplex, prepared by :func:`quadratic`."""

    hessian: Array  # f[M, M], without what is common to its rows and columns
    common: Array  # f[M], which belongs to the linear term
    pace: Array | None  # f[M], in proportion to the steps, at most 1; None: 1 of all
    least: Array  # f[], the curvature that steps go by at first
    most: Array  # f[], and at most: it is enough for every step


def qp_simplex(
    hessian: Array, linear: Array, start: Array, where: Array, iterations: int = 300, even: bool = False
) -> Array:
    r"""Minimise :math:`\tfrac12 p^\top Q p + c^\top p` over the simplex on ``where``; Q f[M, M] is PSD.

    ``even`` as :func:`quadratic` has it.
    """
    return descend_on_simplex(quadratic(hessian, where, even), linear, start, where, iterations)


def descend_on_simplex(of: Quadratic, linear: Array, start: Array, where: Array, iterations: int = 300) -> Array:
    """:func:`qp_simplex` of a Q that is prepared: several linear terms share what is made of it."""
    return _fista(of, linear, start, lambda y: project_simplex(y, where, pace=of.pace), iterations)


def qp_box_simplex(
    hessian: Array, linear: Array, start: Array, low: Array, high: Array, where: Array, iterations: int = 300
) -> Array:
    """The same with ``low <= p <= high`` besides; feasible iff ``sum low <= 1 <= sum high`` over ``where``."""
    of = quadratic(hessian, where, even=True)
    return _fista(of, linear, start, lambda y: project_box_simplex(y, low, high, where), iterations)


class Descent(NamedTuple):
    """An accelerated projected gradient on its way."""

    k: Array  # i32[], steps tried
    still: Array  # bool[], whether the last moved nothing beyond rounding
    curvature: Array  # f[], that the next step goes by
    t: Array  # f[], the momentum's
    p: Array
    ahead: Array  # where the next gradient is taken
    pull: Array  # H p
    pull_ahead: Array  # H times the point ahead


def quadratic(hessian: Array, where: Array, even: bool = False) -> Quadratic:
    r"""Q over ``where`` without what is common to its rows and columns, and the steps that its curvature allows.

    The sum of p is given, so that for any w whose sum is 1

    .. math:: p^\top Q p = p^\top H p + 2\, p^\top Q w - w^\top Q w, \qquad
              H_{ij} = \langle g_i - \bar g, g_j - \bar g \rangle, \quad \bar g = \sum_i w_i g_i, \quad
              Q_{ij} = \langle g_i, g_j \rangle

    Of updates that are much alike H is a little of Q, and allows steps that are as much longer. An entry's step is
    its pace :math:`s_i` over a curvature :math:`\kappa`. The largest eigenvalue of :math:`\sqrt{s_i s_j} H_{ij}` is
    always enough: by that :math:`x^\top H x \le \kappa \sum_i x_i^2 / s_i`. Steps have the sum 0, and over such x
    no other w than one in proportion to s has a smaller bound. With ``even``, for vectors of one length, s is 1;
    else it is that of :func:`_paces`, with which short vectors beside long ones arrive as soon.
    """
    hessian = jnp.where(where[:, None] & where[None, :], hessian, 0)
    own = jnp.diagonal(hessian)
    pace = jnp.ones_like(own) if even else _paces(hessian, where)
    middle = normalize(pace, where)
    common = hessian @ middle
    left = hessian - common[:, None] - common[None, :] + middle @ common
    left = jnp.where(where[:, None] & where[None, :], left, 0)
    root = jnp.sqrt(pace)
    bounds = _curvatures(left * root[:, None] * root[None, :])
    rounded = (jnp.diagonal(left) <= _rounding(own, middle)).all()  # where no more is left, it must not decide
    pace = jnp.where(rounded, 1, pace)
    whole = jnp.where(own.sum() > 0, own.sum(), 1)
    least, most = (jnp.where(rounded, whole, bound) for bound in bounds)
    return Quadratic(left, common - middle @ common, None if even else pace, least, most)


def _paces(hessian: Array, where: Array) -> Array:
    r""":math:`s_i \propto 1 / \|g_i - \bar g\|^2`, the largest 1.

    In this mean each vector weighs 1 over its square: else one long vector would make all distances long.
    """
    own, whole = jnp.diagonal(hessian), jnp.trace(hessian)
    hessian, own = (values / jnp.where(whole > 0, whole, 1) for values in (hessian, own))
    middle = normalize(1 / jnp.maximum(own, jnp.finfo(own.dtype).eps), where)
    common = hessian @ middle
    apart = jnp.maximum(own - 2 * common + middle @ common, _rounding(own, middle))
    farthest = jnp.max(apart, where=where, initial=0)
    apart = jnp.where(where & (farthest > 0), jnp.maximum(apart, SHORTEST * farthest), 1)
    return jnp.min(apart, where=where, initial=jnp.inf) / apart


def _rounding(own: Array, middle: Array) -> Array:
    """Squares of distances up to which rounding alone may have made them, of vectors of squares ``own``."""
    return 16 * jnp.finfo(own.dtype).eps * (own + middle @ own)


def _fista(of: Quadratic, linear: Array, start: Array, project: Callable[[Array], Array], iterations: int) -> Array:
    r"""Accelerated projected gradient by steps that are as long as the curvature they meet allows.

    A step d by the curvature :math:`\kappa` is made if :math:`d^\top H d \le \kappa \sum_i d_i^2 / s_i`, which is
    all that the method's bound asks for. Else it is tried again from p, by a little more than what it met. The
    momentum starts afresh then, and whenever it points uphill (adaptive restart). Ends early at a fixed point:
    where a step moves no entry of the iterate or of the point ahead, from which it was made, beyond rounding.
    """
    linear = linear + of.common
    pace = jnp.ones((), start.dtype) if of.pace is None else of.pace
    rounding = jnp.finfo(start.dtype).eps

    def goes_on(now: Descent) -> Array:
        return (now.k < iterations) & ~now.still

    def improve(now: Descent) -> Descent:
        better = project(now.ahead - pace / now.curvature * (now.pull_ahead + linear))
        pull = better @ of.hessian  # in this order a CPU adds up rows, many entries at a time
        step, forth = better - now.ahead, better - now.p
        bent, long, onwards = sums(step * (pull - now.pull_ahead), step * step / pace, step * forth / pace)
        # Each time kappa grows by a tenth at least: steps that fail by rounding, near the end, are few.
        too_far = (bent > now.curvature * long) & (now.curvature < of.most)
        little = STILL * rounding * jnp.minimum(better.max(), pace * (better / pace).max())
        still = (jnp.maximum(jnp.abs(forth), jnp.abs(step)) <= little).all() & ~too_far
        curvature = jnp.where(too_far, jnp.minimum(MORE * bent / long, of.most), now.curvature)
        p, pull = jnp.where(too_far, now.p, better), jnp.where(too_far, now.pull, pull)
        t = jnp.where(too_far | (onwards < 0), 1, now.t)
        t_next = (1 + jnp.sqrt(1 + 4 * t * t)) / 2
        on = (t - 1) / t_next
        ahead, pull_ahead = p + on * (p - now.p), pull + on * (pull - now.pull)
        return Descent(now.k + 1, still, curvature, t_next, p, ahead, pull, pull_ahead)

    p, one = project(start), jnp.ones((), start.dtype)
    pull = p @ of.hessian
    begun = Descent(jnp.zeros((), jnp.int32), jnp.zeros((), bool), of.least, one, p, p, pull, pull)
    return jax.lax.while_loop(goes_on, improve, begun).p


def _curvatures(hessian: Array) -> tuple[Array, Array]:
    r"""A PSD matrix's largest eigenvalue is at least :math:`\sum \lambda^2 / \sum \lambda`, and at most
    :math:`\sqrt{\sum \lambda^2}`. The second holds for what rounding leaves of such a matrix, too."""
    largest = jnp.maximum(jnp.abs(hessian).max(), jnp.finfo(hessian.dtype).tiny)
    root = jnp.maximum(jnp.sqrt(jnp.square(hessian / largest).sum()), 1)  # below 1 only where all are 0
    trace = jnp.maximum(jnp.trace(hessian / largest), root)  # below the root only by rounding
    return largest * root * (root / trace), largest * root

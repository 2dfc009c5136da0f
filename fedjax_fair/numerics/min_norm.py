"""The shortest vector of a convex hull, from inner products alone: the step of multi-objective descent."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.numerics.simplex_qp import descend_on_simplex, qp_simplex, quadratic
from fedjax_fair.numerics.solvers import scatter, uniform_over

ROUNDING = 4
"""Roundings of the largest sum up to which a squared length is 0, for one or two decide."""


def min_norm(
    gram: Array, where: Array, iterations: int = 300, even: bool = False, start: Array | None = None
) -> Array:
    r"""The weights, on the simplex over ``where``, of :math:`\min_\lambda \|\sum_i \lambda_i g_i\|`.

    ``gram`` f[M, M] holds :math:`\langle g_i, g_j \rangle`. ``even``: faster for vectors of one length, slower for
    others. The search sets out from the simplex's point next to ``start`` f[M], by default from equal weights.
    """
    start = uniform_over(where, gram.dtype) if start is None else start
    return qp_simplex(gram, jnp.zeros_like(gram[0]), start, where, iterations, even)


def min_norm_with_row(
    gram: Array, row: Array, where: Array, guided: Array, start: Array, iterations: int = 300
) -> tuple[Array, Array]:
    r"""The same, ``even``, where one more vector, :math:`\sum_i` ``row``:math:`_i g_i`, may belong to the hull.

    Returns the coefficients of the :math:`g_i`, f[M], of which some may be negative, and the weights on the simplex
    that they come of, f[M + 1], the row's last, as in ``start``. The vector belongs where ``guided``, bool[]. From
    the weights of the round before the search takes as few as a twelfth of the steps.
    """
    row = jnp.where(where, row, 0)
    with_all = gram @ row
    beside = jnp.concatenate([gram, with_all[None]])
    square = jnp.concatenate([beside, jnp.append(with_all, row @ with_all)[:, None]], axis=1)
    mixture = min_norm(square, jnp.append(where, guided), iterations, even=True, start=start)
    return mixture[:-1] + mixture[-1] * row, mixture


def known_weights(table: Array, ids: Array) -> Array:
    """What ``ids`` weighed last, f[M + 1], and a row, of a table f[N + 1] of :func:`noted_weights`."""
    return jnp.append(table[ids], table[-1])


def noted_weights(table: Array, ids: Array, mixture: Array, where: Array) -> Array:
    """A table f[N + 1] of what each client weighed last, and a row, with the weights f[M + 1] of ``ids`` in it.

    Weights that are not finite, as of updates whose products overflow, would stay in it: they are not noted.
    """
    noted = scatter(table, ids, mixture[:-1], where).at[-1].set(mixture[-1])
    return jnp.where(jnp.isfinite(mixture).all(), noted, table)


def squared_length(mixture: Array, gram: Array) -> Array:
    r""":math:`\|\sum_i \lambda_i g_i\|^2`; 0 where rounding alone may have made it.

    It goes by the largest sum that these coefficients could make: those of vectors that nearly cancel are large.
    """
    largest = jnp.abs(mixture) @ jnp.sqrt(jnp.maximum(jnp.diagonal(gram), 0))
    square = mixture @ gram @ mixture
    return jnp.where(square > ROUNDING * jnp.finfo(gram.dtype).eps * largest**2, square, 0)


def min_norm_in_halfspace(gram: Array, slope: Array, where: Array, iterations: int = 300) -> Array:
    r"""The weights of the shortest mixture with :math:`\sum_i \lambda_i` ``slope``:math:`_i \ge 0`.

    Where the shortest of all breaks that, it is :math:`\min_\lambda \tfrac12 \|\sum_i \lambda_i g_i\|^2 - \nu
    \sum_i \lambda_i` ``slope``:math:`_i` for the smallest multiplier :math:`\nu` that does not. Where no slope is
    above 0, nothing can be done: the shortest of all.
    """
    largest = jnp.max(jnp.abs(slope), where=where, initial=0)
    slope = jnp.where(where, slope / jnp.where(largest > 0, largest, 1), 0)
    steepest = jnp.argmax(jnp.where(where, slope, -jnp.inf))
    feasible = slope[steepest] > 0
    of, nothing = quadratic(gram, where), jnp.zeros_like(slope)
    shortest = descend_on_simplex(of, nothing, uniform_over(where, gram.dtype), where, iterations)
    # Above this multiplier the steepest vector alone would be better than any mixture that breaks the bound.
    enough = gram[steepest, steepest] / (2 * jnp.where(feasible, slope[steepest], 1))

    def search() -> Array:
        return _least_multiplier(
            lambda nu, start: descend_on_simplex(of, -nu * slope, start, where, iterations), slope, shortest, enough
        )

    return jax.lax.cond(feasible & (shortest @ slope < 0), search, lambda: shortest)


class Bracket(NamedTuple):
    """Multipliers below and above the one that is looked for, and what they give."""

    k: Array
    low: Array
    short: Array  # sum of slopes at low, below 0; halved every time that low stays put
    high: Array
    over: Array  # at high, at least 0; halved likewise
    below: Array  # the mixture at low
    mixture: Array  # at high


def _least_multiplier(
    mixture: Callable[[Array, Array], Array], slope: Array, shortest: Array, enough: Array
) -> Array:
    """The mixture at the root of its sum of slopes, which grows with the multiplier: the Illinois method.

    False position, which halves the value at an end that stays put; the few pieces of the sum are nearly straight.
    """
    close = jnp.sqrt(
        jnp.finfo(slope.dtype).eps
    )  # of the steepest slope, which is 1; on the side that keeps the bound

    def goes_on(now: Bracket) -> Array:
        return (now.k < 60) & (now.mixture @ slope > close) & (now.high - now.low > close**2 * enough)

    def narrow(now: Bracket) -> Bracket:
        nu = (now.low * now.over - now.high * now.short) / (now.over - now.short)
        part = (nu - now.low) / (now.high - now.low)
        # Mixtures lie on straight pieces, too: between two on the same one the solver has next to nothing to do.
        found = mixture(nu, now.below + part * (now.mixture - now.below))
        sum = found @ slope
        short = sum < 0
        return Bracket(
            now.k + 1,
            jnp.where(short, nu, now.low),
            jnp.where(short, sum, now.short / 2),
            jnp.where(short, now.high, nu),
            jnp.where(short, now.over / 2, sum),
            jnp.where(short, found, now.below),
            jnp.where(short, now.mixture, found),
        )

    most = mixture(enough, shortest)
    zero = jnp.zeros((), slope.dtype)
    start = Bracket(jnp.zeros((), jnp.int32), zero, shortest @ slope, enough, most @ slope, shortest, most)
    return jax.lax.while_loop(goes_on, narrow, start).mixture

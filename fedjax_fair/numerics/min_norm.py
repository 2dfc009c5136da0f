"""The shortest vector of a convex hull, from inner products alone: the step of multi-objective descent."""

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.numerics.solvers import bisect, qp_simplex, uniform_over


def min_norm(gram: Array, where: Array, iterations: int = 300) -> Array:
    r"""The weights, on the simplex over ``where``, of :math:`\min_\lambda \|\sum_i \lambda_i g_i\|`.

    ``gram`` f[M, M] holds :math:`\langle g_i, g_j \rangle`.
    """
    return qp_simplex(gram, jnp.zeros_like(gram[0]), uniform_over(where, gram.dtype), where, iterations)


def min_norm_with_row(gram: Array, row: Array, where: Array, guided: Array, iterations: int = 300) -> Array:
    r"""The same where one more vector, :math:`\sum_i` ``row``:math:`_i g_i`, may belong to the hull.

    Returns the coefficients of the :math:`g_i`, f[M], of which some may be negative. The vector belongs where
    ``guided``, bool[].
    """
    row = jnp.where(where, row, 0)
    hull = jnp.concatenate([jnp.eye(row.shape[0], dtype=gram.dtype), row[None]])
    mixture = min_norm(hull @ gram @ hull.T, jnp.append(where, guided), iterations)
    return mixture @ hull


def min_norm_in_halfspace(gram: Array, slope: Array, where: Array, iterations: int = 300) -> Array:
    r"""The weights of the shortest mixture with :math:`\sum_i \lambda_i` ``slope``:math:`_i \ge 0`.

    Where the shortest of all breaks that, it is :math:`\min_\lambda \tfrac12 \|\sum_i \lambda_i g_i\|^2 - \nu
    \sum_i \lambda_i` ``slope``:math:`_i` for the smallest multiplier :math:`\nu` that does not; the sum grows with
    :math:`\nu`, so bisection finds it. Where no slope is above 0, nothing can be done: the shortest of all.
    """
    largest = jnp.max(jnp.abs(slope), where=where, initial=0)
    slope = jnp.where(where, slope / jnp.where(largest > 0, largest, 1), 0)
    steepest = jnp.argmax(jnp.where(where, slope, -jnp.inf))
    feasible = slope[steepest] > 0
    shortest = min_norm(gram, where, iterations)

    def mixture(nu: Array) -> Array:
        return qp_simplex(gram, -nu * slope, shortest, where, iterations)

    def search() -> Array:
        # Above this multiplier the steepest vector alone would be better than any mixture that breaks the bound.
        enough = gram[steepest, steepest] / (2 * jnp.where(feasible, slope[steepest], 1))
        steps = jnp.finfo(gram.dtype).nmant + 5
        return mixture(bisect(lambda nu: mixture(nu) @ slope >= 0, 0 * enough, enough, steps)[1])

    return jax.lax.cond(feasible & (shortest @ slope < 0), search, lambda: shortest)

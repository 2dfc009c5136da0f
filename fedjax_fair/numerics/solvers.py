"""Small solvers on masked vectors: bounded iteration counts, no host round trips, stable in float32.

Every function takes ``where`` (bool, the shape of the vector): slots outside it are padding, never influence
the result and come back as exactly 0 (log weights: as whatever they were; read them through ``where``).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

FEW = 256  # numbers whose plain sum rounds little
LOG_FLOOR = -27.631021  # log 1e-12: no client's weight is ever forgotten for good
PARTS = 16
"""Into how many an accelerator cuts an interval at once. On an H100 FedMABA's round of ten clients, a step each,
took .28 ms where halving took 1.28; FedAvg's took .18. On a CPU the solver gains with 10 clients, which is nothing
of a round, and loses with 100."""


def normalize(weights: Array, where: Array) -> Array:
    """Scale nonnegative weights to sum to 1 over ``where``; uniform if they sum to 0."""
    weights = jnp.where(where, weights, 0)
    total = weights.sum()
    safe = jnp.where(total > 0, total, 1)
    return jnp.where(total > 0, weights / safe, uniform_over(where, weights.dtype))


def as_floats(sizes: Array) -> Array:
    """The clients' sizes as floats, as a state wants them: those of ``FederatedData`` are whole numbers."""
    sizes = jnp.asarray(sizes)
    return sizes if jnp.issubdtype(sizes.dtype, jnp.floating) else sizes.astype(float)


def uniform_over(where: Array, dtype: jnp.dtype) -> Array:
    """``1/m`` on the ``m`` slots of ``where``; all zeros when there is none."""
    count = jnp.maximum(where.sum(), 1).astype(dtype)
    return where.astype(dtype) / count


def centre(values: Array, where: Array) -> Array:
    """Subtract the largest value, where a common shift changes nothing: small numbers round less."""
    return jnp.where(where, values - jnp.max(values, where=where, initial=-jnp.inf), 0)


def masked_mean(values: Array, where: Array) -> Array:
    """Mean over ``where``; 0 when there is no slot."""
    return (jnp.where(where, values, 0) * uniform_over(where, values.dtype)).sum()


def log_normalize(log_weights: Array, where: Array) -> Array:
    """Shift log weights so that their exponentials sum to 1 over ``where``.

    Of ``log p + step`` it is the entropic mirror step: p times exp(step), back on the simplex.
    """
    log_weights = jnp.where(where, log_weights, 0)
    return log_weights - jnp.where(where.any(), logsumexp(log_weights, where=where), 0)


def softmax(logits: Array, where: Array) -> Array:
    """Softmax over ``where``; padding gets exactly 0."""
    return jnp.where(where, jnp.exp(log_normalize(logits, where)), 0)


def scatter(table: Array, ids: Array, values: Array, where: Array) -> Array:
    """Write ``values`` to ``table[ids]`` where ``where`` holds; padding slots write nowhere."""
    return table.at[jnp.where(where, ids, table.shape[0])].set(values, mode="drop")


def bisect(beyond: Callable[[Array], Array], inside: Array, outside: Array, steps: int) -> tuple[Array, Array]:
    """Halve ``steps`` times the interval in which the monotone condition ``beyond`` changes.

    Returns the last point where it did not hold and the last where it did; the ends themselves are never asked.
    On an accelerator :func:`cut` makes the interval as short.
    """
    if jax.default_backend() != "cpu":
        return cut(beyond, inside, outside, -(-steps // (PARTS.bit_length() - 1)))

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (bracket[0] + bracket[1]) / 2
        held = beyond(middle)
        return jnp.where(held, bracket[0], middle), jnp.where(held, middle, bracket[1])

    return jax.lax.fori_loop(0, steps, halve, (inside, outside))


def cut(beyond: Callable[[Array], Array], inside: Array, outside: Array, turns: int) -> tuple[Array, Array]:
    """Take ``turns`` times the sixteenth of the interval in which ``beyond`` changes, its points asked all at once.

    For accelerators: to start the kernels of a loop's turn takes longer there than what they compute.
    """
    share = jnp.arange(1, PARTS, dtype=inside.dtype) / PARTS

    def narrow(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        between = bracket[0] + (bracket[1] - bracket[0]) * share
        first = jnp.argmax(jnp.append(jax.vmap(beyond)(between), True))
        ends = jnp.concatenate([bracket[0][None], between, bracket[1][None]])
        return ends[first], ends[first + 1]

    return jax.lax.fori_loop(0, turns, narrow, (inside, outside))


def project_simplex(y: Array, where: Array, radius: Array | float = 1.0, pace: Array | None = None) -> Array:
    """Projection onto ``{p >= 0, sum p = radius}`` over ``where``: ``p = pace max(y / pace - theta, 0)``.

    It is the closest point by ``sum (p - y)^2 / pace``, pace above 0: by Euclid's distance where none is given,
    which is a pace of 1. The sum of p is convex in theta and made of straight pieces, so that Newton's method comes
    to theta from below, one piece or more a step.
    """
    rounding = jnp.finfo(y.dtype)  # far from 0 theta would round away: an entry of those that stay is taken off
    if pace is None:
        largest = jnp.max(y, where=where, initial=rounding.min)
        pace, y = jnp.ones((), y.dtype), y - largest
        lowest = 0 * largest - radius  # there that entry alone is radius; where it is infinite, nothing is known
    else:
        full, y = radius / pace, y / pace
        y = y - y[jnp.argmax(jnp.where(where, y - full, -jnp.inf))]
        lowest = jnp.max(y - full, where=where, initial=rounding.min)
    y = jnp.where(where, jnp.maximum(y, lowest), lowest)

    def goes_on(carry: tuple[Array, Array, Array]) -> Array:
        k, arrived, _ = carry
        return (k < y.shape[0] + 2) & ~arrived

    def improve(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, _, theta = carry
        total, above = sums(pace * jnp.maximum(y - theta, 0), jnp.where(y > theta, pace, 0))
        excess = total - radius
        onwards = theta + excess / jnp.where(above > 0, above, 1)
        going = (jnp.abs(excess) > 4 * rounding.eps * radius) & (onwards != theta)  # NaN: not
        return k + 1, ~going, jnp.where(going, onwards, theta)

    begun = (jnp.zeros((), jnp.int32), jnp.zeros((), bool), lowest)
    theta = jax.lax.while_loop(goes_on, improve, begun)[2]
    return jnp.where(where, pace * jnp.maximum(y - theta, 0), 0)


@jax.custom_jvp
def sums(*values: Array) -> tuple[Array, ...]:
    """The sum of each of several arrays of one length.

    Few numbers are summed in one pass: then XLA makes one kernel of the projection's loop on a CPU, where starting
    a dozen in each of its turns took a quarter of a solver's step. Many are summed as XLA does, which rounds less.
    """
    if values[0].shape[0] > FEW:
        return tuple(value.sum() for value in values)
    zeros = tuple(jnp.zeros((), value.dtype) for value in values)
    return tuple(jax.lax.reduce(values, zeros, lambda a, b: tuple(x + y for x, y in zip(a, b)), (0,)))


@sums.defjvp
def _tangents(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple:
    """A sum's is the sum of the tangents; JAX has none of its own for several sums in one."""
    return sums(*primals), sums(*tangents)


def project_box_simplex(y: Array, low: Array, high: Array, where: Array, radius: Array | float = 1.0) -> Array:
    """Euclidean projection onto ``{low <= p <= high, sum p = radius}`` over ``where``.

    ``p = clip(y - theta, low, high)``, whose sum falls with theta along straight pieces: Newton's method is there
    as soon as it meets the right piece, mostly within four steps, where a bisection to rounding takes thirty.
    Every fourth step halves the bracket, lest it should wander. Feasible iff ``sum low <= radius <= sum high``
    over ``where``; the caller sees to that.
    """
    low, high, y = jnp.where(where, low, 0), jnp.where(where, high, 0), centre(y, where)
    rounding = jnp.finfo(y.dtype)
    # Two arrays, not three: a loop with under a kilobyte, some 120 numbers each, is one kernel on a CPU.
    over, room, rest = y - low, high - low, radius - low.sum()

    def goes_on(carry: tuple[Array, Array, Array, Array, Array]) -> Array:
        k, arrived, *_ = carry
        return (k < 4 * (rounding.nmant + 9)) & ~arrived

    def improve(carry: tuple[Array, Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array, Array]:
        k, _, theta, below, above = carry
        p = jnp.clip(over - theta, 0, room)
        total, inside = sums(p, ((p > 0) & (p < room)).astype(p.dtype))
        excess = total - rest
        below, above = jnp.where(excess > 0, theta, below), jnp.where(excess > 0, above, theta)
        newton = theta + excess / jnp.maximum(inside, 1)
        arrived = (jnp.abs(excess) <= 4 * rounding.eps * radius) | (newton == theta)
        strays = (newton <= below) | (newton >= above) | (k % 4 == 3)
        onwards = jnp.where(strays, (below + above) / 2, newton)
        return k + 1, arrived, jnp.where(arrived, theta, onwards), below, above

    below, above = (over - room).min(), over.max()
    nobody_clipped = jnp.clip((y.sum() - radius) / jnp.maximum(where.sum(), 1).astype(y.dtype), below, above)
    begun = (jnp.zeros((), jnp.int32), jnp.zeros((), bool), nobody_clipped, below, above)
    theta = jax.lax.while_loop(goes_on, improve, begun)[2]
    return jnp.where(where, jnp.clip(y - theta, low, high), 0)


def project_kl_ball(log_q: Array, rho: Array | float, where: Array, smallest: float = 0.0) -> Array:
    r"""Log of the sharpest tempering of ``q`` (s at most 1) within KL distance ``rho`` of uniform on ``where``.

    Returns :math:`\log \hat p` with :math:`\hat p \propto q^s` for the largest :math:`s \in [0, 1]` such that
    :math:`\mathrm{KL}(\hat p \,\|\, \mathrm{uniform}) \le \rho`. The divergence grows with ``s``
    (its derivative is ``s Var(log q)``), so 50 bisections of ``log s`` find it, however far apart the log weights
    are. Where ``rho <= 0``, ``s = smallest``.
    """
    log_q = centre(log_q, where)
    log_m = jnp.log(jnp.maximum(where.sum(), 1).astype(log_q.dtype))

    def temper(s: Array) -> Array:
        return log_normalize(s * log_q, where)

    def divergence(s: Array) -> Array:
        log_p = temper(s)
        return jnp.where(where, jnp.exp(log_p) * (log_p + log_m), 0).sum()

    one = jnp.ones((), log_q.dtype)
    least = jnp.log(jnp.maximum(smallest, jnp.finfo(log_q.dtype).tiny).astype(log_q.dtype))
    inside, _ = bisect(lambda log_s: divergence(jnp.exp(log_s)) > rho, least, 0 * one, 50)
    s = jnp.where(divergence(one) <= rho, one, jnp.exp(inside))
    return temper(jnp.where(rho > 0, s, smallest * one))  # at 0 rounding errors would decide

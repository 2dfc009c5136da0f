"""FedFV: remove the conflicts between the clients' updates before averaging (Wang et al., 2021)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fedjax_fair.aggregators.room import check_room
from fedjax_fair.aggregators.stateless import init
from fedjax_fair.checks import check_count, check_range
from fedjax_fair.numerics.solvers import uniform_over
from fedjax_fair.types import Aggregator, Key, Method, Params, Report, State


class FedFVMemory(NamedTuple):
    """The cohorts of the last tau rounds."""

    round: Array  # i32[], rounds played
    ids: Array  # i32[tau, S], -1 where nobody took part
    updates: Params  # every leaf [tau, S, ...]


def fedfv(alpha: Array | float = 0.1, tau: int = 0) -> Aggregator | Method:
    r"""Project every update off those it conflicts with, in order of the losses, then average.

    With :math:`d_k = w - w_k`, clients in ascending order of their loss, and for every client i but the share
    alpha with the largest losses:

    .. math:: g_i \leftarrow g_i - \frac{\langle g_i, d_j \rangle}{\|d_j\|^2} d_j
              \quad\text{for each } j \ne i \text{ in order with } \langle g_i, d_j \rangle < 0

    (from :math:`g_i = d_i`), then :math:`g = \operatorname{mean}_i g_i`, stretched to the length of
    :math:`\operatorname{mean}_i d_i`. With tau > 0, g is first projected off the (conflicting) updates of the
    clients last seen k = tau, ..., 1 rounds ago.

    Everything but those last projections happens on rows of coefficients and the Gram matrix: O(S^3), no model in
    sight. tau > 0 remembers tau x S models, which is refused beyond 4 GiB.

    Reads ``loss`` (received model, before training) and ``gram``; with tau > 0 also ``updates``. Updates that do
    not conflict, and ``alpha = 1``, give uniform FedAvg. Clients of equal loss are ordered by their slot.

    Optimises: the mean loss of all clients, along directions that raise as few single ones as can be.

    Args:
      alpha: share of clients, by largest loss, whose updates are kept as they are, in [0, 1]; the authors try
        {0, .1, .2, 1/3, 1/2, 2/3}.
      tau: rounds of memory, from 0; the authors try {0, 1, 3, 10}.

    Raises:
      ValueError: ``alpha`` outside [0, 1], a negative ``tau``, a memory beyond the limit.

    Differs from the authors' code in: nothing but rounding (the memory holds tau cohorts instead of N clients,
    which is all that their loop ever looks at). Lengths come from the Gram matrix, so that in float32 the rounding
    shows where updates cancel to less than a thousandth of their own length.

    Source: Wang, Fan, Qi, Wen, Wang, Yu, Federated Learning with Fair Averaging, IJCAI 2021.
    """
    check_range("alpha", alpha, 0, 1)
    check_count("tau", tau, low=0)

    def weigh(state: State, report: Report, key: Key) -> tuple[Array, State]:
        del key
        seen, gram = report.active, jnp.where(report.active[:, None] & report.active[None, :], report.gram, 0)
        slots, length = jnp.arange(seen.shape[0]), jnp.diagonal(gram)
        order = jnp.argsort(jnp.where(seen, report.loss, jnp.inf), stable=True)
        rank = jnp.zeros_like(order).at[order].set(slots.astype(order.dtype))
        others = (seen.sum() - 1).astype(gram.dtype)
        first_kept = jnp.ceil(others * (1 - jnp.asarray(alpha, gram.dtype)) - 1e-4)  # rounding, not maths
        kept = (rank.astype(gram.dtype) >= first_kept) & (jnp.asarray(alpha) > 0)

        def project(position: Array, rows: Array) -> Array:
            j = order[position]
            overlap = rows @ gram[:, j]
            conflict = (overlap < 0) & ~kept & (slots != j) & (length[j] > 0)
            return rows.at[:, j].add(-jnp.where(conflict, overlap / jnp.where(length[j] > 0, length[j], 1), 0))

        rows = jax.lax.fori_loop(0, seen.shape[0], project, jnp.eye(seen.shape[0], dtype=gram.dtype))
        mean = uniform_over(seen, gram.dtype)
        coef = mean @ rows
        if tau == 0:
            coef = coef * stretch(coef @ gram @ coef, mean @ gram @ mean)
        return coef, state

    rule = Aggregator(init, weigh)
    return rule if tau == 0 else Method(rule, transform=external_conflicts(tau))


def stretch(square: Array, wanted: Array) -> Array:
    """The factor that gives a vector of squared length ``square`` the squared length ``wanted``; 0 for zero."""
    return jnp.where(square > 0, jnp.sqrt(jnp.maximum(wanted, 0) / jnp.where(square > 0, square, 1)), 0)


def external_conflicts(tau: int) -> Callable[[int, int], optax.GradientTransformationExtraArgs]:
    """FedFV's second half as a server transform, given N and S: project off what earlier cohorts sent."""

    def build(n_clients: int, cohort: int) -> optax.GradientTransformationExtraArgs:
        del n_clients

        def start(params: Params) -> FedFVMemory:
            params = jax.tree.map(jnp.asarray, params)  # a leaf may be a number of Python's
            models = f"{tau} x {cohort} models"
            check_room(f"fedfv with tau={tau}", models, tau * cohort, params, "take a smaller tau or cohort")
            empty = jax.tree.map(lambda p: jnp.zeros((tau, cohort, *p.shape), p.dtype), params)
            return FedFVMemory(jnp.zeros((), jnp.int32), jnp.full((tau, cohort), -1, jnp.int32), empty)

        def update(
            g: Params, memory: FedFVMemory, params: Params = None, *, report: Report, **extra: object
        ) -> tuple[Params, FedFVMemory]:
            del params, extra
            now = memory.round % tau
            present = jnp.where(report.active, report.ids, -1)
            mean = jax.tree.map(
                lambda u: -jnp.tensordot(uniform_over(report.active, u.dtype), u, 1), report.updates
            )

            def project(step: Array, g: Params) -> Params:
                ago = tau - step  # k = tau, ..., 1
                row = (memory.round - ago) % tau
                ids = memory.ids[row]
                # A client counts in the round it was last seen in: not if a later row, or today's, has it too.
                age = jnp.where(jnp.arange(tau) == now, tau, (memory.round - jnp.arange(tau)) % tau)
                later = jnp.where((age < ago)[:, None], memory.ids, -2)
                again = (ids[:, None] == jnp.concatenate([later.reshape(-1), present])[None, :]).any(1)
                old = jax.tree.map(lambda u: -u[row], memory.updates)
                opposed = (ids >= 0) & ~again & (inner_rows(old, g) < 0) & (memory.round >= tau)
                con = jax.tree.map(lambda d: jnp.tensordot(opposed.astype(d.dtype), d, 1), old)
                overlap, square = inner(g, con), inner(con, con)
                pull = jnp.where((overlap < 0) & (square > 0), overlap / jnp.where(square > 0, square, 1), 0)
                return jax.tree.map(lambda a, b: a - pull.astype(a.dtype) * b, g, con)

            g = jax.lax.fori_loop(0, tau, project, g)
            factor = stretch(inner(g, g), inner(mean, mean))
            g = jax.tree.map(lambda a: a * factor.astype(a.dtype), g)
            updates = jax.tree.map(lambda m, u: m.at[now].set(u), memory.updates, report.updates)
            return g, FedFVMemory(memory.round + 1, memory.ids.at[now].set(present), updates)

        return optax.GradientTransformationExtraArgs(start, update)

    return build


def inner(a: Params, b: Params) -> Array:
    """Inner product of two pytrees."""
    return jax.tree.reduce(jnp.add, jax.tree.map(lambda u, v: (u * v).sum(), a, b))


def inner_rows(rows: Params, b: Params) -> Array:
    """Inner products f[S] of stacked pytrees (leading axis S) with one."""
    products = jax.tree.map(lambda u, v: u.reshape(u.shape[0], -1) @ v.reshape(-1), rows, b)
    return jax.tree.reduce(jnp.add, products)

"""FedLF: a fair direction for every layer of its own (Pan et al., 2024)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fedjax_fair.aggregators.fedavg import fedavg
from fedjax_fair.aggregators.fedfv import inner, stretch
from fedjax_fair.aggregators.fedmdfg import EQUAL, towards_equal
from fedjax_fair.aggregators.room import check_room
from fedjax_fair.checks import check_count
from fedjax_fair.numerics.batch_sum import over_clients
from fedjax_fair.numerics.min_norm import known_weights, min_norm_with_row, noted_weights, squared_length
from fedjax_fair.numerics.solvers import masked_mean, scatter
from fedjax_fair.numerics.sum_type import sum_type
from fedjax_fair.types import Method, Params, Report, Transform


class FedLFMemory(NamedTuple):
    """The last update of every client, and what each weighed last."""

    round: Array  # i32[], rounds played
    last: Array  # i32[N], the round that each last took part in, -1 for never
    updates: Params  # every leaf [N, ...]
    gram: Any  # for every leaf f[N, N], the inner products of the clients' updates
    weights: Any  # for every leaf f[N + 1], of the clients in its hull, and of the guidance


def fedlf(history: bool = True, iterations: int = 2000) -> Method:
    r"""Descend for everybody at once, and towards equal losses, in every layer by itself.

    A layer is an array of the parameters. In each, :math:`g_k` are the updates, stretched to their mean length
    :math:`\mu`, and h is the unit vector of :func:`fedmdfg`. Then d is the shortest vector in the convex hull of

    .. math:: g_k\ (k \in S), \qquad \mu \frac{\sum_k h_k g_k}{\|\sum_k h_k g_k\|}, \qquad
              g_j\ (j \text{ absent for at most } \lfloor N_t / m \rfloor \text{ rounds})

    where :math:`N_t` clients have been seen so far and a round has m slots; of an absent client it is the last
    update (with a slot for everybody, absent clients do not count). All layers' d together are stretched to the
    length of the mean update. Reads ``loss`` (received model, before training) and
    ``updates``. The coefficients that the history shows are the mean's, from which this step is no longer made.

    Optimises: all clients' losses at once, on the way to losses that are equal.

    Args:
      history: whether absent clients count. Then N models are kept, which is refused beyond 4 GiB, and their inner
        products.
      iterations: of the solver at most, in every layer; it begins at the weights of the round before and ends where
        it has arrived.

    Raises:
      ValueError: ``iterations`` below 1, a memory beyond the limit.

    Differs from the authors' code in:
      1. the updates of whatever the trainer does stand for the one full gradient of theirs;
      2. equal losses give no guidance, and a client that did not move in a layer has no part in that layer, where
         theirs fails;
      3. the test for rounding errors of the solver, which shortens their step, is left out;
      4. where the updates cancel out to rounding, nobody moves, where theirs stretches the rest.

    Source: Pan, Li, Yu, Wang, Tang, Wang, Zhao, FedLF: Layer-Wise Fair Federated Learning, AAAI 2024.
    """
    check_count("iterations", iterations)

    def transform(n_clients: int, cohort: int) -> Transform:
        return layerwise(n_clients, cohort, history and cohort < n_clients, iterations)

    return Method(fedavg("uniform"), transform=transform)


def layerwise(n_clients: int, cohort: int, history: bool, iterations: int) -> Transform:
    """FedLF's step in the place of the aggregate; ``history``: with the last updates of absent clients."""

    def start(params: Params) -> Any:
        weights = jax.tree.map(lambda p: jnp.zeros(n_clients + 1), params)
        if not history:
            return weights
        check_room("fedlf", f"a model of {n_clients} clients", n_clients, params, "take history=False")
        none = jax.tree.map(lambda p: jnp.zeros((n_clients, *jnp.shape(p)), jnp.result_type(p)), params)
        square = jax.tree.map(lambda p: jnp.zeros((n_clients, n_clients), sum_type(jnp.result_type(p))), params)
        return FedLFMemory(jnp.zeros((), jnp.int32), jnp.full((n_clients,), -1, jnp.int32), none, square, weights)

    def update(g: Params, memory: Any, params: Params = None, *, report: Report, **_: object) -> tuple[Params, Any]:
        del params
        here, loss = report.active, report.loss
        if history:
            nobody = jnp.zeros((n_clients,), bool)
            loss = scatter(nobody.astype(loss.dtype), report.ids, loss, here)
            here = scatter(nobody, report.ids, here, here)
            absent = recent(memory, cohort) & ~here
            memory = noted(memory, report)
            ids, rows, grams, weights = jnp.arange(n_clients), memory.updates, memory.gram, memory.weights
        else:
            absent, ids, rows, weights = jnp.zeros_like(here), report.ids, report.updates, memory
            grams = jax.tree.map(products, rows, rows)

        def layer(u: Array, gram: Array, last: Array) -> tuple[Array, Array]:
            before = known_weights(last, ids).astype(loss.dtype)
            step, now = layer_step(u, gram.astype(loss.dtype), here, absent, loss, before, iterations)
            return step, noted_weights(last, ids, now.astype(last.dtype), here | absent)

        found = jax.tree.map(layer, rows, grams, weights)
        steps, weights = (jax.tree.map(lambda _, both, i=i: both[i], rows, found) for i in range(2))
        memory = memory._replace(weights=weights) if history else weights
        count = jnp.maximum(report.active.sum(), 1)
        mean = jax.tree.map(lambda u: over_clients(u) / count.astype(u.dtype), report.updates)
        factor = stretch(inner(steps, steps), inner(mean, mean))
        return jax.tree.map(lambda d, old: -(factor.astype(d.dtype) * d).astype(old.dtype), steps, g), memory

    return optax.GradientTransformationExtraArgs(start, update)


def layer_step(
    rows: Array, gram: Array, here: Array, absent: Array, loss: Array, before: Array, iterations: int
) -> tuple[Array, Array]:
    """The shortest vector of one layer's hull, and the weights f[R + 1] that it comes of, the guidance's last.

    ``rows`` [R, ...] are updates of those ``here`` and ``absent``; the search begins at the weights ``before``.
    """
    norm = jnp.sqrt(jnp.maximum(jnp.diagonal(gram), 0))
    moved = here & (norm > 0)
    angle, towards = towards_equal(loss, moved)  # the part of one who did not move would turn the rest uphill
    mean = masked_mean(norm, moved)
    counted = (here | absent) & (norm > 0)
    scale = jnp.where(counted, mean / jnp.where(counted, norm, 1), 0)
    gram = jnp.where(counted[:, None] & counted[None, :], gram * scale[:, None] * scale[None, :], 0)
    length = jnp.sqrt(jnp.maximum(towards @ gram @ towards, 0))
    guided = (angle > EQUAL) & (length > 0)
    row = towards * mean / jnp.where(guided, length, 1)
    mixture, weights = min_norm_with_row(gram, row, counted, guided, before, iterations)
    known = squared_length(mixture, gram) > 0
    return jnp.tensordot(jnp.where(known, mixture * scale, 0).astype(rows.dtype), rows, 1), weights


def noted(memory: FedLFMemory, report: Report) -> FedLFMemory:
    """The memory with this round's updates in it."""
    ids, seen = report.ids, report.active
    updates = jax.tree.map(lambda old, new: scatter(old, ids, new, seen), memory.updates, report.updates)

    def renewed(gram: Array, mine: Array, everybodys: Array) -> Array:
        fresh = products(mine, everybodys).astype(gram.dtype)
        return scatter(scatter(gram, ids, fresh, seen).T, ids, fresh, seen)

    gram = jax.tree.map(renewed, memory.gram, report.updates, updates)
    last = scatter(memory.last, ids, jnp.full(ids.shape, memory.round), seen)
    return memory._replace(round=memory.round + 1, last=last, updates=updates, gram=gram)


def recent(memory: FedLFMemory, cohort: int) -> Array:
    """bool[N]: who was there before this round, and no longer ago than it takes to see everybody so far once."""
    before = memory.last >= 0
    seen = before.sum()
    return before & (memory.round - memory.last <= seen // cohort) & (seen > cohort)


def products(one: Array, other: Array) -> Array:
    """Inner products f[A, B] of stacked arrays [A, ...] and [B, ...]."""
    a, b = (rows.reshape(rows.shape[0], -1) for rows in (one, other))
    return jnp.matmul(a, b.T, precision="highest", preferred_element_type=sum_type(a.dtype))

"""FedHEAL: leave out what a client keeps changing its mind about, favour who moves far (Chen et al., 2024)."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fedjax_fair.aggregators.fedavg import fedavg
from fedjax_fair.aggregators.room import check_room
from fedjax_fair.checks import check_range
from fedjax_fair.numerics.solvers import normalize, scatter
from fedjax_fair.numerics.sum_type import sum_type
from fedjax_fair.types import Method, Params, Report, Transform


class FedHEALMemory(NamedTuple):
    """What the server knows of each client."""

    rounds: Array  # i32[N], in which it took part
    falls: Params  # every leaf [N, ...], the share of them in which the parameter did not rise
    weight: Array  # f[N], a
    change: Array  # f[N], delta
    distance: Array  # f[N], of its last update


def fedheal(threshold: Array | float = 0.3, beta: Array | float = 0.4) -> Method:
    r"""Average of every parameter the clients that have moved it that way before, weighed by how far they move.

    An entry of a client's update counts where the share of the client's earlier rounds in which it had the present
    sign exceeds ``threshold`` (in its first round all do): the mask :math:`M_k`. With the distances
    :math:`D_k = \sum_{\text{layers}} \|M_k \Delta_k\|`,

    .. math:: \delta_k \leftarrow (1 - \beta)\, \delta_k + \beta\, \frac{D_k}{\sum_j D_j}, \qquad
              a_k \leftarrow a_k + \delta_k, \qquad
              w \leftarrow w + \frac{\sum_{k \in S} a_k M_k \Delta_k}{\sum_{k \in S} a_k M_k}

    entry by entry; a begins as one over the cohort, and the sum over j runs over the last distances of all clients
    seen. Reads ``updates``. The coefficients that the history shows are the mean's, from which this step is no
    longer made. Keeps a model's size for every client, which is refused beyond 4 GiB. ``threshold < 0`` and
    ``beta = 0`` make it uniform FedAvg.

    Optimises: no stated objective: sum_k F_k / N, with more weight on clients that have further to go.

    Args:
      threshold: the share that an entry must exceed, at most 1; .3 in the authors' code.
      beta: how fast the weights follow the distances, in [0, 1]; .4 there.

    Raises:
      ValueError: ``threshold`` above 1, ``beta`` outside [0, 1], a memory beyond the limit.

    Differs from the authors' code in: shares are of the rounds in which the client took part, not of all, which
    matters where not everybody takes part; there a client that was absent in the first round fails. A client that
    is not finite is left out.

    Source: Chen, Huang, Ye, Fair Federated Learning under Domain Skew with Local Consistency and Domain Diversity,
    CVPR 2024.
    """
    check_range("threshold", threshold, -math.inf, 1)
    check_range("beta", beta, 0, 1)

    return Method(fedavg("uniform"), transform=lambda n, m: consistent(n, m, threshold, beta))


def consistent(n_clients: int, cohort: int, threshold: Array | float, beta: Array | float) -> Transform:
    """FedHEAL's step in the place of the aggregate, given N and the slots of a round."""

    def start(params: Params) -> FedHEALMemory:
        shares = jax.tree.map(lambda p: jax.ShapeDtypeStruct(jnp.shape(p), sum_type(jnp.result_type(p))), params)
        check_room("fedheal", f"a model of {n_clients} clients", n_clients, shares, "take fewer clients")
        falls = jax.tree.map(lambda p: jnp.zeros((n_clients, *p.shape), p.dtype), shares)
        zeros = jnp.zeros((n_clients,))
        return FedHEALMemory(jnp.zeros((n_clients,), jnp.int32), falls, zeros + 1 / cohort, zeros, zeros)

    def update(
        g: Params, memory: FedHEALMemory, params: Params = None, *, report: Report, **_: object
    ) -> tuple[Params, FedHEALMemory]:
        del params
        ids, seen = report.ids, report.active
        rounds = memory.rounds[ids]

        def masked(update: Array, falls: Array) -> Array:
            mine, t = falls[ids], _along(rounds, update)
            same = jnp.where(update <= 0, mine, 1 - mine)
            return (t == 0) | (same > jnp.asarray(threshold, mine.dtype))

        def renewed(update: Array, falls: Array) -> Array:
            mine, t = falls[ids], _along(rounds, update).astype(falls.dtype)
            return scatter(falls, ids, (mine * t + (update <= 0).astype(t.dtype)) / (t + 1), seen)

        kept = jax.tree.map(masked, report.updates, memory.falls)
        moves = jax.tree.map(lambda u, mask: jnp.where(mask, u, 0), report.updates, kept)
        lengths = [jnp.sqrt((m.reshape(m.shape[0], -1) ** 2).sum(1)) for m in jax.tree.leaves(moves)]
        distance = jnp.stack(lengths).sum(0)
        distances = scatter(memory.distance, ids, distance.astype(memory.distance.dtype), seen)
        total = distances.sum()
        share = distances[ids] / jnp.where(total > 0, total, 1)
        change = (1 - beta) * memory.change[ids] + beta * share
        weight = memory.weight[ids] + change
        a = normalize(weight, seen)

        def average(moves: Array, mask: Array) -> Array:
            share = a.astype(moves.dtype)
            whole = jnp.tensordot(share, mask.astype(moves.dtype), 1)
            return jnp.tensordot(share, moves, 1) / jnp.where(whole > 0, whole, 1)

        step = jax.tree.map(average, moves, kept)
        after = FedHEALMemory(
            scatter(memory.rounds, ids, rounds + 1, seen),
            jax.tree.map(renewed, report.updates, memory.falls),
            scatter(memory.weight, ids, weight, seen),
            scatter(memory.change, ids, change, seen),
            distances,
        )
        return jax.tree.map(lambda s, old: -s.astype(old.dtype), step, g), after

    return optax.GradientTransformationExtraArgs(start, update)


def _along(values: Array, like: Array) -> Array:
    """``values`` [S] in the shape of ``like`` [S, ...], ready to be broadcast."""
    return values.reshape(-1, *(1,) * (like.ndim - 1))

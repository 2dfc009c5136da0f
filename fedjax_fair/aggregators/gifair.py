"""GIFAIR-FL: a penalty on the differences between the clients', or the groups', losses (Yue et al., 2023)."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.checks import check_choice, check_range
from fedjax_fair.local.remembering import Around, Finish, changed
from fedjax_fair.numerics.solvers import as_floats, normalize, scatter, uniform_over
from fedjax_fair.types import Aggregator, Client, Key, LossFn, Memory, Method, Params, Report, Trace


class GIFAIRState(NamedTuple):
    """What the server last heard of every client."""

    loss: Array  # f[N]
    heard: Array  # i32[N], 1 for who has reported one
    p: Array  # f[N], the clients' shares of all examples


def gifair(
    coeff: Array | float = 0.5,
    reading: Literal["weights", "rate"] = "weights",
    groups: Sequence[int] | np.ndarray | None = None,
) -> Aggregator | Method:
    r"""Weigh clients up whose loss is above the others', by how many others it is above.

    With the shares :math:`p_k = n_k / n` of all N clients' examples and the losses last heard of,

    .. math:: r_k = \sum_j \operatorname{sign}(F_k - F_j), \qquad
              \lambda = \text{coeff} \cdot \min_k \frac{p_k}{N - 1}, \qquad
              c_k \propto p_k + \lambda r_k

    Of ``groups`` r is that of the group's mean loss among the groups', and :math:`\lambda r_k` is divided by the
    group's size. Reads ``loss`` (received model, before training) and ``n``; as "rate" ``train_loss``. With all
    clients in every round the weights sum to 1 before they are normalised; ``coeff = 0`` is FedAvg by size.

    Optimises: sum_k p_k F_k + lambda sum_{j < k} abs(F_k - F_j), over clients or over groups.

    Args:
      coeff: lambda as a share of the largest that leaves no weight below 0, in [0, 1]; 1/2 in the authors' code, .1
        in Huawei's.
      reading: "weights", Huawei's: the factor is part of the aggregation weight. "rate", the authors': every client
        trains with the objective times :math:`1 + \lambda r_k / p_k` (for plain SGD its rate), and the cohort is
        averaged uniformly: pair it with ``ff.size_proportional`` selection.
      groups: N numbers from 0, each client's group; by default every client is one.

    Raises:
      ValueError: ``coeff`` outside [0, 1], another reading, groups that are no whole numbers from 0, only one
        group; in ``simulation``, groups of another number of clients.

    Differs from both codes in: clients of equal loss have equal r, as sign(0) = 0 says; theirs break the tie by id.
    Differs from the authors' code in: a client that has not been heard of counts in nobody's rank and has r = 0;
    theirs begins with ranks at random.
    The form for groups is read off the paper; no code has it.

    Source: Yue, Nouiehed, Al Kontar, GIFAIR-FL: A Framework for Group and Individual Fairness in Federated
    Learning, INFORMS Journal on Data Science 2023; huawei-noah/Federated-Learning.
    """
    check_range("coeff", coeff, 0, 1)
    check_choice("reading", reading, ("weights", "rate"))
    members = None if groups is None else _checked(groups)

    def init(sizes: Array, key: Key | None = None) -> GIFAIRState:
        del key
        sizes = as_floats(sizes)
        if members is not None and members.shape != sizes.shape:
            n_clients = sizes.shape[0]
            raise ValueError(f"groups must hold one number for each of {n_clients} clients, got {len(members)}")
        return GIFAIRState(jnp.zeros_like(sizes), jnp.zeros(sizes.shape, jnp.int32), sizes / sizes.sum())

    def weigh(state: GIFAIRState, report: Report, key: Key) -> tuple[Array, GIFAIRState]:
        del key
        seen = report.active
        loss = report.loss if reading == "weights" else report.train_loss
        state = state._replace(
            loss=scatter(state.loss, report.ids, loss, seen),
            heard=scatter(state.heard, report.ids, seen.astype(jnp.int32), seen),
        )
        if reading == "rate":
            return uniform_over(seen, loss.dtype), state
        return normalize(
            jnp.maximum(state.p[report.ids] + _extra(state, report.ids, coeff, members), 0), seen
        ), state

    def factors(state: GIFAIRState) -> Array:
        return 1 + _extra(state, jnp.arange(state.p.shape[0]), coeff, members) / state.p

    rule = Aggregator(init, weigh)
    if reading == "weights":
        return rule
    return Method(rule, local=_scaled, memory=Memory(init=lambda params: (), broadcast=factors))


def _extra(state: GIFAIRState, ids: Array, coeff: Array | float, members: np.ndarray | None) -> Array:
    """lambda r_k of these clients, f[K], for groups divided by their size."""
    heard = state.heard > 0
    if members is None:
        above = jnp.sign(state.loss[ids][:, None] - state.loss[None, :])
        r = jnp.where(heard[None, :] & heard[ids][:, None], above, 0).sum(1)
        room = state.p.min() / max(state.p.shape[0] - 1, 1)
        return coeff * room * r
    count, of = int(members.max()) + 1, jnp.asarray(members, jnp.int32)
    size = jnp.asarray(np.bincount(members), state.loss.dtype)
    known = jax.ops.segment_sum(heard.astype(state.loss.dtype), of, count)
    mean = jax.ops.segment_sum(jnp.where(heard, state.loss, 0), of, count) / jnp.maximum(known, 1)
    both = (known[:, None] > 0) & (known[None, :] > 0)
    r = jnp.where(both, jnp.sign(mean[:, None] - mean[None, :]), 0).sum(1)
    room = (state.p * size[of]).min() / (count - 1)
    return coeff * room * (r / size)[of[ids]]


def _scaled(trainer: Any) -> Around:
    """Every client's objective times the factor that the server sends for it."""

    def plan(loss: LossFn, params: Params, client: Client) -> tuple[LossFn, Params, Finish]:
        factor = client.broadcast[client.id]

        def finish(trained: Params, trace: Trace) -> tuple:
            return trained, trace, client.memory

        return changed(loss, lambda value, _: factor.astype(value.dtype) * value), params, finish

    return Around(trainer, plan)


def _checked(groups: Any) -> np.ndarray:
    found = np.asarray(groups)
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer) or found.size == 0 or found.min() < 0:
        raise ValueError(f"groups must be whole numbers from 0, one a client, such as [0, 0, 1], got {groups!r}")
    if len(np.unique(found)) != found.max() + 1 or found.max() == 0:
        raise ValueError(
            f"groups must be numbered 0, 1, ... without a gap, and two at least, got {sorted(set(found.tolist()))}"
        )
    return found

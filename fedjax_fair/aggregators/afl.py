"""AFL: minimise the worst mixture of the clients' losses (Mohri, Sivek, Suresh, 2019)."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fedjax_fair.checks import check_range
from fedjax_fair.numerics.solvers import as_floats, centre, normalize, project_simplex, scatter
from fedjax_fair.types import Aggregator, Key, Report

FORGOTTEN = 1e-12  # a cohort that holds less than this share of the mixture is averaged uniformly


class AFLState(NamedTuple):
    """The adversary's mixture."""

    weights: Array  # f32[N], lambda; on the simplex


def afl(lr: Array | float = 0.1) -> Aggregator:
    r"""Minimise the worst mixture of the clients' losses: descend in the model, ascend in the mixture.

    With the mixture :math:`\lambda` on the simplex of all clients,

    .. math:: c = \lambda_S / \textstyle\sum_S \lambda, \qquad
              \lambda_S \leftarrow \Pi_{\sum_S \lambda}(\lambda_S + \eta_\lambda F_S)

    with :math:`\Pi_r` the Euclidean projection onto the simplex of radius r. The aggregation uses the mixture
    from BEFORE the ascent. At full participation, with one gradient step a round, this is the published algorithm.

    Reads ``loss`` (received model, before training). ``lr = 0`` is uniform FedAvg.

    Optimises: max over lambda on the simplex of sum_k lambda_k F_k, the largest of the clients' losses.

    Args:
      lr: eta_lambda, the step of the ascent, >= 0; FedMABA's tables use {.01, .1, .5, .7}.

    Raises:
      ValueError: ``lr`` is negative.

    Differs from the paper in:
      1. under partial participation (not defined there) the sampled clients share the mass they had, so that
         lambda stays on the simplex;
      2. lambda becomes exactly 0 for many clients; a cohort with less than 1e-12 of the mass is averaged
         uniformly and lambda is left alone;
      3. the model is the last iterate; the theory is about the average of all, which any rule can have:
         ``simulation(..., server_optimizer=ff.average_iterates(), deploy=ff.averaged)``.

    Differs from the code of q-FFL's authors in: their projection is off by one in its threshold.

    Source: Mohri, Sivek, Suresh, Agnostic Federated Learning, ICML 2019.
    """
    check_range("lr", lr, 0)

    def init(sizes: Array, key: Key | None = None) -> AFLState:
        del key
        sizes = as_floats(sizes)
        return AFLState(jnp.full_like(sizes, 1 / sizes.shape[0]))

    def weigh(state: AFLState, report: Report, key: Key) -> tuple[Array, AFLState]:
        del key
        seen = report.active
        mine = jnp.where(seen, state.weights[report.ids], 0)
        mass = mine.sum()
        known = mass > FORGOTTEN
        coef = normalize(jnp.where(known, mine, 0), seen)
        # Centred: what all losses have in common moves no weight, but would round the mixture.
        ascended = project_simplex(mine + lr * centre(report.loss, seen), seen, mass)
        return coef, AFLState(scatter(state.weights, report.ids, ascended, seen & known))

    return Aggregator(init, weigh)

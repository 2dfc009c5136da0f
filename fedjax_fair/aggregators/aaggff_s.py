"""AAggFF-S: online Newton step for few clients that all take part (Hahn, Kim, Lee, 2024)."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fedjax_fair.aggregators.responses import CDF, CDFS, Variant, responses
from fedjax_fair.checks import check_choice
from fedjax_fair.numerics.simplex_qp import qp_simplex
from fedjax_fair.numerics.solvers import as_floats, masked_mean, normalize, scatter
from fedjax_fair.types import Aggregator, Key, Report, marked


class AAggFFSState(NamedTuple):
    """The decision and the two sums that determine the next."""

    p: Array  # f32[N], the mixing coefficients; on the simplex (repo: all ones before the first round)
    linear: Array  # f32[N], sum of (1 - beta <g, p>) g (repo: sum of g)
    curvature: Array  # f32[N, N], sum of g g'


def aaggff_s(cdf: CDF = "weibull", variant: Variant = "paper") -> Aggregator:
    r"""Weights by an online Newton step on the clients' responses: for few clients that all take part.

    The responses are :math:`r_i = \mathrm{CDF}(F_i / \bar F) / N`. The decision loss
    :math:`-\log(1 + \langle p, r_t \rangle)` has the gradient :math:`g_t = -r_t / (1 + \langle p_t, r_t \rangle)`.
    Follow the regularised leader:

    .. math:: p_{t+1} = \arg\min_{p \in \Delta} \sum_{\tau \le t} \langle g_\tau, p \rangle + \tfrac\alpha2 \|p\|^2
              + \tfrac\beta2 \sum_{\tau \le t} \langle g_\tau, p - p_\tau \rangle^2, \qquad
              \alpha = 4,\ \beta = N / 4

    The new p, which has seen this round's losses, aggregates this round. Costs O(N^2) times 300 iterations of
    the solver a round.

    Reads ``loss`` (received model, before training). Equal losses keep p uniform; so does any common factor.

    Optimises: the regret of p for the decision losses -log(1 + sum_k p_k r_k); the model follows sum_k p_k F_k.

    Args:
      cdf: weibull, exponential, frechet, normal, gumbel or logistic; the one setting that the authors choose per
        dataset (weibull on ISIC, frechet on Reddit and Heart, normal on Berka, gumbel on CelebA, logistic on MQP).
      variant: "paper", or "repo" for what the authors' code (and so the published tables) computes.

    Raises:
      ValueError: another cdf or variant; in ``simulation``, a cohort smaller than N (use ``aaggff_d``).

    Differs from the paper in: a client that drops out gets coefficient 0 and, as its response, the mean of
    the others'.

    The authors' code (``variant="repo"``) differs from the paper in:
      1. no cross term :math:`-\beta \langle g_\tau, p_\tau \rangle g_\tau`, and alpha counted once more, times
         beta: its weights stay much nearer to uniform;
      2. p starts at all ones, which sums to N; it enters only the first gradient;
      3. its "normal" map decreases with the loss (erfc for erf).

    Source: Hahn, Kim, Lee, Pursuing Overall Welfare in Federated Learning through Sequential Decision Making,
    ICML 2024.
    """
    check_choice("cdf", cdf, CDFS)
    check_choice("variant", variant, ("paper", "repo"))

    def init(sizes: Array, key: Key | None = None) -> AAggFFSState:
        del key
        sizes = as_floats(sizes)
        n = sizes.shape[0]
        start = jnp.ones_like(sizes) if variant == "repo" else jnp.full_like(sizes, 1 / n)
        return AAggFFSState(start, jnp.zeros_like(sizes), jnp.zeros((n, n), sizes.dtype))

    def weigh(state: AAggFFSState, report: Report, key: Key) -> tuple[Array, AAggFFSState]:
        del key
        n = state.p.shape[0]
        if report.ids.shape[0] < n:
            raise ValueError(
                f"aaggff_s needs all {n} clients in every round, got a cohort of {report.ids.shape[0]}; "
                "use aaggff_d under partial participation"
            )
        seen = report.active
        heard = responses(report.loss, seen, cdf, variant) / n
        r = scatter(jnp.full((n,), masked_mean(heard, seen)), report.ids, heard, seen)
        g = -r / (1 + state.p @ r)
        alpha, beta = 4.0, n / 4
        regulariser = alpha if variant == "paper" else alpha * (1 + beta)
        cross = 1 - beta * (g @ state.p) if variant == "paper" else 1
        linear = state.linear + cross * g
        curvature = state.curvature + g[:, None] * g[None, :]
        hessian = regulariser * jnp.eye(n, dtype=r.dtype) + beta * curvature
        p = qp_simplex(hessian, linear, state.p, jnp.ones((n,), bool), even=True)
        return normalize(p[report.ids], seen), AAggFFSState(p, linear, curvature)

    return Aggregator(init, marked(weigh, positive_losses=True))

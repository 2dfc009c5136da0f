"""AAggFF-D: linearised, entropy-regularised FTRL for many clients, few a round (Hahn, Kim, Lee, 2024)."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fedjax_fair.aggregators.responses import CDF, CDFS, Variant, responses
from fedjax_fair.checks import check_choice
from fedjax_fair.numerics.solvers import as_floats, masked_mean, normalize, scatter, softmax
from fedjax_fair.types import Aggregator, Key, Report, marked


class AAggFFDState(NamedTuple):
    """The decision and the gradients that made it."""

    round: Array  # i32[], rounds played
    p: Array  # f32[N], the mixing coefficients; on the simplex
    gradient: Array  # f32[N], sum of the estimated gradients of the decision loss


def aaggff_d(cdf: CDF = "weibull", variant: Variant = "paper") -> Aggregator:
    r"""Exponentiated weights on estimates of every client's response: for many clients, few a round.

    With responses :math:`r_i = C\,\mathrm{CDF}(F_i / \bar F)` of the sampled clients, C the share of clients
    sampled, and a doubly robust estimate of everybody's:

    .. math::
      \hat r_i = \bar r + 1[i \in S]\,(r_i - \bar r) / C, \qquad
      \hat g_t = -\frac{\hat r}{1 + \bar r} + \frac{\bar r \langle p_t, \hat r - \bar r \rangle}{(1 + \bar r)^2}

    .. math::
      p_{t+1} \propto \exp\Big(-\frac{\sqrt{\log N}}{L_\infty \sqrt{t + 1}} \sum_{\tau \le t} \hat g_\tau\Big)

    with :math:`L_\infty = 2 + C`. The new p aggregates this round: :math:`c_i = p_{t+1,i} / \sum_S p_{t+1}`.
    O(N) a round.

    Reads ``loss`` (received model, before training).

    Optimises: the regret of p for the decision losses -log(1 + sum_k p_k r_k); the model follows sum_k p_k F_k.

    Args:
      cdf: weibull, exponential, frechet, normal, gumbel or logistic; the one setting that the authors choose per
        dataset (weibull on ISIC, frechet on Reddit and Heart, normal on Berka, gumbel on CelebA, logistic on MQP).
      variant: "paper", or "repo" for what the authors' code (and so the published tables) computes.

    Raises:
      ValueError: another cdf or variant.

    Differs from the paper in: C is the realised share of active clients, so dropouts are part of the sampling.

    The authors' code (``variant="repo"``) differs from the paper in:
      1. the estimate for a sampled client lacks its leading :math:`\bar r`, which mildly penalises being sampled;
      2. p starts at C for every client, which sums to C N; it enters only the first gradient;
      3. its "normal" map decreases with the loss (erfc for erf).

    Source: Hahn, Kim, Lee, Pursuing Overall Welfare in Federated Learning through Sequential Decision Making,
    ICML 2024.
    """
    check_choice("cdf", cdf, CDFS)
    check_choice("variant", variant, ("paper", "repo"))

    def init(sizes: Array, key: Key | None = None) -> AAggFFDState:
        del key
        sizes = as_floats(sizes)
        uniform = jnp.full_like(sizes, 1 / sizes.shape[0])
        return AAggFFDState(jnp.zeros((), jnp.int32), uniform, jnp.zeros_like(sizes))

    def weigh(state: AAggFFDState, report: Report, key: Key) -> tuple[Array, AAggFFDState]:
        del key
        seen, n = report.active, state.p.shape[0]
        p = state.p
        C = seen.sum().astype(p.dtype) / n
        if variant == "repo":
            p = jnp.where(state.round == 0, C, p)
        C = jnp.where(C > 0, C, 1)  # nobody came: every response is the mean, 0
        r = C * responses(report.loss, seen, cdf, variant)
        r_bar = masked_mean(r, seen)
        r_bar_1 = jnp.full((n,), r_bar)
        own = (r - r_bar) / C
        r_hat = scatter(r_bar_1, report.ids, r_bar + own if variant == "paper" else own, seen)
        scale = 1 + r_bar * p.sum()
        # The second term is the same for every client: the softmax ignores it, the regret does not.
        g = -r_hat / scale + r_bar * (p @ (r_hat - r_bar_1)) / jnp.square(scale)
        G = state.gradient + g
        t = (state.round + 1).astype(p.dtype)
        rate = jnp.sqrt(jnp.log(float(n))) / ((2 + C) * jnp.sqrt(t + 1))
        p = softmax(-rate * G, jnp.ones((n,), bool))
        return normalize(p[report.ids], seen), AAggFFDState(state.round + 1, p, G)

    return Aggregator(init, marked(weigh, positive_losses=True))

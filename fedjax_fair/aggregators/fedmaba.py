"""FedMABA: bandit allocation inside a KL ball (Wang et al., 2024, Algorithm 1)."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

from fedjax_fair.checks import check_choice, check_range
from fedjax_fair.numerics.solvers import LOG_FLOOR, as_floats, log_normalize, project_kl_ball, scatter, uniform_over
from fedjax_fair.types import Aggregator, Key, Report

FAR = 1e30  # where a step ends: eta_b times a finite loss may be infinite
LITERAL_CAP = 1 / (1 + 2e5)  # where BanditMTL's search for lambda gives up: lambda = 2e5


class FedMABAState(NamedTuple):
    """The bandit's memory."""

    log_p: Array  # f32[N], log of its weights over all clients; exp(log_p) sums to 1


def fedmaba(
    alpha: Array | float = 0.5,
    eta_b: Array | float = 0.5,
    rho: Array | float = 1.0,
    *,
    kl_set: Literal["sampled", "literal"] = "sampled",
    scatter_back: Literal["mass", "literal"] = "mass",
) -> Aggregator:
    r"""Favour clients whose loss stays high, never further than rho (in KL divergence) from uniform.

    .. math:: \hat p_i \propto (p_i e^{\eta_b F_i})^s, \qquad c_i = \alpha \hat p_i + (1 - \alpha) / |S|

    with the largest :math:`s = 1 / (1 + \lambda) \in [0, 1]` for which
    :math:`\mathrm{KL}(\hat p \,\|\, \text{uniform on } S) \le \rho` (Eq. 9-11).

    Reads ``loss`` (received model, before training). ``alpha = 0`` is uniform FedAvg.

    Optimises: alpha max_p sum_k p_k F_k + (1 - alpha) sum_k F_k / N, over p with KL(p, uniform) <= rho.

    Args:
      alpha: share of the bandit's weights against the plain average, in [0, 1]; the paper tries .1 to .9.
      eta_b: step of the bandit, >= 0; the paper tries {.1, .3, .5, .7, 1}.
      rho: radius of the KL ball in nats, >= 0; 1 in the paper. It can bind only where log :math:`|S|` > rho.
      kl_set: "sampled", or "literal" for Eq. 10's log N: then no root exists when :math:`|S|` < N / e^rho, the
        search ends at its cap lambda = 2e5, and the rule collapses to uniform FedAvg.
      scatter_back: "mass", or "literal" for p_S <- p_hat as printed: then p leaves the simplex, and a client
        never sampled (at 1/N) enters far lighter than the sampled ones (about :math:`1/|S|`).

    Raises:
      ValueError: an argument outside its range.

    Differs from the paper in:
      1. the KL ball is centred on the sampled set (``kl_set``);
      2. under partial participation the sampled clients share the mass they had (``scatter_back``); the
         current round's weights do not depend on it, and at full participation nothing does;
      3. log p is floored at log 1e-12 (before a normalisation), so that a client can always come back.

    Source: Wang et al., FedMABA: Towards Fair Federated Learning through Multi-Armed Bandits Allocation, 2024.
    """
    check_range("alpha", alpha, 0, 1)
    check_range("eta_b", eta_b, 0)
    check_range("rho", rho, 0)
    check_choice("kl_set", kl_set, ("sampled", "literal"))
    check_choice("scatter_back", scatter_back, ("mass", "literal"))

    def init(sizes: Array, key: Key | None = None) -> FedMABAState:
        del key
        sizes = as_floats(sizes)
        return FedMABAState(jnp.full_like(sizes, -jnp.log(float(sizes.shape[0]))))

    def weigh(state: FedMABAState, report: Report, key: Key) -> tuple[Array, FedMABAState]:
        del key
        seen = report.active
        log_p = jnp.where(seen, state.log_p[report.ids], 0)
        log_q = log_p + jnp.minimum(eta_b * jnp.where(seen, report.loss, 0), FAR)
        if kl_set == "sampled":
            log_p_hat = project_kl_ball(log_q, rho, seen)
        else:
            missing = jnp.log(jnp.asarray(state.log_p.shape[0] / jnp.maximum(seen.sum(), 1), log_q.dtype))
            log_p_hat = project_kl_ball(log_q, rho - missing, seen, smallest=LITERAL_CAP)
        p_hat = jnp.where(seen, jnp.exp(log_p_hat), 0)

        log_mass = logsumexp(log_p, where=seen) if scatter_back == "mass" else jnp.zeros((), log_p.dtype)
        kept = log_normalize(jnp.maximum(log_p_hat + log_mass, LOG_FLOOR), seen) + log_mass
        state = FedMABAState(scatter(state.log_p, report.ids, kept, seen))
        return alpha * p_hat + (1 - alpha) * uniform_over(seen, p_hat.dtype), state

    return Aggregator(init, weigh)

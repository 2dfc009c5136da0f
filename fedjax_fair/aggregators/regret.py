"""Regret of the online rules: what their weights earned against the best fixed weights in hindsight."""

from typing import NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.aggregators.responses import CDF, CDFS, Variant, responses
from fedjax_fair.checks import check_choice, check_count
from fedjax_fair.types import Aggregator, Report


class Ledger(NamedTuple):
    """An online rule's account over T rounds, NumPy arrays."""

    rounds: np.ndarray
    """i64[K]: the rounds T' at which the account is drawn up, ascending."""
    loss: np.ndarray
    """f64[K]: cumulative decision loss, the sum of -log(1 + <p_t, r_t>) up to T'."""
    best: np.ndarray
    """f64[K]: the same of the best fixed weights for those T' rounds (at most ``slack`` too high)."""
    regret: np.ndarray
    """f64[K]: ``loss - best``, plus ``slack``: never too low."""
    slack: np.ndarray
    """f64[K]: how far ``best`` may be from the minimum: the duality gap of the solver."""
    bound: np.ndarray
    """f64[K]: the published bound at T'."""
    measured_bound: np.ndarray
    """f64[K]: the bound with the largest gradient that occurred, in place of the worst possible."""
    weights: np.ndarray
    """f64[N]: the best fixed weights for all T rounds."""


def ledger(
    aggregator: Aggregator, losses: Array, cdf: CDF = "weibull", variant: Variant = "paper", points: int = 20
) -> Ledger:
    r"""Play an AAggFF rule, all clients taking part, on a sequence of losses; account for its decisions.

    .. math:: \mathrm{Regret}_T = \sum_{t \le T} \ell_t(p_t) - \min_{p \in \Delta} \sum_{t \le T} \ell_t(p), \qquad
              \ell_t(p) = -\log(1 + \langle p, r_t \rangle)

    where p_t was decided before r_t was seen. Published bounds: AAggFF-S
    :math:`2 L_\infty N (1 + \log(1 + T / (16 N)))` with :math:`L_\infty = 1 / N`; AAggFF-D
    :math:`2 L_\infty \sqrt{T \log N}` with :math:`L_\infty = 2 + C`, C = 1 here.

    For AAggFF-S with N >= 4 the theory does not imply the bound: beta = N / 4 is not below the exp-concavity
    constant of the decision loss. AAggFF-D's is nearly vacuous at :math:`L_\infty = 3`; ``measured_bound``, with
    the largest :math:`|g_t|_\infty` that occurred, is a yardstick that no theorem backs, since the rule's own step
    size rests on 2 + C: switching losses overstep it.

    Args:
      aggregator: ``ff.aaggff_s(...)`` or ``ff.aaggff_d(...)``; recognised by its state.
      losses: f[T, N], the clients' losses in each round; of a run in which everybody takes part
        ``history.received_loss``, with its columns in the order of ``history.ids``.
      cdf: the one that the rule was built with (a rule is two functions, which cannot be asked).
      variant: likewise. Of "repo" neither the bounds nor the sign of the regret are promised: its first weights sum
        to N, not to 1.
      points: K, at how many rounds (evenly spread, the last included) to draw up the account; at most all T.

    Raises:
      ValueError: ``losses`` is not [T, N] or below 0, or the rule has no weights p over all clients.

    Source: Hahn, Kim, Lee, Pursuing Overall Welfare in Federated Learning through Sequential Decision Making,
    ICML 2024.
    """
    check_choice("cdf", cdf, CDFS)
    check_choice("variant", variant, get_args(Variant))
    if hasattr(losses, "_fields") or not (hasattr(losses, "shape") or isinstance(losses, list | tuple)):
        raise ValueError(f"losses must be [T, N], such as history.received_loss, got a {type(losses).__name__}")
    try:
        losses = jnp.asarray(losses)
    except (TypeError, ValueError) as error:  # words, rows of several lengths
        raise ValueError(f"losses must be numbers [T, N], got {type(losses).__name__}: {error}") from None
    if losses.ndim != 2 or 0 in losses.shape:
        raise ValueError(f"losses must be [T, N] with T and N above 0, got shape {losses.shape}")
    if not np.isfinite(losses).all():
        raise ValueError("losses must be finite, got NaN or infinity")
    if (losses < 0).any():
        raise ValueError(f"losses must be at least 0, for AAggFF takes others for 0, got {losses.min():g}")
    check_count("points", points)
    rounds, n = losses.shape
    if not jnp.issubdtype(losses.dtype, jnp.floating):
        losses = losses.astype(jnp.result_type(float))
    if isinstance(aggregator, Aggregator):
        state = aggregator.init(jnp.ones((n,), losses.dtype), jax.random.key(0))
    if not isinstance(aggregator, Aggregator) or not hasattr(state, "p"):
        raise ValueError("ledger takes an online rule, ff.aaggff_s(...) or ff.aaggff_d(...)")
    online_newton = hasattr(state, "curvature")
    everyone, ids = jnp.ones((n,), bool), jnp.arange(n, dtype=jnp.int32)

    def play(state: tuple, loss: Array) -> tuple[tuple, tuple[Array, Array]]:
        heard = responses(loss, everyone, cdf, variant) / (n if online_newton else 1)
        blank = jnp.zeros_like(loss)
        report = Report(
            ids, blank + 1, everyone, loss, blank, blank, blank, jnp.zeros((n, n), loss.dtype), blank[:, None]
        )
        return aggregator.weigh(state, report, jax.random.key(0))[1], (state.p, heard)  # type: ignore[attr-defined]

    p, r = jax.device_get(jax.jit(lambda s, x: jax.lax.scan(play, s, x)[1])(state, losses))
    p, r = p.astype(np.float64), r.astype(np.float64)
    earned = 1 + (p * r).sum(1)
    spent = np.cumsum(-np.log(earned))
    steepest = np.maximum.accumulate(r.max(1) / earned)
    at = np.unique(np.linspace(0, rounds, min(points, rounds) + 1).astype(int)[1:])
    answers, weights = [], np.full(n, 1 / n)
    for t in at:
        weights, *answer = best_fixed(r[:t], start=weights)
        answers.append(answer)
    best, slack = np.array(answers).T

    def bound(largest: np.ndarray | float) -> np.ndarray:
        if online_newton:
            return 2 * largest * n * (1 + np.log(1 + at / (16 * n)))
        return 2 * largest * np.sqrt(at * np.log(n))

    published = bound(1 / n if online_newton else 3.0)
    regret = spent[at - 1] - best + slack
    return Ledger(at, spent[at - 1], best, regret, slack, published, bound(steepest[at - 1]), weights)


def best_fixed(
    responses: np.ndarray, tolerance: float = 1e-2, iterations: int = 2_000, start: np.ndarray | None = None
) -> tuple[np.ndarray, float, float]:
    r"""Minimise :math:`-\sum_t \log(1 + \langle p, r_t \rangle)` over the simplex: ``(p, minimum, gap)``.

    On the simplex :math:`1 + \langle p, r \rangle = \langle p, 1 + r \rangle`: the log-optimal portfolio, which
    Cover's multiplicative update

    .. math:: p_i \leftarrow p_i \operatorname{mean}_t \frac{1 + r_{ti}}{\langle p, 1 + r_t \rangle}

    approaches monotonically. With :math:`m` the largest of those means, the value is within :math:`T \log m` of the
    minimum; that gap is returned, and iterating ends once it is below ``tolerance``. It begins at ``start`` (with a
    little for everybody: a weight of 0 could never grow), or at the uniform weights.

    Source: Cover, An algorithm for maximizing expected log investment return, IEEE Trans. Information Theory 1984.
    """
    payoff = 1 + np.asarray(responses, np.float64)
    rounds, n = payoff.shape
    p = np.full(n, 1 / n) if start is None else 0.9 * start + 0.1 / n
    for _ in range(iterations):
        growth = (payoff / (payoff @ p)[:, None]).mean(0)
        gap = rounds * np.log(growth.max())
        if gap <= tolerance:
            break
        p = p * growth
        p /= p.sum()
    return p, float(-np.log(payoff @ p).sum()), float(max(gap, 0.0))

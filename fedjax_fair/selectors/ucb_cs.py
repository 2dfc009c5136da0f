"""UCB-CS: client selection by a discounted upper confidence bound (Cho, Gupta, Joshi, Yagan, 2020)."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from fedjax_fair.checks import check_count, check_range
from fedjax_fair.numerics.largest import MANY
from fedjax_fair.numerics.solvers import scatter
from fedjax_fair.selectors.ranking import any_of, shortcut, top
from fedjax_fair.types import Context, Key, Report, Selector

FAR = 40.0  # nats: beyond e^40 the bonus is all that counts of an index, and is compared by its logarithm


class UCBState(NamedTuple):
    """The bandit's discounted sums, as means and log counts, which neither overflow nor vanish."""

    share: Array  # f32[N], p_k = n_k / n
    mean: Array  # f32[N], L_k / N_k, the discounted mean of the client's losses
    log_count: Array  # f32[N], log N_k, the discounted number of its participations; -inf before the first
    total: Array  # f32[], T, the discounted number of rounds
    sigma: Array  # f32[], largest std of the minibatch losses in the last round's cohort
    listed: Array  # f32[N], Algorithm 1's list (``literal_alg1``); otherwise unused


def ucb_cs(m: int, gamma: Array | float = 0.7, literal_alg1: bool = False) -> Selector:
    r"""Take the m clients with the largest discounted upper confidence bound on their loss.

    .. math:: A_k = p_k \Big(\frac{L_k}{N_k} + \sigma \sqrt{\frac{2 \log T}{N_k}}\Big), \quad
              L_k = \sum_{t'} \gamma^{t - t'} 1[k \in S_{t'}]\, \ell_{k,t'}, \quad
              N_k = \sum_{t'} \gamma^{t - t'} 1[k \in S_{t'}], \quad T = \sum_{t'} \gamma^{t - t'}

    (Eq. 4-7), where :math:`\ell` is the client's mean minibatch loss over its local steps and :math:`\sigma` the
    largest standard deviation of those losses in the last round that was heard of. Ties are broken at random.
    T_1 = 1, so there is no bonus after the first round.

    Observes ``train_loss`` and ``train_loss_std``; no model is sent but for training. Pair it with uniform weights:
    the sizes are in the index.

    Args:
      m: clients per round.
      gamma: discount per round, in [0, 1]; .7 in the paper. 0 forgets everybody outside the last cohort.
      literal_alg1: follow Algorithm 1 to the letter: only the cohort's indices are computed anew and the whole
        list is multiplied by gamma, so that an idle client's index decays, where by Eq. 4-7 its bonus grows.

    Raises:
      ValueError: ``m`` below 1, ``gamma`` outside [0, 1].

    Differs from the paper in:
      1. the exponent counts rounds; counted in local iterations as printed, .7^30 would erase all history at once;
      2. clients with N_k = 0, for which the index is not defined, come first. With gamma = 0 these are all but the
         last cohort (in the paper's words the latest loss would remain their estimate);
      3. a client that is selected and does not report counts as if it had reported the mean of the others'
         L_k / N_k: left alone, its growing bonus would have it selected for ever.

    Source: Cho, Gupta, Joshi, Yagan, Bandit-based Communication-Efficient Client Selection Strategies for Federated
    Learning, 2020.
    """
    check_count("m", m)
    check_range("gamma", gamma, 0, 1)

    def init(sizes: Array, key: Key | None = None) -> UCBState:
        del key
        zero, never = jnp.zeros((), sizes.dtype), jnp.full_like(sizes, -jnp.inf)
        return UCBState(sizes / sizes.sum(), jnp.zeros_like(sizes), never, zero, zero, -never)

    def log_bonus(state: UCBState) -> Array:
        width = jnp.sqrt(2 * jnp.log(jnp.maximum(state.total, 1))) * state.sigma
        return jnp.log(width) - state.log_count / 2

    def bound(state: UCBState) -> Array:
        bonus = jnp.exp(jnp.minimum(log_bonus(state), FAR))
        return jnp.where(jnp.isfinite(state.log_count), state.share * (state.mean + bonus), jnp.inf)

    def ranked(state: UCBState) -> Array:
        """The index, through arcsinh: in the same order, but the bonus of a long absence cannot overflow."""
        near, log = jnp.arcsinh(bound(state)), log_bonus(state)
        far = jnp.isfinite(state.log_count) & (log > FAR)
        return jnp.where(far, jnp.log(2 * state.share) + log, near)

    def select(state: UCBState, key: Key, context: Context) -> tuple[Array, UCBState]:
        del context
        if literal_alg1:
            listed = jnp.where(jnp.isinf(state.listed), state.listed, state.listed * gamma)
            return top(state.listed, m, key), state._replace(listed=listed)
        if state.mean.size < MANY:
            return top(ranked(state), m, key), state

        def new(ids: Array) -> Array:  # as long as most are, there is no need to rank anybody
            return ~jnp.isfinite(state.log_count[ids])

        return any_of(new, state.mean.size, m, key, lambda key: top(ranked(state), m, key)), state

    def observe(state: UCBState, report: Report) -> UCBState:
        ids, seen, log_gamma = report.ids, report.active, jnp.log(jnp.asarray(gamma, state.mean.dtype))
        idle = state.log_count + log_gamma
        own = idle[ids]
        count = jnp.logaddexp(own, 0)

        def averaged(loss: Array) -> Array:
            return state.mean[ids] * jnp.exp(own - count) + loss * jnp.exp(-count)

        means = scatter(state.mean, ids, averaged(report.train_loss), seen)
        counts = scatter(idle, ids, count, seen)

        def of_others() -> tuple[Array, Array]:
            """The mean over those who have been heard of and have not failed now, and whether there are any."""
            failed = scatter(jnp.zeros(counts.shape, bool), ids, jnp.ones_like(seen), ~seen)
            known = jnp.isfinite(counts) & ~failed
            count = known.sum()  # two passes over all clients, no third
            return jnp.where(known, means / jnp.maximum(count, 1), 0).sum(), count > 0

        nobody = (jnp.zeros((), means.dtype), jnp.zeros((), bool))
        others, are_there = shortcut(seen.all(), lambda: nobody, of_others, counts.size)
        lapsed = ~seen & are_there
        state = state._replace(
            mean=scatter(means, ids, averaged(others), lapsed),
            log_count=scatter(counts, ids, count, lapsed),
            total=gamma * state.total + 1,
            sigma=jnp.where(seen.any(), jnp.max(report.train_loss_std, where=seen, initial=0), state.sigma),
        )
        fresh = scatter(state.listed, ids, bound(state)[ids], seen | lapsed)
        return state._replace(listed=fresh) if literal_alg1 else state

    return Selector(init, select, observe, m)

"""rpow-d: power-of-choice on the losses that clients last reported (Cho, Wang, Joshi, 2020)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.numerics.solvers import masked_mean, scatter
from fedjax_fair.selectors.ranking import check_candidates, draw_candidates, top
from fedjax_fair.types import Context, Key, Report, Selector


class RPowDState(NamedTuple):
    """What the clients last said."""

    log_sizes: Array  # f32[N]
    loss: Array  # f32[N], mean minibatch loss of the client's latest local training; +inf before the first


def rpow_d(m: int, d: int | None = None) -> Selector:
    r"""Power-of-choice with stale losses: no extra communication, clients never heard of first.

    Of d candidates drawn in proportion to their sizes (d = N by default, so all), the m with the largest loss as of
    their last participation: the mean over the minibatches of that local training.

    A client that is selected and does not report is put at the mean of the others' losses (which the paper leaves
    open): where it stood, at the top, it would be selected for ever.

    Observes ``train_loss``.

    Args:
      m: clients that train.
      d: candidates, at least m; None takes all clients.

    Raises:
      ValueError: ``m`` below 1 or ``d`` below ``m``; in ``simulation``, ``d`` above N.

    Source: Cho, Wang, Joshi, 2020, section 4; the baseline of UCB-CS.
    """
    check_candidates(m, d)

    def init(sizes: Array, key: Key | None = None) -> RPowDState:
        del key
        return RPowDState(jnp.log(sizes), jnp.full_like(sizes, jnp.inf))

    def select(state: RPowDState, key: Key, context: Context) -> tuple[Array, RPowDState]:
        draw_key, tie_key = jax.random.split(key)
        if d is None or d == context.n_clients:
            return top(state.loss, m, tie_key), state
        among = draw_candidates(state.log_sizes, draw_key, d)
        return among[top(state.loss[among], m, tie_key)], state

    def observe(state: RPowDState, report: Report) -> RPowDState:
        loss = scatter(state.loss, report.ids, report.train_loss, report.active)
        failed = scatter(jnp.zeros_like(loss), report.ids, ~report.active, ~report.active) > 0
        known = jnp.isfinite(loss) & ~failed
        return state._replace(loss=jnp.where(failed & known.any(), masked_mean(loss, known), loss))

    return Selector(init, select, observe, m)

"""rpow-d: power-of-choice on the losses that clients last reported (Cho, Wang, Joshi, 2020)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.checks import check_count
from fedjax_fair.selectors.ranking import top
from fedjax_fair.solvers import scatter
from fedjax_fair.types import Context, Key, Report, Selector


class RPowDState(NamedTuple):
    """What the clients last said."""

    log_sizes: Array  # f32[N]
    loss: Array  # f32[N], mean minibatch loss of the client's latest local training; +inf before the first


def rpow_d(m: int, d: int | None = None) -> Selector:
    r"""Power-of-choice with stale losses: no extra communication, clients never heard of first.

    Of d candidates drawn in proportion to their sizes (d = N by default, so all), the m with the largest loss as of
    their last participation: the mean over the minibatches of that local training.

    Observes ``train_loss``.

    Args:
      m: clients that train.
      d: candidates, at least m; None takes all clients.

    Raises:
      ValueError: ``m`` below 1 or ``d`` below ``m``; in ``simulation``, ``d`` above N.

    Source: Cho, Wang, Joshi, 2020, section 4; the baseline of UCB-CS.
    """
    check_count("m", m)
    if d is not None:
        check_count("d", d, low=m)

    def init(sizes: Array, key: Key | None = None) -> RPowDState:
        del key
        return RPowDState(jnp.log(sizes), jnp.full_like(sizes, jnp.inf))

    def select(state: RPowDState, key: Key, context: Context) -> tuple[Array, RPowDState]:
        n = context.n_clients
        if d is not None and d > n:
            raise ValueError(f"d must be from m to the {n} clients, got {d}")
        draw_key, tie_key = jax.random.split(key)
        if d is None or d == n:
            return top(state.loss, m, tie_key), state
        noise = jax.random.gumbel(draw_key, (n,), state.log_sizes.dtype)
        among = jax.lax.top_k(state.log_sizes + noise, d)[1].astype(jnp.int32)
        return among[top(state.loss[among], m, tie_key)], state

    def observe(state: RPowDState, report: Report) -> RPowDState:
        heard = scatter(state.loss, report.ids, report.train_loss, report.active)
        return state._replace(loss=heard)

    return Selector(init, select, observe, m)

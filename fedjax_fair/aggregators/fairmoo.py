"""FairMOO: close the gap between the losses first, then descend for everybody (2025)."""

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.aggregators.stateless import init
from fedjax_fair.checks import check_count, check_range
from fedjax_fair.numerics.min_norm import min_norm_in_halfspace, squared_length
from fedjax_fair.numerics.solvers import masked_mean
from fedjax_fair.types import Aggregator, Key, Report, State, marked


def fairmoo(prefer: Array | float = 6e-3, lr: Array | float = 0.2, iterations: int = 2000) -> Aggregator:
    r"""While the losses lie apart, lower their variance; once they are close, lower all of them and not their gap.

    With m clients, mean loss :math:`\bar F`, :math:`V = \sum_k (F_k - \bar F)^2 / (m - 1)` and
    :math:`h_k = \tfrac2m (F_k - \bar F)`,

    .. math:: l = \begin{cases} h & V > \text{prefer} \\
              \arg\min_{l \in \Delta,\ \langle \sum_k l_k u_k, \sum_k h_k u_k \rangle \ge 0} \|\sum_k l_k u_k\|^2
              & \text{else} \end{cases}, \qquad c = \eta\, l / \|\textstyle\sum_k l_k u_k\|

    with the updates :math:`u_k = w_k - w`. Every step has the length eta: it never shrinks by itself, so let the
    server's rate decay. In the first case the coefficients sum to 0, and clients below the mean loss are trained
    away from. Reads ``loss`` (received model, before training) and ``gram``.

    Optimises: the variance of the clients' losses down to ``prefer``, then all losses at once.

    Args:
      prefer: the variance of the losses that counts as fair, >= 0; the authors take .006 and .003.
      lr: eta, the length of a step, above 0; .2 in the authors' runs, decaying by .999 a round.
      iterations: of the solver at most, which ends where it has arrived.

    Raises:
      ValueError: an argument outside its range.

    Differs from the authors' code in:
      1. the loss is the received model's; theirs is the mean of the last local epoch's minibatches;
      2. where no mixture keeps the gap from growing, the shortest of all is taken; theirs fails;
      3. one client alone has V = 0; theirs divides by 0;
      4. where the updates cancel out to rounding, nobody moves;
      5. who made no step is left out of the second case; theirs then stops everybody.

    Source: FairMOO, github.com/Zhg9300/FairMOO, 2025.
    """
    check_range("prefer", prefer, 0)
    check_range("lr", lr, 0, open_low=True)
    check_count("iterations", iterations)

    def weigh(state: State, report: Report, key: Key) -> tuple[Array, State]:
        del key
        seen = report.active
        gram = jnp.where(seen[:, None] & seen[None, :], report.gram, 0)
        apart = jnp.where(seen, report.loss - masked_mean(report.loss, seen), 0)
        widest = jnp.abs(apart).max()
        h = apart / jnp.where(widest > 0, widest, 1)  # only its direction counts, and squares overflow
        others = jnp.maximum(seen.sum() - 1, 1).astype(h.dtype)
        deviation = widest * jnp.sqrt((h**2).sum() / others)
        fair = deviation <= jnp.sqrt(jnp.asarray(prefer, h.dtype))
        moved = seen & (jnp.diagonal(gram) > 0)
        mixture = jax.lax.cond(fair, lambda: min_norm_in_halfspace(gram, gram @ h, moved, iterations), lambda: h)
        square = squared_length(mixture, gram)
        return lr * mixture / jnp.sqrt(jnp.where(square > 0, square, jnp.inf)), state

    return Aggregator(init, marked(weigh, cancels=True))

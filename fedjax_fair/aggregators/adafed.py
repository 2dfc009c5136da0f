"""AdaFed: a common direction whose slope for each client grows with its loss (Hamidi and Yang, 2024)."""

import jax.numpy as jnp
from jax import Array

from fedjax_fair.aggregators.stateless import init
from fedjax_fair.checks import check_range
from fedjax_fair.numerics.solvers import centre
from fedjax_fair.types import Aggregator, Key, Report, State, marked

STILL = 1e-8  # an update shorter than this has no direction
LOWEST = 1e-10  # added to every loss, whose logarithm is taken
LONGEST = 1e20  # of the common factor: losses that vanish would make the step infinite


def adafed(gamma: Array | float = 1.0, lr: Array | float = 0.2) -> Aggregator:
    r"""Descend for everybody at once, the faster for a client the larger its loss.

    With unit updates :math:`u_k = (w_k - w) / \|w_k - w\|`, U their Gram matrix and
    :math:`f_k = F_k^\gamma`,

    .. math:: c_k = \eta\, \frac{\kappa_k}{f^\top \kappa\; \|w_k - w\|}, \qquad \kappa = U^{-1} f

    so that the step d has :math:`\langle u_k, d \rangle = \eta F_k^\gamma / f^\top \kappa` for every client: what a
    client gains is in proportion to :math:`F_k^\gamma`. Reads ``gram`` and ``loss`` (received model, before
    training). Coefficients may be of any sign and size: the rule carries a step of its own, which grows as the
    losses fall, by :math:`F^{-\gamma}`.

    Optimises: all clients' losses at once: it looks for a point where no direction lowers every one of them.

    Args:
      gamma: how much more a larger loss gains, >= 0; the port's class has 1, its command line 3.
      lr: eta, the step, above 0; .2 in the port, where it is also the clients' rate.

    Raises:
      ValueError: an argument outside its range.

    Differs from the paper in:
      1. the closed form stands for the sequential orthogonalisation, whose result does not depend on its order;
      2. U has a ridge of its rounding: updates that are linearly dependent have no common direction of that kind,
         and of updates that differ by a thousandth the slopes in float32 are a quarter off; one shorter than 1e-8
         has no part;
      3. the loss is the received model's; the port takes the mean of the last local epoch's minibatches;
      4. losses below 1e-10 count as that, and the factor of the losses' size is at most 1e20.

    Source: Hamidi, Yang, AdaFed: Fair Federated Learning via Adaptive Common Descent Direction, TMLR 2024. Its
    authors published no code; a port by FairMOO's authors gives the same directions.
    """
    check_range("gamma", gamma, 0)
    check_range("lr", lr, 0, open_low=True)

    def weigh(state: State, report: Report, key: Key) -> tuple[Array, State]:
        del key
        norm = jnp.sqrt(jnp.maximum(jnp.diagonal(report.gram), 0))
        moved = report.active & (norm > STILL)
        scale = jnp.where(moved, 1 / jnp.where(moved, norm, 1), 0)
        unit = jnp.where(moved[:, None] & moved[None, :], report.gram * scale[:, None] * scale[None, :], 0)
        log_loss = jnp.log(jnp.where(moved, jnp.maximum(report.loss, 0), 0) + LOWEST)
        f = jnp.where(moved, jnp.exp(gamma * centre(log_loss, moved)), 0)  # the largest is 1
        ridge = jnp.where(moved, 32 * jnp.finfo(norm.dtype).eps, 1)  # 1 for who is not there: the matrix inverts
        kappa = jnp.where(moved, jnp.linalg.solve(unit + jnp.diag(ridge), f), 0)
        rise = (f * kappa).sum()
        top = jnp.max(log_loss, where=moved, initial=-jnp.inf)
        size = jnp.minimum(jnp.exp(jnp.minimum(-gamma * jnp.where(moved.any(), top, 0), jnp.log(LONGEST))), LONGEST)
        return lr * size * kappa * scale / jnp.where(rise > 0, rise, jnp.inf), state

    return Aggregator(init, marked(weigh, positive_losses=True))

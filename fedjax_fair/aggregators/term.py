"""TERM at the level of clients: exponentially tilted losses (Li et al., 2021)."""

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import Array

from fedjax_fair.checks import check_choice, check_range
from fedjax_fair.numerics.solvers import as_floats, centre, masked_mean, softmax, uniform_over
from fedjax_fair.types import Aggregator, Key, Report


class TERMState(NamedTuple):
    """The authors' running estimate; the paper's form does not use it."""

    evidence: Array  # f32[], 0.5/0.5 moving average of the mean shifted exponential, from 0


def term(
    t: Array | float = 0.1,
    weighting: Literal["size", "uniform"] = "size",
    variant: Literal["paper", "authors"] = "paper",
) -> Aggregator:
    r"""Tilt the average of the clients' losses towards the largest (t > 0) or the smallest (t < 0).

    .. math:: \min_w \frac1t \log \sum_k \pi_k e^{t F_k(w)}, \qquad c_k \propto \pi_k e^{t F_k}

    with :math:`\pi_k \propto n_k` or uniform. Reads ``loss`` (received model, before training), and ``n`` for
    weighting by size. ``t = 0`` is FedAvg of the same weighting. The losses are plain means whatever the clients
    minimise: with ``objective=ff.tilted(...)`` this is not the authors' hierarchical TERM.

    Optimises: log(sum_k pi_k exp(t F_k)) / t, a soft maximum of the clients' losses.

    Args:
      t: the tilt; FedMABA tries {.1, .5, .8}, AAggFF {.1, 1, 10}.
      weighting: "size" or "uniform", the prior pi.
      variant: "paper", or "authors" for what their federated code computes (uniform prior).

    Raises:
      ValueError: ``t`` is not a number, another weighting or variant.

    The authors' code (``variant="authors"``) differs from the paper in:
      1. it normalises by a running mean of :math:`e^{t (F_k - \max F)}`; the mean's terms are shifted by different
         maxima (and overflow for t far below 0); it starts at 0, so that the first round's weights sum to 2;
      2. it divides by the number of clients twice: the step is some m times shorter than FedAvg's.

    Source: Li, Beirami, Sanjabi, Smith, Tilted Empirical Risk Minimization, ICLR 2021.
    """
    check_range("t", t)
    check_choice("weighting", weighting, ("size", "uniform"))
    check_choice("variant", variant, ("paper", "authors"))

    def init(sizes: Array, key: Key | None = None) -> TERMState:
        del key
        sizes = as_floats(sizes)
        return TERMState(jnp.zeros((), sizes.dtype))

    def weigh(state: TERMState, report: Report, key: Key) -> tuple[Array, TERMState]:
        del key
        seen = report.active
        from_largest = centre(report.loss, seen)
        if variant == "paper":
            tilted = t * jnp.where(t > 0, from_largest, -centre(-report.loss, seen))  # no exponential above 1
            prior = jnp.log(jnp.where(seen, report.n, 1)) if weighting == "size" else 0
            return softmax(tilted + prior, seen), state
        shifted = jnp.where(seen, jnp.exp(t * from_largest), 0)
        evidence = jnp.where(seen.any(), (state.evidence + masked_mean(shifted, seen)) / 2, state.evidence)
        share = uniform_over(seen, shifted.dtype)
        return share * share * shifted / jnp.where(evidence > 0, evidence, 1), TERMState(evidence)

    return Aggregator(init, weigh)

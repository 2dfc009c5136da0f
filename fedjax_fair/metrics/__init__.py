r"""How well and how evenly a model serves its clients.

Every metric reduces the LAST axis, the clients, and keeps any leading ones: [N], [T, N], [seeds, T, N]. All
are pure, keep the input's float dtype and work under ``jit`` and ``vmap``.

Accuracies are fractions in [0, 1]. :func:`variance` is in percent^2 and :func:`std` in percentage points, as
papers print them; the other metrics stay in the unit of their input or have none.

``where`` (bool, broadcastable to the input) says which clients count: by default those whose entry is not
NaN, a client without test examples having no accuracy. If nobody counts, the result is NaN. A NaN that an
explicit ``where`` counts is a failure (a diverged loss), not an absence, and the result is NaN.

:func:`cov`, :func:`jain`, :func:`cosine_to_uniform`, :func:`gini`, :func:`lorenz`, :func:`kl_to_uniform` and
:func:`entropy` say how uneven any non-negative quantity is: accuracies, losses, weights. They see only its
ratios :math:`r_i = x_i / \bar x` to the mean; if every x is 0 all are equal, r = 1. Of a quantity that somebody
has a negative amount of there are no shares, and the result is NaN, under ``jit`` and elsewhere.
"""

from fedjax_fair.metrics.fairness import (
    best,
    cosine_to_uniform,
    cov,
    entropy,
    gini,
    jain,
    kl_to_uniform,
    lorenz,
    mean,
    parity_gap,
    pooled,
    std,
    variance,
    worst,
)
from fedjax_fair.metrics.summaries import SUMMARY, summary

__all__ = [
    "SUMMARY",
    "best",
    "cosine_to_uniform",
    "cov",
    "entropy",
    "gini",
    "jain",
    "kl_to_uniform",
    "lorenz",
    "mean",
    "parity_gap",
    "pooled",
    "std",
    "summary",
    "variance",
    "worst",
]

r"""Is one rule better than another? Paired differences over replicates, their intervals and tests.

A replicate is one draw of everything that is random: federation, initial model, cohorts, batches. Rules that
share their replicates are compared by their differences :math:`d_r`, one per replicate; what makes a replicate easy
or hard for all rules cancels. With R replicates, mean :math:`\bar d` and standard deviation s, Student's t with
R - 1 degrees of freedom gives the interval :math:`\bar d \pm t_{R-1} s / \sqrt R`, and the probability p of a mean
at least so far from 0 if there were no difference.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedjax_fair.checks import check_complete, check_range

ROUNDING = 1e-6
"""Relative to the values: differences closer to each other are the same number, rounded."""


class Difference(NamedTuple):
    """A paired comparison, in the unit of the values that were compared."""

    mean: float
    low: float
    """Lower end of the confidence interval of the mean."""
    high: float
    p: float
    """Two-sided, of the paired t-test."""
    detectable: float
    """The smallest true difference that so many replicates of this spread would have shown with probability .8,
    before any adjustment for several rules."""


def paired(values: ArrayLike, baseline: ArrayLike, confidence: float = 0.95, power: float = 0.8) -> Difference:
    """``values - baseline``, replicate by replicate: f[R] each.

    Differences that all agree, to float32's rounding, have no spread to judge by: where they are 0 the interval is
    0 and p is 1, else all but the mean is NaN. A value that is not finite makes all of it NaN: a run that failed
    has no difference to anything. Interval and p take the differences for about normal.

    Args:
      values: one number per replicate.
      baseline: those of the rule to compare with, of the same replicates in the same order.
      confidence: of the interval; ``1 - confidence`` is the level of the test that ``detectable`` is about.
      power: the probability with which ``detectable`` would have been shown.

    Raises:
      ValueError: not two vectors of one length, or a single replicate.

    >>> paired([0.9, 0.8, 0.7], [0.8, 0.7, 0.5]).mean.__round__(3)
    0.133
    """
    check_range("confidence", confidence, 0, 1, open_low=True, open_high=True)
    check_range("power", power, 0, 1, open_low=True, open_high=True)
    check_complete("values", values)
    check_complete("baseline", baseline)
    mine, others = np.asarray(values, float), np.asarray(baseline, float)
    if mine.ndim != 1 or mine.shape != others.shape:
        raise ValueError(f"values and baseline must be vectors of one length, got {mine.shape} and {others.shape}")
    if len(mine) < 2:
        raise ValueError(f"a difference needs at least two replicates, got {len(mine)}")
    differences = mine - others
    if not np.isfinite(differences).all():
        return Difference(*[float("nan")] * 5)
    from scipy import special

    count, mean, std = len(differences), float(differences.mean()), float(differences.std(ddof=1))
    rounding = ROUNDING * max(np.abs(mine).max(), np.abs(others).max())
    if std <= rounding:
        nothing = abs(mean) <= rounding
        return Difference(0.0, 0.0, 0.0, 1.0, 0.0) if nothing else Difference(mean, *[float("nan")] * 4)
    error = std / np.sqrt(count)
    reach = float(special.stdtrit(count - 1, (1 + confidence) / 2) * error)
    p = float(2 * special.stdtr(count - 1, -abs(mean) / error))
    return Difference(mean, mean - reach, mean + reach, p, float(error * _shift(count, 1 - confidence, power)))


@functools.cache
def _shift(count: int, level: float, power: float) -> float:
    """The non-centrality at which the two-sided t-test of ``level`` has this power."""
    from scipy import special

    bound = float(special.stdtrit(count - 1, 1 - level / 2))

    def missing(shift: float) -> float:
        # The other tail, below 1e-3 at any power worth asking for, is left out: SciPy's is NaN far from 0.
        return float(1 - special.nctdtr(count - 1, shift, bound) - power)

    low, high = 0.0, bound + 1.0
    while (short := missing(high)) < 0:
        high *= 1.25
    if np.isnan(short):  # where SciPy does not know
        return float("nan")
    for _ in range(60):  # by halves: SciPy's solvers would take longer to import
        middle = (low + high) / 2
        low, high = (middle, high) if missing(middle) < 0 else (low, middle)
    return high if missing(0.0) < 0 else 0.0


def holm(p: Sequence[float]) -> np.ndarray:
    """Holm's adjustment of several p-values: f64[K], in their order; NaN stays NaN and does not count.

    Calling all those below .05 different errs, anywhere among them, with probability at most .05.

    Source: Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 1979.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, float)
    adjusted = np.full(values.shape, np.nan)
    order = np.argsort(values)[: int((~np.isnan(values)).sum())]
    steps = values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted

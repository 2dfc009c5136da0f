"""cpow-d: power-of-choice whose candidates evaluate one minibatch (Cho, Wang, Joshi, 2020)."""

from fedjax_fair.checks import check_count
from fedjax_fair.selectors.pow_d import choose_among
from fedjax_fair.types import Selector


def cpow_d(m: int, d: int | None = None, batch: int = 50) -> Selector:
    r"""Power-of-choice with each candidate's loss estimated on one random minibatch.

    .. math:: S = \operatorname{top}_m \Big\{\frac1b \sum_{\xi \in \xi_k} f(w, \xi) : k \in A\Big\}

    As :func:`pow_d`, but computation-efficient: d model downloads and d times b loss evaluations a round. The b
    examples are drawn with replacement.

    Args:
      m: clients that train.
      d: candidates, at least m; 2 m by default (N where that is more than there are).
      batch: b, examples per estimate.

    Raises:
      ValueError: ``m`` or ``batch`` below 1, ``d`` below ``m``; in ``simulation``, ``d`` above N.

    Source: Cho, Wang, Joshi, 2020, section 4.
    """
    return choose_among(m, d, batch=check_count("batch", batch))

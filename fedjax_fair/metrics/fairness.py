"""The measures of :mod:`fedjax_fair.metrics`, which says what all of them share: axes, units, who counts."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fedjax_fair.checks import check_range, check_truth
from fedjax_fair.metrics.masked import counted as _counted
from fedjax_fair.metrics.masked import places as _places
from fedjax_fair.metrics.masked import ratios as _ratios
from fedjax_fair.metrics.masked import scaled as _scaled
from fedjax_fair.metrics.masked import sort as _sort
from fedjax_fair.metrics.masked import weights_of as _weights_of


def mean(x: ArrayLike, where: ArrayLike | None = None) -> Array:
    """Average over clients, every client alike: [..., N] to [...], in the unit of ``x``."""
    x, where, n = _counted(x, where)
    x, scale = _scaled(x)
    return jnp.sum(x, -1) / n[..., 0] / scale[..., 0]


def pooled(acc: ArrayLike, sizes: ArrayLike, where: ArrayLike | None = None) -> Array:
    r""":math:`\sum_k n_k a_k / \sum_k n_k`: the accuracy on the union of the clients' examples.

    ``acc`` [..., N] and ``sizes``, the numbers of test examples, broadcastable to it, give [...], in the unit
    of ``acc``. AAggFF's "avg" is this one.
    """
    acc, where, _ = _counted(acc, where)
    acc, scale = _scaled(acc)
    weights = jnp.where(where, _weights_of(sizes, acc), 0)
    return jnp.sum(weights * acc, -1) / jnp.sum(weights, -1) / scale[..., 0]


def variance(acc: ArrayLike, where: ArrayLike | None = None) -> Array:
    r""":math:`10^4 \cdot \frac1N \sum_k (a_k - \bar a)^2`, the population's, in percent^2: [..., N] to [...].

    The fairness of q-FFL (Li et al., 2020) and "Var." of FedMABA (Wang et al., 2024).

    >>> round(float(variance([0.9, 0.5])), 1)
    400.0
    """
    return std(acc, where) ** 2


def std(acc: ArrayLike, where: ArrayLike | None = None) -> Array:
    """Population standard deviation in percentage points, the root of :func:`variance`: [..., N] to [...].

    FedFV (Wang et al., 2021) prints this one under the name "var".
    """
    return 100 * deviation(acc, where)


def deviation(x: ArrayLike, where: ArrayLike | None) -> Array:
    """The population's standard deviation, in the unit of ``x``."""
    x, where, n = _counted(x, where)
    x, scale = _scaled(x)
    gap = jnp.where(where, x - jnp.sum(x, -1, keepdims=True) / n, 0)
    gap = jnp.where(where, gap - jnp.sum(gap, -1, keepdims=True) / n, 0)  # of what the first mean has rounded
    return jnp.sqrt(jnp.sum(gap**2, -1) / n[..., 0]) / scale[..., 0]


def worst(
    acc: ArrayLike,
    percent: float = 5,
    sizes: ArrayLike | None = None,
    where: ArrayLike | None = None,
    *,
    higher_is_better: bool = True,
) -> Array:
    """Mean over the ``max(1, int(N percent / 100))`` clients with the lowest accuracy: [..., N] to [...].

    N is the number of clients that count. ``percent`` is static; 0 asks for the single worst client.
    Unweighted as in q-FFL (10 %), FedMABA (5 %) and FedFV; with ``sizes``, weighted by them as in AAggFF (10
    %): of clients with equal accuracy, the smaller ones are then the lower, and those of size 0 do not count. Of
    errors, ``higher_is_better=False``, the worst are the highest.

    >>> round(float(worst([0.9, 0.5, 0.7, 0.1], percent=50)), 3)
    0.3
    """
    check_truth("higher_is_better", higher_is_better)
    return _tail(acc, percent, sizes, where, top=not higher_is_better)


def best(
    acc: ArrayLike,
    percent: float = 5,
    sizes: ArrayLike | None = None,
    where: ArrayLike | None = None,
    *,
    higher_is_better: bool = True,
) -> Array:
    """Mean over the ``max(1, int(N percent / 100))`` clients with the highest accuracy; see :func:`worst`."""
    check_truth("higher_is_better", higher_is_better)
    return _tail(acc, percent, sizes, where, top=higher_is_better)


def _tail(acc: ArrayLike, percent: float, sizes: ArrayLike | None, where: ArrayLike | None, *, top: bool) -> Array:
    check_range("percent", percent, 0, 100)
    acc, where, _ = _counted(acc, where)
    weights = jnp.ones_like(acc) if sizes is None else _weights_of(sizes, acc)
    where = where & (weights != 0)  # a tail of clients without an example has no mean
    acc, weights = _sort(where, acc, weights)
    # How many clients to take, for each possible N: a constant, so that the rounding is Python's.
    take = jnp.asarray(np.maximum(1, (np.arange(acc.shape[-1] + 1) * percent / 100).astype(np.int32)))
    count = jnp.sum(where, -1, keepdims=True)
    rank = count - 1 - _places(acc) if top else _places(acc)
    weights = jnp.where((rank >= 0) & (rank < jnp.minimum(take[count], count)), weights, 0)
    # 0 * inf is NaN: an infinity outside the tail says nothing of it, where a NaN that counts is a failure.
    acc, scale = _scaled(jnp.where((weights != 0) | jnp.isnan(acc), acc, 0))
    total = jnp.sum(weights, -1, keepdims=True)
    rough = jnp.sum(weights * acc, -1, keepdims=True) / total
    # Values of a tail lie close together: in a long sum of float32 they round alike, and what is lost adds up.
    lost = jnp.sum(weights * (acc - rough), -1, keepdims=True) / total
    return (jnp.where(jnp.isfinite(rough), rough + lost, rough) / scale)[..., 0]


def parity_gap(acc: ArrayLike, where: ArrayLike | None = None) -> Array:
    """Best minus worst single client, in the unit of ``acc``: [..., N] to [...] (AAggFF, cross-silo)."""
    return best(acc, 0, where=where) - worst(acc, 0, where=where)


def cov(x: ArrayLike, where: ArrayLike | None = None) -> Array:
    r"""Coefficient of variation :math:`\mathrm{std}(x) / \bar x`, a ratio: [..., N] to [...]; 0 is equal."""
    ratio, _, n = _ratios(x, where)
    return jnp.sqrt(jnp.sum((ratio - 1) ** 2, -1) / n[..., 0])


def jain(x: ArrayLike, where: ArrayLike | None = None) -> Array:
    r"""Jain's index :math:`(\sum x)^2 / (N \sum x^2) = 1 / (1 + \mathrm{CoV}^2)`: [..., N] to [...].

    From 1/N, one client has all, to 1, equal; all zeros give 1. UCB-CS (Cho et al., 2020) takes it of the
    losses.

    >>> round(float(jain([1.0, 3.0])), 3)
    0.8
    """
    return 1 / (1 + cov(x, where) ** 2)


def cosine_to_uniform(x: ArrayLike, where: ArrayLike | None = None) -> Array:
    r"""Angle to the all-ones vector, in degrees: [..., N] to [...]; 0 is equal (q-FFL, appendix).

    :math:`\arccos(\sum x / (\sqrt N \|x\|)) = \arctan \mathrm{CoV}`; the latter keeps its digits near 0.
    """
    return jnp.degrees(jnp.arctan(cov(x, where)))


def gini(x: ArrayLike, unbiased: bool = False, where: ArrayLike | None = None) -> Array:
    r"""Gini coefficient :math:`\sum_{ij} |x_i - x_j| / (2 N^2 \bar x)`: [..., N] to [...] (PG-FFL, Eq. 3).

    From 0, equal, to 1 - 1/N. Computed sorted: :math:`\sum_i (2i - N - 1) x_{(i)} / (N \sum x)`. Unlike
    :func:`variance` it does not change when all accuracies are multiplied by a constant.

    ``unbiased`` multiplies by N / (N - 1), which two of the three figures of PG-FFL's Table II contain (q-FFL's and
    AFL's; the third is neither) though its Eq. 3 does not.

    Differs from AAggFF's code in: all zeros give 0, equal, where its 0 / 0 becomes 1.

    >>> round(float(gini([1.0, 3.0])), 3), round(float(gini([1.0, 3.0], unbiased=True)), 3)
    (0.25, 0.5)
    """
    check_truth("unbiased", unbiased)
    ratio, where, n = _ratios(x, where)
    (ratio,) = _sort(where, ratio)
    # The coefficients sum to 0, so taking the mean away changes nothing but the rounding.
    total = jnp.sum((2 * _places(ratio).astype(n.dtype) + 1 - n) / n * (ratio - 1), -1)
    n = n[..., 0]
    return jnp.maximum(total / (jnp.where(n > 1, n - 1, n) if unbiased else n), 0)


def lorenz(x: ArrayLike, where: ArrayLike | None = None) -> tuple[Array, Array]:
    r"""Lorenz curve: the poorest fraction p of the clients holds a fraction L(p) of the total.

    Points :math:`(i/N, \sum_{j \le i} x_{(j)} / \sum x)` for i = 0 ... N as two arrays [..., N + 1]; who does
    not count repeats the point (1, 1). The Gini coefficient is exactly 1 - 2 area, by the trapezoid rule.

    >>> clients, share = lorenz([3.0, 1.0])
    >>> clients.tolist(), share.tolist()
    ([0.0, 0.5, 1.0], [0.0, 0.25, 1.0])
    """
    ratio, where, n = _ratios(x, where)
    (ratio,) = _sort(where, ratio)
    rank = _places(ratio).astype(n.dtype) + 1
    held = jnp.cumsum(jnp.where(rank <= n, ratio, 0), -1)
    whole = held[..., -1:]
    # v / v: XLA divides by a broadcast number through its reciprocal, which would end the curve near 1.
    points = (jnp.where(rank < n, u / v, v / v) for u, v in ((rank, n), (held, whole)))
    p, share = (jnp.pad(u, [(0, 0)] * (u.ndim - 1) + [(1, 0)]) for u in points)
    return p, share


def kl_to_uniform(x: ArrayLike, where: ArrayLike | None = None) -> Array:
    r"""KL(u || uniform) = :math:`\log N + \sum u \log u`, u = x / sum x, in nats: [..., N] to [...]."""
    ratio, _, n = _ratios(x, where)
    # mean(r log r), plus mean(1 - r) = 0, which makes every term non-negative.
    return jnp.sum(jnp.maximum(jax.scipy.special.xlogy(ratio, ratio) - (ratio - 1), 0), -1) / n[..., 0]


def entropy(x: ArrayLike, where: ArrayLike | None = None) -> Array:
    r""":math:`-\sum u \log u`, u = x / sum x, in nats, from 0 to log N when equal: [..., N] to [...]."""
    _, _, n = _counted(x, where)
    return jnp.maximum(jnp.log(n[..., 0]) - kl_to_uniform(x, where), 0)

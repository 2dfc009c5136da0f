r"""The measures: how well and how evenly a model serves its clients.

Every metric reduces the LAST axis, the clients, and keeps any leading ones: [N], [T, N], [seeds, T, N]. All
are pure, keep the input's float dtype and work under ``jit`` and ``vmap``.

Accuracies are fractions in [0, 1]. :func:`variance` is in percent^2 and :func:`std` in percentage points, as
papers print them; the other metrics stay in the unit of their input or have none.

``where`` (bool, broadcastable to the input) says which clients count: by default those whose entry is not
NaN, a client without test examples having no accuracy. If nobody counts, the result is NaN. A NaN that an
explicit ``where`` counts is a failure (a diverged loss), not an absence, and the result is NaN.

:func:`cov`, :func:`jain`, :func:`cosine_to_uniform`, :func:`gini`, :func:`lorenz`, :func:`kl_to_uniform` and
:func:`entropy` say how uneven any non-negative quantity is: accuracies, losses, weights. They see only its
ratios :math:`r_i = x_i / \bar x` to the mean; if every x is 0 all are equal, r = 1.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fedjax_fair.checks import check_range
from fedjax_fair.metrics.masked import counted as _counted
from fedjax_fair.metrics.masked import places as _places
from fedjax_fair.metrics.masked import ratios as _ratios
from fedjax_fair.metrics.masked import sort as _sort
from fedjax_fair.metrics.masked import spread as _spread


def mean(x: ArrayLike, where: ArrayLike | None = None) -> Array:
    """Average over clients, every client alike: [..., N] to [...], in the unit of ``x``."""
    x, where, n = _counted(x, where)
    return jnp.sum(x, -1) / n[..., 0]


def pooled(acc: ArrayLike, sizes: ArrayLike, where: ArrayLike | None = None) -> Array:
    r""":math:`\sum_k n_k a_k / \sum_k n_k`: the accuracy on the union of the clients' examples.

    ``acc`` [..., N] and ``sizes``, the numbers of test examples, broadcastable to it, give [...], in the unit
    of ``acc``. AAggFF's "avg" is this one.
    """
    acc, where, _ = _counted(acc, where)
    weights = jnp.where(where, _spread("sizes", jnp.asarray(sizes, acc.dtype), acc), 0)
    return jnp.sum(weights * acc, -1) / jnp.sum(weights, -1)


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
    acc, where, n = _counted(acc, where)
    gap = jnp.where(where, acc - jnp.sum(acc, -1, keepdims=True) / n, 0)
    return 100 * jnp.sqrt(jnp.sum(gap**2, -1) / n[..., 0])


def worst(
    acc: ArrayLike, percent: float = 5, sizes: ArrayLike | None = None, where: ArrayLike | None = None
) -> Array:
    """Mean over the ``max(1, int(N percent / 100))`` clients with the lowest accuracy: [..., N] to [...].

    N is the number of clients that count. ``percent`` is static; 0 asks for the single worst client.
    Unweighted as in q-FFL (10 %), FedMABA (5 %) and FedFV; with ``sizes``, weighted by them as in AAggFF (10
    %).

    >>> round(float(worst([0.9, 0.5, 0.7, 0.1], percent=50)), 3)
    0.3
    """
    return _tail(acc, percent, sizes, where, top=False)


def best(
    acc: ArrayLike, percent: float = 5, sizes: ArrayLike | None = None, where: ArrayLike | None = None
) -> Array:
    """Mean over the ``max(1, int(N percent / 100))`` clients with the highest accuracy; see :func:`worst`."""
    return _tail(acc, percent, sizes, where, top=True)


def _tail(acc: ArrayLike, percent: float, sizes: ArrayLike | None, where: ArrayLike | None, *, top: bool) -> Array:
    check_range("percent", percent, 0, 100)
    acc, where, _ = _counted(acc, where)
    weights = jnp.ones_like(acc) if sizes is None else _spread("sizes", jnp.asarray(sizes, acc.dtype), acc)
    acc, weights = _sort(where, acc, weights)
    # How many clients to take, for each possible N: a constant, so that the rounding is Python's.
    take = jnp.asarray(np.maximum(1, (np.arange(acc.shape[-1] + 1) * percent / 100).astype(np.int32)))
    count = jnp.sum(where, -1, keepdims=True)
    rank = count - 1 - _places(acc) if top else _places(acc)
    weights = jnp.where((rank >= 0) & (rank < jnp.minimum(take[count], count)), weights, 0)
    # 0 * inf is NaN: an infinity outside the tail says nothing of it, where a NaN that counts is a failure.
    acc = jnp.where((weights != 0) | jnp.isnan(acc), acc, 0)
    return jnp.sum(weights * acc, -1) / jnp.sum(weights, -1)


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


SUMMARY = ("accuracy", "pooled", "variance", "std", "worst5", "best5", "worst10", "best10", "gini", "jain")
_LOSS = ("loss", "loss_jain", "loss_gini")


def summary(
    acc: ArrayLike, loss: ArrayLike | None = None, sizes: ArrayLike | None = None
) -> dict[str, float | Array]:
    """All that a fairness table prints, from accuracies in [0, 1]: [..., N] to one [...] per key.

    In percent ``accuracy``, the mean over clients, ``worst5``, ``best5``, ``worst10``, ``best10``; in
    percent^2 ``variance`` and in percentage points ``std``; without unit ``gini`` and ``jain``. With
    ``sizes``, the numbers of test examples, also ``pooled``, in percent. With ``loss``, shaped as ``acc``,
    also ``loss``, its mean, ``loss_jain`` and ``loss_gini``, over the clients that have an accuracy. A single
    vector gives Python floats (arrays inside ``jit``).
    """
    acc = jnp.asarray(acc)
    if loss is not None and jnp.shape(loss) != acc.shape:
        raise ValueError(f"loss must have the shape of acc {acc.shape}, got {jnp.shape(loss)}")
    table = _accuracies(acc, None if sizes is None else jnp.asarray(sizes))
    if loss is not None:
        table |= _losses(jnp.asarray(loss), ~jnp.isnan(acc))
    table = {key: table[key] for key in SUMMARY + _LOSS if key in table}  # jit has sorted the keys
    if acc.ndim > 1 or isinstance(table["accuracy"], jax.core.Tracer):
        return {**table}
    return {key: float(value) for key, value in table.items()}


@jax.jit
def _accuracies(acc: Array, sizes: Array | None) -> dict[str, Array]:
    table = {"accuracy": 100 * mean(acc), "variance": variance(acc), "std": std(acc)}
    table |= {"gini": gini(acc), "jain": jain(acc)}
    for k in (5, 10):
        table |= {f"worst{k}": 100 * worst(acc, k), f"best{k}": 100 * best(acc, k)}
    return table if sizes is None else {**table, "pooled": 100 * pooled(acc, sizes)}


@jax.jit
def _losses(loss: Array, where: Array) -> dict[str, Array]:
    return dict(zip(_LOSS, (mean(loss, where), jain(loss, where), gini(loss, where=where))))

"""AAggFF's responses: a client's loss, relative to the cohort's mean, through a distribution function."""

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
from jax import Array
from jax.nn import sigmoid
from jax.scipy.special import erfc, ndtr

from fedjax_fair.numerics.solvers import masked_mean

CDF = Literal["weibull", "exponential", "frechet", "normal", "gumbel", "logistic"]
Variant = Literal["paper", "repo"]

CDFS: dict[str, Callable[[Array], Array]] = {
    "weibull": lambda x: -jnp.expm1(-jnp.square(x)),  # shape 2, scale 1
    "exponential": lambda x: -jnp.expm1(-x),  # scale 1
    "frechet": lambda x: jnp.where(x > 0, jnp.exp(-1 / jnp.where(x > 0, x, 1)), 0),  # shape 1
    "normal": lambda x: ndtr(x - 1),  # mean 1, variance 1
    "gumbel": lambda x: jnp.exp(-jnp.exp(1 - x)),  # location 1, scale 1
    "logistic": lambda x: sigmoid(x - 1),  # location 1, scale 1
}
"""The six increasing maps of x = F_i / mean F >= 0 into [0, 1]."""

REPO_CDFS = CDFS | {"normal": lambda x: (1 + erfc((x - 1) / 2**0.5)) / 2}
"""As in the authors' code, whose normal map has erfc for erf and so DEcreases with the loss."""


def responses(loss: Array, active: Array, cdf: CDF, variant: Variant) -> Array:
    """``CDF(F_i / mean of F over the active clients)``, f32[S], 0 where inactive.

    Scale-free: a common factor on all losses changes nothing. All-zero losses count as equal (x = 1); the maps
    begin at 0, so a negative loss counts as 0.
    """
    loss = jnp.clip(loss, 0, 1e37)  # of a mean beyond 8e37 the inverse is 0 in float32
    mean = masked_mean(loss, active)
    x = jnp.where(mean > 0, loss / jnp.where(mean > 0, mean, 1), 1)
    maps = CDFS if variant == "paper" else REPO_CDFS
    return jnp.where(active, maps[cdf](x), 0)

"""Local objectives: how a client turns its per-example losses into the scalar it differentiates.

An objective is ``(losses f32[B], mask bool[B], params, anchor) -> f32[]``; ``anchor`` is the model that the
client received. A user's own is any function of that form.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp

from fedjax_fair.checks import check_range
from fedjax_fair.local.transposed import as_it_is
from fedjax_fair.numerics.batch_sum import total
from fedjax_fair.numerics.solvers import masked_mean, uniform_over
from fedjax_fair.types import Batch, LossFn, Objective, Params


def erm(losses: Array, mask: Array, params: Params, anchor: Params) -> Array:
    """Empirical risk: the mean loss over the batch's examples."""
    del params, anchor
    return total(jnp.where(mask, losses, 0) * uniform_over(mask, losses.dtype))


def tilted(t: Array | float) -> Objective:
    r"""TERM on the examples of a batch: a mean that is tilted towards the largest losses.

    .. math:: \frac1t \log \operatorname{mean}_i e^{t\, \ell_i}

    Towards the largest losses for t > 0, the smallest for t < 0. ``t = 0`` is :func:`erm`. The authors' federated
    experiment tilts the losses of clients, which is :func:`fedjax_fair.term`. The two together are not their
    hierarchical TERM, whose outer tilt is of the groups' tilted losses: ``term`` reads plain means.

    Args:
      t: the tilt.

    Raises:
      ValueError: ``t`` is not a number.

    Differs from the paper in: each batch is normalised by itself, not by a running estimate of the whole tilted
    loss, so that the tilt fades with the batch: a batch of one is :func:`erm`.

    Source: Li, Beirami, Sanjabi, Smith, Tilted Empirical Risk Minimization, ICLR 2021.
    """
    check_range("t", t)

    def objective(losses: Array, mask: Array, params: Params, anchor: Params) -> Array:
        mean = erm(losses, mask, params, anchor)
        # A small tilt around the mean: exact for equal losses, and expm1's rounding is relative.
        tilt = jnp.asarray(t, losses.dtype)
        divisor = jnp.where(tilt == 0, 1, tilt)
        bent = jnp.where(mask, tilt * (losses - mean), 0)
        slight = jnp.abs(bent).max() < 1
        near = mean + jnp.log1p(masked_mean(jnp.expm1(jnp.where(slight, bent, 0)), mask)) / divisor
        # A large one around the loss that weighs most: beside one of 1e8 the others' differences would be rounded.
        least, largest = losses.min(initial=jnp.inf, where=mask), losses.max(initial=-jnp.inf, where=mask)
        most = jax.lax.stop_gradient(jnp.where(slight, 0, jnp.where(tilt < 0, least, largest)))
        count = jnp.maximum(mask.sum(), 1).astype(losses.dtype)
        far = most + (logsumexp(jnp.where(mask, tilt * (losses - most), 0), where=mask) - jnp.log(count)) / divisor
        return jnp.where(slight, near, far)

    return objective


def propfair_objective(
    M: Array | float = 5.0, epsilon: Array | float = 0.2, huber: bool = False, base: Objective = erm
) -> Objective:
    r"""PropFair's local objective: the negative logarithm of the distance from a loss M.

    With :math:`\ell` the batch's ``base`` objective (the mean loss),

    .. math:: \varphi(\ell) = \begin{cases} -\log(1 - \ell / M) & M - \ell \ge \epsilon \\
              \ell / M & \text{otherwise} \end{cases}

    whose gradient is that of the loss times :math:`1 / (M - \ell)` before the switch and :math:`1 / M` after it.
    ``huber=True`` continues the logarithm smoothly instead:
    :math:`-\log(\epsilon / M) + (\ell - M + \epsilon) / \epsilon`.

    Args:
      M: the loss that counts as worthless, above 0; the authors tune {2, 3, 5}.
      epsilon: distance from M at which the logarithm ends, above 0; .2 throughout the paper.
      huber: the published objective; the default is the authors' code, on which most tables rest.
      base: the objective inside the logarithm, with all its terms. A regulariser stays outside, as in the authors'
        code, the other way round: ``proximal(mu, base=propfair_objective(M))``.

    Raises:
      ValueError: ``M`` or ``epsilon`` is not above 0, a ``base`` that is no objective.

    Differs from the authors' code in: with ``huber=True``, the constant that makes the two pieces meet (it has no
    gradient).

    Source: Zhang, Malekmohammadi, Chen, Yu, Proportional Fairness in Federated Learning, TMLR 2023.
    """
    check_propfair(M, epsilon)
    check_objective("base", base)

    def objective(losses: Array, mask: Array, params: Params, anchor: Params) -> Array:
        loss = base(losses, mask, params, anchor)
        return phi(huber, loss, jnp.asarray(M, loss.dtype), jnp.asarray(epsilon, loss.dtype))

    return objective


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def phi(huber: bool, loss: Array, M: Array, epsilon: Array) -> Array:
    r"""PropFair's :math:`\varphi` of one loss f[].

    Its slope is written down: as JAX derives it, XLA computes parts of it anew for every logit of the batch, and to
    sum the losses in halves gains nothing.
    """
    before = M - loss >= epsilon
    logarithm = -jnp.log(jnp.where(before, 1 - loss / M, 1))
    line = -jnp.log(epsilon / M) + (loss - M + epsilon) / epsilon if huber else loss / M
    return jnp.where(before, logarithm, line)


@phi.defjvp
def _phi_jvp(huber: bool, primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    loss, M, epsilon = primals
    value, settings = jax.jvp(partial(phi.fun, huber, loss), (M, epsilon), tangents[1:])
    slope = 1 / jnp.where(M - loss >= epsilon, M - loss, epsilon if huber else M)
    return value, slope * tangents[0] + settings


def check_propfair(M: Array | float, epsilon: Array | float) -> None:
    """Raise ValueError unless both are above 0."""
    check_range("M", M, 0, open_low=True)
    check_range("epsilon", epsilon, 0, open_low=True)


def proximal(mu: Array | float = 0.1, base: Objective = erm) -> Objective:
    r"""FedProx's local objective: a pull towards the received model besides the loss.

    .. math:: \text{base} + \tfrac{\mu}{2} \|v - w_t\|^2

    Its gradient adds :math:`\mu (v - w_t)` to every step. ``mu = 0`` is ``base``.

    Args:
      mu: strength of the pull towards the received model, >= 0; the authors tune it in {.001, .01, .1, .5, 1}.
      base: the objective that the term is added to.

    Raises:
      ValueError: ``mu`` is negative, a ``base`` that is no objective.

    Source: Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020.
    """
    check_range("mu", mu, 0)
    check_objective("base", base)

    def objective(losses: Array, mask: Array, params: Params, anchor: Params) -> Array:
        squares = jax.tree.map(lambda v, w: jnp.square(v - w).sum(), params, anchor)
        return base(losses, mask, params, anchor) + mu / 2 * jax.tree.reduce(jnp.add, squares)

    return objective


def check_objective(name: str, objective: Any) -> None:
    """Raise ValueError for what is no function, or makes one."""
    if not callable(objective):
        raise ValueError(f"{name} must be a function, got {objective!r}")
    for factory in (tilted, propfair_objective, proximal):
        if objective is factory:
            raise ValueError(f"{name} must be an objective, got the factory {factory.__name__}: call it")


@dataclasses.dataclass(frozen=True)  # a NamedTuple that is called, mypy does not take for a function
class LocalLoss:
    """What local training differentiates, as a ``LossFn`` whose two uses of the parameters can be told apart."""

    of_examples: Callable[[Params, Batch], Array]
    """``(params, batch) -> f[B]``: the model's loss on every example."""
    base: Objective
    """The trainer's; an ``ff.local_sgd`` inside a trainer of the user's own brings its own."""
    around: Callable[[Objective], Objective] = lambda base: base
    """What a method makes of it, such as FedProx's term beside it."""

    @property
    def objective(self) -> Objective:
        """What is differentiated."""
        return self.around(self.base)

    def __call__(self, params: Params, batch: Batch, anchor: Params) -> tuple[Array, Array]:
        """The objective on a batch, and its plain mean loss."""
        return self.through(as_it_is)(params, batch, anchor)

    def through(self, laid: Callable[[Params], Params]) -> LossFn:
        """The same function of parameters that ``laid`` turns back.

        The model and the objective each transpose them back for themselves: so the gradients of the two meet
        transposed, where that of a product comes for nothing and that of FedProx's term is read in order.
        """

        def transposed(params: Params, batch: Batch, anchor: Params) -> tuple[Array, Array]:
            values = self.of_examples(laid(params), batch)
            plain = erm(values, batch.mask, None, None)
            return self.objective(values, batch.mask, laid(params), laid(anchor)), plain

        return transposed

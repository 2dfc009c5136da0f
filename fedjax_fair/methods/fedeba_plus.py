"""FedEBA+: weights of greatest entropy, and steps aligned with a fair direction (Wang et al.)."""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fedjax_fair.aggregators.fedeba import fedeba
from fedjax_fair.aggregators.fedmdfg import towards_equal
from fedjax_fair.checks import check_range
from fedjax_fair.local.remembering import Around, Finish, changed, inner, need_local_sgd
from fedjax_fair.methods.base import zeros
from fedjax_fair.numerics.batch_sum import over_clients
from fedjax_fair.types import Client, LossFn, Memory, Method, Params, Report, Trace, Transform


class FedEBAPlusState(NamedTuple):
    """What the server sends with the model."""

    direction: Params  # the mean local gradient of the last round, weighed as the models were
    unfair: Array  # f[], alpha where the last losses lay apart, else 0


def fedeba_plus(
    tau: Array | float = 1.0,
    alpha: Array | float = 0.1,
    theta: Array | float = 15.0,
    prior: Literal["uniform", "size"] = "uniform",
) -> Method:
    r"""FedEBA's weights, and steps that lean to the federation's fair direction, or to everybody's first step.

    With the weights :math:`c_k \propto \pi_k e^{F_k / \tau}` of :func:`fedeba` and the angle :math:`\varphi`
    between the cohort's losses and (1, ..., 1):

    * :math:`\varphi > \theta`: in the next round every local step goes along
      :math:`(1 - \alpha) \nabla F_k(v) + \alpha\, g`. Here :math:`g = \sum_k c_k \bar g_k` is the mean of this
      round's local gradients, weighed as the models are;
    * else: :math:`w \leftarrow w + (1 - \alpha) \sum_k c_k (w_k - w) + \alpha \operatorname{mean}_k (w_k^1 - w)`,
      where :math:`w_k^1` is the client's model after one step.

    Reads ``loss`` (received model, before training), ``message`` (a client sends its model, its mean gradient and
    its first step), and ``n`` for the size prior. ``alpha = 0`` is :func:`fedeba`.

    Optimises: tau log(sum_k pi_k exp(F_k / tau)), a soft maximum of the clients' losses.

    Args:
      tau: temperature, above 0; try {.05, .1, .5, 1}.
      alpha: strength of the alignment, in [0, 1).
      theta: the angle in degrees above which losses lie apart, in [0, 90].
      prior: "uniform" or "size".

    Raises:
      ValueError: an argument outside its range; in ``simulation``, a trainer that is not ``local_sgd``'s.

    Differs from the paper in: this is its practical form, in which the direction is the last round's, so that no
    second exchange is needed before training; the first round has none. No authors' code is known, and the text at
    hand leaves alpha and theta open: their defaults are ours, and mild.

    Source: Wang et al., FedEBA+: Towards Fair and Effective Federated Learning via Entropy-Based Model, 2023 (since
    2025: Entropy-driven Fair and Effective Federated Learning), Algorithm 1.
    """
    check_range("alpha", alpha, 0, 1, open_high=True)
    check_range("theta", theta, 0, 90)

    def transform(n_clients: int, cohort: int) -> Transform:
        del n_clients, cohort

        def start(params: Params) -> FedEBAPlusState:
            return FedEBAPlusState(zeros(params), jnp.zeros(()))

        def update(
            updates: Params,
            state: FedEBAPlusState,
            params: Params = None,
            *,
            report: Report,
            coef: Array,
            **_: Any,
        ) -> tuple[Params, FedEBAPlusState]:
            del state, params
            gradients, first = report.message
            apart = jnp.rad2deg(towards_equal(report.loss, report.active)[0]) > theta
            lean = jnp.where(apart, 0, alpha).astype(coef.dtype)
            count = jnp.maximum(report.active.sum(), 1)

            def aligned(g: Array, moves: Array) -> Array:
                mean = over_clients(moves) / count.astype(moves.dtype)
                return (1 - lean.astype(g.dtype)) * g - lean.astype(g.dtype) * mean.astype(g.dtype)

            direction = jax.tree.map(lambda g: jnp.tensordot(coef.astype(g.dtype), g, 1), gradients)
            return jax.tree.map(aligned, updates, first), FedEBAPlusState(
                direction, jnp.where(apart, alpha, 0).astype(jnp.result_type(float))
            )

        return optax.GradientTransformationExtraArgs(start, update)

    memory = Memory(init=lambda params: (), message=lambda params: (params, params), broadcast=lambda state: state)
    return Method(fedeba(tau, prior), local=_aligned, transform=transform, memory=memory)


def _aligned(trainer: Any) -> Around:
    """The trainer, leaning to the server's direction, which also sends its mean gradient and its first step."""
    sgd = need_local_sgd(trainer, "fedeba_plus")
    first = sgd._replace(gradient="alone", snapshot=lambda client, steps: jnp.ones_like(steps))

    def plan(loss: LossFn, params: Params, client: Client) -> tuple[LossFn, Params, Finish]:
        direction, lean = client.broadcast

        def toward(value: Array, v: Params) -> Array:
            share = lean.astype(value.dtype)
            return (1 - share) * value + share * inner(direction, v).astype(value.dtype)

        def finish(trained: Params, trace: Trace) -> tuple:
            begun = jax.tree.map(jnp.subtract, trace.snapshot, params)
            moved = trace.steps > 0  # who made no step has learnt nothing
            own = jax.tree.map(lambda *of: jnp.where(moved, _without(*of), 0), trace.gradient, direction)
            return trained, trace, client.memory, (own, begun)

        def _without(leaning: Array, g: Array) -> Array:
            """The client's own mean gradient, of that of the objective that leans."""
            share = lean.astype(leaning.dtype)
            return (leaning - share * g) / (1 - share)

        return changed(loss, toward), params, finish

    return Around(first, plan)

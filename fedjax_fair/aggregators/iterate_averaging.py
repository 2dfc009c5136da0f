"""Iterate averaging: train on the last model, judge and deploy the mean of all (AFL's theory)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fedjax_fair.checks import check_optimizer
from fedjax_fair.numerics.sum_type import sum_type
from fedjax_fair.types import Params, SimState


class AverageState(NamedTuple):
    """The wrapped optimiser's state and the running mean."""

    inner: optax.OptState
    models: Array  # i32[], how many are averaged
    average: Params


def average_iterates(
    server_optimizer: optax.GradientTransformation | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""Wrap a server optimiser so that it keeps the mean of its iterates, for any rule.

    .. math:: \bar w_{t+1} = \frac{t \bar w_t + w_{t+1}}{t + 1}

    The clients still receive :math:`w_t`. To evaluate the mean, pass ``deploy=ff.averaged`` to ``simulation``.

    Args:
      server_optimizer: what moves :math:`w`; ``optax.sgd(1.)`` by default.

    Source: Mohri, Sivek, Suresh, Agnostic Federated Learning, ICML 2019, whose guarantee is for the average.
    """
    if server_optimizer is not None:
        check_optimizer("server_optimizer", server_optimizer, "optax.sgd(1.)")
    inner = optax.with_extra_args_support(optax.sgd(1.0) if server_optimizer is None else server_optimizer)

    def init(params: Params) -> AverageState:
        begun = jax.tree.map(lambda w: w.astype(sum_type(w.dtype)), params)
        return AverageState(inner.init(params), jnp.zeros((), jnp.int32), begun)  # a mean in bfloat16 sticks

    def update(
        updates: Params, state: AverageState, params: Params = None, **extra: Any
    ) -> tuple[Params, AverageState]:
        updates, moved = inner.update(updates, state.inner, params, **extra)
        after, count = optax.apply_updates(params, updates), state.models + 1

        def mean(old: Array, new: Array) -> Array:
            return old + (new.astype(old.dtype) - old) / count.astype(old.dtype)

        return updates, AverageState(moved, count, jax.tree.map(mean, state.average, after))

    return optax.GradientTransformationExtraArgs(init, update)


def averaged(state: SimState) -> Params:
    """The mean of the models so far; for ``simulation(..., deploy=ff.averaged)``.

    Raises:
      ValueError: the server optimiser is not an :func:`average_iterates`.
    """
    found = [
        leaf
        for leaf in jax.tree.leaves(state.server, is_leaf=lambda s: isinstance(s, AverageState))
        if isinstance(leaf, AverageState)
    ]
    if not found:
        raise ValueError("averaged needs server_optimizer=ff.average_iterates(...), got another optimiser")

    def cast(mean: Array | None, w: Array | None) -> Array | None:
        return mean if mean is None or w is None else mean.astype(w.dtype)

    return jax.tree.map(cast, found[0].average, state.params, is_leaf=lambda leaf: leaf is None)  # None is frozen

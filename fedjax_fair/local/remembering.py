"""Trainers around a trainer, for clients that remember: what they train on, what they keep and what they send."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.local.objectives import LocalLoss
from fedjax_fair.local.of_round import limit_key
from fedjax_fair.local.sgd import LocalSGD
from fedjax_fair.types import Batch, Client, Key, LossFn, Objective, Params, Trace, Train

Finish = Callable[[Params, Trace], tuple]
"""``(trained, trace) -> (params, trace, memory, message)``."""


class Around(NamedTuple):
    """One training, with something before and after it."""

    trainer: Any
    plan: Callable[[LossFn, Params, Client], tuple[LossFn, Params, Finish]]
    """``(loss, received, client) -> (loss, params to begin with, what to make of the result)``."""

    def __call__(self, loss: LossFn, params: Params, client: Client, key: Key, round: Array) -> tuple:
        """Train one client."""
        on, start, finish = self.plan(loss, params, client)
        return finish(*self.trainer(on, start, client, key, round))

    def interleaved(
        self, loss: LossFn, params: Params, clients: Sequence[Client], keys: Sequence[Key], round: Array
    ) -> list[tuple]:
        """Train clients each as if alone, in one loop; the trainer is a :class:`LocalSGD`."""
        plans = [self.plan(loss, params, client) for client in clients]
        jobs = [(on, start, who, key) for (on, start, _), who, key in zip(plans, clients, keys)]
        return [finish(*done) for (*_, finish), done in zip(plans, self.trainer.together(jobs, round))]


class Several(NamedTuple):
    """More than one training of a client in a round."""

    trainer: Any
    work: Train
    """Does them all, by way of ``trainer`` or of one made from it."""

    def __call__(self, loss: LossFn, params: Params, client: Client, key: Key, round: Array) -> tuple:
        """Train one client."""
        return self.work(loss, params, client, key, round)


def within(train: Any) -> Any:
    """The trainer inside of all that is around it; itself where nothing is."""
    return within(train.trainer) if isinstance(train, Around | Several) else train


def plus(loss: LossFn, term: Callable[[Params], Array], anchor: Params = None) -> LossFn:
    """The loss with a term of the parameters added to what is differentiated, and no other change."""
    return changed(loss, lambda value, params: value + term(params), anchor)


def changed(loss: LossFn, change: Callable[[Array, Params], Array], anchor: Params = None) -> LossFn:
    """The loss where ``change(objective, params)`` is differentiated, and the rest is as it was.

    ``anchor`` is the received model where the training begins with another one: FedProx's term goes by it.
    """
    if isinstance(loss, LocalLoss):
        before = loss.around

        def around(base: Objective) -> Objective:
            inner = before(base)

            def objective(losses: Array, mask: Array, params: Params, start: Params) -> Array:
                return change(inner(losses, mask, params, start if anchor is None else anchor), params)

            return objective

        return dataclasses.replace(loss, around=around)

    def other(params: Params, batch: Batch, start: Params) -> tuple[Array, Array]:
        value, plain = loss(params, batch, start if anchor is None else anchor)
        return change(value, params), plain

    return other


def inner(one: Params, other: Params) -> Array:
    """``<one, other>``, f[]: the sum of all products."""
    return jax.tree.reduce(jnp.add, jax.tree.map(lambda a, b: (a * b).sum(), one, other))


def squared_distance(one: Params, other: Params) -> Array:
    """``|one - other|^2``, f[]."""
    return jax.tree.reduce(jnp.add, jax.tree.map(lambda a, b: jnp.square(a - b).sum(), one, other))


def full_gradient(loss: LossFn, params: Params, client: Client) -> Params:
    """The gradient of the objective on all of a client's training examples, as one batch; without dropout."""
    everything = jnp.arange(client.rows.shape[0])
    mine = everything < client.size
    rows = client.rows[jnp.minimum(everything, client.size - 1)]
    batch = Batch(*client.take(rows), mine)
    return jax.grad(lambda p: loss(p, batch, params)[0])(params)


def as_late(own: LocalSGD, sgd: LocalSGD, client: Client, key: Key) -> LocalSGD:
    """A further training of a client's, limited as that by ``sgd`` and ``key`` is, in proportion to what is due."""
    if sgd.limit is None:
        return own
    limit, drawn, due, steps = sgd.limit, limit_key(key), sgd.due(client), own.due(client)
    times, more = divmod(steps, jnp.maximum(due, 1))

    def in_proportion(_: Key, *of: Array) -> Array:
        made = jnp.minimum(limit(drawn, *of), due)
        large = made.astype(jnp.float32) * more > 2**30  # near the end of whole numbers: to a step, then
        rough = jnp.where(
            made == due, more, (made.astype(jnp.float32) / jnp.maximum(due, 1) * more).astype(made.dtype)
        )
        return made * times + jnp.where(large, rough, made * more // jnp.maximum(due, 1))

    return own._replace(limit=in_proportion)


def need_local_sgd(trainer: Any, name: str) -> LocalSGD:
    """The trainer, or ValueError unless it is an ``ff.local_sgd``."""
    if not isinstance(trainer, LocalSGD):
        raise ValueError(f"{name} needs an ff.local_sgd trainer, got a {type(trainer).__name__}")
    return trainer

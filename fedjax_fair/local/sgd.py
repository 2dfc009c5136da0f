"""Local training: what one client does between receiving a model and sending its own back."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fedjax_fair.checks import check_count, check_optimizer
from fedjax_fair.local.interleaved import Rows, Work, take_turns
from fedjax_fair.local.kernel_gradients import most_rows
from fedjax_fair.local.loop_sums import after_loops
from fedjax_fair.local.mean_gradient import is_plain, of_way
from fedjax_fair.local.objectives import LocalLoss, check_objective, erm
from fedjax_fair.local.of_round import check_of_round, factor_of, limit_key, most_steps
from fedjax_fair.local.transposed import as_it_is, transposing, worth_transposing
from fedjax_fair.numerics.model_size import is_small
from fedjax_fair.numerics.shuffle import shuffle_keys, shuffled
from fedjax_fair.numerics.sum_type import sum_type
from fedjax_fair.types import Batch, Client, Key, LossFn, Objective, Params, Trace

Order = Array | Callable[[Array], Array]
"""Positions i32[steps, B] where the number of batches is known to the compiler, else a step's i32[B]."""
UNROLL = 5
"""Steps of a small model in one turn of the loop: up to a fifth faster on a CPU, where a turn costs as much as a
product. Six took 1.0 to 1.1 times as long, for numbers of steps that five divides."""


class LocalSGD(NamedTuple):
    """Minibatch training with an optax optimiser; built by :func:`local_sgd`, called by the engine."""

    optimizer: optax.GradientTransformation
    epochs: int | None
    steps: int | None
    batch_size: int | None
    schedule: Callable[[Array], Any] | None
    objective: Objective
    limit: Callable[[Key, Array, Array], Array] | None = None
    gradient: bool | Literal["alone"] = False
    """Whether the trace tells the mean of the gradients, for methods that ask for it; with a schedule, or another
    optimiser than plain SGD, an addition a step. "alone": without a weight decay, which plain SGD's has in it."""
    snapshot: Callable[[Client, Array], Array] | None = None
    """``(client, steps due i32[]) -> i32[]``: after which step the trace keeps the model, for methods that ask."""

    def __call__(
        self, loss: LossFn, params: Params, client: Client, key: Key, round: Array
    ) -> tuple[Params, Trace]:
        """Train one client from ``params``; the optimiser's state starts afresh."""
        return self.interleaved(loss, params, [client], [key], round)[0]

    def interleaved(
        self, loss: LossFn, params: Params, clients: Sequence[Client], keys: Sequence[Key], round: Array
    ) -> list[tuple[Params, Trace]]:
        """Train clients each as if alone, in one loop; see :mod:`fedjax_fair.local.interleaved`."""
        return self.together([(loss, params, client, key) for client, key in zip(clients, keys)], round)

    def together(
        self, jobs: Sequence[tuple[LossFn, Params, Client, Key]], round: Array
    ) -> list[tuple[Params, Trace]]:
        """Trainings each as if alone, in one loop: of several clients, or of one client's models."""
        works = [self._work(*job, round, most_rows(len(jobs))) for job in jobs]
        return take_turns(works, UNROLL if jax.default_backend() == "cpu" and is_small(jobs[0][1]) else 1)

    def due(self, client: Client) -> Any:
        """Steps of one training, without a limit."""
        if self.batch_size is None or self.epochs is None:
            return self.steps if self.epochs is None else self.epochs
        return self.epochs * -(-client.size // min(self.batch_size, client.rows.shape[0]))

    def _work(self, loss: LossFn, params: Params, client: Client, key: Key, round: Array, most: float) -> Work:
        order_key, noise_key = jax.random.split(key)
        steps, order, real = self._batches(client, order_key)
        laid = transposing(params) if worth_transposing(self.optimizer, params, steps) else as_it_is
        if self.limit is not None:
            steps = jnp.minimum(steps, most_steps(self.limit, limit_key(key), round, client.id))
        scale = None if self.schedule is None else factor_of(self.schedule, round)
        params = anchor = laid(params)
        # Its base is this one, but where a trainer of the user's own hid it.
        loss = dataclasses.replace(loss, base=self.objective) if isinstance(loss, LocalLoss) else loss
        differentiated = (
            loss.through(laid) if isinstance(loss, LocalLoss) else lambda p, batch, w: loss(laid(p), batch, laid(w))
        )
        gradient = after_loops(jax.value_and_grad(differentiated, has_aux=True), most)
        zero = jnp.zeros((), jnp.result_type(float))
        at_step = None if self.snapshot is None else self.snapshot(client, jnp.asarray(steps, jnp.int32))

        def step(k: Array, rows: Array, carry: tuple) -> tuple:
            params, opt_state, mean, spread, total, kept = carry
            batch = Batch(*client.take(rows), real(k), jax.random.fold_in(noise_key, k))
            (_, plain), grads = gradient(params, batch, anchor)
            updates, opt_state = self.optimizer.update(grads, opt_state, params)
            if total is not None:
                total = jax.tree.map(jnp.add, total, updates if plain_sgd else grads)
            if scale is not None:
                updates = jax.tree.map(lambda u: u * jnp.asarray(scale, u.dtype), updates)
            # Welford's recurrence: the plain sum of squares cancels in float32.
            plain = plain.astype(zero.dtype)
            moved = mean + (plain - mean) / (k + 1).astype(zero.dtype)
            params = optax.apply_updates(params, updates)
            if kept is not None:
                kept = jax.tree.map(lambda new, old: jnp.where(k + 1 == at_step, new, old), params, kept)
            return params, opt_state, moved, spread + (plain - mean) * (plain - moved), total, kept

        def end(carry: tuple) -> tuple[Params, Trace]:
            params, _, mean, spread, total, kept = carry
            made = jnp.maximum(jnp.asarray(steps, jnp.int32), 0)
            if self.limit is not None:  # a client that makes no step has no loss: 0 would be the best of all
                mean, spread = (jnp.where(jnp.asarray(steps) > 0, v, jnp.nan) for v in (mean, spread))
            # The barrier keeps the transposition a copy of its own: inside what follows it is twice as slow.
            params = params if laid is as_it_is else jax.lax.optimization_barrier(laid(params))
            deviation = jnp.sqrt(spread / jnp.maximum(steps, 1).astype(zero.dtype))
            mean_gradient = None
            if plain_sgd:
                moved = jax.tree.map(jnp.subtract, params, laid(anchor)) if total is None else laid(total)
                mean_gradient = of_way(self.optimizer, laid(anchor), moved, made)
            elif self.gradient:
                count = jnp.maximum(made, 1)
                mean_gradient = jax.tree.map(
                    lambda g, p: (g / count.astype(g.dtype)).astype(p.dtype), laid(total), params
                )
            return params, Trace(mean, deviation, made, mean_gradient, None if kept is None else laid(kept))

        rows: Rows
        if isinstance(steps, int):
            assert not callable(order)  # a number of steps that is known comes with their rows
            rows = client.rows[order]
        else:
            at = order if callable(order) else order.__getitem__

            def rows(k: Array) -> Array:
                return client.rows[at(k)]

        plain_sgd = self.gradient and is_plain(self.optimizer, params, decays=self.gradient != "alone")
        summed = self.gradient and (scale is not None or not plain_sgd)  # a factor may be 0
        total = jax.tree.map(_room, params) if summed else None
        kept = None if at_step is None else params
        return Work(steps, rows, (params, self.optimizer.init(params), zero, zero, total, kept), step, end)

    def _batches(self, client: Client, key: Key) -> tuple[Any, Order, Callable[[Array], Array]]:
        """The number of steps, the positions of each among the client's rows, and ``step -> mask bool[B]``."""
        capacity = client.rows.shape[0]
        if self.batch_size is None:
            assert self.epochs is not None  # local_sgd sees to that
            everything = jnp.arange(capacity)
            own = jnp.minimum(everything, client.size - 1)  # a neighbour's overflow would pass any mask: 0 * inf
            return self.epochs, jnp.broadcast_to(own, (self.epochs, capacity)), lambda k: everything < client.size
        if self.steps is not None:
            size = self.batch_size
            drawn = jax.random.randint(key, (self.steps, size), 0, client.size, jnp.int32)
            return self.steps, drawn, lambda k: jnp.ones((size,), bool)

        assert self.epochs is not None
        size = min(self.batch_size, capacity)
        per_epoch = -(-client.size // size)
        keys = shuffle_keys(key, (self.epochs,))

        def positions(k: Array) -> Array:
            return k % per_epoch * size + jnp.arange(size)

        def real(k: Array) -> Array:
            even = isinstance(client.size, int) and client.size % size == 0  # known to the compiler: no mask at all
            return jnp.ones((size,), bool) if even else positions(k) < client.size

        if isinstance(client.size, int):  # whole epochs at once
            everything = jnp.arange(per_epoch * size)
            drawn = jax.vmap(lambda bits: shuffled(bits, everything, client.size))(keys)
            return self.epochs * per_epoch, drawn.reshape(-1, size), real
        return self.epochs * per_epoch, lambda k: shuffled(keys[k // per_epoch], positions(k), client.size), real


def _room(leaf: Array) -> Array:
    """Zeros for a sum of many gradients, which in half precision would stick."""
    return jnp.zeros(leaf.shape, sum_type(leaf.dtype))


def local_sgd(
    optimizer: optax.GradientTransformation,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None,
    schedule: Callable[[Array], Any] | None = None,
    objective: Objective = erm,
    limit: Callable[[Key, Array, Array], Array] | None = None,
) -> LocalSGD:
    """Minibatch SGD (any optax optimiser) on every client of the cohort.

    * ``epochs=E``: E passes, each over a fresh shuffle of the client's ``n_k`` examples in ``ceil(n_k / B)``
      batches, the last of which may be smaller. A client with more data makes more steps.
    * ``steps=K``: K batches of exactly B examples, drawn uniformly with replacement (the stochastic gradients
      of the papers' analyses). Every client does the same work, however skewed the sizes.

    Args:
      optimizer: an optax optimiser; its state is fresh each round.
      epochs: passes over the client's data; give this or ``steps`` (default: one epoch).
      steps: number of minibatch steps.
      batch_size: B; None is the full batch (then ``steps`` and ``epochs`` are the same thing). A full batch is as
        large as the largest client's data for every client: costly where sizes differ much.
      schedule: factor on the optimiser's updates as a function of the round (i32, from 0):
        ``lambda r: .999 ** r``, or ``lambda r: jnp.where(r < 300, 1., .5)``.
      objective: the scalar to differentiate; a method's own (FedProx's term) wraps it.
      limit: stragglers: ``(key, round i32[], id i32[]) -> i32[]``, the most steps that a client makes in a round;
        the key is its own. None: all that are due. A client that makes 0 has no ``train_loss``: rules and selectors
        that read it leave the client out. FedProx's, half of the clients late at random:
        ``lambda key, r, i: jnp.where(jax.random.bernoulli(key), jax.random.randint(key, (), 1, 20), 20)``.

    Raises:
      ValueError: both ``epochs`` and ``steps``, a count below 1, an optimiser that is not optax's; a ``schedule``
        that JAX cannot trace (an ``if`` on the round) or that is not one number, a ``limit`` not one whole number.
    """
    if epochs is not None and steps is not None:
        raise ValueError(f"local_sgd takes epochs or steps, not both, got epochs={epochs} and steps={steps}")
    if steps is not None and batch_size is None:
        epochs, steps = steps, None  # a full-batch step is a pass
    if epochs is None and steps is None:
        epochs = 1
    for name, value in (("epochs", epochs), ("steps", steps), ("batch_size", batch_size)):
        if value is not None:
            check_count(name, value)
    check_optimizer("optimizer", optimizer)
    for name, function in (("schedule", schedule), ("limit", limit)):
        if function is not None and not callable(function):
            raise ValueError(f"{name} must be a function, got {function!r}")
    check_objective("objective", objective)
    check_of_round(schedule, limit)
    return LocalSGD(optimizer, epochs, steps, batch_size, schedule, objective, limit)


def full_batch_step(trainer: Any) -> LocalSGD:
    """The same optimiser, schedule and objective, but one full-batch step a round (FedSGD)."""
    return _local_sgd(trainer, "fedsgd")._replace(epochs=1, steps=None, batch_size=None)


def one_step(trainer: Any) -> LocalSGD:
    """The same optimiser, schedule, objective and batch size, but one step a round (q-FedSGD)."""
    trainer = _local_sgd(trainer, "qfedsgd")
    return (
        trainer._replace(epochs=1, steps=None)
        if trainer.batch_size is None
        else trainer._replace(epochs=None, steps=1)
    )


def _local_sgd(trainer: Any, rule: str) -> LocalSGD:
    if not isinstance(trainer, LocalSGD):
        raise ValueError(f"{rule} makes one step of an ff.local_sgd trainer, got a {type(trainer).__name__}")
    return trainer

"""Federations played side by side by a policy that explores, and what REINFORCE learns from all of them."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from fedjax_fair.aggregators.exploring import Explored, Reward, exploring
from fedjax_fair.aggregators.policy import Policy, mean_action
from fedjax_fair.data.federated import FederatedData
from fedjax_fair.engine.tasks import Task, in_threads
from fedjax_fair.numerics.solvers import masked_mean
from fedjax_fair.numerics.xla_options import compiled, of_rounds
from fedjax_fair.types import Aggregator, Key, Params, SimState, Simulation

DECAY = 0.8
"""Of the running means of a federation's own rewards, from episode to episode."""
EPSILON = 1e-5
"""Adam's: with a smaller one it would blow rounding up to full steps."""

Player = Callable[[Params, Array, Any], Explored]
"""``(params, std, keys [F]) -> what F federations left in each of T + 1 rounds, leaves [F, T + 1, ...]``."""


def player(
    build: Callable[[Aggregator], Simulation],
    policy: Policy,
    reward: Reward,
    datas: Sequence[FederatedData],
    *,
    cohort: int,
    rounds: int,
    width: int,
    threads: int,
) -> Player:
    """Plays all federations, ``width`` vmapped at a time, in blocks that share a compiled program.

    ``build`` makes a simulation on the largest of the federations; of ``policy`` only what it sees and
    how it weighs counts. One round more is played than actions are judged: its report has the last reward.
    """
    shared, own, put_together = _stacked(datas)

    def one(params: Params, std: Array, shared: Any, key: Key, own: Any) -> Explored:
        data = put_together(shared, own)
        sim = build(exploring(policy._replace(params=params), std, cohort, reward))

        def round(state: SimState, _: None) -> tuple[SimState, Explored]:
            after, _info = sim.step(state, data)
            return after, explored_of(after.aggregator)

        return jax.lax.scan(round, sim.init(key, data), length=rounds + 1)[1]

    side_by_side = jax.vmap(one, in_axes=(None, None, None, 0, 0))
    shapes = jax.eval_shape(build(exploring(policy, 1.0, cohort, reward)).init, jax.random.key(0)).params
    play = compiled(side_by_side, of_rounds(lambda *_, **__: shapes))
    # The last block is filled up with its own last federation, so that all blocks share a program.
    firsts = range(0, len(datas), width)
    places = [np.minimum(np.arange(first, first + width), len(datas) - 1) for first in firsts]
    blocks = [[leaf[place] for leaf in own] for place in places]

    def play_all(params: Params, std: Array, keys: Any) -> Explored:
        def work(place: np.ndarray, block: list[Any], compiled: Callable[[], None]) -> Explored:
            playing = play(params, std, shared, keys[place], block)
            compiled()
            return jax.block_until_ready(playing)  # more blocks than threads at once get in each other's way

        played = in_threads([Task(0, partial(work, *each)) for each in zip(places, blocks)], threads)
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[: len(datas)], *played)

    return play_all


def explored_of(state: Any) -> Explored:
    """The exploring rule's part of a rule's state, which others may be put around.

    Raises:
      ValueError: there is none, or there are several.
    """
    leaves = jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, Explored))
    found = [leaf for leaf in leaves if isinstance(leaf, Explored)]
    if len(found) != 1:
        raise ValueError(
            "build must hand the rule that it is given to ff.simulation(aggregator=rule), once, got a simulation "
            f"that has it {len(found)} times"
        )
    return found[0]


def _stacked(datas: Sequence[FederatedData]) -> tuple[list[Any], list[Any], Callable[[Any, Any], FederatedData]]:
    """The arrays that all federations share, those of each, stacked, and the way back to one federation."""
    plain = [data._replace(names=None) for data in datas]
    leaves, form = [jax.tree.leaves(data) for data in plain], jax.tree.structure(plain[0])
    same = [all(leaf is first for leaf in column) for first, *column in zip(*leaves)]
    shared = [column[0] for column, once in zip(zip(*leaves), same) if once]
    own = [jnp.stack(column) for column, once in zip(zip(*leaves), same) if not once]

    def put_together(shared: Any, own: Any) -> FederatedData:
        everybodys, its_own = iter(shared), iter(own)
        return jax.tree.unflatten(form, [next(everybodys if once else its_own) for once in same])

    return shared, own, put_together


class Lesson(NamedTuple):
    """What episodes are turned into steps by."""

    discount: float
    baseline: str | None
    beta: float


class Learner(NamedTuple):
    """All that training carries from episode to episode."""

    params: Params
    optimizer: optax.OptState
    usual: Array
    """f[F, T]: running means of each federation's rewards, round by round."""
    episodes: Array
    """i32[]: episodes that were learnt from."""


def beginner(params: Params, federations: int, rounds: int, lesson: Lesson) -> Learner:
    """Before the first episode."""
    kind = jax.tree.leaves(params)[0].dtype
    return Learner(
        params, adam(lesson).init(params), jnp.zeros((federations, rounds), kind), jnp.zeros((), jnp.int32)
    )


def adam(lesson: Lesson) -> optax.GradientTransformation:
    """The optimiser of the policy."""
    return optax.adam(lesson.beta, eps=EPSILON)


@partial(jax.jit, static_argnames="lesson")
def learn(learner: Learner, explored: Explored, std: Array, *, lesson: Lesson) -> tuple[Learner, Array]:
    """One step of Adam along the federations' mean REINFORCE gradient; also the mean reward of a judged round."""
    rewards, judged = explored.reward[:, 1:], explored.judged[:, 1:]  # of the actions of one round earlier
    over = jax.vmap(masked_mean, in_axes=1)(rewards, judged)[None, :]
    usual = jnp.where(learner.episodes > 0, learner.usual, jnp.broadcast_to(over, rewards.shape))
    expected = {None: jnp.zeros_like(rewards), "round": jnp.broadcast_to(over, rewards.shape), "own": usual}
    returns = to_go(jnp.where(judged, rewards - expected[lesson.baseline], 0), lesson.discount)
    ascent = gradient(learner.params, jax.tree.map(lambda leaf: leaf[:, :-1], explored), returns, std)
    with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an integer count
        step, optimizer = adam(lesson).update(jax.tree.map(jnp.negative, ascent), learner.optimizer)
    after = Learner(
        optax.apply_updates(learner.params, step),
        optimizer,
        jnp.where(judged, DECAY * usual + (1 - DECAY) * rewards, usual),
        learner.episodes + 1,
    )
    return after, masked_mean(rewards.reshape(-1), judged.reshape(-1))


def to_go(rewards: Array, discount: float) -> Array:
    """``G_t = sum_j discount^j r_(t+j)`` of rewards f[F, T]."""

    def add(later: Array, now: Array) -> tuple[Array, Array]:
        total = now + discount * later
        return total, total

    return jax.lax.scan(add, jnp.zeros_like(rewards[:, 0]), rewards.T, reverse=True)[1].T


def gradient(params: Params, explored: Explored, returns: Array, std: Array) -> Params:
    r"""``mean over federations of sum_t G_t grad log N(a_t; mu(s_t), std^2 I)``, which is to be ascended.

    ``explored`` has leaves [F, T, ...], ``returns`` is f[F, T]. As :math:`a = \mu + \sigma \epsilon` was drawn with
    the same ``params``, the gradient of log N is :math:`\epsilon / \sigma \; \nabla \mu`.
    """
    score = jnp.where(explored.acted, explored.noise / std, 0)
    factor = score * returns[:, :, None] / len(returns)

    def weighted(params: Params, seen: Array, factor: Array) -> Array:
        return (mean_action(params, seen.reshape(-1, seen.shape[-1])) * factor.reshape(-1)).sum()

    def add(total: Params, one: tuple[Array, Array]) -> tuple[Params, None]:
        return jax.tree.map(jnp.add, total, jax.grad(weighted)(params, *one)), None

    # One federation at a time: the layers of all of them are a gigabyte where each has a hundred clients.
    return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (explored.seen, factor))[0]

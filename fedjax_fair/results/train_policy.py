"""Train PG-FFL's policy on many federations at once."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_fair.aggregators.exploring import Reward, exploring
from fedjax_fair.aggregators.pg_ffl import reward_of
from fedjax_fair.aggregators.policy import Policy
from fedjax_fair.checks import check_count
from fedjax_fair.data import FederatedData
from fedjax_fair.data.alike import Alike, alike
from fedjax_fair.engine.checkpoint import Keeper, describe, keeper
from fedjax_fair.engine.digests import digest_of_arrays
from fedjax_fair.engine.episodes import Learner, Lesson, Player, beginner, learn, player
from fedjax_fair.engine.keeping import check_keeping
from fedjax_fair.engine.keys import as_key
from fedjax_fair.engine.progress import asked_to_stop, bar
from fedjax_fair.engine.tasks import threads_for
from fedjax_fair.results.compare_arguments import draw
from fedjax_fair.results.policy_arguments import (
    check_reward,
    check_simulations,
    deviations_of,
    first_policy,
    lesson_of,
    width_of,
)
from fedjax_fair.types import Aggregator, Simulation

Build = Callable[[Aggregator, FederatedData], Simulation]


def train_policy(
    build: Build,
    federation: FederatedData | Callable[[int], FederatedData],
    *,
    federations: int = 64,
    episodes: int = 50,
    rounds: int = 100,
    state: str = "signals",
    weights: str = "softmax",
    reward: Reward = reward_of,
    std: tuple[float, float] = (0.5, 0.1),
    discount: float = 0.9,
    baseline: str | None = "round",
    beta: float = 1e-2,
    policy: Policy | None = None,
    seed: int = 0,
    side_by_side: int | str | None = "auto",
    threads: int | None = None,
    progress: bool | str | None = None,
    checkpoint: str | Path | None = None,
    every: int | None = None,
) -> Policy:
    r"""Train a policy that weighs clients, by REINFORCE on many federations side by side.

    In an episode every federation f runs T rounds from a new initial model. In round t the policy sees
    :math:`s_{ft}`, draws :math:`a_{ft} \sim N(\mu_\phi(s_{ft}), \sigma^2 I)` and weighs the clients by it. The
    reward :math:`r_{ft}` is that of the model which this makes, on the next cohort's validation data. Then

    .. math:: \phi \leftarrow \text{Adam}\Big(\phi, \ \frac1F \sum_f \sum_t G_{ft}\,
              \nabla_\phi \log N(a_{ft}; \mu_\phi(s_{ft}), \sigma^2 I)\Big), \qquad
              G_{ft} = \sum_{j \ge 0} \gamma^j (r_{f,t+j} - b_{f,t+j})

    The standard deviation falls from episode to episode, by one factor. The trained policy takes its mean action,
    ``ff.pg_ffl(policy=policy)``, in any simulation: its network is shared by the clients, however many there are.

    .. code-block:: python

       def build(rule, data):
           return ff.simulation(ff.models.logistic_regression(), data, aggregator=rule,
                                trainer=ff.local_sgd(optax.sgd(.1), steps=5, batch_size=10))

       policy = ff.train_policy(build, lambda seed: ff.data.synthetic(10, 1.0, 1.0, seed=seed), episodes=20)
       ff.compare({"fedavg": ff.fedavg("uniform"), "trained": ff.pg_ffl(policy=policy)}, build,
                  federation=lambda seed: ff.data.synthetic(10, 1.0, 1.0, seed=1000 + seed))  # never trained on

    Args:
      build: ``(rule, data) -> ff.simulation(...)``, as for ``ff.compare``.
      federation: ``seed -> FederatedData``, of seeds 0 to ``federations - 1``; of unequal sizes they are padded
        alike. One federation is run from other initial models.
      federations: F.
      episodes: E, each one step of Adam.
      rounds: T.
      state: what the policy sees of a client: "signals", its loss, accuracy and size beside its cohort's, which are
        known before training; or "updates", what ``ff.pg_ffl()`` sees, a sketch of its update.
      weights: how actions become weights: "softmax", or "sigmoid", :math:`\operatorname{sigmoid}(a_k)` divided by
        their sum.
      reward: ``(validation accuracy f[S] of the received model, active bool[S]) -> f[]``; by default PG-FFL's,
        :math:`-\bar a \log \operatorname{Gini}(a)`. Of rounds with at least two clients.
      std: sigma of the first and of the last episode.
      discount: gamma, in [0, 1]; 0 credits a reward to the last action alone.
      baseline: b. "round": the round's mean reward over the federations, of which there must be two. "own": the
        running mean (decay .8) over the episodes of a federation's own reward in that round, which starts at the
        former. None: 0.
      beta: step size of Adam (whose epsilon is 1e-5).
      policy: one to go on from; its state and weights are kept. By default the weights are uniform at first.
      seed: of the first policy, the initial models, the batches and the actions.
      side_by_side: how many federations are vmapped at a time; "auto": up to 32, or one of a model of more than
        20,000 parameters on a CPU; None for all.
      threads: blocks of these run at the same time; by default one for each core of a CPU.
      progress: as in ``ff.run``, counted in episodes of one federation.
      checkpoint: a folder to keep what was learnt in; the same call goes on from it.
      every: episodes between checkpoints; by default one.

    Raises:
      ValueError: an argument that does not fit, before anything is compiled; a reward that is not finite.
      CheckpointError: a ValueError; the folder holds another training, or cannot be written or read.

    Source: Sun, Si, Wang, Dong, Zhu, Xiao, A Fair Federated Learning Framework With Reinforcement Learning, IJCNN
    2022; REINFORCE: Williams, Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement
    Learning, 1992. Differs from the former in: many federations, where the paper's agent learns on the one it
    weighs; the baseline, returns to go and the falling sigma, where it has none; everything under ``state``,
    ``weights``, ``beta``, which it does not state.
    """
    federations, episodes, rounds = (
        check_count(name, value)
        for name, value in (("federations", federations), ("episodes", episodes), ("rounds", rounds))
    )
    seed = check_count("seed", seed, high=2**32 - 1, low=0)
    form, lesson = lesson_of(state, weights, policy, discount, baseline, beta)
    if federations == 1 and baseline == "round":
        raise ValueError(
            'baseline="round" is the mean over the federations, by which one alone learns nothing: '
            'take baseline="own" or None, or more federations'
        )
    deviations = deviations_of(std, episodes)
    check_keeping(checkpoint, every, 1, None)
    if threads is not None:
        check_count("threads", threads)
    datas = draw(federation, federations)
    of = alike(datas) if len(datas) > 1 else Alike(datas[0], datas)
    sim, cohort = check_simulations(build, form, of)
    start = first_policy(form, policy, seed)
    check_reward(reward, cohort)
    width = width_of(side_by_side, sim, federations, threads_for(threads))
    play = player(
        partial(_made, build, of.largest),
        start,
        reward,
        of.each * (federations if len(of.each) == 1 else 1),
        cohort=cohort,
        rounds=rounds,
        width=width,
        threads=threads_for(threads),
    )
    place = None
    if checkpoint is not None:
        tried = _made(build, of.largest, exploring(start, float(deviations[0]), cohort, reward))
        settings = {
            "federations": federations,
            "episodes": episodes,
            "rounds": rounds,
            "seed": seed,
            "std": [*map(float, std)],
            "side_by_side": width,
            "the federations": digest_of_arrays(of.each),
        }
        place = keeper(checkpoint, describe(tried, tried.init(as_key(seed)), settings | lesson._asdict()))
    course = _Course(play, deviations, as_key(seed), lesson, federations, rounds, progress, every or 1)
    return _train(course, start, place)


def _made(build: Build, data: FederatedData, rule: Aggregator) -> Simulation:
    return build(rule, data)


class _Course(NamedTuple):
    """How episodes are played and learnt from."""

    play: Player
    deviations: np.ndarray
    key: Any
    lesson: Lesson
    federations: int
    rounds: int
    progress: bool | str | None
    every: int


def _train(course: _Course, start: Policy, place: Keeper | None) -> Policy:
    """All episodes, from the kept ones on."""
    learner = beginner(start.params, course.federations, course.rounds, course.lesson)
    rewards, done = np.full(len(course.deviations), np.nan), 0
    shown = bar(course.progress, len(rewards) * course.federations, "episodes")
    with asked_to_stop(place is not None) as stop, shown as advance:
        if place is not None and (found := place.load(learner, rewards)):
            done, rewards = found[0], found[2]
            learner = cast(Learner, found[1])
        advance(done * course.federations)
        for episode in range(done, len(rewards)):
            deviation = jnp.asarray(course.deviations[episode], jax.tree.leaves(learner.params)[0].dtype)
            keys = jax.random.split(jax.random.fold_in(course.key, episode), course.federations)
            explored = course.play(learner.params, deviation, keys)
            learner, reward = learn(learner, explored, deviation, lesson=course.lesson)
            rewards[episode] = reward
            if not np.isfinite(rewards[episode]):
                raise ValueError(f"reward must be finite, got {rewards[episode]} in episode {episode + 1}")
            advance(course.federations)
            last = episode + 1 == len(rewards)
            if place is not None and (stop() or last or (episode + 1) % course.every == 0):
                place.save(episode + 1, learner, rewards)
            if stop() and place is not None and not last:
                raise KeyboardInterrupt(f"stopped after episode {episode + 1}, which is kept in {place.folder}")
    return start._replace(params=learner.params, rewards=rewards)

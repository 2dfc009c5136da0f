"""PG-FFL: aggregation weights from a policy that REINFORCE trains for fairness (Sun et al., 2022)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

from fedjax_fair.aggregators.policy import (
    SKETCH,
    STATES,
    WEIGHTS,
    Network,
    Policy,
    check_policy,
    features,
    mean_action,
)
from fedjax_fair.checks import check_range
from fedjax_fair.metrics import gini
from fedjax_fair.numerics.solvers import as_floats, masked_mean, softmax
from fedjax_fair.types import Aggregator, Key, Params, Report


class PGFFLState(NamedTuple):
    """The agent, and the action whose reward has not come yet.

    Moments and trace are one array each, not one a layer: a round, which waits for them, takes less time so.
    """

    policy: Params
    optimizer: optax.OptState
    trace: Array  # f32[P], grad log pi(a|s) of the last action, plus discounted earlier ones
    baseline: Array  # f32[], moving average of the rewards
    round: Array  # i32[], rounds in which at least two clients were heard
    rewards: Array  # i32[], rounds that taught something
    sizes: Array  # f32[], training examples of all clients


def pg_ffl(
    beta: float = 1e-3,
    discount: Array | float = 0.0,
    baseline: Array | float | None = None,
    g_min: Array | float = 1e-3,
    deterministic: bool = False,
    std: Array | float = 1.0,
    policy: Policy | None = None,
) -> Aggregator:
    r"""Draw the weights from a Gaussian policy; reward it for accuracy that is high and evenly spread.

    .. math:: a \sim N(\mu_\phi(s), \sigma^2 I), \qquad c = \operatorname{softmax}(a), \qquad
              r = -\bar a \log \operatorname{Gini}(a_1, ..., a_S), \qquad
              \phi \leftarrow \phi + \beta\, r\, \nabla_\phi \log \pi_\phi(a \mid s)

    where :math:`a_k` in the reward are the clients' validation accuracies of the model they received. That
    model is the consequence of the PREVIOUS round's action, which is therefore credited: what the state keeps
    of an action is its gradient of log pi, discounted and summed where ``discount`` > 0 (rewards to go), until
    the reward arrives.

    A plug-in around any local training: plain it is PGF-FedAvg; with ``local_sgd(..., objective=ff.proximal(mu))``
    it is PGF-FedProx.

    Reads ``accuracy``, ``updates``, ``loss``, ``n``. ``deterministic=True`` plays the mean action and learns
    nothing; the last layer starts at zero, so an untrained agent is then uniform FedAvg.

    Optimises: the expected reward -mean(accuracy) log Gini(accuracy), in the policy that draws the weights.

    Args:
      beta: step size of the policy's Adam (whose epsilon is 1e-5 here); not stated in the paper.
      discount: of the rewards to go, in [0, 1); the paper's listing has one step, which is 0.
      baseline: decay of a moving average of the rewards that is subtracted from them, in [0, 1); None for none. It
        starts at the first reward, which so teaches nothing.
        Without it every reward is positive, and all actions are reinforced, good ones more.
      g_min: floor of the Gini coefficient inside the logarithm, in (0, 1): it bounds the reward.
      deterministic: evaluation mode.
      std: sigma, above 0: how far actions stray from their mean; 1 in the paper. Then the weights of five clients
        are .05 to .44 in a typical round, which costs accuracy where the clients' labels differ.
      policy: one that :func:`train_policy` has trained, on federations like this one. It plays its mean action and
        learns nothing; it reads ``updates`` only if that is its state. By default the policy learns while it
        weighs.

    Raises:
      ValueError: an argument outside its range, a ``policy`` beside settings of learning; in ``simulation``, data
        without a validation split.

    Differs from the paper in (it states neither the map to weights nor the size of the state):
      1. weights are the softmax of the Gaussian action; the policy's step is Adam's, not beta times the gradient;
      2. not all models side by side are the state: of a client it is its loss, its accuracy, its share of the
         data, and a count sketch of its update; that has 61 numbers with random signs, relative to the cohort's
         root mean square; the network is shared by the clients;
      3. accuracies that are all 0 are rewarded with 0; rounds of fewer than two clients, whose weights do not
         depend on what is drawn, leave the agent as it was: the next reward is still credited to the action before;
      4. accuracies are those of the received model, as in its text and Fig. 2; Algorithm 1 takes those of the
         models that the clients have trained.

    Source: Sun, Si, Wang, Dong, Zhu, Xiao, A Fair Federated Learning Framework With Reinforcement Learning,
    IJCNN 2022.
    """
    check_range("beta", beta, 0)
    check_range("discount", discount, 0, 1, open_high=True)
    check_range("g_min", g_min, 0, 1, open_low=True, open_high=True)
    check_range("std", std, 0, open_low=True)
    if baseline is not None:
        check_range("baseline", baseline, 0, 1, open_high=True)
    if policy is not None:
        _check_played(policy, beta=(beta, 1e-3), discount=(discount, 0.0), g_min=(g_min, 1e-3), std=(std, 1.0))
        _check_played(policy, baseline=(baseline, None))
        return playing(policy)
    network, adam = Network(), optax.adam(beta, eps=1e-5)  # eps: Adam would blow rounding up to full steps

    def init(sizes: Array, key: Key | None = None) -> PGFFLState:
        key = jax.random.key(0) if key is None else key
        sizes = as_floats(sizes)
        phi = network.init(key, jnp.zeros((1, SKETCH + 3), sizes.dtype))
        zero = jnp.zeros((), sizes.dtype)
        blank = jnp.zeros_like(ravel_pytree(phi)[0])
        return PGFFLState(
            phi, adam.init(blank), blank, zero, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32), sizes.sum()
        )

    def learn(state: PGFFLState, report: Report, acts: Array) -> PGFFLState:
        """Credit this round's reward to the trace of earlier actions, where the agent ``acts`` now, bool[]."""
        reward = reward_of(report.accuracy, report.active, g_min)
        judged = acts & (state.round > 0)
        first = state.rewards == 0  # the average starts at the first reward, not at 0
        usual = 0 if baseline is None else jnp.where(first, reward, state.baseline)
        advantage = jnp.where(judged, reward - usual, 0)
        with jax.numpy_dtype_promotion("standard"):  # optax raises a float to an integer count
            step, optimizer = adam.update(-advantage.astype(state.trace.dtype) * state.trace, state.optimizer)
            learned = (optax.apply_updates(state.policy, ravel_pytree(state.policy)[1](step)), optimizer)
        phi, optimizer = jax.tree.map(
            lambda new, old: jnp.where(judged, new, old), learned, (state.policy, state.optimizer)
        )
        decay = 0 if baseline is None else baseline
        mean = jnp.where(first, reward, decay * state.baseline + (1 - decay) * reward)
        return state._replace(
            policy=phi,
            optimizer=optimizer,
            baseline=jnp.where(judged, mean, state.baseline),
            rewards=state.rewards + judged.astype(jnp.int32),
        )

    def weigh(state: PGFFLState, report: Report, key: Key) -> tuple[Array, PGFFLState]:
        s = features(report, state.sizes)
        if deterministic:
            return softmax(mean_action(state.policy, s), report.active), state
        acts = report.active.sum() > 1
        state = learn(state, report, acts)
        keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(report.ids)
        noise = jax.vmap(lambda k: jax.random.normal(k, (), s.dtype))(keys)  # 64-bit mode draws other actions
        mean, gradients_of = jax.vjp(lambda phi: mean_action(phi, s), state.policy)
        action = mean + std * noise
        (score,) = gradients_of(jnp.where(report.active, noise / std, 0))  # sum (a - mu) / std^2 grad mu
        trace = jnp.where(acts, discount * state.trace + ravel_pytree(score)[0], state.trace)
        state = state._replace(trace=trace, round=state.round + acts.astype(jnp.int32))
        return softmax(action, report.active), state

    return Aggregator(init, weigh)


def reward_of(accuracy: Array, active: Array, g_min: Array | float = 1e-3) -> Array:
    """``-mean * log(max(Gini, g_min))`` over the active clients; 0 where the mean is 0 or one client is active."""
    mean = masked_mean(jnp.where(active, accuracy, 0), active)
    spread = gini(jnp.where(active, accuracy, 0), where=active)
    defined = (mean > 0) & (active.sum() > 1)
    return jnp.where(defined, -mean * jnp.log(jnp.maximum(jnp.where(defined, spread, 1), g_min)), 0)


def playing(policy: Policy) -> Aggregator:
    """The rule that plays a policy's mean action; its state is the number of all training examples."""
    see, _ = STATES[policy.state]

    def init(sizes: Array, key: Key | None = None) -> Array:
        return as_floats(sizes).sum()

    def weigh(state: Array, report: Report, key: Key) -> tuple[Array, Array]:
        del key
        return WEIGHTS[policy.weights](mean_action(policy.params, see(report, state)), report.active), state

    return Aggregator(init, weigh)


def _check_played(policy: Policy, **settings: tuple[Any, float | None]) -> None:
    """A trained policy, beside settings of learning that are left at their defaults: each with its own."""
    check_policy(policy)
    for name, (value, usual) in settings.items():
        if isinstance(value, Array) or value != usual:
            raise ValueError(f"policy plays its mean action and learns nothing, so leave {name} out, got {value!r}")

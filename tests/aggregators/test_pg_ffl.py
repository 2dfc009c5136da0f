"""PG-FFL: the reward, whom it is credited to, and that the agent learns."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from contract import SIZES, make_report, take
from flax import traverse_util
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from fedjax_fair.aggregators.pg_ffl import reward_of
from fedjax_fair.aggregators.policy import SKETCH, features, sketch
from fedjax_fair.metrics import gini

KEY = jax.random.key(0)
AGENT = ff.pg_ffl(1e-2, baseline=0.5)
weigh, init = jax.jit(AGENT.weigh), jax.jit(AGENT.init)
ALL = jnp.ones(4, bool)
COHORT = [2, 7, 0, 5]


def report(seed, **changes):
    return make_report(seed, COHORT, **changes)


def scrambled(state, seed=9):
    """A policy whose every layer matters: the last one starts at zero."""
    rng = np.random.default_rng(seed)
    policy = jax.tree.map(lambda p: jnp.asarray(0.3 * rng.normal(size=p.shape), p.dtype), state.policy)
    return state._replace(policy=policy)


def same(a, b):
    return jax.tree.all(jax.tree.map(lambda u, v: bool((u == v).all()), a, b))


# The weights


def test_an_untrained_agent_that_plays_its_mean_is_uniform_fedavg():
    play = jax.jit(ff.pg_ffl(deterministic=True).weigh)
    state = init(jnp.asarray(SIZES), KEY)
    for made in (report(0), report(1, active=[1, 0, 1, 1])):
        coef, after = play(state, made, KEY)
        assert_allclose(coef, made.active / made.active.sum(), rtol=1e-6)
        assert same(after, state)
    assert np.ptp(play(scrambled(state), report(0), KEY)[0]) > 0.01


def test_weights_are_a_softmax_of_the_mean_action_plus_unit_noise_of_each_client():
    """log c is the action up to a constant: its noise has mean 0 and variance 1, and is keyed by the client."""
    state, made = init(jnp.asarray(SIZES), KEY), report(0, active=[1, 0, 1, 1])
    keys = jax.random.split(jax.random.key(1), 2000)
    coef = np.asarray(jax.jit(jax.vmap(lambda key: AGENT.weigh(state, made, key)[0]))(keys))
    assert_allclose(coef.sum(axis=1), 1, rtol=1e-5)
    assert_array_equal(coef[:, 1], 0)
    assert coef[:, [0, 2, 3]].min() > 0
    difference = np.log(coef[:, 0]) - np.log(coef[:, 2])
    assert abs(difference.mean()) < 0.15
    assert abs(difference.var() - 2) < 0.3


def test_the_agent_does_not_see_the_order_of_the_slots():
    order = jnp.array([2, 0, 3, 1])
    one = two = scrambled(init(jnp.asarray(SIZES), KEY))
    for t in range(3):
        made, key = report(t), jax.random.key(t)
        coef, one = weigh(one, made, key)
        moved, two = weigh(two, take(made, order), key)
        assert_allclose(moved, coef[order], rtol=1e-4)
    assert not same(one.policy, scrambled(one).policy)
    for a, b in zip(jax.tree.leaves(one.policy), jax.tree.leaves(two.policy)):
        assert_allclose(a, b, rtol=1e-3, atol=2e-4)


# The reward


def test_the_reward_is_minus_the_mean_times_the_log_of_gini():
    accuracy = jnp.array([0.7, 0.8, 0.9, 0.1])
    seen = jnp.array([True, True, True, False])
    spread = 0.4 / (2 * 9 * 0.8) * 2  # |differences| .1 .1 .2, each twice
    assert_allclose(reward_of(accuracy, seen), -0.8 * np.log(spread), rtol=1e-5)
    assert_allclose(gini(accuracy, where=seen), spread, rtol=1e-5)


@pytest.mark.parametrize("g_min", [1e-3, 0.05])
def test_the_floor_bounds_the_reward(g_min):
    equal, close = jnp.full(4, 0.5), 0.5 + jnp.array([0, 1e-5, 0, 0])
    for accuracy in (equal, close):
        assert_allclose(reward_of(accuracy, ALL, g_min), -0.5 * np.log(g_min), rtol=1e-4)


def test_nothing_is_gained_by_one_client_or_by_accuracies_of_zero():
    assert reward_of(jnp.array([0.9, 0.5, 0.5, 0.5]), jnp.arange(4) == 0) == 0
    assert reward_of(jnp.zeros(4), ALL) == 0
    assert reward_of(jnp.array([0.9, jnp.nan, 0, 0]), ~ALL) == 0


def test_the_reward_rises_with_evenness_and_with_the_mean():
    uneven, evener = jnp.array([0.2, 0.4, 0.6, 0.8]), jnp.array([0.4, 0.45, 0.55, 0.6])
    assert 0 < reward_of(uneven, ALL) < reward_of(evener, ALL)
    assert reward_of(uneven, ALL) < reward_of(1.2 * uneven, ALL)  # the same Gini


# The lesson


def mean_action(policy, s):
    """The network by hand: three tanh layers and a linear one."""
    layers = policy["params"]
    for i in range(3):
        s = jnp.tanh(s @ layers[f"Dense_{i}"]["kernel"] + layers[f"Dense_{i}"]["bias"][None, :])
    return (s @ layers["Dense_3"]["kernel"] + layers["Dense_3"]["bias"][None, :])[:, 0]


ADAM = optax.adam(1e-2, eps=1e-5)


@jax.jit
def ascend(policy, moments, advantage, trace):
    step, moments = ADAM.update(jax.tree.map(lambda e: -advantage * e, trace), moments)
    return optax.apply_updates(policy, step), moments


@jax.jit
def score_of(policy, made, key, std):
    """grad log N(a; mu(s), std^2 I) at the action that is drawn, and that action."""
    s, active = features(made, SIZES.sum()), made.active
    noise = jnp.stack([jax.random.normal(jax.random.fold_in(key, i), ()) for i in COHORT])
    action = mean_action(policy, s) + std * noise

    def log_density(policy):
        return jnp.where(active, jax.scipy.stats.norm.logpdf(action, mean_action(policy, s), std), 0).sum()

    return jax.grad(log_density)(policy), action


def in_float64(tree):
    return jax.tree.map(lambda v: v.astype(jnp.float64) if v.dtype == jnp.float32 else v, tree)


@pytest.mark.parametrize(("discount", "baseline", "std"), [(0.0, None, 1.0), (0.6, 0.8, 0.3)])
def test_a_reward_is_credited_to_the_actions_before_it(discount, baseline, std):
    """REINFORCE by hand over four rounds: the reward of round t meets the score of round t - 1 (and earlier)."""
    with jax.enable_x64(True), toy.optimized(False):
        rule = ff.pg_ffl(1e-2, discount, baseline, std=std)
        state = scrambled(jax.jit(rule.init)(jnp.asarray(SIZES, jnp.float64), KEY))
        policy, moments, play = state.policy, ADAM.init(state.policy), jax.jit(rule.weigh)
        trace = average = None
        for t in range(4):
            made, key = in_float64(report(t, active=[1, t != 1, 1, 1])), jax.random.key(t)
            coef, state = play(state, made, key)
            if t > 0:
                accuracy = np.asarray(made.accuracy)[np.asarray(made.active)]
                spread = np.abs(accuracy[:, None] - accuracy).sum() / (2 * accuracy.size**2 * accuracy.mean())
                reward = -accuracy.mean() * np.log(spread)
                usual = reward if average is None else average  # the first reward only starts the average
                advantage = reward - (0 if baseline is None else usual)
                policy, moments = ascend(policy, moments, advantage, trace)
                average = reward if average is None else 0.8 * average + 0.2 * reward
            score, action = score_of(policy, made, key, std)
            weights = np.where(made.active, np.exp(action), 0)
            assert_allclose(coef, weights / weights.sum(), rtol=1e-8)
            trace = score if trace is None else jax.tree.map(lambda e, g: discount * e + g, trace, score)
        for name, ours in traverse_util.flatten_dict(state.policy).items():
            assert_allclose(ours, traverse_util.flatten_dict(policy)[name], rtol=1e-7, atol=1e-10)


def test_the_first_round_teaches_nothing_the_second_does():
    plain = ff.pg_ffl(1e-2)
    start = plain.init(jnp.asarray(SIZES), KEY)
    _, first = plain.weigh(start, report(0), KEY)
    assert same((first.policy, first.optimizer), (start.policy, start.optimizer))
    assert (first.round, first.baseline) == (1, 0)
    _, second = plain.weigh(first, report(1, accuracy=[0.2, 0.4, 0.6, 0.8]), KEY)
    assert not same(second.policy, start.policy)


def test_the_first_reward_starts_the_average_and_is_not_above_it():
    start = init(jnp.asarray(SIZES), KEY)
    _, first = weigh(start, report(0), KEY)
    made = report(1, accuracy=[0.2, 0.4, 0.6, 0.8])
    _, second = weigh(first, made, KEY)
    assert same(second.policy, start.policy)
    assert_allclose(second.baseline, reward_of(made.accuracy, made.active), rtol=1e-6)
    _, third = weigh(second, report(2), KEY)
    assert not same(third.policy, start.policy)


@pytest.mark.parametrize("when", [0, 1, 2])
@pytest.mark.parametrize("there", [[0, 0, 0, 0], [0, 1, 0, 0]], ids=["nobody", "one"])
def test_a_round_of_fewer_than_two_clients_is_as_if_it_had_not_been(when, there):
    """What is drawn changes no weight, so the next reward still belongs to the action before."""

    def play(rounds):
        state = scrambled(init(jnp.asarray(SIZES), KEY))
        for t, active in rounds:
            _, state = weigh(state, report(t, active=active), jax.random.key(t))
        return state

    heard = [(t, [1, 1, 0, 1]) for t in range(4)]
    silence = [(9, there)]
    assert same(play(heard), play([*heard[:when], *silence, *heard[when:]]))


def test_a_round_with_one_client_teaches_nothing():
    """It has no Gini coefficient, which is no reason to call the last action bad."""
    state = scrambled(init(jnp.asarray(SIZES), KEY))
    _, state = weigh(state, report(0), KEY)
    _, after = weigh(state, report(1, active=[0, 1, 0, 0]), KEY)
    assert same((after.policy, after.optimizer, after.baseline), (state.policy, state.optimizer, state.baseline))
    assert (after.rewards, after.round) == (0, 1)
    made = report(2)
    _, after = weigh(after, made, KEY)
    assert_allclose(after.baseline, reward_of(made.accuracy, made.active), rtol=1e-6)  # the first reward of all


def test_a_step_of_zero_never_changes_the_policy():
    start = state = init(jnp.asarray(SIZES), KEY)
    still = jax.jit(ff.pg_ffl(0.0).weigh)
    for t in range(4):
        _, state = still(state, report(t), jax.random.key(t))
    assert state.round == 4
    assert same(state.policy, start.policy)


# The state that the policy sees


def test_the_sketch_keeps_lengths_and_angles():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(100, 2000)).astype(np.float32)
    b = 0.6 * a + 0.8 * rng.normal(size=a.shape).astype(np.float32)
    rows_a, rows_b = (np.asarray(sketch({"w": v[:, :1200].reshape(-1, 30, 40), "z": v[:, 1200:]})) for v in (a, b))
    assert rows_a.shape == (100, SKETCH)
    lengths = (rows_a**2).sum(axis=1) / (a**2).sum(axis=1)
    assert abs(lengths.mean() - 1) < 0.05
    assert lengths.std() < 0.3  # sqrt(2 / 61) = 0.18
    inner = (rows_a * rows_b).sum(axis=1) / (a * b).sum(axis=1)
    assert abs(inner.mean() - 1) < 0.1
    unrelated = (rows_a[1:] * rows_a[:-1]).sum(axis=1) / 2000
    assert abs(unrelated.mean()) < 0.05
    assert_allclose(sketch({"w": a - 2 * b}), sketch({"w": a}) - 2 * sketch({"w": b}), atol=1e-2)


def test_the_sketch_spreads_the_weights_of_one_unit():
    """A gradient in one column of a layer 64 wide, as a ReLU network has them: no bucket takes them all."""
    w = np.zeros((400, 100, 64), np.float32)
    w[:, :, 3] = np.random.default_rng(0).normal(size=(400, 100))
    lengths = (np.asarray(sketch({"w": w})) ** 2).sum(axis=1) / (w**2).sum(axis=(1, 2))
    assert abs(lengths.mean() - 1) < 0.05
    assert lengths.std() < 0.3


def count_sketch(leaves):
    """One client's, number by number, in NumPy."""
    buckets, place = np.zeros(SKETCH), 0
    for leaf in leaves:
        for i, value in enumerate(np.ravel(leaf)):
            bits = place * 0x9E3779B9 % 2**32
            bits = (bits ^ (bits >> 16)) * 0x85EBCA6B % 2**32
            bits = (bits ^ (bits >> 13)) * 0xC2B2AE35 % 2**32
            buckets[i % SKETCH] += value if (bits ^ (bits >> 16)) < 2**31 else -value
            place += 1
    return buckets


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_the_sketch_is_that_of_each_client_one_by_one_and_all_together(monkeypatch, backend):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    rng = np.random.default_rng(0)
    leaves = [rng.normal(size=(3, *shape)).astype(np.float32) for shape in ((), (5, 31), (61, 200))]
    rows = jax.jit(lambda *leaves: sketch(leaves))(*leaves)
    assert_allclose(rows, [count_sketch(own) for own in zip(*leaves)], atol=1e-4)


def test_the_sketch_costs_one_pass_over_the_updates(monkeypatch):
    """Two operations per number and client, and a dozen to hash its place, which is the same for all clients."""

    def flop_per_number(clients, d=10**4):
        return toy.flop_of(lambda u: sketch(u), jax.ShapeDtypeStruct((clients, d), jnp.float32)) / (clients * d)

    assert flop_per_number(1) < 20  # one by one, of which the loop's body is counted once
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert flop_per_number(32) < 4


def test_features_hold_loss_accuracy_and_share_and_no_scale_of_the_updates():
    made = report(0, active=[1, 1, 0, 1])
    s = np.asarray(features(made, SIZES.sum()))
    assert s.shape == (4, SKETCH + 3)
    assert_allclose(s[:, -3:], np.stack([made.loss, made.accuracy, made.n / SIZES.sum()], 1) * [[1], [1], [0], [1]])
    longer = made._replace(updates=jax.tree.map(lambda u: 100 * u, made.updates))
    assert_allclose(features(longer, SIZES.sum()), s, rtol=1e-4, atol=1e-5)
    assert_allclose((s[[0, 1, 3], :SKETCH] ** 2).mean(), 1, rtol=1e-5)
    assert_array_equal(s[2], 0)


# In the engine


def test_it_runs_in_a_simulation_that_has_a_validation_split():
    trainer = ff.local_sgd(optax.sgd(0.1), batch_size=4)
    with pytest.raises(ValueError, match="accuracy is read, but the data has no validation split"):
        ff.simulation(toy.linear, toy.federation(validation=False), aggregator=ff.pg_ffl(), trainer=trainer)
    sim = ff.simulation(
        toy.linear, toy.federation(), aggregator=ff.pg_ffl(), trainer=trainer, selector=ff.uniform(3)
    )
    state, history = ff.run(sim, 0, 6, eval_every=6)
    assert_allclose(history.coef.sum(axis=1), 1, rtol=1e-5)
    assert np.ptp(history.coef, axis=1).min() > 1e-3
    assert np.isfinite(history.loss).all()
    assert state.aggregator.round == 6


def needy(seed, rounds=2000):
    """Three clients whose accuracy is 1 - exp(-weight / need); one, by the seed, needs three times as much."""
    worst = seed % 3
    need = jnp.where(jnp.arange(3) == worst, 0.6, 0.2)
    rule, made = ff.pg_ffl(), make_report(0, range(3))
    start = rule.init(jnp.asarray(SIZES[:3]), jax.random.key(seed))

    def step(carry, t):
        state, accuracy = carry
        now = made._replace(accuracy=accuracy, loss=1 - accuracy)
        weights, state = rule.weigh(state, now, jax.random.fold_in(jax.random.key(seed), t))
        return (state, 1 - jnp.exp(-weights / need)), weights[worst]

    return jax.lax.scan(step, (start, 1 - jnp.exp(-1 / 3 / need)), jnp.arange(rounds))[1]


def test_the_agent_learns_whom_to_favour():
    """Defaults, 2,000 rounds, five seeds: the needy client ends above the uniform weight in five of five."""
    weight = np.asarray(jax.jit(jax.vmap(needy))(jnp.arange(5)))
    assert (np.abs(weight[:, :50].mean(axis=1) - 1 / 3) < 0.1).all()
    assert (weight[:, -500:].mean(axis=1) > 1 / 3 + 0.03).all()

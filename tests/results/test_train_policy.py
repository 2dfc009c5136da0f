"""A policy trained on many federations: its gradient by hand, what it learns, and that it is kept."""

import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from contract import SIZES, make_report
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from fedjax_fair.aggregators.exploring import Explored, exploring
from fedjax_fair.aggregators.pg_ffl import reward_of
from fedjax_fair.aggregators.policy import STATES, WEIGHTS, Network, Policy, mean_action
from fedjax_fair.data.alike import alike
from fedjax_fair.engine.checkpoint import CheckpointError, Keeper
from fedjax_fair.engine.episodes import Lesson, beginner, learn, player, to_go

KEY = jax.random.key(0)


@pytest.fixture(scope="module", autouse=True)
def compiled_quickly():
    with toy.optimized(False):
        yield


def scrambled(state="signals", weights="softmax", seed=3):
    """A policy whose every layer matters."""
    rng, width = np.random.default_rng(seed), STATES[state][1]
    params = Network().init(KEY, jnp.zeros((1, width)))
    return Policy(
        jax.tree.map(lambda p: jnp.asarray(0.3 * rng.normal(size=p.shape), p.dtype), params), state, weights
    )


# The gradient


def random_episodes(federations=3, rounds=4, slots=2, seed=0):
    rng = np.random.default_rng(seed)
    shape = (federations, rounds + 1)
    judged = rng.random(shape) < 0.8
    return Explored(
        examples=np.ones(shape, np.float32),
        seen=rng.normal(size=(*shape, slots, STATES["signals"][1])).astype(np.float32),
        noise=rng.normal(size=(*shape, slots)).astype(np.float32),
        acted=np.repeat(rng.random(shape) < 0.9, slots).reshape(*shape, slots),
        reward=rng.random(shape).astype(np.float32),
        judged=judged,
    )


def by_hand(policy, made, std, discount, usual):
    """Every federation and round for itself: (sum_j discount^j (r - b)) grad log N(a; mu(s), std^2 I)."""

    @jax.jit
    def score(seen, noise, acted):
        action = mean_action(policy.params, seen) + std * noise
        log_density = lambda params: jnp.where(  # noqa: E731
            acted, jax.scipy.stats.norm.logpdf(action, mean_action(params, seen), std), 0
        ).sum()
        return jax.grad(log_density)(policy.params)

    total = jax.tree.map(jnp.zeros_like, policy.params)
    federations, rounds = made.reward.shape[0], made.reward.shape[1] - 1
    for f in range(federations):
        for t in range(rounds):
            returns = sum(
                discount ** (j - t) * (made.reward[f, j + 1] - usual(f, j)) * made.judged[f, j + 1]
                for j in range(t, rounds)
            )
            mine = score(made.seen[f, t], made.noise[f, t], made.acted[f, t])
            total = jax.tree.map(lambda a, g, weight=returns: a + weight * g / federations, total, mine)
    return total


@pytest.mark.parametrize(("baseline", "discount"), [(None, 0.0), ("round", 0.7)])
def test_the_gradient_is_reinforce_by_hand(baseline, discount):
    policy, made, std = scrambled(), random_episodes(), 0.4

    def usual(f, t):
        return made.reward[:, t + 1][made.judged[:, t + 1]].mean() if baseline else 0

    wanted = by_hand(policy, made, std, discount, usual)
    lesson = Lesson(discount, baseline, 1e-2)
    start = beginner(policy.params, 3, 4, lesson)
    after, reward = learn(start, made, jnp.asarray(std), lesson=lesson)
    # Adam's first moment is a tenth of the descent direction.
    toy.close(after.optimizer[0].mu, jax.tree.map(lambda g: -0.1 * g, wanted), rtol=1e-3, atol=1e-6)
    assert_allclose(reward, made.reward[:, 1:][made.judged[:, 1:]].mean(), rtol=1e-5)
    step = jax.tree.map(lambda a, b: a - b, after.params, policy.params)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(step)) == pytest.approx(1e-2, rel=1e-2)


def test_a_federations_own_baseline_is_the_mean_of_its_earlier_rewards():
    """In the first episode the round's mean stands in; the second is judged by .8 of it and .2 of the first."""
    policy, lesson = scrambled(), Lesson(0.0, "own", 0.0)
    start = beginner(policy.params, 3, 4, lesson)
    first, second = (random_episodes(seed=s)._replace(judged=np.ones((3, 5), bool)) for s in (0, 1))
    middle, _ = learn(start, first, jnp.asarray(1.0), lesson=lesson)
    kept = 0.8 * first.reward[:, 1:].mean(0) + 0.2 * first.reward[:, 1:]
    assert_allclose(middle.usual, kept, rtol=1e-5)
    after, _ = learn(middle._replace(optimizer=start.optimizer), second, jnp.asarray(1.0), lesson=lesson)
    wanted = by_hand(policy, second, 1.0, 0.0, lambda f, t: kept[f, t])
    toy.close(after.optimizer[0].mu, jax.tree.map(lambda g: -0.1 * g, wanted), rtol=1e-3, atol=1e-6)


def test_returns_to_go_are_discounted_sums_of_what_comes():
    assert_allclose(to_go(jnp.array([[1.0, 2.0, 4.0]]), 0.5), [[3.0, 4.0, 4.0]])


# What a policy sees and plays


@pytest.mark.parametrize("weights", [*WEIGHTS])
@pytest.mark.parametrize("state", [*STATES])
def test_exploring_weighs_by_the_mean_action_plus_noise_and_the_trained_rule_by_the_mean(state, weights):
    policy, made, sizes = scrambled(state, weights), make_report(0, [2, 7, 0, 5], active=[1, 0, 1, 1]), SIZES
    played = ff.pg_ffl(policy=policy)
    coef, _ = jax.jit(played.weigh)(played.init(sizes), made, KEY)
    mean = mean_action(policy.params, STATES[state][0](made, jnp.asarray(float(np.sum(sizes)))))
    to_weights = {"softmax": np.exp, "sigmoid": lambda a: 1 / (1 + np.exp(-a))}[weights]
    wanted = np.where(made.active, to_weights(np.asarray(mean)), 0)
    assert_allclose(coef, wanted / wanted.sum(), rtol=1e-5)
    assert np.ptp(coef[jnp.array([0, 2, 3])]) > 1e-3
    rule = exploring(policy, 0.3, 4, reward_of)
    tried, left = jax.jit(rule.weigh)(rule.init(sizes), made, KEY)
    wanted = np.where(made.active, to_weights(np.asarray(mean + 0.3 * left.noise)), 0)
    assert_allclose(tried, wanted / wanted.sum(), rtol=1e-5)
    assert_allclose(left.reward, reward_of(made.accuracy, made.active), rtol=1e-6)
    assert_array_equal(left.acted, made.active)


def test_a_round_of_one_client_is_neither_judged_nor_learnt_from():
    rule = exploring(scrambled(), 0.3, 4, reward_of)
    _, left = rule.weigh(rule.init(SIZES), make_report(0, [2, 7, 0, 5], active=[0, 1, 0, 0]), KEY)
    assert not left.acted.any()
    assert not left.judged


def test_the_state_signals_does_not_wait_for_training():
    assert set(ff.reads(ff.pg_ffl(policy=scrambled()))) == {"n", "loss", "accuracy"}
    assert "updates" in ff.reads(ff.pg_ffl(policy=scrambled("updates")))


# What is learnt


def bandit(seed, good=3, clients=6):
    """Clients whose model is +1 (6 training examples) or -1 (3), whatever they receive; y says which."""
    rng = np.random.default_rng(seed)
    kinds = rng.permutation(np.arange(clients) < good)
    owner = np.repeat(np.arange(clients), np.where(kinds, 6, 3) + 2)
    x = np.where(kinds, 1.0, -1.0)[owner, None].astype(np.float32)
    y = np.zeros(len(owner), np.float32)
    return ff.FederatedData.from_arrays(x, y, client_id=owner, split=(0.998, 0.001, 0.001), seed=seed)


def to_its_own(loss, params, client, key, round):
    x, _ = client.take(client.rows[:1])
    return {"w": x[0, 0][None]}, ff.Trace(jnp.zeros(()), jnp.zeros(()))


MODEL = (lambda key, x: {"w": jnp.zeros((1,))}, lambda params, x: jnp.zeros((len(x),)) + params["w"])


def nearness(outputs, y):
    """(1 + w) / 2: an accuracy of 1 where all weight is on the good clients, of .5 with equal weights."""
    return (1 + outputs) / 2 + 0 * y


def arms(rule, data, selector=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ff.simulation(
            MODEL,
            data,
            aggregator=rule,
            selector=selector,
            trainer=to_its_own,
            loss=ff.losses.squared_error,
            metric=nearness,
        )


LEARN = {
    "federations": 8,
    "episodes": 12,
    "rounds": 6,
    "reward": lambda accuracy, active: accuracy.mean(),
    "beta": 0.03,
    "discount": 0.0,
    "threads": 1,
}


@pytest.fixture(scope="module")
def learnt():
    return ff.train_policy(arms, bandit, **LEARN)


def test_a_policy_learns_whom_to_weigh_where_that_is_known(learnt):
    """Half of the clients make the reward 1, half 0; on federations never trained on it finds the former."""
    assert learnt.rewards.shape == (LEARN["episodes"],)
    assert learnt.rewards[0] == pytest.approx(0.5, abs=0.05)
    assert learnt.rewards[-1] > 0.85
    for data in (bandit(100), bandit(101, good=2)):
        _, history = ff.run(arms(ff.pg_ffl(policy=learnt), data), 0, 3, eval_every=3)
        kinds = np.asarray(data.sizes) == 6
        assert history.coef[-1][kinds[history.ids[-1]]].sum() > 0.9


def test_the_trained_policy_draws_nothing(learnt):
    sim = arms(ff.pg_ffl(policy=learnt), bandit(0))
    one, other = (ff.run(sim, seed, 3, eval_every=3)[1] for seed in (0, 1))
    order = np.argsort(one.ids[-1]), np.argsort(other.ids[-1])
    assert_allclose(one.coef[-1][order[0]], other.coef[-1][order[1]], rtol=1e-6)


def test_training_is_the_same_again_and_in_other_blocks(learnt):
    again = ff.train_policy(arms, bandit, **LEARN | {"side_by_side": 3, "threads": 2})
    assert_allclose(again.rewards, learnt.rewards, rtol=1e-4)


def test_an_episode_is_what_runs_of_the_exploring_rule_leave():
    """A federation in a block of several, padded to the largest, leaves what it leaves alone."""
    datas = [toy.federation((3, 8, 5)), toy.federation((4, 4, 6), seed=1)]
    policy, keys = scrambled(), jax.random.split(KEY, 2)

    def build(data):
        return lambda rule: ff.simulation(toy.linear, data, aggregator=rule, trainer=toy.FULL)

    of = alike(datas)
    play = player(build(of.largest), policy, reward_of, of.each, cohort=3, rounds=2, width=2, threads=1)
    together = play(policy.params, jnp.asarray(0.4), keys)
    for f, data in enumerate(datas):
        sim = build(data)(exploring(policy, 0.4, 3, reward_of))
        state, step = sim.init(keys[f]), jax.jit(sim.step)
        for t in range(3):
            state, _ = step(state, data)
            alone = state.aggregator
            mine = jax.tree.map(lambda leaf, f=f, t=t: leaf[f, t], together)
            toy.close(mine._replace(examples=0), alone._replace(examples=0), rtol=1e-4, atol=1e-5)


# What is kept


def test_a_policy_is_read_as_it_was_written(learnt, tmp_path):
    path = ff.save_policy(learnt, tmp_path / "new" / "policy.npz")
    again = ff.load_policy(path)
    jax.tree.map(assert_array_equal, again.params, learnt.params)
    assert_array_equal(again.rewards, learnt.rewards)
    assert (again.state, again.weights) == (learnt.state, learnt.weights)


def test_a_policy_is_never_rounded_in_silence(learnt, tmp_path):
    def in_type(dtype):
        return learnt._replace(params=jax.tree.map(lambda leaf: np.asarray(leaf).astype(dtype), learnt.params))

    path = ff.save_policy(in_type(np.float64), tmp_path / "double.npz")
    with pytest.raises(CheckpointError, match=r"double.npz is of float64, which needs .*jax_enable_x64"):
        ff.load_policy(path)
    with jax.enable_x64(True):
        jax.tree.map(assert_array_equal, ff.load_policy(path).params, in_type(np.float64).params)
    with pytest.raises(ValueError, match=r"policy must have parameters of float16.*, got bfloat16"):
        ff.save_policy(in_type(jnp.bfloat16), tmp_path / "half.npz")


def test_training_goes_on_where_it_was_cut_off(learnt, tmp_path, monkeypatch):
    save, saved = Keeper.save, []

    def cut_off(self, played, *rest):
        save(self, played, *rest)
        saved.append(played)
        if played == 4 and len(saved) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Keeper, "save", cut_off)
    with pytest.raises(KeyboardInterrupt):
        ff.train_policy(arms, bandit, **LEARN, checkpoint=tmp_path, every=4)
    whole = ff.train_policy(arms, bandit, **LEARN, checkpoint=tmp_path, every=4)
    assert saved == [4, 8, 12]
    jax.tree.map(assert_array_equal, whole.params, learnt.params)
    assert_array_equal(whole.rewards, learnt.rewards)
    with pytest.raises(CheckpointError, match=r"is of another run: rounds was 6 and is 5"):
        ff.train_policy(arms, bandit, **LEARN | {"rounds": 5}, checkpoint=tmp_path)


def test_a_file_that_is_no_policy_is_one_sentence(tmp_path):
    with pytest.raises(CheckpointError, match=r"policy .*none.npz cannot be read: No such file"):
        ff.load_policy(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("no")
    with pytest.raises(CheckpointError, match=r"policy .*text.npz cannot be read \(ValueError"):
        ff.load_policy(tmp_path / "text.npz")
    np.save(tmp_path / "array.npy", np.ones(3))
    about = json.dumps({"state": next(iter(STATES)), "weights": next(iter(WEIGHTS))})
    for name, told in (("empty", about), ("list", "[1]")):
        np.savez(tmp_path / f"{name}.npz", about=np.array(told))
    for name in ("array.npy", "empty.npz", "list.npz"):
        with pytest.raises(CheckpointError, match=f"policy .*{name} cannot be read"):
            ff.load_policy(tmp_path / name)
    with pytest.raises(ValueError, match=r"policy must be what ff.train_policy returns, got int"):
        ff.save_policy(3, tmp_path / "policy.npz")


def test_a_policy_of_another_network_is_refused_before_it_is_played(learnt, tmp_path):
    path = ff.save_policy(learnt, tmp_path / "policy.npz")
    with np.load(path) as kept:
        arrays = {name: kept[name] for name in kept.files}
    arrays["params/Dense_0/kernel"] = arrays["params/Dense_0/kernel"][:3]
    np.savez(tmp_path / "other.npz", **arrays)
    of = r"params\['params'\]\['Dense_0'\]\['kernel'\] of"
    with pytest.raises(
        CheckpointError, match=rf'other.npz cannot be .* {of} \[5, 128\] for state "signals", got \[3, 128\]'
    ):
        ff.load_policy(tmp_path / "other.npz")
    with pytest.raises(ValueError, match=rf'policy must have {of} \[64, 128\] for state "updates", got \[5, 128\]'):
        ff.pg_ffl(policy=learnt._replace(state="updates"))


# What is refused


def without_rule(rule, data):
    return arms(ff.fedavg(), data)


def other_by_data(rule, data):
    trainer = ff.local_sgd(optax.sgd(0.1 if data.sizes[0] == 6 else 0.2), batch_size=3)
    return ff.simulation(toy.linear, data, aggregator=rule, trainer=trainer)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"federations": 0}, "federations must be at least 1, got 0"),
        (
            {"federations": 1},
            'baseline="round" is the mean over the federations, by which one alone learns nothing',
        ),
        ({"episodes": 1.5}, "episodes must be a whole number, got 1.5"),
        ({"state": "signal"}, "state must be one of updates, signals, got 'signal'; did you mean 'signals'"),
        ({"weights": "max"}, "weights must be one of softmax, sigmoid, got 'max'; did you mean 'softmax'"),
        ({"std": 0.3}, r"std must be that of the first and that of the last episode, such as \(.5, .1\), got 0.3"),
        ({"std": (0.3, 0.0)}, "std must be above 0, got 0.0"),
        ({"discount": 1.2}, r"discount must be in \[0, 1\], got 1.2"),
        ({"baseline": "mean"}, "baseline must be one of round, own, got 'mean'"),
        ({"policy": 3}, "policy must be what ff.train_policy returns, got int"),
        (
            {"policy": Policy({"params": {}})},
            r"policy must have params\['params'\]\['Dense_0'\]\['bias'\] of \[128\]",
        ),
        ({"reward": 3}, r"reward must be a function \(accuracy, active\) -> f\[\], got 3"),
        ({"reward": lambda accuracy, active: accuracy}, r"reward must return one number, got shape \(6,\)"),
        ({"reward": lambda accuracy: 0}, r"reward must take accuracy f\[6\] and active bool\[6\], got TypeError"),
        ({"side_by_side": "all"}, "side_by_side must be \"auto\", None or a whole number, got 'all'"),
        ({"build": 3}, r"build must be a function \(rule, data\) -> ff.simulation\(...\), got 3"),
        ({"build": lambda data: None}, r"build must take \(rule, data\), got \(data\)"),
        ({"build": without_rule}, "build must hand the rule that it is given to ff.simulation.*has it 0 times"),
        ({"every": 2}, "every"),
        (
            {"build": lambda rule, data: arms(rule, data, selector=ff.uniform(1))},
            "build must select two or more clients a round: one alone has all the weight, got cohort 1",
        ),
        ({"federation": 3}, "federation must be a FederatedData or a function of a seed, got int"),
    ],
)
def test_a_wrong_argument_is_one_sentence(settings, sentence):
    given = {"build": arms, "federation": bandit, "federations": 2, "episodes": 1, "rounds": 2} | settings
    with pytest.raises(ValueError, match=sentence):
        ff.train_policy(given.pop("build"), given.pop("federation"), **given)


def test_a_build_that_looks_at_the_federation_is_refused():
    datas = [toy.federation((6, 5)), toy.federation((3, 5), seed=1)]
    with pytest.raises(ValueError, match="build must make the same of all federations"):
        ff.train_policy(other_by_data, lambda seed: datas[seed], federations=2, episodes=1, rounds=2)


def test_a_reward_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="reward must be finite, got nan in episode 1"):
        ff.train_policy(arms, bandit, **LEARN | {"reward": lambda a, b: jnp.nan * a.sum(), "episodes": 1})


@pytest.mark.parametrize(
    "learning", [{"beta": 1e-2}, {"discount": 0.5}, {"baseline": 0.5}, {"std": 0.3}, {"g_min": 0.1}]
)
def test_settings_of_learning_beside_a_trained_policy_are_refused(learning):
    (name,) = learning
    with pytest.raises(ValueError, match=f"policy plays its mean action and learns nothing, so leave {name} out"):
        ff.pg_ffl(policy=scrambled(), **learning)
    with pytest.raises(ValueError, match=r"policy must be what ff.train_policy returns, got str"):
        ff.pg_ffl(policy="mine")

"""The strategies that are guided by losses: power-of-choice and its cheaper forms, and UCB-CS."""

from functools import cache
from itertools import permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toy
from contract import LOSS, SIZES, N, make_context, random_report
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare

import fedjax_fair as ff
from fedjax_fair.types import Context

KEY = jax.random.key(0)


@pytest.fixture(scope="module", autouse=True)
def compile_fast():
    with toy.optimized(False):
        yield


def context(losses, asked=None):
    """An engine whose clients have these losses; ``asked`` collects what the probe is called with."""

    def probe(ids, key=None, batch=None):
        if asked is not None:
            asked.append((ids, key, batch))
        return jnp.asarray(losses)[ids]

    return Context(jnp.int32(0), len(losses), probe, lambda ids: ids >= 0)


def cohorts(selector, losses, sizes=SIZES, count=400, state=None):
    state = selector.init(jnp.asarray(sizes, jnp.float32)) if state is None else state
    keys = jax.random.split(KEY, count)
    return np.asarray(jax.jit(jax.vmap(lambda key: selector.select(state, key, context(losses))[0]))(keys))


def sets_law(sizes, m):
    """Probability of every set of m clients drawn one after another, without replacement, by size."""
    law = {}
    for row in permutations(range(len(sizes)), m):
        left, p = float(sum(sizes)), 1.0
        for k in row:
            p, left = p * sizes[k] / left, left - sizes[k]
        law[frozenset(row)] = law.get(frozenset(row), 0) + p
    return law


def assert_law(rows, law):
    counts = dict.fromkeys(law, 0)
    for row in rows.tolist():
        counts[frozenset(row)] += 1
    assert chisquare(list(counts.values()), np.array(list(law.values())) * len(rows)).pvalue > 0.01


# pow-d, cpow-d


def test_as_many_candidates_as_places_is_size_proportional_selection():
    sizes = [1, 2, 3, 6]
    assert_law(cohorts(ff.pow_d(2, 2), np.arange(4.0), sizes, 4000), sets_law(sizes, 2))


def test_asking_everybody_is_the_greedy_choice():
    greedy = np.sort(np.argsort(LOSS)[-3:])
    assert_array_equal(np.sort(cohorts(ff.pow_d(3, N), LOSS)), np.tile(greedy, (400, 1)))


@pytest.mark.parametrize("m", [1, 2])
def test_the_largest_losses_of_the_candidates_are_theirs(m):
    """d = 4 of 8: the cohort is the top m of the very clients that were asked, by their own losses."""
    asked = []
    selector, state = ff.pow_d(m, 4), ff.pow_d(m, 4).init(jnp.asarray(SIZES))
    for seed in range(10):
        ids, _ = selector.select(state, jax.random.key(seed), context(LOSS, asked))
        among = np.asarray(asked[-1][0])
        assert among.shape == (4,)
        assert set(ids.tolist()) == set(among[np.argsort(LOSS[among])[-m:]].tolist())
    assert len({tuple(np.sort(among).tolist()) for among, *_ in asked}) > 3
    assert all(batch is None for *_, batch in asked)


@pytest.mark.parametrize("selector", [ff.pow_d(2, 4), ff.rpow_d(2)], ids=["pow_d", "rpow_d"])
def test_ties_are_broken_at_random(selector):
    """Equal losses: every pair of four clients is as likely as any other."""
    assert_law(cohorts(selector, np.ones(4), np.ones(4), 3000), sets_law(np.ones(4), 2))


def test_cpow_d_asks_for_one_minibatch_drawn_with_a_key_of_its_own():
    asked = []
    selector = ff.cpow_d(2, 4, batch=7)
    for seed in (1, 2):
        selector.select(selector.init(jnp.asarray(SIZES)), jax.random.key(seed), context(LOSS, asked))
    assert [batch for *_, batch in asked] == [7, 7]
    keys = [jax.random.key_data(key).tolist() for _, key, _ in asked]
    assert keys[0] != keys[1]
    assert keys[0] != jax.random.key_data(jax.random.key(1)).tolist()  # which drew the candidates


@pytest.mark.parametrize("make", [ff.pow_d, ff.cpow_d, ff.rpow_d])
def test_the_number_of_candidates_is_from_m_to_all_clients(make):
    for d in (2, 0, 3.0):
        with pytest.raises(ValueError, match=r"^d must be [^\n]+, got"):
            make(3, d)
    selector = make(3, N + 1)
    with pytest.raises(ValueError, match=rf"^d must be at most the {N} clients, got {N + 1}$"):
        selector.select(selector.init(jnp.asarray(SIZES)), KEY, make_context(N))


def test_a_minibatch_needs_an_example():
    with pytest.raises(ValueError, match=r"^batch must be at least 1, got 0$"):
        ff.cpow_d(2, 4, batch=0)


# rpow-d


def heard(selector, ids, losses, state=None, **changes):
    state = selector.init(jnp.asarray(SIZES)) if state is None else state
    report = random_report(0, len(ids))._replace(ids=jnp.array(ids), train_loss=jnp.array(losses, jnp.float32))
    return selector.observe(state, report._replace(**changes))


def test_rpow_d_explores_first_then_goes_by_what_it_last_heard():
    selector = ff.rpow_d(3)
    state = heard(selector, [0, 1, 2, 3, 4], [1, 9, 2, 8, 7])
    rows = cohorts(selector, -LOSS, state=state)  # the true losses are never asked for
    assert_array_equal(np.sort(rows), np.tile([5, 6, 7], (400, 1)))
    state = heard(selector, [5, 6, 7], [0, 3, 4], state)
    assert set(cohorts(selector, -LOSS, state=state)[0].tolist()) == {1, 3, 4}
    state = heard(selector, [1, 3, 4], [0.5, 8.5, 0.25], state)
    assert set(cohorts(selector, -LOSS, state=state)[0].tolist()) == {3, 7, 6}


def test_rpow_d_puts_a_client_that_failed_at_the_mean_of_the_others():
    """Never heard of, or heard of with the largest loss: either way it would be selected for ever."""
    selector = ff.rpow_d(1)
    state = heard(selector, [0, 1, 2, 3, 5, 6, 7], np.arange(1.0, 8))
    for _ in range(2):
        state = heard(selector, [4], [100.0], state, active=jnp.array([False]))
        assert_allclose(state.loss[4], 4)
    state = heard(selector, [7, 0], [0.0, 2.0], state, active=jnp.array([False, True]))
    assert_allclose(state.loss, [2, 2, 3, 4, 4, 5, 6, np.mean([2, 2, 3, 4, 4, 5, 6])])
    nobody = heard(selector, [4], [100.0], active=jnp.array([False]))
    assert nobody.loss[4] == jnp.inf  # there is no mean yet: it stays one of the untried


@pytest.mark.parametrize(
    "selector",
    [
        ff.pow_d(1, 6),
        ff.cpow_d(1, 6),
        ff.rpow_d(1),
        ff.ucb_cs(1),
        ff.ucb_cs(1, 1.0),
        ff.ucb_cs(1, literal_alg1=True),
    ],
    ids=["pow_d", "cpow_d", "rpow_d", "ucb_cs", "ucb_cs-1", "ucb_cs-literal"],
)
def test_a_client_that_always_fails_does_not_stop_the_others(selector):
    """Six clients, one a round, one of them broken from the start: it gets a sixth of the rounds at most."""
    broken, rounds = 2, 60
    toy = jax.tree.map(lambda v: jnp.zeros((1, *v.shape[1:]), v.dtype), random_report(0, 2))._replace(
        gram=jnp.zeros((1, 1))
    )

    @jax.jit
    def chosen(its_loss):
        losses = jnp.array([1.0, 1.2, 0, 1.1, 0.9, 1.3]).at[broken].set(its_loss)

        def play(state, key):
            ids, state = selector.select(state, key, context(losses))
            fine = jnp.isfinite(losses[ids])
            report = toy._replace(ids=ids, train_loss=jnp.where(fine, losses[ids], 0), active=fine)
            return selector.observe(state, report._replace(train_loss_std=jnp.ones(1))), ids[0]

        return jax.lax.scan(play, selector.init(jnp.ones(6)), jax.random.split(KEY, rounds))[1]

    for its_loss in (jnp.nan, jnp.inf):
        assert (np.asarray(chosen(its_loss)) == broken).sum() <= rounds / 6 + 1


def test_rpow_d_among_candidates():
    """d = m: by size alone; d of N: the worst that was heard of wins when it is a candidate."""
    sizes = [1, 2, 3, 6]
    assert_law(cohorts(ff.rpow_d(2, 2), np.ones(4), sizes, 4000), sets_law(sizes, 2))
    selector = ff.rpow_d(1, 3)
    state = selector.init(jnp.ones(4))._replace(loss=jnp.array([1.0, 2, 3, 4]))
    counts = np.bincount(cohorts(selector, np.ones(4), state=state, count=4000)[:, 0], minlength=4)
    assert_array_equal(counts[:2], 0)
    assert abs(counts[3] / 4000 - 3 / 4) < 0.03


# UCB-CS

CLIENTS, ROUNDS = 7, 40
SHARES = np.array([5.0, 1, 2, 4, 3, 3, 2])


@cache
def ucb_rounds(m, gamma, literal=False, sigma=1.0, losses=None, dropout=0.45, rounds=ROUNDS):
    """Play in float64 under one scan: cohorts, reports and the state after each round, as NumPy arrays."""
    rng = np.random.default_rng(7)
    table = (
        rng.uniform(0.5, 3, (rounds, CLIENTS)) if losses is None else np.tile(np.array(losses, float), (rounds, 1))
    )
    spread = sigma * rng.uniform(0.2, 1, (rounds, CLIENTS)) if losses is None else np.full_like(table, sigma)
    here = rng.random((rounds, CLIENTS)) >= dropout
    with jax.enable_x64(True):
        selector = ff.ucb_cs(m, gamma, literal)
        toy = jax.tree.map(lambda v: jnp.zeros((m, *v.shape[1:]), v.dtype), random_report(0, 2))
        toy = toy._replace(gram=jnp.zeros((m, m)))

        def step(state, now):
            key, *signals = now
            ids, state = selector.select(state, key, make_context(CLIENTS))
            loss, std, active = (v[ids] for v in signals)
            report = toy._replace(ids=ids, train_loss=loss, train_loss_std=std, active=active)
            state = selector.observe(state, report)
            return state, (ids, loss, std, active, state)

        start = selector.init(jnp.asarray(SHARES))
        signals = (jax.random.split(KEY, rounds), jnp.asarray(table), jnp.asarray(spread), jnp.asarray(here))
        last, played = jax.lax.scan(step, start, signals)
        assert jax.tree.map(jax.typeof, last) == jax.tree.map(jax.typeof, start)
        return jax.tree.map(np.asarray, played)


def brute_force(played, t, gamma):
    """Eq. 4-7 as sums over the rounds before t: L_k, N_k, T, sigma, the index A_k, and who of the
    last cohort counts.

    A client that dropped out counts with the mean of the others' L_k / N_k, this round's included.
    """
    ids, loss, std, active = (v[:t] for v in played[:4])
    loss, sigma = loss.copy(), 0.0

    def sums(now, weighed):
        total, count = np.zeros(CLIENTS), np.zeros(CLIENTS)
        for past in range(now + 1):
            who = weighed[past]
            total[ids[past][who]] += gamma ** (now - past) * loss[past][who]
            count[ids[past][who]] += gamma ** (now - past)
        return total, count

    weighed = active.copy()
    for now in range(t):
        total, count = sums(now, weighed)
        known = (count > 0) & ~np.isin(np.arange(CLIENTS), ids[now][~active[now]])
        if known.any():
            loss[now][~active[now]] = (total[known] / count[known]).mean()
            weighed[now] = True
        sigma = max(std[now][active[now]], default=sigma)
    total, count = sums(t - 1, weighed)
    T = sum(gamma ** (t - 1 - past) for past in range(t))
    tried = count > 0
    safe = np.where(tried, count, 1)
    index = SHARES / SHARES.sum() * (total / safe + sigma * np.sqrt(2 * np.log(T) / safe))
    return total, count, T, sigma, np.where(tried, index, np.inf), weighed[-1]


def assert_top(ids, index):
    """Some m largest, however ties (of clients never tried) fall."""
    assert len(set(ids.tolist())) == len(ids)
    assert_array_equal(np.sort(index[ids]), np.sort(index)[-len(ids) :])


@pytest.mark.parametrize("gamma", [0.7, 1.0])
def test_the_recursion_is_the_sums_over_the_history(gamma):
    played = ucb_rounds(2, gamma)
    ids, *_, state = played
    assert not played[3].all()  # some dropped out
    assert not played[3].any(axis=1).all()  # in some round everybody
    for t in range(1, ROUNDS):
        total, count, T, sigma, index, _ = brute_force(played, t, gamma)
        tried = count > 0
        assert_allclose(state.mean[t - 1][tried], (total / np.where(tried, count, 1))[tried], rtol=1e-9)
        assert_allclose(np.exp(state.log_count[t - 1]), count, rtol=1e-9)
        assert_allclose([state.total[t - 1], state.sigma[t - 1]], [T, sigma], rtol=1e-9)
        assert_top(ids[t], index)
    assert tried.all()
    assert len({tuple(np.sort(row).tolist()) for row in ids}) > 5


def test_after_the_first_round_there_is_no_bonus():
    """T = 1: the index is the mean loss alone, however large sigma is."""
    selector = ff.ucb_cs(1)
    state = heard(selector, range(N), LOSS, train_loss_std=jnp.full(N, 1e6))
    assert state.sigma == 1e6
    assert_array_equal(cohorts(selector, LOSS, state=state), (SIZES * LOSS).argmax())


def test_without_discount_and_deviation_ucb_is_greedy_in_the_mean_loss():
    ids = ucb_rounds(2, 1.0, sigma=0.0, losses=tuple(range(1, 8)), dropout=0)[0]
    greedy = np.argsort(SHARES * np.arange(1.0, 8))[-2:]
    assert_array_equal(np.sort(ids[4:]), np.tile(np.sort(greedy), (ROUNDS - 4, 1)))


def test_a_client_idle_for_long_is_no_nan_where_the_losses_do_not_spread():
    """In float32 the square root of 1 / N_k overflows; with sigma = 0 its bonus is 0 all the same."""
    selector = ff.ucb_cs(1, 0.3)
    state = heard(selector, range(N), LOSS)._replace(sigma=jnp.float32(0), total=jnp.float32(1.4))
    state = state._replace(log_count=state.log_count.at[0].set(-300.0))
    assert_array_equal(cohorts(selector, LOSS, state=state), (SIZES * LOSS).argmax())
    assert_array_equal(cohorts(selector, LOSS, state=state._replace(sigma=jnp.float32(0.1))), 0)


@pytest.mark.parametrize(("dtype", "rounding"), [(jnp.float32, 1e-3), (jnp.float64, 1e-9)])
@pytest.mark.parametrize(("gamma", "sigma"), [(0.1, 0.3), (0.7, 0.0), (0.7, 0.3)])
def test_nobody_waits_for_ever_however_long_the_others_turns(gamma, sigma, dtype, rounding):
    """One of 300 a round: N_k falls to e^-690 before a client's turn comes. Eq. 4-7 in logarithms."""
    clients, rng = 300, np.random.default_rng(0)
    shares, losses = rng.uniform(1, 3, clients), rng.uniform(0.5, 2, clients)
    shares /= shares.sum()
    with jax.enable_x64(dtype == jnp.float64):
        selector, toy = ff.ucb_cs(1, gamma), jax.tree.map(lambda v: v[:1], random_report(0, 2))
        toy = toy._replace(gram=toy.gram[:, :1], active=jnp.ones(1, bool), train_loss_std=jnp.full(1, sigma, dtype))

        def step(state, key):
            ids, state = selector.select(state, key, make_context(clients))
            return selector.observe(state, toy._replace(ids=ids, train_loss=jnp.asarray(losses, dtype)[ids])), ids[
                0
            ]

        start = selector.init(jnp.asarray(shares, dtype))
        played = np.asarray(jax.lax.scan(step, start, jax.random.split(KEY, 1500))[1])
    log_count, total = np.full(clients, -np.inf), 0.0
    for i in played:
        tried = np.isfinite(log_count)
        width = sigma * np.sqrt(2 * np.log(max(total, 1)))
        log_bonus = (np.log(width) if width else -np.inf) - np.where(tried, log_count, 0) / 2
        index = np.where(tried, np.log(shares) + np.logaddexp(np.log(losses), log_bonus), np.inf)
        assert np.isinf(index[i]) if not tried.all() else index[i] >= index.max() - rounding
        log_count, total = log_count + np.log(gamma), gamma * total + 1
        log_count[i] = np.logaddexp(log_count[i], 0)
    if sigma:
        assert set(played[600:].tolist()) == set(range(clients))


def test_two_m_candidates_by_default_or_all():
    for m, d in ((2, 4), (5, N)):
        asked = []
        selector = ff.pow_d(m)
        selector.select(selector.init(jnp.asarray(SIZES)), KEY, context(LOSS, asked))
        assert asked[0][0].shape == (d,)


@pytest.mark.parametrize(("gamma", "literal"), [(0.7, False), (1.0, False), (0.0, True), (0.7, True)])
def test_everybody_is_tried_first(gamma, literal):
    ids = ucb_rounds(2, gamma, literal, dropout=0, rounds=4)[0]  # ceil(7 / 2)
    assert set(ids.flat) == set(range(CLIENTS))


def test_without_memory_only_the_last_cohort_was_ever_tried():
    """gamma = 0: N_k = 0 for everybody else, so no client is played twice in a row."""
    ids, loss, *_, state = ucb_rounds(2, 0.0, dropout=0)
    assert not (ids[1:, :, None] == ids[:-1, None, :]).any()
    assert_array_equal(np.isfinite(state.log_count).sum(axis=1), 2)
    assert_array_equal(np.take_along_axis(state.mean, ids, axis=1), loss)
    assert_array_equal(state.total, 1)


def test_idle_clients_come_back_by_the_equations_and_never_by_algorithm_1():
    """One client is far worse than all others, whatever its share: the bonus of the idle grows, or decays."""
    losses = tuple(SHARES.sum() / SHARES * np.array([3.0, 1, 1, 1, 1, 1, 1]))
    ids, *_, state = ucb_rounds(1, 0.7, False, 1.0, losses, dropout=0)
    late = ids[CLIENTS + 1 :, 0]
    assert set(late.tolist()) == set(range(CLIENTS))
    bonus = np.sqrt(np.log(state.total[CLIENTS:]))[:, None] * np.exp(-state.log_count[CLIENTS:] / 2)
    idle = ids[CLIENTS + 1 :] != np.arange(CLIENTS)[None, :]
    assert (np.diff(bonus, axis=0)[idle] > 0).all()
    assert_allclose(state.mean[-1], losses)
    late = ucb_rounds(1, 0.7, True, 1.0, losses, dropout=0)[0][CLIENTS + 1 :, 0]
    assert len(set(late.tolist())) == 1


@pytest.mark.parametrize("gamma", [0.7, 0.0])
def test_algorithm_1_to_the_letter(gamma):
    """The cohort's indices anew, everybody's times gamma a round."""
    played = ucb_rounds(2, gamma, literal=True)
    listed = np.full(CLIENTS, np.inf)
    for t, ids in enumerate(played[0]):
        assert_allclose(np.sort(listed[ids]), np.sort(listed)[-2:], rtol=1e-9)
        listed = np.where(np.isinf(listed), listed, gamma * np.where(np.isinf(listed), 0, listed))
        *_, index, counted = brute_force(played, t + 1, gamma)
        listed[ids[counted]] = index[ids[counted]]
        assert_allclose(played[-1].listed[t], listed, rtol=1e-9)
    assert np.isfinite(listed).all()


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan"), "half"])
def test_gamma_is_from_0_to_1(gamma):
    with pytest.raises(ValueError, match=r"^gamma must be "):
        ff.ucb_cs(2, gamma)

"""Absent, lying and failing clients, and what the server does about them."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from fedjax_fair import registry
from fedjax_fair.data.alike import alike
from fedjax_fair.reads import toy_report
from fedjax_fair.robustness.faults import SIGNALS

N = len(toy.SIZES)
DATA = toy.federation()
TRAINER = ff.local_sgd(optax.sgd(0.1), steps=2, batch_size=4)
LIARS = np.array([False, True, False, False, True])
KEY = jax.random.key(0)


def simulation(rule=None, **more):
    rule = ff.fedavg() if rule is None else rule
    return ff.simulation(toy.linear, DATA, aggregator=rule, trainer=TRAINER, **more)


def refused(sentence):
    return pytest.raises(ValueError, match=re.escape(sentence))


def present(available, rounds=400, n=N):
    """bool[rounds, N]."""
    one = jax.vmap(lambda key, r: available(key, r, jnp.arange(n)))
    return np.asarray(one(jax.random.split(jax.random.key(0), rounds), jnp.arange(rounds)))


# Who is there


def test_bernoulli_is_there_with_its_probability_whoever_asks():
    p = np.array([0.0, 0.2, 0.5, 0.9, 1.0])
    assert_allclose(present(ff.availability.bernoulli(p)).mean(0), p, atol=0.08)
    assert_allclose(present(ff.availability.bernoulli(0.3)).mean(), 0.3, atol=0.03)
    available, key = ff.availability.bernoulli(0.5), jax.random.key(3)
    everybody = available(key, 0, jnp.arange(100))
    assert_array_equal(available(key, 0, jnp.array([70, 3])), everybody[jnp.array([70, 3])])


def test_the_same_clients_are_absent_where_float64_is_on():
    narrow = present(ff.availability.bernoulli(0.5), 20)
    with jax.enable_x64(True):
        assert_array_equal(present(ff.availability.bernoulli(0.5), 20), narrow)


def test_a_trace_starts_over():
    table = np.random.default_rng(0).random((7, N)) < 0.5
    assert_array_equal(present(ff.availability.trace(table), 20), np.tile(table, (3, 1))[:20])
    sim = simulation(available=ff.availability.trace(table))
    _, history = ff.run(sim, 0, 10)
    assert_array_equal(history.active, np.tile(table, (2, 1))[:10])
    assert (history.coef[~history.active] == 0).all()
    assert_allclose(history.coef.sum(1), table.any(1)[np.arange(10) % 7], rtol=1e-6)  # renormalised


def test_dropout_by_size_and_by_label():
    smallest, largest = np.argmin(toy.SIZES), np.argmax(toy.SIZES)
    there = present(ff.availability.by_size(DATA, smallest=0.1, largest=0.9)).mean(0)
    assert_allclose(there[[smallest, largest]], [0.1, 0.9], atol=0.06)
    x, y = np.zeros((9, 1)), np.array([0, 0, 0, 0, 1, 1, 1, 1, 1])
    data = ff.FederatedData.from_arrays(x, y, client_id=[0, 0, 0, 1, 1, 1, 2, 2, 2], split=(0.5, 0, 0.5))
    shares = [(toy.examples(data, k)[1] == 1).mean() for k in range(3)]
    assert shares[0] == 0
    assert shares[2] == 1
    there = present(ff.availability.by_label(data, 1, without=0.2, only=0.8), n=3).mean(0)
    assert_allclose(there, 0.2 + 0.6 * np.array(shares), atol=0.08)


def test_rows_that_pad_a_table_are_nobodys():
    """Of federations that share a program the smaller ones have some, of the store's first example."""
    data = toy.federation((2, 5, 3))
    padded = alike([data, toy.federation((4, 5, 3), seed=1)]).each[0]
    assert len(padded.train.rows) > len(data.train.rows)
    for label in range(toy.CLASSES):
        mine, wanted = (ff.availability.by_label(of, label, without=0.2, only=0.8) for of in (padded, data))
        assert_array_equal(present(mine, n=3), present(wanted, n=3))
    first = np.array([True, False, False])
    flipped = ff.faults.flip_labels(padded, first)
    assert_array_equal(flipped.y[: len(data.y)], ff.faults.flip_labels(data, first).y)


@pytest.mark.parametrize("make", [ff.uniform, ff.size_proportional])
def test_a_selector_may_choose_among_those_who_are_there(make):
    table = np.random.default_rng(1).random((50, N)) < 0.6
    sim = simulation(selector=make(2, among="available"), available=ff.availability.trace(table))
    _, history = ff.run(sim, 0, 50)
    assert_array_equal(history.active.sum(1), np.minimum(table.sum(1), 2))
    _, blind = ff.run(simulation(selector=make(2), available=ff.availability.trace(table)), 0, 50)
    assert blind.active.sum() < history.active.sum()


def test_choosing_among_the_available_is_uniform():
    sim = simulation(selector=ff.uniform(2, among="available"), available=ff.availability.trace([[1, 1, 0, 1, 1]]))
    _, history = ff.run(sim, 0, 600)
    assert_allclose(np.bincount(history.ids.ravel(), minlength=N) / 600, [0.5, 0.5, 0, 0.5, 0.5], atol=0.07)


@pytest.mark.parametrize("selector", [ff.pow_d(2, 5), ff.cpow_d(2, 5, batch=2)])
def test_a_probe_of_an_absent_client_is_no_answer(selector):
    sim = simulation(selector=selector, available=ff.availability.trace([[1, 0, 1, 0, 0], [0, 1, 0, 1, 1]]))
    _, history = ff.run(sim, 0, 20)
    assert history.active.all()


@pytest.mark.parametrize("steps", [1, 3, 8])
def test_a_straggler_makes_no_more_steps_than_its_limit(steps):
    """With full batches, where steps differ by nothing but their number."""
    limits = [0, 1, 2, 3, 100]
    late = ff.local_sgd(
        optax.sgd(0.1), steps=steps, batch_size=None, limit=lambda key, round, id: jnp.array(limits)[id]
    )
    sent = updates(late)
    for k, limit in enumerate(limits):
        done = min(steps, limit)
        assert_allclose(sent[k], on_time(done)[k] if done else 0, rtol=2e-5, atol=1e-7)


@functools.cache
def on_time(steps):
    """Everybody's update after so many steps of full batches."""
    return updates(ff.local_sgd(optax.sgd(0.1), steps=steps, batch_size=None))


@pytest.mark.parametrize(
    ("selector", "heard"), [(ff.rpow_d(N, N), [True, False, True, True, True]), (None, [True] * N)]
)
def test_a_straggler_without_a_step_has_no_loss(selector, heard):
    """It would else be 0, the best of all. Who reads it leaves the client out; to others it sends what it got."""
    late = ff.local_sgd(
        optax.sgd(0.1), steps=3, batch_size=2, limit=lambda key, round, id: jnp.where(id == 1, 0, 3)
    )
    sim = ff.simulation(toy.linear, DATA, aggregator=ff.fedavg(), trainer=late, selector=selector)
    info = jax.jit(sim.step)(sim.init(jax.random.key(0)), DATA)[1]
    assert_array_equal(info.active[np.argsort(info.ids)], heard)


def test_a_limit_that_nobody_reaches_changes_nothing():
    free, limited = (
        updates(ff.local_sgd(optax.sgd(0.1), steps=4, batch_size=3, limit=limit))
        for limit in (None, lambda key, round, id: 4 + jax.random.randint(key, (), 0, 3))
    )
    assert_allclose(free, limited, rtol=1e-6, atol=1e-7)


def updates(trainer):
    """f[N, D]: everybody's update in the first round."""
    seen = ff.Aggregator(
        lambda sizes, key=None: jnp.zeros((N, toy.DIM, toy.CLASSES)),
        lambda state, report, key: (jnp.zeros(N), report.updates["w"]),
    )
    sim = ff.simulation(toy.linear, DATA, aggregator=seen, trainer=trainer)
    return np.asarray(jax.jit(sim.step)(sim.init(jax.random.key(0)), DATA)[0].aggregator).reshape(N, -1)


# Who lies


def test_some_is_nested_and_exact():
    few, many = ff.faults.some(50, 0.1, seed=3), ff.faults.some(50, 0.4, seed=3)
    assert (few.sum(), many.sum()) == (5, 20)
    assert (many[few]).all()


def seen_report(faults, names=("loss", "train_loss", "updates")):
    spy = ff.Aggregator(
        lambda sizes, key=None: (
            jnp.zeros(N),
            jnp.zeros(N),
            jnp.zeros((N, toy.DIM, toy.CLASSES)),
            jnp.zeros((N, N)),
        ),
        lambda state, r, key: (r.n / r.n.sum(), (r.loss, r.train_loss, r.updates["w"], r.gram)),
    )
    sim = simulation(spy, faults=faults)
    state, info = jax.jit(sim.step)(sim.init(jax.random.key(0)), DATA)
    return [np.asarray(v) for v in state.aggregator], info


def test_liars_change_what_they_send_and_nobody_elses():
    honest, _ = seen_report([])
    inflated, info = seen_report([ff.faults.inflate_loss(LIARS, 7.0)])
    assert_allclose(inflated[0], honest[0] * np.where(LIARS, 7, 1), rtol=1e-6)
    assert_allclose(inflated[1], honest[1] * np.where(LIARS, 7, 1), rtol=1e-6)
    assert_array_equal(inflated[2], honest[2])
    assert info.active.all()
    flipped, _ = seen_report([ff.faults.scale_update(LIARS, -2.0)])
    sign = np.where(LIARS, -2, 1)
    assert_allclose(flipped[2], honest[2] * sign[:, None, None], rtol=1e-6)
    assert_allclose(
        flipped[3], honest[3] * sign * sign[:, None], rtol=1e-5
    )  # the server computes its own Gram matrix
    noisy, _ = seen_report([ff.faults.noisy_update(LIARS, 0.5)])
    assert_array_equal(noisy[2][~LIARS], honest[2][~LIARS])
    assert 0.2 < (noisy[2] - honest[2])[LIARS].std() < 0.8
    both, _ = seen_report([ff.faults.scale_update(LIARS, 3.0), ff.faults.inflate_loss(~LIARS, 0.5)])
    assert_allclose(both[2], honest[2] * np.where(LIARS, 3, 1)[:, None, None], rtol=1e-6)
    assert_allclose(both[0], honest[0] * np.where(LIARS, 1, 0.5), rtol=1e-6)


def test_a_probe_hears_the_lie():
    sim = simulation(selector=ff.pow_d(2, 5), faults=[ff.faults.inflate_loss(LIARS, 1e4)])
    _, history = ff.run(sim, 0, 5)
    assert_array_equal(np.sort(history.ids, 1), [[1, 4]] * 5)


def test_the_history_tells_the_truth_about_liars():
    lying, honest = (ff.run(simulation(faults=f), 0, 3)[1] for f in ([ff.faults.inflate_loss(LIARS)], []))
    assert_array_equal(lying.loss, honest.loss)  # fedavg hears no losses


def test_what_the_rule_heard_is_in_the_history_beside_the_truth():
    faults = [ff.faults.inflate_loss(LIARS, 10.0)]
    lying, honest = (ff.run(simulation(ff.afl(lr=0.0), faults=f), 0, 2)[1] for f in (faults, []))
    factor = np.where(LIARS[lying.ids], 10.0, 1.0)
    assert_allclose(lying.received_loss, factor * honest.received_loss, rtol=1e-5)
    assert_allclose(lying.loss, honest.loss, rtol=1e-5)


def test_a_fault_of_ones_own_may_change_the_parts_of_an_update_where_a_selector_asks():
    flip = ff.faults.Fault(LIARS, lambda r, key: r._replace(updates={**r.updates, "w": -r.updates["w"]}))
    lying, honest = (ff.run(simulation(selector=ff.pow_d(2), faults=f), 0, 3)[1] for f in ([flip], []))
    assert LIARS[lying.ids].any()
    assert np.isfinite(lying.loss).all()
    assert not np.allclose(lying.loss, honest.loss, rtol=1e-3)


def test_a_probe_asks_a_fault_of_ones_own_as_the_rule_does():
    """With the client's size, and zeros in the place of what is sent after training."""
    by_size = ff.faults.Fault(LIARS, lambda r, key: r._replace(loss=r.loss * r.n * (1 + r.steps)))
    seen = []

    def select(state, key, context):
        seen.append(context.probe(jnp.arange(N)))
        return jnp.argsort(-seen[-1])[:2].astype(jnp.int32), state

    asking = ff.Selector(lambda sizes, key: (), select, lambda state, report: state, 2)
    sims = [simulation(selector=asking, faults=faults) for faults in ([by_size], [])]
    for sim in sims:
        sim.step(sim.init(KEY), DATA)
    lied, true = (np.asarray(seen[-i]) for i in (2, 1))
    assert_allclose(lied, true * np.where(LIARS, toy.SIZES, 1), rtol=1e-6)


def test_a_fault_may_change_a_message_where_a_selector_asks():
    flip = ff.faults.Fault(LIARS, lambda r, key: r._replace(message=jax.tree.map(jnp.negative, r.message)))
    _, history = ff.run(simulation(ff.scaffold(), selector=ff.pow_d(2, 4), faults=[flip]), 0, 2)
    assert np.isfinite(history.loss).all()


@pytest.mark.parametrize("selector", [ff.uniform(N), ff.pow_d(2, d=N)], ids=["uniform", "pow_d"])
def test_an_absent_client_costs_nothing(selector):
    """Nobody is there in the first round, and two clients in the second."""
    some = ff.availability.trace([[0] * N, [1, 1] + [0] * (N - 2)])
    _, history = ff.run(simulation(selector=selector, available=some), 0, 2)
    assert history.downloads.tolist() == [0, 2]
    asked = 0 if selector.cohort == N else int(DATA.sizes[:2].sum())
    assert history.evaluations.tolist() == [0, asked]


def test_labels_are_flipped_in_the_training_of_the_liars_alone():
    flipped = ff.faults.flip_labels(DATA, LIARS)
    for k in range(N):
        before, after = toy.examples(DATA, k)[1], toy.examples(flipped, k)[1]
        assert_array_equal(after, toy.CLASSES - 1 - before if LIARS[k] else before)
        assert_array_equal(toy.examples(flipped, k, "test")[1], toy.examples(DATA, k, "test")[1])
    shared = DATA._replace(train=DATA.train._replace(rows=jnp.zeros_like(DATA.train.rows)))
    with refused("flip_labels needs examples of the liars' own, but 1 are shared"):
        ff.faults.flip_labels(shared, LIARS)


RULES = {
    name: (lambda name=name: registry.make_rule(name, SETTINGS.get(name, {}), learning_rate=0.1))
    for name in registry.AGGREGATORS
}
SETTINGS = {"reweighted": {"phi": jnp.square}, "term": {"t": 1.0}}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_crashed_client_sends_nothing_finite(value):
    report = toy_report(N, {"w": jnp.zeros(3)})
    sent = ff.faults.not_finite(LIARS, value).change(report, KEY)
    for leaf in [sent.updates["w"], *(getattr(sent, name) for name in SIGNALS)]:
        assert_array_equal(leaf, jnp.full_like(leaf, value))


@pytest.mark.parametrize("name", RULES)
def test_a_client_that_sends_nonsense_is_as_good_as_absent(name):
    """Shown for every rule, over several rounds of one program: same ids, same keys, same history."""

    @jax.jit
    def play(absent, value):
        def crash(report, key):
            sent = {name: getattr(report, name) for name in ("updates", *SIGNALS)}
            return report._replace(**jax.tree.map(lambda leaf: jnp.full_like(leaf, value), sent))

        sim = simulation(
            RULES[name](),
            available=lambda key, round, id: ~(absent & jnp.asarray(LIARS)[id]),
            faults=[ff.faults.Fault(LIARS, crash)],
        )
        return jax.lax.scan(lambda state, _: sim.step(state, DATA), sim.init(KEY), length=6)

    other, expected = play(True, 0.0)
    for value in (np.nan, np.inf):
        one, seen = play(False, value)
        assert_array_equal(seen.active, ~LIARS[seen.ids])
        assert_array_equal(seen.ids, expected.ids)
        toy.close((seen.coef, one.params), (expected.coef, other.params), rtol=1e-6, atol=1e-7)
        toy.close(seen.loss, expected.loss, rtol=1e-6)  # none where no rule reads it


# What the server does about it


def defended(transform, updates, coef, active=None, key=0):
    """The model's move, f[D], by a transform that hears these updates f[S, D]."""
    updates, coef = jnp.asarray(updates, jnp.float32), jnp.asarray(coef, jnp.float32)
    active = jnp.ones(len(coef), bool) if active is None else jnp.asarray(active)
    report = a_report(updates, active)
    g = {"w": -jnp.tensordot(coef, updates, 1)}
    params = {"w": jnp.zeros(updates.shape[1])}
    sent = {"report": report, "coef": coef, "key": jax.random.key(key)}
    moved, _ = transform.update(g, transform.init(params), params, **sent)
    return -np.asarray(moved["w"])


def a_report(updates, active):
    return toy_report(len(active), {"w": updates[0]})._replace(updates={"w": updates}, active=active)


def test_clipping_shortens_the_long_and_leaves_the_short():
    updates = np.array([[3.0, 4.0], [0.3, 0.4], [-1e20, 0.0]])
    got = defended(ff.defences.clip_updates(1.0), updates, [0.2, 0.3, 0.5])
    assert_allclose(got, 0.2 * np.array([0.6, 0.8]) + 0.3 * np.array([0.3, 0.4]) + [-0.5, 0], rtol=1e-6)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.floats(0, 0.5), st.integers(0, 2**31))
def test_trimmed_mean_and_median_are_numpys_on_the_active(active, share, seed):
    rng, clients = np.random.default_rng(seed), 9  # of one shape, which compiles once
    updates = rng.normal(size=(clients, 3))
    there = rng.permutation(np.arange(clients) < active)
    updates[~there] = 0
    coef = np.where(there, rng.random(clients), 0)
    scale = coef.sum()
    got = defended(ff.defences.median(), updates, coef, there)
    assert_allclose(got, scale * np.median(updates[there], 0), rtol=1e-4, atol=1e-5)
    cut = min(int(np.floor(share * active * (1 + 5e-7))), (active - 1) // 2)
    expected = np.sort(updates[there], 0)[cut : active - cut].mean(0)
    got = defended(ff.defences.trimmed_mean(share), updates, coef, there)
    assert_allclose(got, scale * expected, rtol=1e-4, atol=1e-5)


def test_the_trimmed_share_of_a_cohort_is_the_whole_number_that_it_is_on_paper():
    """.42 of 150 is 63, in float32 62.999996."""
    updates = np.arange(150.0)[:, None] ** 2
    got = defended(ff.defences.trimmed_mean(0.42), updates, np.full(150, 1 / 150))
    assert_allclose(got, updates[63:-63].mean(0), rtol=1e-5)


def test_noise_has_the_scale_of_the_mechanism_and_another_key_another_noise():
    coef, updates = np.array([0.1, 0.4]), np.zeros((2, 20_000))
    transform = ff.defences.clip_and_noise(max_norm=2.0, noise_multiplier=1.5)
    first, again = (defended(transform, updates, coef, key=key) for key in (0, 1))
    assert_allclose(first.std(), 1.5 * 2.0 * 0.4, rtol=0.03)
    assert abs(np.corrcoef(first, again)[0, 1]) < 0.05
    silent = defended(ff.defences.clip_and_noise(1.0, 0.0), [[3.0, 4.0]], [1.0])
    assert_allclose(silent, [0.6, 0.8], rtol=1e-6)


def test_exchanging_one_clients_data_moves_the_clipped_sum_by_at_most_what_the_docstring_says():
    """2 C / m: half of what the noise multiplier is relative to."""
    coef, rest = np.full(4, 0.25), np.random.default_rng(0).normal(size=(3, 5))
    clip = ff.defences.clip_and_noise(1.0, 0.0)
    one, other = (defended(clip, np.vstack([rest, [sign * 9.0, 0, 0, 0, 0]]), coef) for sign in (1, -1))
    assert_allclose(np.linalg.norm(one - other), 2 * 1.0 / 4, rtol=1e-6)


def test_every_seed_and_every_round_has_noise_of_its_own():
    noisy = optax.chain(ff.defences.clip_and_noise(1e-6, 1e4), optax.sgd(1.0))  # nothing but noise
    still = simulation(ff.fedavg("uniform"), server_optimizer=noisy)
    moves, step = [], jax.jit(still.step)
    for seed in (0, 1):
        state = still.init(jax.random.key(seed))
        for _ in range(2):
            after, _ = step(state, DATA)
            moves.append(np.ravel(after.params["w"] - state.params["w"]))
            state = after
    correlations = np.abs(np.corrcoef(moves) - np.eye(4))
    assert correlations.max() < 0.9
    assert len({move.tobytes() for move in moves}) == 4


@pytest.mark.parametrize("rule", [ff.afl(lr=1e-4), ff.qfedavg(1.0, lipschitz=10.0), ff.loss_proportional()])
def test_clipped_losses_bound_a_liars_weight(rule):
    liar = np.arange(N) == 2
    coefs = {}
    for name, used in (("open", rule), ("clipped", ff.defences.clip_losses(rule, 2.0))):
        _, history = ff.run(simulation(used, faults=[ff.faults.inflate_loss(liar, 1e3)]), 0, 5)
        coefs[name] = history.coef[-1, 2] / history.coef[-1].sum()
    assert coefs["clipped"] < 0.5 < coefs["open"]


@pytest.mark.parametrize(
    ("server", "sentence"),
    [
        (ff.defences.median(), "server_optimizer must end in an optimiser that descends"),
        (optax.identity(), "server_optimizer must end in an optimiser that descends"),
        (optax.chain(optax.sgd(1.0), ff.defences.clip_updates(1.0)), "clip_updates makes the aggregate anew and"),
        (
            optax.chain(ff.defences.clip_updates(1.0), ff.defences.median(), optax.sgd(1.0)),
            "trimmed_mean or median makes the aggregate anew and undoes what was done before",
        ),
    ],
)
def test_a_defence_that_would_climb_or_undo_another_is_refused(server, sentence):
    with pytest.raises(ValueError, match=sentence):
        simulation(server_optimizer=server)


def test_a_defence_does_not_undo_a_rules_own_memory():
    first = optax.chain(ff.defences.clip_updates(1.0), optax.sgd(1.0))
    with pytest.raises(ValueError, match=r"does not go with fedfv's memory \(tau > 0\)"):
        simulation(ff.fedfv(tau=1), server_optimizer=first)
    assert simulation(ff.fedfv(tau=0), server_optimizer=first)


@pytest.mark.parametrize(
    "around", [lambda rule: rule, ff.defences.clip_losses, lambda rule: ff.ditto(aggregator=rule)]
)
def test_a_defence_that_goes_by_the_coefficients_sum_is_refused_where_they_cancel(around):
    rule = around(ff.fairmoo())
    for defence in (ff.defences.median(), ff.defences.trimmed_mean(0.2)):
        with pytest.raises(ValueError, match="step by the coefficients' sum, which may be 0 under this rule"):
            simulation(rule, server_optimizer=optax.chain(defence, optax.sgd(1.0)))
    assert simulation(rule, server_optimizer=optax.chain(ff.defences.clip_updates(1.0), optax.sgd(1.0)))


def test_a_defence_may_be_inside_what_averages_iterates():
    inside = ff.average_iterates(optax.chain(ff.defences.clip_updates(1.0), optax.adam(0.1)))
    state, _ = ff.run(simulation(server_optimizer=inside, deploy=ff.averaged), 0, 2)
    mean = ff.averaged(state)
    for leaf, last in zip(jax.tree.leaves(mean), jax.tree.leaves(state.params), strict=True):
        assert np.isfinite(leaf).all()
        assert not np.allclose(leaf, last)


def test_clipping_above_every_loss_changes_nothing():
    one, other = (ff.run(simulation(r), 0, 4)[1] for r in (ff.afl(), ff.defences.clip_losses(ff.afl(), 1e6)))
    assert_array_equal(one.coef, other.coef)


ATTACK = {"faults": [ff.faults.scale_update(np.arange(N) == 1, -1e3)]}


@pytest.fixture(scope="module")
def undefended():
    return ff.run(simulation(**ATTACK), 0, 20)[1]


@pytest.mark.parametrize("transform", ["clip_updates", "median", "trimmed_mean", "clip_and_noise"])
def test_a_defence_takes_part_in_a_simulation(transform, undefended):
    made = {
        "clip_updates": ff.defences.clip_updates(0.05),
        "median": ff.defences.median(),
        "trimmed_mean": ff.defences.trimmed_mean(0.4),
        "clip_and_noise": ff.defences.clip_and_noise(0.05, 0.01),
    }[transform]
    _, safe = ff.run(simulation(server_optimizer=optax.chain(made, optax.sgd(1.0)), **ATTACK), 0, 20)
    assert safe.loss[-1].mean() < 3 < undefended.loss[-1].mean()


WRONG = [
    (lambda: ff.availability.bernoulli(1.5), "p must be in [0, 1], got 1.5"),
    (lambda: ff.availability.bernoulli([0.5, -1]), "p must be probabilities in [0, 1], one or one per client"),
    (lambda: ff.availability.trace([1, 0]), "present must be bool[T, N] with at least one row, got int64[2]"),
    (lambda: ff.availability.trace([[2, 0]]), "present must be bool[T, N] with at least one row, got int64[1, 2]"),
    (lambda: ff.availability.by_size(DATA, 0.5, 2), "largest must be in [0, 1], got 2"),
    (lambda: ff.availability.by_label(DATA, -1, 0, 1), "label must be at least 0, got -1"),
    (
        lambda: ff.availability.by_label(DATA._replace(y=jnp.zeros((len(DATA.y), 3))), 1, 0, 1),
        "one class label per example, y i32[E], got float32[36, 3]",
    ),
    (
        lambda: ff.availability.by_label(DATA._replace(y=jnp.zeros((len(DATA.y), 3), int)), 1, 0, 1),
        "one class label per example",
    ),
    (lambda: ff.availability.by_label(DATA._replace(y=DATA.y / 2), 1, 0, 1), "one class label per example"),
    (lambda: ff.faults.some(10, 1.5), "share must be in [0, 1], got 1.5"),
    (lambda: ff.faults.inflate_loss([1, 2]), "who must be bool[N], such as ff.faults.some(n, .2), got int64[2]"),
    (lambda: ff.faults.inflate_loss(LIARS, -1), "factor must be at least 0, got -1"),
    (lambda: ff.faults.noisy_update(LIARS, -1), "std must be at least 0, got -1"),
    (lambda: ff.faults.not_finite(LIARS, 3.0), "value must be NaN or infinite, got 3.0"),
    (lambda: ff.faults.flip_labels(DATA, LIARS[:3]), "who must have one entry for each of the 5 clients, got 3"),
    (lambda: ff.defences.clip_losses(ff.afl(), 0.5), "factor must be at least 1, got 0.5"),
    (lambda: ff.defences.clip_losses("afl"), "aggregator must be an Aggregator or a Method"),
    (lambda: ff.defences.clip_updates(0), "max_norm must be above 0, got 0"),
    (lambda: ff.defences.trimmed_mean(0.6), "share must be in [0, 0.5], got 0.6"),
    (lambda: ff.defences.clip_and_noise(1.0, -1), "noise_multiplier must be at least 0, got -1"),
    (lambda: ff.uniform(2, among="some"), "among must be one of all, available, got 'some'"),
    (lambda: ff.local_sgd(optax.sgd(0.1), batch_size=5, limit=3), "limit must be a function, got 3"),
]


@pytest.mark.parametrize("method", [ff.scaffold(), ff.drfa()], ids=["scaffold", "drfa"])
def test_noise_is_refused_where_clients_send_more_than_the_update(method):
    private = optax.chain(ff.defences.clip_and_noise(0.05, 1.0), optax.sgd(1.0))
    with refused("clip_and_noise protects the updates alone, and this method's clients send a message besides"):
        simulation(method, server_optimizer=private, selector=ff.uniform(3))
    simulation(ff.ditto(), server_optimizer=private)  # which remembers, and sends the update alone


@pytest.mark.parametrize(("call", "sentence"), WRONG, ids=[s for _, s in WRONG])
def test_wrong_arguments(call, sentence):
    with refused(sentence):
        call()


def test_a_client_that_was_not_active_has_no_loss_in_the_history():
    _, history = ff.run(simulation(ff.afl(), available=ff.availability.trace([[1, 0, 1, 1, 0]])), 0, 2)
    assert_array_equal(np.isnan(history.received_loss), ~history.active)
    assert not history.active.all()


def test_what_a_server_optimiser_reads_is_guarded_as_what_a_rule_reads():
    def update(moved, state, params=None, *, report, **sent):
        return jax.tree.map(lambda leaf: leaf * report.loss.mean(), moved), state

    listening = optax.GradientTransformationExtraArgs(lambda params: (), update)
    broken = ff.faults.Fault(np.arange(N) == 1, lambda report, key: report._replace(loss=report.loss * jnp.nan))
    state, history = ff.run(
        simulation(server_optimizer=optax.chain(listening, optax.sgd(1.0)), faults=[broken]), 0, 3
    )
    assert_array_equal(history.active, history.ids != 1)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.params))


def test_a_run_that_used_no_update_says_so():
    rule = ff.Aggregator(lambda sizes, key: (), lambda state, report, key: (report.n * jnp.nan, state))
    for play in (lambda: ff.run(simulation(rule), 0, 2), lambda: ff.sweep(lambda: simulation(rule), {}, rounds=2)):
        with pytest.warns(UserWarning, match=r"no update was used in 2 rounds.* \(see ff.check_rule\)"):
            play()


def test_a_client_is_sent_the_model_once_however_often_it_is_asked():
    def select(state, key, context):
        twice = [context.probe(jnp.array(who)) for who in ([0, 1, 2, 3], [3, 3, 0, 1])]
        return jnp.argsort(twice[0] + twice[1])[:2], state

    asking = ff.Selector(lambda sizes, key: (), select, lambda state, report: state, 2)
    _, history = ff.run(simulation(selector=asking), 0, 2)
    assert history.downloads.tolist() == [4, 4]

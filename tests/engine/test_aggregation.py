"""Rules that speak before training: the updates are added up as they come, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy import DRAWS, KEY, close, federation, flop_of, optimized, play, simulation

import fedjax_fair as ff
from fedjax_fair.engine.training import cohort_training
from fedjax_fair.types import as_method

pytestmark = pytest.mark.usefixtures("quick_to_compile")

RULES = {
    "fedavg": ff.fedavg(),
    "fedprox": ff.fedprox(0.5),
    "afl": ff.afl(0.1),
    "term": ff.term(0.5),
    "fedmaba": ff.fedmaba(),
    "aaggff_s": ff.aaggff_s(),
    "aaggff_d": ff.aaggff_d(),
    "propfair": ff.propfair(),
}


def listening(rule):
    """The same rule, reading what training reveals, and making nothing of it: every update is kept."""
    method = as_method(rule)

    def weigh(state, report, key):
        coef, state = method.aggregator.weigh(state, report, key)
        return jnp.where(report.train_loss < -1, jnp.nan, coef), state

    return method._replace(aggregator=ff.Aggregator(method.aggregator.init, weigh))


@pytest.fixture
def ways(monkeypatch):
    """How each round that was traced trained its cohort."""
    from fedjax_fair.engine import plan

    taken = []

    def noting(*given, **settings):
        training = cohort_training(*given, **settings)

        def note(way):
            function = getattr(training, way)
            return function and (lambda *inputs: taken.append(way) or function(*inputs))

        return training._replace(stacked=note("stacked"), summed=note("summed"))

    monkeypatch.setattr(plan, "cohort_training", noting)
    return taken


@pytest.mark.parametrize("name", [*RULES, "scaffold", "ditto"])
def test_a_round_is_what_it_is_with_every_update_kept(data, ways, name):
    """Models, memories and coefficients, three rounds on; in blocks of any size."""
    rule = {**RULES, "scaffold": ff.scaffold(), "ditto": ff.ditto()}[name]

    def of(rule, block):
        return play(simulation(data, rule, DRAWS, client_block=block, server_optimizer=optax.adam(0.1)), 3)

    kept, expected = of(listening(rule), 2)
    for block in (1, 2, 3) if name in RULES else (2,):
        added, infos = of(rule, block)
        close((added.params, added.server), (kept.params, kept.server), rtol=2e-5, atol=1e-6)
        close(added.aggregator, kept.aggregator, rtol=1e-5)
        close(added.memory, kept.memory, rtol=1e-5, atol=1e-6)
        for info, want in zip(infos, expected):
            np.testing.assert_allclose(info.coef, want.coef, rtol=1e-5)
    assert ways[0] == "stacked"
    assert set(ways[1:]) == {"summed"}


@pytest.mark.parametrize(
    ("rule", "settings"),
    [
        (ff.fedavg(), {"client_block": None}),
        (ff.fedavg(), {"client_block": 1, "selector": ff.rpow_d(2)}),
        (
            ff.fedavg(),
            {"client_block": 1, "faults": [ff.faults.scale_update(np.eye(5, dtype=bool)[0], factor=2.0)]},
        ),
        (ff.fedavg(), {"client_block": 1, "server_optimizer": optax.chain(ff.defences.median(), optax.sgd(1.0))}),
        (ff.qfedavg(1.0, lipschitz=10.0), {"client_block": 1}),
        (ff.pg_ffl(), {"client_block": 1}),
    ],
    ids=[
        "all side by side",
        "the selector listens",
        "somebody lies",
        "the server listens",
        "Gram matrix",
        "updates",
    ],
)
def test_updates_are_kept_where_somebody_needs_them(data, ways, rule, settings):
    play(simulation(data, rule, DRAWS, **settings))
    assert set(ways) == {"stacked"}


def failing(who, trained=None):
    """A trainer of which the clients ``who`` send NaN, the id of everyone who trains being noted."""

    def train(loss, params, client, key, round):
        if trained is not None:
            jax.debug.callback(lambda id: trained.append(int(id)), client.id)
        params, trace = DRAWS(loss, params, client, key, round)
        bad = jnp.isin(client.id, jnp.array(who))
        return jax.tree.map(lambda w: jnp.where(bad, jnp.nan, w), params), trace

    return train


@pytest.mark.parametrize("name", RULES)
def test_who_fails_might_as_well_have_been_absent(data, ways, name):
    """To the rule's memory and its coefficients, too; in one program, which is told who fails and who is absent."""
    bad = np.isin(np.arange(5), [1, 3])

    @jax.jit
    def three_rounds(fails, absent):
        def train(loss, params, client, key, round):
            params, trace = DRAWS(loss, params, client, key, round)
            return jax.tree.map(lambda w: jnp.where(fails[client.id], jnp.nan, w), params), trace

        sim = simulation(data, RULES[name], train, client_block=1, available=lambda key, round, id: ~absent[id])
        return jax.lax.scan(lambda state, _: sim.step(state, data), sim.init(KEY), length=3)

    got, infos = three_rounds(bad, np.zeros(5, bool))
    want, expected = three_rounds(np.zeros(5, bool), bad)
    assert set(ways) == {"summed"}
    close((got.params, got.aggregator), (want.params, want.aggregator), rtol=1e-5, atol=1e-6)
    close(infos._replace(downloads=0), expected._replace(downloads=0), rtol=1e-5)
    np.testing.assert_array_equal(infos.active, ~bad[infos.ids])


def test_only_a_round_with_a_failure_is_played_again(data):
    for who, times in (([], 1), ([2], 2), ([0, 1, 2, 3, 4], 2)):
        trained = []
        sim = simulation(data, ff.fedavg(), failing(who, trained), client_block=1)
        state, (info,) = play(sim)
        jax.effects_barrier()
        assert sorted(trained) == sorted([0, 1, 2, 3, 4] * times)
        assert info.active.sum() == 5 - len(who)
        if len(who) == 5:
            close(state.params, sim.init(KEY).params, rtol=0)


def test_who_reports_no_finite_loss_is_out_before_the_rule_speaks(ways):
    """Its update is finite: where the label is one that clients 1 and 3 alone have, the loss is infinite."""
    x, owner, bad = np.random.default_rng(0).normal(size=(50, 4)), np.arange(50) % 5, [1, 3]
    data = ff.FederatedData.from_arrays(x, np.where(np.isin(owner, bad), 2, owner % 2), client_id=owner)

    def loss(outputs, y):
        return jnp.where(y == 2, jnp.inf, ff.losses.softmax_cross_entropy(outputs, y))

    found = []
    for rule in (ff.afl(0.1), listening(ff.afl(0.1))):
        state, infos = play(simulation(data, rule, DRAWS, client_block=1, loss=loss), 2)
        assert all((info.active == ~np.isin(info.ids, bad)).all() for info in infos)
        found.append(state)
    assert ways == ["summed", "stacked"]
    close(found[0].params, found[1].params, rtol=1e-5, atol=1e-6)
    close(found[0].aggregator, found[1].aggregator, rtol=1e-5)


def test_runs_side_by_side_fail_each_for_itself(data):
    """Client 2 fails in some of the runs: they are played again, and the others end as they are alone."""

    def train(loss, params, client, key, round):
        params, trace = DRAWS(loss, params, client, key, round)
        bad = (client.id == 2) & jax.random.bernoulli(jax.random.fold_in(key, 7))
        return jax.tree.map(lambda w: jnp.where(bad, jnp.inf, w), params), trace

    sim = simulation(data, ff.fedmaba(), train, client_block=1)
    step, starts = jax.jit(sim.step), jax.vmap(sim.init)(jax.random.split(KEY, 6))
    together, seen = jax.vmap(lambda state: step(state, data))(starts)
    failed = ~seen.active.all(axis=1)
    assert 0 < failed.sum() < 6
    for run in range(6):
        start, end = (jax.tree.map(lambda leaf, run=run: leaf[run], tree) for tree in (starts, together))
        alone, info = step(start, data)
        close((alone.params, alone.aggregator), (end.params, end.aggregator), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(info.active, seen.active[run])
        np.testing.assert_allclose(info.coef, seen.coef[run], rtol=1e-5)


@pytest.mark.parametrize("block", [1, None])
def test_updates_have_the_types_of_the_model(data, block):
    """Whatever a trainer of the user's own returns."""
    model = (lambda key, x: {"w": jnp.zeros((4, 3))}, lambda params, x, key: x @ params["w"])

    def train(loss, params, client, key, round):
        trained = {"w": params["w"].astype(jnp.bfloat16) + 1}
        return trained, ff.types.Trace(jnp.zeros(()), jnp.zeros(()))

    sim = ff.simulation(model, data, aggregator=ff.fedavg(), trainer=train, client_block=block)
    state, _ = play(sim)
    assert state.params["w"].dtype == jnp.float32
    np.testing.assert_allclose(state.params["w"], 1.0, rtol=1e-6)


def test_a_fault_may_mend_what_training_broke(data):
    """Client 1 diverges and sends nothing of it: what reaches the server is finite."""

    def change(report, key):
        return report._replace(updates=jax.tree.map(jnp.zeros_like, report.updates))

    free_rider = ff.faults.Fault(np.arange(5) == 1, change)
    _, (info,) = play(simulation(data, ff.fedavg(), failing([1, 3]), client_block=1, faults=[free_rider]))
    np.testing.assert_array_equal(info.active, info.ids != 3)


@pytest.mark.parametrize("block", [1, None])
def test_a_coefficient_that_is_not_finite_silences_its_client_after_the_rule_has_heard_it(data, block):
    """Client 0 fails before the rule speaks, client 4 by what it says: it says a quarter of four clients."""

    def weigh(state, report, key):
        return jnp.where(report.ids == 4, jnp.inf, report.active / report.active.sum()), state

    sim = simulation(data, ff.Aggregator(lambda sizes, key=None: (), weigh), failing([0]), client_block=block)
    _, (info,) = play(sim)
    np.testing.assert_array_equal(info.active, ~np.isin(info.ids, [0, 4]))
    np.testing.assert_allclose(info.coef, info.active / 4)


@pytest.mark.parametrize("block", [1, 3])
def test_sums_of_bfloat16_updates_do_not_stick(block):
    """640 equal updates with coefficient 1/640: in bfloat16 the sum would stop at a half, or overshoot."""
    model = (lambda key, x: {"w": jnp.zeros((4, 3), jnp.bfloat16)}, lambda params, x, key: x @ params["w"])
    crowd = ff.FederatedData.from_arrays(
        np.ones((1920, 4), np.float32),
        np.zeros(1920, int),
        client_id=np.arange(1920) % 640,
        split=(2 / 3, 0, 1 / 3),
    )

    def train(loss, params, client, key, round):
        return jax.tree.map(lambda w: w + jnp.bfloat16(1.0), params), ff.types.Trace(jnp.zeros(()), jnp.zeros(()))

    sim = ff.simulation(model, crowd, aggregator=ff.fedavg("uniform"), trainer=train, client_block=block)
    np.testing.assert_allclose(play(sim)[0].params["w"].astype(float), 1.0, rtol=0.01)


def test_memory_does_not_grow_with_the_cohort_where_the_rule_speaks_first(data):
    """A model of .8 MB, of 2 and of 5 clients."""
    model = 4 * 4 * 50_000

    def grows(rule):
        sizes = []
        for cohort in (2, 5):
            sim = ff.simulation(
                (lambda key, x: {"w": jnp.zeros((4, 50_000))}, lambda params, x, key: (x @ params["w"])[:, :3]),
                data,
                aggregator=rule,
                trainer=DRAWS,
                selector=ff.uniform(cohort),
                client_block=1,
            )
            with optimized(True):
                program = jax.jit(sim.step).lower(jax.eval_shape(sim.init, KEY), data).compile()
            sizes.append(program.memory_analysis().temp_size_in_bytes)
        return sizes[1] - sizes[0]

    assert grows(ff.fedavg()) < 0.1 * model
    assert grows(ff.fedmgda_plus()) >= 2.9 * model


def test_a_signal_that_nothing_reads_costs_nothing():
    """The received model's losses are computed once where the rule reads them, not at all where it does not."""
    crowd, forward = federation((50,) * 10, dim=256), 2 * 256 * 3  # the model on one example
    flops = []
    for rule in (ff.fedavg("uniform"), ff.loss_softmax()):
        sim = simulation(crowd, rule, client_block=1)
        flops.append(flop_of(sim.step, jax.eval_shape(sim.init, KEY), crowd))
    assert flops[0] < 1.3 * 2 * 50 * forward  # one client's step, a loop's body being counted once
    assert flops[1] - flops[0] == pytest.approx(500 * forward, rel=0.05)

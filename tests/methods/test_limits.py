"""What the methods of clients that remember become at the ends of their settings."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from contract import make_report
from numpy.testing import assert_allclose
from toy import close

import fedjax_fair as ff
from fedjax_fair.local.remembering import as_late

CLOSE = {"rtol": 1e-5, "atol": 1e-6}
DRAWS = ff.local_sgd(optax.sgd(0.1), steps=3, batch_size=3)


@pytest.fixture(scope="module", autouse=True)
def quick(quick_to_compile):
    pass


@pytest.fixture(scope="module")
def play(data):
    """Four rounds of a rule, memories kept from one call to the next: ``(state, ids of the rounds)``."""
    known = {}

    def played(name, rule, trainer=DRAWS, cohort=3, **settings):
        if name not in known:
            sim = toy.simulation(data, rule, trainer=trainer, selector=ff.uniform(cohort), **settings)
            state, infos = toy.play(sim, rounds=4)
            known[name] = state, np.array([info.ids for info in infos])
        return known[name]

    return played


@pytest.fixture(scope="module")
def fedavg(play):
    return play("fedavg", ff.fedavg())[0].params


@pytest.fixture(scope="module")
def uniform(play):
    return play("uniform", ff.fedavg("uniform"))[0].params


def test_scaffold_with_one_full_batch_step_of_everybody_is_fedavg(play):
    for option in (1, 2):
        mine = play(f"scaffold {option}", ff.scaffold(option), trainer=toy.FULL, cohort=5)[0]
        plain = play("everybody", ff.fedavg("uniform"), trainer=toy.FULL, cohort=5)[0]
        close(mine.params, plain.params, **CLOSE)
        close(mine.server[0][0], jax.tree.map(lambda c: c.mean(0), mine.memory), **CLOSE)  # c is the controls' mean


def test_feddyn_without_its_pull_trains_as_fedavg_and_steps_by_the_sum_of_moves(play, data):
    sim = toy.simulation(data, ff.feddyn(0.0), trainer=DRAWS, selector=ff.uniform(3))
    plain = toy.simulation(data, ff.fedavg("uniform"), trainer=DRAWS, selector=ff.uniform(3))
    mine, theirs = jax.jit(sim.step), jax.jit(plain.step)
    state, h = sim.init(toy.KEY), jax.tree.map(jnp.zeros_like, sim.init(toy.KEY).params)
    for _ in range(3):
        alike = plain.init(toy.KEY)._replace(round=state.round, params=state.params)
        moved = jax.tree.map(jnp.subtract, theirs(alike, data)[0].params, state.params)
        h = jax.tree.map(lambda h, d: h + d * 3 / 5, h, moved)
        expected = jax.tree.map(lambda w, d, h: w + d + h, state.params, moved, h)
        state = mine(state, data)[0]
        close(state.params, expected, **CLOSE)


def test_ditto_leaves_the_global_model_alone(play, fedavg):
    for name, method in {
        "ditto 0": ff.ditto(0.0),
        "ditto 1": ff.ditto(1.0),
        "apfl 0": ff.apfl(0.0),
        "apfl 1": ff.apfl(1.0),
        "ditto after": ff.ditto(1.0, 2),
    }.items():
        close(play(name, method)[0].params, fedavg, **CLOSE)


@pytest.fixture(scope="module")
def alone(data):
    """``alone(ids, k)``: the model where nobody but client k is there, in the rounds of its cohorts."""

    @jax.jit
    def step(state, k):
        sim = toy.simulation(data, ff.fedavg(), trainer=DRAWS, available=lambda key, round, ids: ids == k)
        return sim.step(state, data)[0]

    def model(ids, k):
        state = toy.simulation(data, ff.fedavg(), trainer=DRAWS).init(toy.KEY)
        for round, cohort in enumerate(ids):
            if k in cohort:
                state = step(state._replace(round=jnp.int32(round)), k)
        return state.params

    return model


@pytest.mark.parametrize("name", ["ditto 0", "apfl 1"])
def test_personal_models_that_nothing_holds_are_every_client_alone(play, alone, name):
    state, ids = play(name, ff.ditto(0.0) if name == "ditto 0" else ff.apfl(1.0))
    for k in (0, 2):
        close(jax.tree.map(lambda v, k=k: v[k], state.memory), alone(ids, k), **CLOSE)


def test_a_personal_model_that_is_held_fast_follows_the_global_one(data):
    """One step of rate 1 / lam lands on the received model, whatever the loss."""
    lam = 1e4
    trainer = ff.local_sgd(optax.sgd(1 / lam), steps=1, batch_size=3)
    sim = toy.simulation(data, ff.ditto(lam), trainer=trainer, selector=ff.uniform(3))
    state = sim.init(toy.KEY)
    elsewhere = state._replace(params=jax.tree.map(lambda w: w + 1, state.params))
    after, info = jax.jit(sim.step)(elsewhere, data)
    for k in range(5):
        expected = elsewhere.params if k in info.ids.tolist() else state.params
        close(jax.tree.map(lambda v, k=k: v[k], after.memory), expected, rtol=0, atol=2e-3)


def test_apfl_mixes_where_it_is_scored(data):
    method = ff.apfl(0.25)
    one, other = {"w": jnp.ones(2)}, {"w": jnp.full(2, 5.0)}
    assert_allclose(method.memory.personal(one, other)["w"], 2.0)


def test_nothing_personal(play, fedavg):
    """FedPer is FedAvg. FedRep is, with the batches of its second training: so with full ones, which are alike."""

    def nothing(path):
        return False

    fedper, _ = play("fedper of nothing", ff.fedper(nothing))
    assert fedper.memory == {}
    close(fedper.params, fedavg, **CLOSE)
    fedrep, _ = play("fedrep of nothing", ff.fedrep(nothing, head_times=1), trainer=toy.FULL)
    plain, _ = play("fedavg of full batches", ff.fedavg(), trainer=toy.FULL)
    assert fedrep.memory == {}
    close(fedrep.params, plain.params, **CLOSE)


@pytest.mark.parametrize("name", ["fedper", "fedrep"])
def test_layers_that_stay(play, name):
    state, ids = play(name, ff.fedper("^b$") if name == "fedper" else ff.fedrep("^b$", head_times=2))
    first = toy.linear_init(jax.random.split(toy.KEY, 4)[0], jnp.zeros((1, toy.DIM)))
    assert_allclose(state.params["b"], first["b"], atol=0)  # of the server's nothing moves
    assert (np.asarray(state.params["w"]) != np.asarray(first["w"])).all()
    own = state.memory["b"]
    moved = (np.asarray(own) != np.asarray(first["b"])[None]).any(1)
    assert np.flatnonzero(moved).tolist() == sorted(set(ids.ravel().tolist()))


def test_fedrep_trains_the_head_first_and_then_the_base(data):
    """By hand, in full batches."""
    sim = toy.simulation(data, ff.fedrep("^b$", head_times=3), trainer=toy.FULL, selector=ff.uniform(5))
    state = sim.init(toy.KEY)
    after, _ = jax.jit(sim.step)(state, data)
    total = jax.tree.map(jnp.zeros_like, state.params["w"])
    for k in range(5):
        mine = dict(state.params)
        for _ in range(3):
            mine["b"] = mine["b"] - 0.1 * jax.grad(toy.mean_loss)(mine, *toy.examples(data, k))["b"]
        total = total - 0.1 * jax.grad(toy.mean_loss)(mine, *toy.examples(data, k))["w"] * data.sizes[k]
        assert_allclose(after.memory["b"][k], mine["b"], **CLOSE)
    assert_allclose(after.params["w"], state.params["w"] + total / data.sizes.sum(), **CLOSE)


def test_apfl_and_fedper_by_hand(data):
    """Two rounds of full batches: of the first client's models, and of the server's."""
    trainer, alpha = ff.local_sgd(optax.sgd(0.1), steps=2, batch_size=None), 0.25
    gradient = jax.jit(jax.grad(toy.mean_loss))
    examples = [toy.examples(data, k) for k in range(5)]

    def less(params, gradients, rate=0.1):
        return jax.tree.map(lambda w, g: w - rate * g, params, gradients)

    def average(models):
        return jax.tree.map(lambda *each: sum(n * w for n, w in zip(data.sizes / data.sizes.sum(), each)), *models)

    w = toy.simulation(data).init(toy.KEY).params
    own, heads, shared = [w] * 5, [w["b"]] * 5, w
    for _ in range(2):
        trained, kept, bases = [], [], []
        for k, (x, y) in enumerate(examples):
            mine, v, whole = w, own[k], shared | {"b": heads[k]}
            for _ in range(2):
                mixed = jax.tree.map(lambda v, w: alpha * v + (1 - alpha) * w, v, mine)
                v, mine = less(v, gradient(mixed, x, y), 0.1 * alpha), less(mine, gradient(mine, x, y))
                whole = less(whole, gradient(whole, x, y))
            trained, kept, bases = [*trained, mine], [*kept, v], [*bases, whole]
        w, own = average(trained), kept
        heads, shared = [whole["b"] for whole in bases], average(bases) | {"b": w["b"] * 0}
    state, _ = toy.play(toy.simulation(data, ff.apfl(alpha), trainer=trainer), rounds=2)
    close(state.params, w, **CLOSE)
    close(state.memory, jax.tree.map(lambda *each: jnp.stack(each), *own), **CLOSE)
    state, _ = toy.play(toy.simulation(data, ff.fedper("^b$"), trainer=trainer), rounds=2)
    close(state.params["w"], shared["w"], **CLOSE)
    close(state.memory["b"], jnp.stack(heads), **CLOSE)


def test_fednova_with_equal_steps_is_fedavg(play, fedavg):
    close(play("fednova", ff.fednova())[0].params, fedavg, **CLOSE)


def test_fednova_undoes_that_some_make_more_steps(data):
    """Of two clients with one update a step, whoever makes more counts as much."""
    limited = DRAWS._replace(steps=4, limit=lambda key, round, id: jnp.where(id < 2, 1, 4))
    sim = toy.simulation(data, ff.fednova(), trainer=limited)
    _, info = jax.jit(sim.step)(sim.init(toy.KEY), data)
    p, tau = data.sizes / data.sizes.sum(), np.where(np.arange(5) < 2, 1, 4)
    assert_allclose(info.coef, p * (p @ tau) / tau, rtol=1e-5)


@pytest.mark.parametrize("rule", [ff.fedmaba(), ff.qfedavg(1.0, lipschitz=10.0)], ids=["fedmaba", "qfedavg"])
def test_a_fair_rule_over_clients_that_remember(play, rule, request):
    """The global model of Ditto's clients is the rule's own."""
    name = request.node.callspec.id
    plain = play(f"only {name}", rule)[0]
    with_ditto = play(f"ditto {name}", ff.ditto(aggregator=rule))[0]
    close(with_ditto.params, plain.params, **CLOSE)
    moved = play(f"scaffold {name}", ff.scaffold(aggregator=rule))[0].params
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(moved))


def test_layers_that_stay_where_nobody_has_validation_examples():
    data = toy.federation(validation=False)
    state, _ = toy.play(toy.simulation(data, ff.fedper("^b$"), trainer=DRAWS))
    assert np.isfinite(state.params["w"]).all()


def test_losses_that_a_rule_reads_are_of_the_layers_that_stay(data):
    """FedPer's client reports the loss of the model that it begins with: its own layers on the received base."""
    sim = toy.simulation(data, ff.fedper("^b$", aggregator=ff.fedmaba()), trainer=DRAWS, selector=ff.uniform(3))
    step, state = jax.jit(sim.step), sim.init(toy.KEY)
    for _ in range(3):
        before, (state, info) = state, step(state, data)
    for k, reported in zip(info.ids.tolist(), info.loss):
        mine = before.params | {"b": before.memory["b"][k]}
        assert_allclose(reported, toy.mean_loss(mine, *toy.examples(data, k)), rtol=1e-5)


def leaning(direction, lean, steps=1):
    """What a client of FedEBA+ makes of two numbers under the loss |v|^2 / 2, as it is told to lean."""
    client = ff.Client(jnp.int32(0), jnp.arange(2, dtype=jnp.int32), 2, lambda rows: (rows, rows))
    client = client._replace(memory=(), broadcast=(direction, jnp.float32(lean)))
    train = ff.fedeba_plus().local(ff.local_sgd(optax.sgd(0.1), steps=steps, batch_size=None))
    point = jnp.array([1.0, 2.0])
    return point, train(lambda v, *_: ((v**2).sum() / 2, v.sum()), point, client, toy.KEY, jnp.int32(0))


def test_fedeba_plus_steps_lean_to_the_servers_direction():
    g = jnp.array([-1.0, 4.0])
    point, (trained, _, _, (gradient, first)) = leaning(g, 0.25)
    step = 0.75 * point + 0.25 * g
    assert_allclose(trained, point - 0.1 * step, rtol=1e-6)
    assert_allclose(first, -0.1 * step, rtol=1e-6)
    assert_allclose(gradient, point, rtol=1e-5)  # its own, without what it leans to


def test_fedeba_pluss_direction_has_no_weight_decay_in_it(data):
    """Two spellings of one optimiser."""
    ended = []
    for momentum in (None, 0.0):
        decayed = optax.chain(optax.add_decayed_weights(0.5), optax.sgd(0.1, momentum=momentum))
        sim = toy.simulation(
            data, ff.fedeba_plus(0.5, alpha=0.5, theta=0.0), trainer=DRAWS._replace(optimizer=decayed)
        )
        ended.append(toy.play(sim, rounds=3)[0].params)
    close(*ended, rtol=1e-4, atol=1e-5)


def test_fedeba_plus_sends_its_first_step_of_several():
    point, (trained, _, _, (_, first)) = leaning(jnp.zeros(2), 0.0, steps=3)
    assert_allclose(first, -0.1 * point, rtol=1e-5)
    assert_allclose(trained, 0.9**3 * point, rtol=1e-5)


@pytest.mark.parametrize("apart", [False, True])
def test_fedeba_plus_aligns_the_server_where_losses_are_alike_and_the_clients_where_not(apart):
    rule = ff.fedeba_plus(alpha=0.25, theta=10.0)
    params, moves = jnp.zeros(2), jnp.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])
    report = make_report(0, range(3), loss=[1.0, 1.0, 9.0] if apart else [1.0, 1.0, 1.0])
    coef, gradients = jnp.array([0.5, 0.3, 0.2]), 10 * moves
    report = report._replace(message=(gradients, moves))
    transform = rule.transform(3, 3)
    g = jnp.array([7.0, -7.0])
    step, state = transform.update(g, transform.init(params), params, report=report, coef=coef)
    wanted = g if apart else 0.75 * g - 0.25 * moves.mean(0)
    assert_allclose(step, wanted, rtol=1e-6)
    assert_allclose(state.direction, coef @ gradients, rtol=1e-6)
    assert_allclose(state.unfair, 0.25 if apart else 0.0)


def test_fedeba_plus_without_alignment_is_fedeba(play):
    close(play("eba+", ff.fedeba_plus(alpha=0.0))[0].params, play("eba", ff.fedeba())[0].params, **CLOSE)


def test_gifairs_clients_train_at_the_rate_they_are_sent():
    rule = ff.gifair(reading="rate")
    client = ff.Client(jnp.int32(1), jnp.arange(2, dtype=jnp.int32), 2, lambda rows: (rows, rows))
    client = client._replace(memory=(), broadcast=jnp.array([0.5, 1.5, 1.0]))
    train = rule.local(ff.local_sgd(optax.sgd(0.1), steps=1, batch_size=None))
    point = jnp.array([1.0, 2.0])
    trained = train(lambda v, *_: ((v**2).sum() / 2, v.sum()), point, client, toy.KEY, jnp.int32(0))[0]
    assert_allclose(trained, point - 0.1 * 1.5 * point, rtol=1e-6)


def masked_to(name, optimizer):
    return optax.masked(optimizer, lambda params: {key: key == name for key in params})


def test_fedrep_holds_the_base_though_the_optimiser_decays_it(data):
    """Where the decay is of the head alone, a head that is trained first knows no other base than the received."""
    heads = []
    for decay in (optax.add_decayed_weights(0.5), masked_to("b", optax.add_decayed_weights(0.5))):
        trainer = ff.local_sgd(optax.chain(decay, optax.sgd(0.1)), steps=4, batch_size=3)
        sim = toy.simulation(data, ff.fedrep("^b$", head_times=3), trainer=trainer)
        heads.append(toy.play(sim, rounds=1)[0].memory)
    close(*heads, **CLOSE)


def limited(steps, **more):
    return DRAWS._replace(**more, limit=lambda key, round, client: jnp.int32(steps))


@pytest.mark.parametrize(
    "rule",
    [ff.fedrep("^b$", head_times=4), ff.ditto(personal_steps=12), ff.ditto(personal_steps=2)],
    ids=["fedrep", "longer", "shorter"],
)
def test_a_limit_that_limits_nothing_limits_no_further_training(data, rule):
    """Neither one that is just enough, in the first round, nor the largest number, in the second."""
    free = DRAWS._replace(limit=lambda key, round, client: jnp.where(round == 0, 3, 2**31 - 1))
    plain, unlimited = (
        toy.play(toy.simulation(data, rule, trainer=trainer), rounds=2)[0] for trainer in (DRAWS, free)
    )
    close((plain.params, plain.memory), (unlimited.params, unlimited.memory), **CLOSE)


def test_who_makes_a_third_of_its_steps_makes_a_third_of_its_personal_ones(data):
    late = toy.play(toy.simulation(data, ff.ditto(personal_steps=12), trainer=limited(1)), rounds=1)[0]
    short = toy.play(toy.simulation(data, ff.ditto(personal_steps=4), trainer=DRAWS), rounds=1)[0]
    close(late.memory, short.memory, **CLOSE)


def test_a_limit_counts_beyond_two_to_the_31(data):
    """15,000 steps of a client's, ten times as many of its head's, of which 14,999 in 15,000 are made."""
    sgd = ff.local_sgd(optax.sgd(0.1), epochs=5, batch_size=1, limit=lambda *_: jnp.int32(14_999))
    client = ff.Client(jnp.int32(0), jnp.arange(3000), 3000, None)
    for times, made in ((10, 149_990), (1, 14_999)):
        own = sgd._replace(epochs=5 * times, limit=None)
        assert as_late(own, sgd, client, toy.KEY).limit(toy.KEY, jnp.int32(0), jnp.int32(0)) == made
    for due, steps in ((4111, 4087), (6901, 6487)):  # in float32 one less
        client = client._replace(rows=jnp.arange(due), size=due)
        sgd = ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=1, limit=lambda *_, due=due: jnp.int32(due))
        own = ff.local_sgd(optax.sgd(0.1), steps=steps, batch_size=1)
        assert as_late(own, sgd, client, toy.KEY).limit(toy.KEY, jnp.int32(0), jnp.int32(0)) == steps
    sgd, client = sgd._replace(epochs=5, limit=lambda *_: jnp.int32(14_999)), client._replace(size=3000)
    two = sgd._replace(epochs=None, steps=2, limit=None)
    assert as_late(two, sgd, client, toy.KEY).limit(toy.KEY, jnp.int32(0), jnp.int32(0)) == 1


def test_scaffolds_full_gradient_is_of_the_model_without_dropout(data):
    rule, keys = ff.scaffold(option=1), []

    def apply(params, x, key):
        keys.append(key)
        return toy.linear_apply(params, x)

    sim = ff.simulation((toy.linear_init, apply), data, aggregator=rule, trainer=DRAWS)
    keys.clear()
    jax.eval_shape(sim.step, jax.eval_shape(sim.init, toy.KEY), data)
    assert any(key is None for key in keys)
    assert all(key is None or isinstance(key, jax.core.Tracer) for key in keys)  # none is the same for everybody


def test_fedreps_two_trainings_are_late_together(data):
    """A client that makes no step of the base makes none of the head."""

    def limit(key, round, client):
        return jnp.where(jax.random.bernoulli(key), 0, 3)

    rule = ff.fedrep("^b$", head_times=2)
    hearing = rule._replace(aggregator=keeping_steps(rule.aggregator))
    sim = toy.simulation(data, hearing, trainer=DRAWS._replace(limit=limit))
    before, (after, _) = sim.init(toy.KEY), toy.play(sim, rounds=1)
    head = np.abs(np.asarray(after.memory["b"]) - np.asarray(before.memory["b"])).max(1)
    steps = np.asarray(after.aggregator[1])
    assert {*steps.tolist()} == {0, 3}
    assert (head > 0).tolist() == (steps > 0).tolist()


def keeping_steps(inner):
    """The rule, whose state also holds how many steps every client has made."""

    def weigh(state, report, key):
        coef, after = inner.weigh(state[0], report, key)
        return coef, (after, state[1].at[report.ids].set(report.steps))

    return ff.Aggregator(lambda sizes, key=None: (inner.init(sizes, key), jnp.zeros(len(sizes), jnp.int32)), weigh)


def test_scaffolds_controls_do_not_depend_on_a_pause_of_the_rate(data):
    """Two spellings of SGD, of which the mean gradient is told in two ways."""
    ended = []
    for optimizer in (optax.sgd(0.1), optax.chain(optax.trace(0.0), optax.sgd(0.1))):
        trainer = ff.local_sgd(
            optimizer, steps=3, batch_size=3, schedule=lambda round: jnp.where(round == 1, 0.0, 1.0)
        )
        sim = toy.simulation(data, ff.scaffold(option=2), trainer=trainer, selector=ff.uniform(3))
        ended.append(toy.play(sim, rounds=3)[0])
    close((ended[0].params, ended[0].memory), (ended[1].params, ended[1].memory), rtol=1e-4, atol=1e-5)


def test_fedeba_plus_hears_nothing_of_a_client_that_made_no_step(data):
    trainer = DRAWS._replace(limit=lambda key, round, client: jnp.where(round == 1, 0, 3))
    sim = toy.simulation(data, ff.fedeba_plus(alpha=0.5, theta=0.0), trainer=trainer)
    for rounds, heard in ((1, True), (2, False)):
        direction = toy.play(sim, rounds=rounds)[0].server[0].direction
        assert any(leaf.any() for leaf in jax.tree.leaves(direction)) is heard

"""What clients keep between their rounds: read by those who take part, written by those who got through."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from numpy.testing import assert_allclose, assert_array_equal
from toy import close

import fedjax_fair as ff
from fedjax_fair.engine import memory as memories
from fedjax_fair.types import Memory, Method, Trace

N = 5
LOCAL = ff.local_sgd(optax.sgd(0.1), steps=2, batch_size=3)


@pytest.fixture(scope="module", autouse=True)
def quick(quick_to_compile):
    pass


def as_they_are(id, round, kept, message):
    return kept, message


def counting(spoil=as_they_are, summed=False):
    """Clients that count their rounds and tell which it is; a server that adds that up, or hears the sum alone, and
    tells it."""

    def update(updates, state, params=None, *, report, **_):
        said = report.message["turn"]
        return updates, state + (said if summed else said.sum(0))

    def local(trainer):
        def train(loss, params, client, key, round):
            trained, trace = trainer(loss, params, client, key, round)
            kept = {"turns": client.memory["turns"] + 1, "heard": client.broadcast}
            kept, message = spoil(client.id, round, kept, {"turn": kept["turns"]})
            return trained, trace, kept, message

        return train

    def init(params):
        return {"turns": jnp.zeros(()), "heard": jnp.zeros(())}

    memory = Memory(
        init, message=lambda params: {"turn": jnp.zeros(())}, broadcast=lambda state: state, summed=summed
    )
    transform = optax.GradientTransformationExtraArgs(lambda params: jnp.zeros(()), update)
    return Method(ff.fedavg(), local=local, transform=transform, memory=memory)


@pytest.mark.parametrize("block", [None, 1, 2])
def test_memory_message_and_broadcast_go_round(data, block):
    settings = {"trainer": LOCAL, "selector": ff.uniform(3), "client_block": block}
    plain, _ = toy.play(toy.simulation(data, **settings), rounds=6)
    for summed in (True,) if block == 2 else (False, True):
        state, infos = toy.play(toy.simulation(data, counting(summed=summed), **settings), rounds=6)
        turns, heard, told = np.zeros(N), np.zeros(N), 0.0
        for info in infos:
            turns[info.ids] += 1
            heard[info.ids] = told
            told += turns[info.ids].sum()
        assert_array_equal(state.memory["turns"], turns)
        assert_array_equal(state.memory["heard"], heard)
        assert state.server[0] == told
        close(state.params, plain.params, rtol=1e-6)


def nan_where(bad, tree):
    return jax.tree.map(lambda leaf: jnp.where(bad, jnp.nan, leaf), tree)


def spoilt(id, round, kept, said):
    """From the third round on client 2's memory is NaN, and what client 0 says."""
    return nan_where((id == 2) & (round > 1), kept), nan_where((id == 0) & (round > 1), said)


@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("faults", [(), [ff.faults.scale_update(np.arange(N) == 4, 2.0)]], ids=["", "faults"])
def test_what_is_not_finite_never_enters_and_the_client_keeps_what_it_had(data, faults, summed):
    present = np.ones((5, N), bool)
    present[3, 1] = False
    sim = toy.simulation(
        data,
        counting(spoilt, summed),
        trainer=LOCAL,
        faults=faults,
        available=ff.availability.trace(present),
        client_block=2,
    )
    state, infos = toy.play(sim, rounds=5)
    active = np.array([info.active for info in infos])
    expected = present.copy()
    expected[2:, [0, 2]] = False
    assert_array_equal(active, expected)
    assert_array_equal(state.memory["turns"], expected.sum(0))
    assert np.isfinite(state.server[0])


def test_a_rule_hears_nothing_of_messages_that_are_summed(data):
    def weigh(state, report, key):
        return jnp.ones(report.ids.shape) + report.message["turn"], state

    method = counting(summed=True)._replace(aggregator=ff.fedavg()._replace(weigh=weigh))
    with pytest.raises(TypeError) as caught:
        toy.simulation(data, method, trainer=LOCAL)
    note = "report.message is None for a rule: by Memory(summed=True) only the transform has it"
    assert note in caught.value.__notes__


def test_nobody_without_a_coefficient_writes(data):
    rule = ff.fedavg()._replace(weigh=lambda state, report, key: (jnp.where(report.ids == 3, jnp.nan, 0.25), state))
    state, _ = toy.play(toy.simulation(data, counting()._replace(aggregator=rule), trainer=LOCAL), rounds=2)
    assert_array_equal(state.memory["turns"], [2, 2, 2, 0, 2])


def test_an_empty_slot_with_somebodys_number_writes_nothing(data):
    """A selector that names a client twice, and one that there is not."""
    selector = ff.uniform(4)._replace(
        select=lambda state, key, context: (jnp.array([1, 1, -1, 9], jnp.int32), state)
    )
    state, _ = toy.play(toy.simulation(data, counting(), trainer=LOCAL, selector=selector), rounds=3)
    assert_array_equal(state.memory["turns"], [0, 3, 0, 0, 0])


def test_faults_change_messages_and_no_memory(data):
    def change(report, key):
        return report._replace(message=jax.tree.map(lambda m: 100 * m, report.message))

    lying = [ff.faults.Fault(np.arange(N) == 1, change)]
    state, _ = toy.play(toy.simulation(data, counting(), trainer=LOCAL, faults=lying), rounds=1)
    assert state.server[0] == 4 + 100
    assert_array_equal(state.memory["turns"], np.ones(N))


def test_a_trainer_of_todays_form_keeps_the_memory_and_says_nothing(data):
    method = counting()._replace(local=None)
    state, _ = toy.play(toy.simulation(data, method, trainer=LOCAL), rounds=2)
    assert_array_equal(state.memory["turns"], np.zeros(N))
    plain, _ = toy.play(toy.simulation(data, trainer=LOCAL), rounds=2)
    close(state.params, plain.params, rtol=1e-6)


def test_two_at_a_time_in_one_loop_remember_as_one_by_one():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(180, 900)).astype(np.float32), rng.integers(0, 7, 180)
    wide = ff.FederatedData.from_arrays(x, y, client_id=np.repeat(np.arange(6), 30), normalizer=None)
    states = []
    for block in ("auto", 1):
        for method in (ff.scaffold(), ff.ditto()):
            sim = ff.simulation(
                ff.models.mlp((40,), classes=7),
                wide,
                aggregator=method,
                trainer=ff.local_sgd(optax.sgd(0.05), epochs=1, batch_size=7),
                selector=ff.uniform(3),
                client_block=block,
            )
            states.append(toy.play(sim, rounds=2)[0])
    for one, other in zip(states[:2], states[2:]):
        close((one.params, one.memory), (other.params, other.memory), rtol=1e-4, atol=1e-6)


def test_swept_settings_and_seeds_are_those_of_runs_alone(data):
    def build(lam):
        return toy.simulation(
            data, ff.ditto(lam), LOCAL, selector=ff.uniform(2), evaluate=["test@personal", "test"]
        )

    found = ff.sweep(build, {"lam": [0.1, 1.0]}, seeds=2, rounds=4, eval_every=2)
    for point, histories in zip(found.points, found.histories):
        sim = build(**point)
        for seed, history in enumerate(histories):
            alone = ff.run(sim, seed, 4, eval_every=2)[1]
            assert_allclose(history.loss, alone.loss, rtol=1e-5)
            assert list(history.scores) == ["test@personal", "test"]


def test_the_steps_that_a_trainer_counts(data):
    def weigh(state, report, key):
        return jnp.where(report.active, report.steps / 100.0, 0), state

    rule = ff.Aggregator(lambda sizes, key=None: (), weigh)
    epochs = ff.local_sgd(optax.sgd(0.1), epochs=2, batch_size=3)
    late = epochs._replace(limit=lambda key, round, id: jnp.where(id == 1, 1, 100))
    for trainer, expected in {
        epochs: 2 * -(-data.sizes // 3),
        late: np.where(np.arange(N) == 1, 1, 2 * -(-data.sizes // 3)),
        LOCAL: np.full(N, 2),
    }.items():
        _, [info] = toy.play(toy.simulation(data, rule, trainer=trainer), rounds=1)
        assert_allclose(100 * info.coef, expected, rtol=1e-6)


def own(loss, params, client, key, round):
    return params, Trace(jnp.zeros(()), jnp.zeros(()))


def returning(*more):
    return lambda loss, params, client, key, round: (*own(loss, params, client, key, round), *more)


REFUSED = {
    "counts": (ff.fednova(), own, "trainer must count its steps, Trace(steps=...), for a rule that reads them"),
    "memory": (ff.fedavg(), returning(jnp.zeros(())), "trainer must return a memory of the form of Memory.init"),
    "form": (
        counting()._replace(local=lambda _: returning({"turns": jnp.zeros(2)})),
        own,
        "trainer must return a memory of the form of Memory.init",
    ),
    "message": (
        counting()._replace(local=lambda _: returning(None, jnp.zeros(()))),
        own,
        "trainer must return a memory of the form of Memory.init, {'heard': [], 'turns': []}, got None",
    ),
    "scaffold": (ff.scaffold(), own, "scaffold(option=2) needs an ff.local_sgd trainer, got a function"),
    "ditto": (ff.ditto(1.0, 2), own, "ditto(personal_steps=...) needs an ff.local_sgd trainer, got a function"),
    "drfa": (ff.drfa(), own, "drfa needs an ff.local_sgd trainer, got a function"),
    "fedeba_plus": (ff.fedeba_plus(), own, "fedeba_plus needs an ff.local_sgd trainer, got a function"),
    "apfl": (ff.apfl(), own, "apfl needs an ff.local_sgd trainer, got a function"),
    "fedrep": (ff.fedrep(), own, "fedrep needs an ff.local_sgd trainer, got a function"),
    "pattern": (ff.fedper("Dense"), LOCAL, "personal must match a parameter of b, w, got 'Dense'"),
    "everything": (ff.fedper("[bw]"), LOCAL, "personal must leave a parameter of b, w to be shared, got '[bw]'"),
    "kind": (Method(ff.fedavg(), memory=lambda params: params), LOCAL, "memory of a Method must be an ff.Memory"),
    "personal": (
        Method(ff.fedavg(), memory=Memory(lambda params: (), personal=lambda params, own: own)),
        LOCAL,
        "personal must return a model of the form of the server's, {'b': [3], 'w': [4, 3]}, got ()",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_call_is_one_sentence(data, name):
    method, trainer, sentence = REFUSED[name]

    def traced():
        sim = toy.simulation(data, method, trainer=trainer)
        return jax.eval_shape(sim.step, jax.eval_shape(sim.init, toy.KEY), data)

    with pytest.raises(ValueError) as error:  # noqa: PT011
        traced()
    assert str(error.value).startswith(sentence)


CALLS = {
    "option must be 1 or 2, got 3": lambda: ff.scaffold(3),
    "alpha must be at least 0, got -1": lambda: ff.feddyn(-1),
    "lam must be at least 0, got -0.1": lambda: ff.ditto(-0.1),
    "personal_steps must be at least 1, got 0": lambda: ff.ditto(1.0, 0),
    "alpha must be in [0, 1], got 2": lambda: ff.apfl(2),
    "momentum must be in [0, 1), got 1": lambda: ff.fednova(1),
    "head_times must be at least 1, got 0": lambda: ff.fedrep(head_times=0),
    "personal must be 'last', a pattern of parameters' paths or a function of one": lambda: ff.fedper(3),
    "personal must be a regular expression, got '('": lambda: ff.fedper("("),
    "ditto takes an aggregator whose clients remember nothing": lambda: ff.ditto(aggregator=ff.scaffold()),
    "feddyn takes an aggregator without a server transform": lambda: ff.feddyn(aggregator=ff.fedfv(tau=2)),
    "aggregator must be an Aggregator or a Method": lambda: ff.ditto(aggregator="fedmaba"),
}


@pytest.mark.parametrize("sentence", CALLS)
def test_a_wrong_setting_is_one_sentence(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        CALLS[sentence]()
    assert str(error.value).startswith(sentence)


def test_a_memory_that_does_not_fit_is_refused_before_anything_is_made(data, monkeypatch):
    monkeypatch.setattr(memories, "room", lambda: 299)  # five models of 15 float32
    sentence = "the memory of 5 clients, 60 bytes each, takes 300 bytes, but the device has 299 bytes: take fewer"
    with pytest.raises(ValueError, match=sentence):
        toy.simulation(data, ff.ditto())
    monkeypatch.setattr(memories, "room", lambda: 1000)
    with pytest.warns(UserWarning, match="takes 300 bytes of the device's 1 kB"):
        toy.simulation(data, ff.ditto())
    toy.simulation(data, ff.fedavg())


def test_sizes_for_a_reader():
    assert [memories.in_words(n) for n in (7, 1234, 6.4e7, 3e12, 5e16)] == [
        "7 bytes",
        "1.23 kB",
        "64 MB",
        "3 TB",
        "5e+04 TB",
    ]

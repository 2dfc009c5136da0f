"""What goes wrong: a wrong call is one sentence, before anything compiles; a failing client is out of the round."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy import DIM, close, federation, linear, linear_apply, linear_init, rounds_played

import fedjax_fair as ff

FULL = ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=None)


pytestmark = pytest.mark.usefixtures("quick_to_compile")


@pytest.fixture(scope="module")
def without_validation():
    return federation(validation=False)


@pytest.fixture(scope="module")
def sim(data):
    return ff.simulation(linear, data, aggregator=ff.fedavg(), trainer=FULL)


def refused(sentence):
    """One sentence with these words in it, as a ValueError."""

    class Refused:
        def __enter__(self):
            self.raises = pytest.raises(ValueError, match=re.escape(sentence))
            self.error = self.raises.__enter__()

        def __exit__(self, *error):
            handled = self.raises.__exit__(*error)
            assert "\n" not in str(self.error.value)
            assert len(str(self.error.value)) < 250
            return handled

    return Refused()


# Wrong calls of simulation


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"model": 3}, "model must be a flax module"),
        ({"data": "mnist"}, "data must be a FederatedData, such as ff.data.synthetic(), got str"),
        (
            {"aggregator": ff.fedavg},
            "aggregator must be an Aggregator or a Method, such as ff.fedavg(), got function",
        ),
        ({"aggregator": "fedavg"}, "got str"),
        ({"trainer": optax.sgd(0.1)}, "trainer must be ff.local_sgd(...) or a function, got"),
        ({"trainer": 0.1}, "trainer must be ff.local_sgd(...) or a function, got float"),
        ({"selector": 3}, "selector must be a Selector, such as ff.uniform(10), got int"),
        ({"selector": ff.uniform(6)}, "the cohort m must be from 1 to the 5 clients, got 6"),
        ({"selector": ff.size_proportional(9)}, "the cohort m must be from 1 to the 5 clients, got 9"),
        ({"server_optimizer": 1.0}, "server_optimizer must be an optax optimiser, such as optax.sgd(1.), got 1.0"),
        ({"loss": "mse"}, "loss must be a function of outputs and labels, got 'mse'"),
        ({"metric": 0.5}, "metric must be a function of outputs and labels, got 0.5"),
        ({"evaluate": ()}, "evaluate must be a non-empty list of splits, such as ('test',), got ()"),
        ({"evaluate": "test"}, "evaluate must be a non-empty list of splits, such as ('test',), got 'test'"),
        ({"evaluate": 5}, "evaluate must be a non-empty list of splits"),
        ({"evaluate": ("tests",)}, "got 'tests'; did you mean 'test'?"),
        ({"client_block": 0}, "client_block must be at least 1, got 0"),
        ({"client_block": "all"}, "client_block must be \"auto\", None or a whole number, got 'all'"),
        ({"eval_batch": 0}, "eval_batch must be at least 1, got 0"),
        (
            {"loss": lambda outputs, y: outputs.sum()},
            "loss must return one value per example, [2] for two, got shape ()",
        ),
        (
            {"metric": lambda outputs, y: outputs},
            "metric must return one value per example, [2] for two, got shape (2, 3); a measure of all of a "
            "client's examples is ff.losses.whole(function)",
        ),
        ({"model": ff.models.logistic_regression(2)}, "labels must be below the model's 2 outputs, got label 2"),
        (
            {"model": (linear_init, lambda p, x: linear_apply(p, x)[:, 0])},
            "softmax_cross_entropy needs logits [B, C]",
        ),
        ({"aggregator": ff.aaggff_s(), "selector": ff.uniform(4)}, "aaggff_s needs all 5 clients in every round"),
        (
            {"aggregator": ff.fedsgd(), "trainer": lambda *client: client},
            "step of an ff.local_sgd trainer, got a function",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_simulation_is_one_sentence(data, settings, sentence):
    settings = {"model": linear, "data": data, "aggregator": ff.fedavg(), "trainer": FULL} | settings
    with refused(sentence):
        ff.simulation(settings.pop("model"), settings.pop("data"), **settings)


def test_targets_that_are_no_labels_need_another_loss():
    data = ff.FederatedData.from_arrays(np.ones((20, DIM)), np.linspace(0, 1, 20), client_id=np.arange(20) % 2)
    with refused("got outputs (2, 3) and labels (2,) of type float32; pass another loss="):
        ff.simulation(linear, data, aggregator=ff.fedavg(), trainer=FULL)
    one = (lambda key, x: jnp.zeros((DIM, 1)), lambda p, x: x @ p)
    parts = {"loss": ff.losses.squared_error, "metric": ff.losses.accuracy}
    with refused("got outputs (2, 1) and labels (2,) of type float32; pass another metric="):
        ff.simulation(one, data, aggregator=ff.fedavg(), trainer=FULL, **parts)


def test_a_split_that_the_data_has_not_cannot_be_evaluated(without_validation):
    with refused("evaluate asks for the validation split, but the data has none"):
        ff.simulation(
            linear, without_validation, aggregator=ff.fedavg(), trainer=FULL, evaluate=("test", "validation")
        )


@pytest.mark.parametrize("part", ["rule", "selector", "transform", "server optimiser"])
def test_accuracy_cannot_be_read_without_a_validation_split(without_validation, part):
    rule, selector, transform, server = ff.fedavg(), ff.uniform(5), None, None
    if part == "rule":
        rule = rule._replace(weigh=lambda state, report, key: (report.accuracy, state))
    elif part == "selector":
        selector = selector._replace(init=lambda sizes, key: sizes, observe=lambda state, report: report.accuracy)
    else:
        update = lambda moved, state, params=None, *, report, **sent: (moved, report.accuracy)  # noqa: E731
        listening = optax.GradientTransformationExtraArgs(lambda params: (), update)
        transform, server = (
            (listening, None) if part == "transform" else (None, optax.chain(listening, optax.sgd(1.0)))
        )
    arguments = {
        "aggregator": ff.Method(rule, transform=transform),
        "selector": selector,
        "server_optimizer": server,
    }
    with refused("accuracy is read, but the data has no validation split"):
        ff.simulation(linear, without_validation, trainer=FULL, **arguments)


def selecting(ids, **parts):
    given = ff.Selector(lambda sizes, key: (), lambda state, key, ctx: (ids, state), lambda state, report: state, 5)
    return given._replace(**parts)


PARTS = {
    "selector": [
        (ff.pow_d(2, d=6), "d must be at most the 5 clients, got 6"),
        (selecting(jnp.arange(4)), "select must return (ids [5], state), got (4,)"),
        (selecting(jnp.arange(5.0)), "select must return whole numbers as ids, got float32"),
        (selecting([0.5] * 5), "select must return whole numbers as ids, got float32"),
        (selecting((), init=lambda sizes: ()), "selector.init must take (sizes, key), got (sizes)"),
        (selecting((), select=lambda s, key: 0), "selector.select must take (state, key, context), got (s, key)"),
        (selecting((), observe=lambda s: s), "selector.observe must take (state, report), got (s)"),
        (
            selecting([4, 3, 2, 1, 0], observe=lambda state, report: (state, state)),
            "observe must return a state of the same form as init's, (), got ((), ())",
        ),
        (
            selecting(np.arange(5), init=lambda sizes, key: sizes, observe=lambda state, report: report.steps),
            "observe must return a state of the same types as init's, float32[5], got int32[5]",
        ),
    ],
    "aggregator": [
        (
            ff.Aggregator(lambda sizes, key: (), lambda state, report, key: ([1.0, 2.0], state)),
            "weigh must return (coefficients [5], state), one for each client of the cohort, got (2,)",
        ),
        (
            ff.Aggregator(lambda sizes, key: (), lambda state, report, key: (report.n, report.n)),
            "weigh must return a state of the same form as init's, (), got [5]",
        ),
        (
            ff.Aggregator(lambda sizes, key: (), lambda state, report, key: report.n),
            "weigh must return (coefficients [5], state), one for each client of the cohort, got one array",
        ),
        (
            ff.Aggregator(lambda sizes, key: 0, lambda state, report, key: (report.n, state + report.n.sum())),
            "weigh must return a state of the same types as init's, int32[], got float32[]",
        ),
        (
            ff.Aggregator(lambda sizes: (), lambda state, report, key: (report.n, state)),
            "init must take (sizes, key), got (sizes)",
        ),
    ],
    "trainer": [
        (ff.local_sgd, "trainer must be ff.local_sgd(...) or a function, got the factory local_sgd: call it")
    ],
    "model": [(ff.models.mlp, "model must be a model, got the factory mlp: call it")],
    "deploy": [("averaged", "deploy must be a function of the state, such as ff.averaged, got 'averaged'")],
    "available": [
        (ff.availability.bernoulli, "available must be a function (key, round, ids) -> bool[K], such as"),
        (0.5, "available must be a function, such as ff.availability.bernoulli(.8), got 0.5"),
        (ff.availability.trace(np.ones((3, 4))), "available is made for 4 clients, got a federation of 5"),
        (lambda key, round, ids: ids, "available must return bool[K] for ids [K], got int32[5] for 5 ids"),
    ],
    "faults": [
        (
            ff.faults.inflate_loss(np.ones(5, bool)),
            "faults must be a list, such as [ff.faults.inflate_loss(liars)]",
        ),
        ([ff.faults.inflate_loss], "faults must hold ff.faults, such as inflate_loss(liars), got"),
        ([ff.faults.Fault(np.ones(5, bool), 3)], "a fault's change must be a function (report, key) -> report"),
        ([ff.faults.Fault(np.ones(5, bool), lambda r: r)], "a fault's change must take (report, key), got (r)"),
        ([ff.faults.inflate_loss(np.ones(4, bool))], "who must have one entry for each of the 5 clients, got 4"),
    ],
}


@pytest.mark.parametrize(("part", "wrong", "sentence"), [(p, w, s) for p, cases in PARTS.items() for w, s in cases])
def test_a_wrong_part_is_one_sentence(data, part, wrong, sentence):
    arguments = {"model": linear, "data": data, "aggregator": ff.fedavg(), "trainer": FULL} | {part: wrong}
    with refused(sentence):
        ff.simulation(**arguments)


def test_coefficients_may_be_whole_numbers_of_numpy_also_below_0(data):
    rule = ff.Aggregator(lambda sizes, key: (), lambda state, report, key: (np.array([3, -2, 0, 0, 0]), state))
    sim = ff.simulation(linear, data, aggregator=rule, trainer=FULL)
    np.testing.assert_array_equal(ff.run(sim, 0, rounds=1)[1].coef, [[3, -2, 0, 0, 0]])


def test_coefficients_of_the_whole_federation_are_told_how_to_become_the_cohorts(data):
    for_all = ff.Aggregator(lambda sizes, key: jnp.ones(sizes.shape), lambda state, report, key: (state, state))
    arguments = {"model": linear, "data": data, "trainer": FULL, "selector": ff.uniform(2)}
    with refused("cohort, got (5,), one for each of the federation: index with report.ids"):
        ff.simulation(aggregator=for_all, **arguments)


def test_ids_that_nobody_has_and_second_slots_of_one_client_are_out_of_the_round(data):
    """In one program: the selector's state is the ids that it chooses."""
    by_state = ff.Selector(lambda sizes, key: jnp.arange(5), lambda ids, key, c: (ids, ids), lambda ids, r: ids, 5)
    sim = ff.simulation(linear, data, aggregator=ff.fedavg(), trainer=FULL, selector=by_state)
    for ids in ([0, 1, 2, 3, 3], [7, 1, 2, 3, -1]):
        start = sim.init(jax.random.key(0))._replace(selector=jnp.array(ids))
        _, history = ff.run(sim, state=start, rounds=2)
        expected = [0 <= client < 5 and client not in ids[:slot] for slot, client in enumerate(ids)]
        assert (history.active == expected).all()
        assert ((history.coef > 0) == expected).all()


# Wrong calls of run


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"rounds": 2.5}, "rounds must be a whole number, got 2.5"),
        ({"eval_every": 0}, "eval_every must be at least 1, got 0"),
        ({"chunk": 0}, "chunk must be at least 1, got 0"),
        ({"key": None}, "run takes a key or a state to continue from, got neither"),
        ({"key": -1}, "a seed must be from 0 to 2^32 - 1, got -1"),
        ({"key": 2**32}, "a seed must be from 0 to 2^32 - 1, got 4294967296"),
        ({"key": "0"}, "key must be one jax.random.key(...), or a seed, got '0'"),
        ({"key": 0.5}, "key must be one jax.random.key(...), or a seed, got 0.5"),
        ({"key": jax.random.split(jax.random.key(0), 2)}, "key must be one jax.random.key(...), or a seed, got"),
        ({"sim": "sim"}, "sim must be an ff.simulation(...), got str"),
    ],
    ids=str,
)
def test_a_wrong_run_is_one_sentence_before_anything_is_compiled(sim, arguments, sentence):
    arguments = {"sim": sim, "key": 0, "rounds": 3} | arguments
    with rounds_played() as played, pytest.raises(ValueError, match=re.escape(sentence)):
        ff.run(**arguments)
    assert played == []


def test_a_state_in_the_keys_place_says_where_it_goes(sim):
    with pytest.raises(ValueError, match=r"a seed, got a state, which is for state=$"):
        ff.run(sim, sim.init(jax.random.key(0)), rounds=3)


def test_a_stock_model_takes_one_array_of_an_example(data):
    several = data._replace(x={"age": data.x, "scan": data.x})
    with refused(
        "model must be one of your own for data of several arrays (['age'], ['scan']): stock models take one"
    ):
        ff.simulation(ff.models.mlp((4,)), several, aggregator=ff.fedavg(), trainer=FULL)


def test_a_state_of_another_simulation_is_refused(sim, data):
    for what, kind in ((3, "int"), ("kept", "str")):
        with refused(f"state must be what a run of this simulation left, got {kind}"):
            ff.run(sim, state=what, rounds=1)
    other = ff.simulation(linear, data, aggregator=ff.fedmaba(), trainer=FULL)
    state = sim.init(jax.random.key(0))
    with refused(
        "state must be what a run of this simulation left, got another one's aggregator: "
        "state._replace(aggregator=sim.init(key).aggregator) begins it anew"
    ):
        ff.run(other, state=state, rounds=1)
    ff.run(other, state=state._replace(aggregator=other.init(state.key).aggregator), rounds=1)


def test_what_is_called_between_chunks_is_a_function(sim):
    with refused("on_chunk must be a function of the state and the history, got 3"):
        ff.run(sim, 0, 1, on_chunk=3)
    with refused("together takes functions of the state and the history, got 3"):
        ff.callbacks.together(3)


def test_a_table_is_judged_by_its_own_clients(sim):
    with refused(
        "clients must be bool[5], one for each client of a (of ids np.isin(np.arange(5), ids)), got shape [4]"
    ):
        ff.table({"a": ff.run(sim, 0, 1)[1]}, clients=np.ones(4, bool))


def test_a_key_and_a_state_are_one_too_many(sim):
    with refused("run takes a key or a state to continue from, got both"):
        ff.run(sim, 0, 3, state=sim.init(jax.random.key(0)))


def test_a_seed_may_be_a_numpy_integer(sim):
    one, other = (ff.run(sim, seed, 1)[1] for seed in (3, np.int64(3)))
    np.testing.assert_array_equal(one.loss, other.loss)


# A client that fails


def rule(coef):
    """A user's own rule: any function ``report -> coef``."""
    return ff.Aggregator(lambda sizes, key=None: (), lambda state, report, key: (coef(report), state))


TRACE = ff.types.Trace(jnp.zeros(()), jnp.zeros(()))


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        (lambda params: params, "trainer must return (params, ff.Trace(loss, loss_std)), got dict"),
        (
            lambda params: (params, 0.5),
            "trainer must return (params, ff.Trace(loss, loss_std)), got tuple of dict, float",
        ),
        (
            lambda params: ({"w": params["w"]}, TRACE),
            "trainer must return a model of the form that it was sent, {'b': [3], 'w': [4, 3]}, got {'w': [4, 3]}",
        ),
        (
            lambda params: (params | {"b": params["w"]}, TRACE),
            "trainer must return a model of the form that it was sent, {'b': [3], 'w': [4, 3]}, got {'b': [4, 3],",
        ),
    ],
)
@pytest.mark.parametrize("block", [1, None])
def test_a_trainer_of_the_users_own_returns_a_model_and_a_trace(data, returned, sentence, block):
    def train(loss, params, client, key, round):
        return returned(params)

    with refused(sentence):
        ff.simulation(linear, data, aggregator=ff.fedavg(), trainer=train, client_block=block)


def one_round(data, aggregator, trainer, model=linear):
    """Parameters before and after, and what the round leaves in the history."""
    sim = ff.simulation(model, data, aggregator=aggregator, trainer=trainer)
    start = sim.init(jax.random.key(5))
    state, info = jax.jit(sim.step)(start, data)
    return start.params, state.params, info


def sending(value):
    """A trainer whose client 3 sends ``value(received)`` everywhere."""

    def train(loss, params, client, key, round):
        trained, trace = FULL(loss, params, client, key, round)
        return jax.tree.map(lambda t, p: jnp.where(client.id == 3, value(p), t), trained, params), trace

    return train


RULES = {
    "fedavg": ff.fedavg(),
    "qfedavg": ff.qfedavg(1.0, lipschitz=10.0),
    "gram": rule(lambda report: report.gram.sum(1) / report.gram.sum()),
    "careless": rule(lambda report: 1 / jnp.sqrt(jnp.diagonal(report.gram))),
}


@pytest.mark.parametrize("name", RULES)
def test_a_client_that_sends_nonsense_is_out_of_the_round(data, name):
    """The others' round is the one that the rule makes of their updates alone."""
    aggregator = RULES[name]

    def absent(state, report, key):
        coef, state = aggregator.weigh(state, report._replace(active=report.ids != 3), key)
        return jnp.where(report.ids == 3, 0, coef), state

    @jax.jit
    def after_sending(nonsense):
        return one_round(data, aggregator, sending(lambda received: nonsense))[1:]

    @jax.jit
    def without_it():
        return one_round(data, aggregator._replace(weigh=absent), sending(lambda received: received))[1]

    expected = without_it()
    for nonsense in (jnp.nan, jnp.inf):
        after, info = after_sending(nonsense)
        assert info.active.tolist() == [True, True, True, False, True]
        assert float(info.coef[3]) == 0
        close(after, expected, rtol=1e-6)
        assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(after))


@pytest.mark.parametrize("aggregator", [ff.fedavg(), ff.fedmaba(), ff.qfedavg(lipschitz=1.0)])
def test_a_round_in_which_everybody_fails_leaves_the_model_alone(data, aggregator):
    def nobody(loss, params, client, key, round):
        return jax.tree.map(lambda p: p * jnp.nan, params), ff.Trace(0.0, 0.0)

    before, after, info = one_round(data, aggregator, nobody)
    close(after, before, rtol=1e-6)
    assert not info.active.any()
    assert not info.coef.any()


def test_a_loss_that_is_not_finite_matters_only_to_a_rule_that_reads_it(data):
    rows = data.train.rows[data.train.owner == 3]
    poisoned = data._replace(x=data.x.at[rows].set(3e38))

    def onwards(loss, params, client, key, round):
        return jax.tree.map(lambda p: p + 1, params), ff.Trace(0.0, 0.0)

    _, _, blind = one_round(poisoned, ff.fedavg(), onwards)
    before, after, reader = one_round(poisoned, ff.fedmaba(), onwards)
    assert blind.active.all()
    assert reader.active.tolist() == [True, True, True, False, True]
    assert float(reader.coef[3]) == 0
    close(after, jax.tree.map(lambda p: p + 1, before), rtol=1e-6, atol=1e-6)


def test_examples_that_overflow_are_their_own_clients_problem(data):
    """The client before it in the store, whose padding they are, trains as if they were harmless."""
    rows = data.train.rows[data.train.owner == 3]
    poisoned = data._replace(x=data.x.at[rows].set(3e38))
    steep = linear_init, lambda params, x: 100 * linear_apply(params, x)
    _, _, info = one_round(poisoned, ff.fedavg(), FULL, steep)
    assert info.active.tolist() == [True, True, True, False, True]


@pytest.mark.parametrize(("name", "heard"), [("fedavg", True), ("qfedavg", False), ("gram", False)])
def test_an_update_too_long_for_its_square_is_out_where_lengths_are_read(data, name, heard):
    """1e25 is a float32, its square is not: one such client must not stop the others' round."""
    before, after, info = one_round(data, RULES[name], sending(lambda received: received + 1e25))
    assert info.active.tolist() == [True, True, True, heard, True]
    assert (info.coef[jnp.array([0, 1, 2, 4])] != 0).all()
    assert np.abs(after["w"] - before["w"]).max() > 1e-3

"""Frozen parameters never change, whatever trains, defends or serves; the rest trains as if there were no other."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy import CLASSES, DIM, DRAWS, KEY, close, examples, federation, flop_of

import fedjax_fair as ff

WIDTH = 6


def init(key, x):
    body, head = jax.random.split(key)
    return {
        "body": {"w": jax.random.normal(body, (DIM, WIDTH)), "b": jnp.full((WIDTH,), 0.1)},
        "head": {"w": jax.random.normal(head, (WIDTH, CLASSES)), "b": jnp.zeros((CLASSES,))},
    }


def apply(params, x):
    hidden = jnp.tanh(x @ params["body"]["w"] + params["body"]["b"][None, :])
    return hidden @ params["head"]["w"] + params["head"]["b"][None, :]


NET = (init, apply)
PRE = init(jax.random.key(42), None)
HEAD = (lambda key, x: PRE["head"], lambda head, x: apply({"body": PRE["body"], "head": head}, x))
DECAYING = ff.local_sgd(optax.adamw(0.05, weight_decay=0.3), steps=2, batch_size=3)


def make(data, model=NET, **more):
    given = {"aggregator": ff.fedavg(), "trainer": DECAYING, "client_block": 1, **more}
    return ff.simulation(model, data, **given)


def play(sim, rounds=2, **more):
    return ff.run(sim, KEY, rounds=rounds, eval_every=rounds, **more)


def same(one, other):
    close(one, other, rtol=0, atol=0)


def alike(one, other):
    """To rounding: a body that is part of the program is multiplied otherwise than one that is handed to it."""
    close(one, other, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def free(data, quick_to_compile):
    return play(make(data))


@pytest.mark.parametrize("nothing", [(), lambda path: False], ids=["an empty list", "a predicate of nothing"])
def test_freezing_nothing_is_no_freezing_bit_for_bit(nothing, free, data):
    state, history = play(make(data, freeze=nothing))
    same(state.params, free[0].params)
    same(history.scores, free[1].scores)


TUNE = ff.fine_tune(ff.local_sgd(optax.adamw(0.1, weight_decay=0.5), steps=2, batch_size=3))
NOISY = optax.chain(ff.defences.clip_and_noise(1.0, 1.0), optax.adamw(0.1, weight_decay=0.5))


@pytest.mark.parametrize(
    "more",
    [
        {"evaluate": ("test", TUNE)},
        {"aggregator": ff.fedmgda_plus()},
        {"server_optimizer": NOISY, "selector": ff.uniform(3)},
        {"server_optimizer": ff.average_iterates(), "deploy": ff.averaged},
        {"aggregator": ff.ditto(), "evaluate": ("test@personal",)},
        {"aggregator": ff.scaffold(), "trainer": DRAWS},
    ],
    ids=["decay, tuned", "gram", "noise", "averaged", "ditto", "scaffold"],
)
def test_all_but_the_head_frozen_is_the_head_trained_alone(more, data):
    state, history = play(make(data, params=PRE, freeze="body", **more))
    by_hand, wanted = play(make(data, HEAD, **more))
    same(state.params["body"], PRE["body"])
    alike(state.params["head"], by_hand.params)
    alike(history.scores, wanted.scores)
    with pytest.raises(AssertionError):
        same(state.params["head"], PRE["head"])


def test_the_ways_to_say_which(data):
    wanted = {"body": {"w": None, "b": None}, "head": PRE["head"]}
    for freeze in ("body", "^body/", ["body/w", "body/b"], ("body",), lambda path: not path.startswith("head")):
        seen = []
        make(data, params=PRE, freeze=freeze, deploy=lambda state, seen=seen: seen.append(state) or state.params)
        assert jax.tree.structure(seen[0].params) == jax.tree.structure(wanted)
    last = play(make(data, params=PRE, freeze="last"), rounds=1)[0].params
    same(last["head"], PRE["head"])


def test_without_parameters_given_every_seed_freezes_its_own(data):
    sim = make(data, freeze="body")
    step = jax.jit(sim.step)
    for seed in (0, 1):
        begun = sim.init(jax.random.key(seed))
        same(step(begun, sim.data)[0].params["body"], begun.params["body"])


def test_what_is_frozen_is_in_no_update_no_memory_and_no_gradient(data):
    seen = []

    def weigh(state, report, key):
        seen.append(report)
        return jnp.ones(len(report.ids)) + report.updates["head"]["b"].sum(1), state

    spy = ff.Aggregator(lambda sizes, key=None: (), weigh)
    sim = make(data, aggregator=ff.scaffold(aggregator=spy), trainer=DRAWS, params=PRE, freeze="body")
    state = sim.init(KEY)
    jax.eval_shape(sim.step, state, sim.data)
    assert seen[-1].updates["body"] == {"w": None, "b": None}
    assert seen[-1].updates["head"]["w"].shape == (5, WIDTH, CLASSES)
    entries = WIDTH * CLASSES + CLASSES
    assert sum(leaf.size for leaf in jax.tree.leaves(state.memory)) == 5 * entries


def test_a_frozen_body_costs_no_backward_pass(data):
    first, *others = (make(data, params=PRE, freeze=freeze) for freeze in ("body", None))
    state = first.init(KEY)
    least = flop_of(first.step, state, first.data)
    assert all(flop_of(other.step, other.init(KEY), other.data) > 1.2 * least for other in others)


def test_a_trainer_of_ones_own_cannot_move_what_is_frozen(data):
    def train(loss, params, client, key, round):
        x, y = client.take(client.rows)
        batch = ff.Batch(x, y, jnp.arange(len(client.rows)) < client.size)
        grads = jax.grad(lambda p: loss(p, batch, params)[0])(params)
        return jax.tree.map(lambda w, g: w - g - 0.1, params, grads), ff.Trace(jnp.zeros(()), jnp.zeros(()))

    state, _ = play(make(data, trainer=train, params=PRE, freeze="body"), rounds=1)
    same(state.params["body"], PRE["body"])


def test_seeds_settings_and_checkpoints(data, tmp_path):
    def build(lr):
        return make(data, trainer=DRAWS._replace(optimizer=optax.sgd(lr)), freeze="body")

    call = {"rounds": 2, "eval_every": 2}
    swept = ff.sweep(build, {"lr": [0.1, 0.3]}, seeds=[1], **call, checkpoint=tmp_path / "runs")
    alone = ff.run(build(0.3), 1, **call)[1]
    np.testing.assert_allclose(swept.histories[1][0].loss, alone.loss, rtol=1e-5)


def test_the_references_of_a_comparison_freeze_it_too():
    def build(model, **more):
        return lambda rule, data: make(data, model, aggregator=rule, trainer=DRAWS, **more)

    call = {"federation": federation((3, 3)), "replicates": 2, "rounds": 1}
    frozen, by_hand = (
        ff.compare({"fedavg": ff.fedavg()}, build(model, **more), **call)
        for model, more in ((NET, {"params": PRE, "freeze": "body"}), (HEAD, {}))
    )
    for name in ("local", "pooled"):
        for one, other in zip(frozen.references[name], by_hand.references[name]):
            np.testing.assert_allclose(one.loss, other.loss, rtol=1e-5)


def test_evaluations_of_other_models_freeze_nothing(data):
    """A frozen leaf is of the model that is asked for, not of the one that the simulation began with."""
    sim = make(data, params=PRE, freeze="body")
    other = init(jax.random.key(7), None)
    close(sim.evaluate(other, data), make(data).evaluate(other, data), rtol=1e-6)
    x, y = examples(data, 1, "test")
    assert sim.evaluate(other, data)["test"].accuracy[1] == (apply(other, x).argmax(1) == y).mean()


@pytest.mark.parametrize(
    ("freeze", "sentence"),
    [
        ("tail", "freeze must match a parameter of body/b, body/w, head/b, head/w, got 'tail'"),
        (["body", "tail"], "freeze must match a parameter of .*, got 'tail'"),
        ("(", r"freeze must be a regular expression, got '\('"),
        (3, "freeze must be 'last', a pattern of parameters' paths or a function of one, .* got 3"),
        (["body", 3], "freeze must be a list of patterns of parameters' paths, got 3 in it"),
        ("", "freeze must leave some parameters to train, got '', which freezes all of them"),
        ({"body": True}, "freeze must be 'last', a pattern .* got {'body': True}"),
    ],
)
def test_what_freezes_nothing_or_all_is_refused(freeze, sentence, data):
    with pytest.raises(ValueError, match=sentence):
        make(data, freeze=freeze)


def test_a_deploy_of_another_form_is_refused(data):
    with pytest.raises(ValueError, match="deploy must return a model of the form"):
        make(data, freeze="body", deploy=lambda state: state.params["head"])

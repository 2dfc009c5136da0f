"""Sizes of one, in every part: each round is a plain NumPy loop's, compiled as users compile."""

import jax
import numpy as np
import optax
import pytest
import toy
from hypothesis import given, settings
from hypothesis import strategies as st

import fedjax_fair as ff
from fedjax_fair.engine.round import keys_of_round
from fedjax_fair.numerics.shuffle import shuffle_keys, shuffled
from fedjax_fair.numerics.xla_options import of_this_xla

AS_USERS = of_this_xla({"xla_cpu_use_fusion_emitters": True}) if jax.default_backend() == "cpu" else {}
"""XLA's way of making kernels that the tests' quick compilation leaves out."""
LR = 0.1
RULES = {
    "fedavg": ff.fedavg(),
    "afl": ff.afl(0.1),
    "qfedavg": ff.qfedavg(1.0, lipschitz=1 / LR),
    "term": ff.term(0.5),
    "fedmgda_plus": ff.fedmgda_plus(),
    "aaggff_d": ff.aaggff_d(),
}
"""Those whose server adds up the updates, each by the coefficient in the history."""


def layers_of(params):
    """[(kernel, bias)] of a stock network, the input's first, in float64."""
    return [[np.asarray(layer[part], float) for part in ("kernel", "bias")] for _, layer in sorted(params.items())]


def gradient(layers, x, y):
    """Of the mean cross-entropy of a network with ReLU between its layers: by hand."""
    inputs = [x.reshape(len(x), -1)]
    for kernel, bias in layers[:-1]:
        inputs.append(np.maximum(inputs[-1] @ kernel + bias, 0))
    logits = inputs[-1] @ layers[-1][0] + layers[-1][1]
    e = np.exp(logits - logits.max(1, keepdims=True))
    back = (e / e.sum(1, keepdims=True) - np.eye(logits.shape[1])[y]) / len(y)
    found = []
    for (kernel, _), a in zip(layers[::-1], inputs[::-1]):
        found.append([a.T @ back, back.sum(0)])
        back = (back @ kernel.T) * (a > 0)
    return found[::-1]


def batches_of(key, n, work, capacity):
    """The positions among its n examples that a client's steps read: the engine's own draws, laid out by hand."""
    order, _ = jax.random.split(key)
    if "steps" in work and work["batch_size"] is not None:
        return list(np.asarray(jax.random.randint(order, (work["steps"], work["batch_size"]), 0, n, np.int32)))
    epochs = work.get("epochs", work.get("steps"))
    if work["batch_size"] is None:
        return [np.arange(n)] * epochs
    size = min(work["batch_size"], capacity)
    orders = [np.asarray(shuffled(k, np.arange(n), n)) for k in shuffle_keys(order, (epochs,))]
    return [mine[at : at + size] for mine in orders for at in range(0, n, size)]


def trained(layers, data, k, key, work):
    """A client's model after its local steps."""
    layers = [[part.copy() for part in layer] for layer in layers]
    rows = np.asarray(data.train.rows)[np.asarray(data.train.owner) == k]
    x, y = np.asarray(data.x, float)[rows], np.asarray(data.y)[rows]
    for batch in batches_of(jax.random.fold_in(key, k), len(rows), work, int(data.sizes.max())):
        for layer, slope in zip(layers, gradient(layers, x[batch], y[batch])):
            for part, g in zip(layer, slope):
                part -= LR * g
    return layers


sizes_of_clients = st.lists(st.integers(1, 4), min_size=1, max_size=3)
kinds_of_work = st.one_of(
    st.fixed_dictionaries({"epochs": st.integers(1, 2), "batch_size": st.none() | st.integers(1, 5)}),
    st.fixed_dictionaries({"steps": st.integers(1, 2), "batch_size": st.none() | st.integers(1, 5)}),
)


def play_by_hand(sizes, features, classes, hidden, work, rule, cohort, block, seed):
    """Two rounds of the engine, each compared with NumPy from the state before it; and what a run reports."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=(len(owner), features)).astype(np.float32)
    y = rng.integers(0, classes, len(owner))
    data = ff.FederatedData.from_arrays(x, y, client_id=owner, split=(1, 0, 0))
    sim = ff.simulation(
        ff.models.mlp(hidden, classes),
        data,
        aggregator=RULES[rule],
        trainer=ff.local_sgd(optax.sgd(LR), **work),
        selector=ff.uniform(cohort),
        evaluate=("train",),
        client_block=block,
    )

    def both(state, data):
        after, info = sim.step(state, data)
        return after, info, sim.evaluate(after.params, data)["train"]

    step, state = jax.jit(both, compiler_options=AS_USERS), sim.init(jax.random.key(seed))
    for _ in range(2):
        after, info, scores = step(state, data)
        key, before = keys_of_round(state).train, layers_of(state.params)
        expected = [[part.copy() for part in layer] for layer in before]
        for k, c in zip(np.asarray(info.ids), np.asarray(info.coef, float)):
            assert np.isfinite(c)
            for own, mine, old in zip(expected, trained(before, data, int(k), key, work), before):
                for i in range(2):
                    own[i] += c * (mine[i] - old[i])
        for wanted, got in zip(expected, layers_of(after.params)):
            for a, b in zip(wanted, got):
                np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)
        assert sorted(info.ids) == sorted({*info.ids.tolist()})
        assert np.asarray(info.active).all()
        if rule == "fedavg":
            share = data.sizes[np.asarray(info.ids)] / data.sizes[np.asarray(info.ids)].sum()
            np.testing.assert_allclose(info.coef, share, rtol=1e-6)
        assert np.isfinite(scores.loss).all()
        assert ((scores.accuracy >= 0) & (scores.accuracy <= 1)).all()
        state = after


@given(
    sizes=sizes_of_clients,
    features=st.integers(1, 3),
    classes=st.integers(1, 3),
    hidden=st.sampled_from([(), (1,), (3, 1)]),
    work=kinds_of_work,
    rule=st.sampled_from(sorted(RULES)),
    block=st.sampled_from(["auto", None, 1]),
    data=st.data(),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=8)
def test_any_size_of_one_trains_as_in_numpy(sizes, features, classes, hidden, work, rule, block, data, seed):
    cohort = data.draw(st.integers(1, len(sizes)))
    play_by_hand(sizes, features, classes, hidden, work, rule, cohort, block, seed)


@pytest.mark.parametrize(("rule", "hidden"), [*zip(sorted(RULES), 3 * [(), (1,)])], ids=str)
def test_everything_of_one(rule, hidden):
    """One client, one example, one feature, one class, one step."""
    play_by_hand([1], 1, 1, hidden, {"epochs": 1, "batch_size": 1}, rule, 1, "auto", 0)


def test_clients_of_one_example_each():
    """Row 1."""
    play_by_hand([1, 1], 2, 2, (), {"epochs": 1, "batch_size": 1}, "fedavg", 2, "auto", 0)


def test_a_parameter_without_entries_is_no_obstacle():
    data = toy.federation(sizes=(3, 2))
    init, apply = toy.linear

    def trained(model):
        trainer = ff.local_sgd(optax.sgd(LR), steps=1, batch_size=2)
        return ff.run(ff.simulation(model, data, aggregator=ff.fedavg(), trainer=trainer), 0, 1)[0].params

    plain = trained(toy.linear)
    for shape in ((0, 3), (3, 0)):
        empty = np.zeros(shape, np.float32)
        beside = (lambda key, x, empty=empty: (init(key, x), empty), lambda params, x: apply(params[0], x))
        params, without_entries = trained(beside)
        assert without_entries.shape == shape
        jax.tree.map(np.testing.assert_array_equal, params, plain)

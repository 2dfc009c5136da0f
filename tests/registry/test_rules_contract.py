"""What every server rule promises, whatever it computes: one table, no special cases."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from chex import assert_tree_all_finite, assert_trees_all_close
from contract import (
    CASES,
    LOSS,
    SIZES,
    N,
    make_report,
    play,
    random_report,
    rule,
    seen_two_rounds,
    stack,
    take,
    unstack,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from fedjax_fair import registry
from fedjax_fair.engine.memory import broadcaster
from fedjax_fair.types import Client, as_method, message_of, server_transform

KEY = jax.random.key(0)
TOLERANCE = {"rtol": 1e-5, "atol": 2e-6}
GARBAGE = (1e30, -1e30, jnp.nan, jnp.inf)


@pytest.fixture(scope="module", autouse=True)
def strict_promotion():
    """A rule that mixes dtypes without saying so fails everywhere below."""
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(params=list(CASES))
def case(request):
    return rule(request.param)


def assert_weights(coef, active, kind: str):
    """Finite, exactly 0 where inactive; and a (sub-)simplex, unless the rule rescales a direction."""
    coef = np.asarray(coef)
    assert np.isfinite(coef).all()
    assert_array_equal(coef[~np.asarray(active)], 0)
    if kind == "direction":
        return
    assert (coef >= 0).all()
    if kind == "simplex" and np.any(active):
        assert_allclose(coef.sum(dtype=np.float64), 1, atol=1e-6)
    assert coef.sum(dtype=np.float64) <= 1 + 1e-6


def test_jit_changes_nothing(case):
    state, report = seen_two_rounds(case), random_report(0, case.slots)
    assert_trees_all_close(case.weigh(state, report, KEY), case.eager(state, report, KEY), **TOLERANCE)


def test_state_keeps_structure_shape_dtype_and_weak_type(case):
    def avals(tree):
        leaves, structure = jax.tree.flatten(tree)
        return structure, [(v.shape, v.dtype, v.weak_type) for v in leaves]

    state = case.init(jnp.asarray(SIZES))
    coef, after = jax.eval_shape(case.eager, state, random_report(0, case.slots), KEY)
    assert avals(after) == avals(state)
    assert (coef.shape, coef.dtype, coef.weak_type) == ((case.slots,), jnp.float32, False)


def test_init_accepts_a_key_and_can_be_compiled(case):
    assert_trees_all_close(jax.jit(case.init)(jnp.asarray(SIZES), KEY), case.init(jnp.asarray(SIZES)), **TOLERANCE)


def test_scan_is_the_loop(case):
    reports = [random_report(seed, case.slots) for seed in range(5)]
    coefs, states = play(case, reports)

    keys = stack([jax.random.key(t) for t in range(5)])  # those of play

    def step(state, now):
        coef, state = case.eager(state, *now)
        return state, coef

    last, scanned = jax.lax.scan(step, case.init(jnp.asarray(SIZES)), (stack(reports), keys))
    assert_trees_all_close((scanned, last), (jnp.stack(coefs), states[-1]), **TOLERANCE)


def test_vmap_is_the_loop(case):
    states = [case.init(jnp.asarray(SIZES)), seen_two_rounds(case), seen_two_rounds(case)]
    reports = [random_report(seed, case.slots) for seed in (3, 4, 5)]
    keys = jax.random.split(KEY, 3)
    batched = jax.jit(jax.vmap(case.eager))(stack(states), stack(reports), keys)
    for one, *args in zip(unstack(batched, 3), states, reports, keys):
        assert_trees_all_close(one, case.weigh(*args), **TOLERANCE)


def test_slots_may_come_in_any_order(case):
    state, report = seen_two_rounds(case), random_report(0, case.slots)
    report = report._replace(active=report.active.at[1].set(False))
    order = np.random.default_rng(0).permutation(case.slots)
    coef, after = case.weigh(state, report, KEY)
    moved, moved_after = case.weigh(state, take(report, order), KEY)
    assert_trees_all_close((moved, moved_after), (coef[order], after), **TOLERANCE)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_padding_has_no_influence(case, garbage):
    """Not even where its ids are those of real clients: client 0, somebody else in the cohort, nobody."""
    state = seen_two_rounds(case)
    report = make_report(0, range(case.slots))
    pads = 4

    def pad(v):
        fill = garbage if jnp.issubdtype(v.dtype, jnp.floating) else -7
        return jnp.pad(v, [(0, pads)] + [(0, 0)] * (v.ndim - 1), constant_values=jnp.asarray(fill, v.dtype))

    padded = jax.tree.map(
        pad,
        report._replace(ids=(), active=(), gram=()),
    )._replace(
        ids=jnp.concatenate([report.ids, jnp.array([0, 0, 3, N - 1], jnp.int32)]),
        active=jnp.pad(report.active, (0, pads)),
        gram=jnp.pad(report.gram, (0, pads), constant_values=garbage),
    )
    coef, after = case.weigh(state, report, KEY)
    assert_trees_all_close(case.weigh(state, padded, KEY), (jnp.pad(coef, (0, pads)), after), **TOLERANCE)


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_dropped_client_gets_nothing_and_says_nothing(case, garbage):
    state, report = seen_two_rounds(case), random_report(0, case.slots)
    gone = report._replace(active=report.active.at[2].set(False))
    said = gone._replace(
        **{
            name: getattr(gone, name).at[2].set(garbage)
            for name in ("loss", "train_loss", "train_loss_std", "accuracy")
        },
        gram=gone.gram.at[2].set(garbage).at[:, 2].set(garbage),
        updates=jax.tree.map(lambda u: u.at[2].set(garbage), gone.updates),
    )
    coef, after = case.weigh(state, gone, KEY)
    assert_weights(coef, gone.active, case.kind)
    assert_trees_all_close(case.weigh(state, said, KEY), (coef, after), **TOLERANCE)


def test_everybody_dropped(case):
    state, report = seen_two_rounds(case), random_report(0, case.slots)
    coef, after = case.weigh(state, report._replace(active=jnp.zeros_like(report.active)), KEY)
    assert_array_equal(coef, 0)
    assert_tree_all_finite(after)
    coef, _ = case.weigh(after, report, KEY)  # and the next round goes on
    assert_weights(coef, report.active, case.kind)


@pytest.mark.parametrize("losses", [(1,), (0,), (1e-12,), (1e4,), (0, 1e-12, 1, 1e4), (1, 3e38)], ids=str)
def test_finite_on_extreme_losses(case, losses):
    reports = [random_report(t, case.slots, loss=np.resize(losses, case.slots)) for t in range(4)]
    coefs, states = play(case, reports)
    for coef in coefs:
        assert_weights(coef, [True] * case.slots, case.kind)
    assert_tree_all_finite(states)


def test_one_client_alone_is_all_of_the_average(case):
    report = random_report(0, case.slots)
    report = report._replace(active=jnp.arange(case.slots) == 1)
    coef, _ = case.weigh(seen_two_rounds(case), report, KEY)
    assert_weights(coef, report.active, case.kind)
    assert coef[1] > 0


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_dtype_is_that_of_the_report(case, dtype):
    """Also of a float32 report in a process that has float64 switched on."""
    with jax.enable_x64(True):
        sizes, report = jax.tree.map(
            lambda v: v.astype(dtype) if jnp.issubdtype(v.dtype, jnp.floating) else v,
            (jnp.asarray(SIZES), random_report(0, case.slots)),
        )
        state = case.init(sizes)
        coef, after = jax.eval_shape(case.eager, state, report, KEY)
        for before, now in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
            assert now.dtype == before.dtype
            assert now.dtype in (dtype, jnp.int32)
        assert coef.dtype == dtype


NUMBERS = [
    (name, setting)
    for name, factory in registry.AGGREGATORS.items()
    for setting, parameter in registry.settings_of(factory).items()
    if isinstance(parameter.default, float) or parameter.default is parameter.empty
]


# Where the numbers that matter are of another size.
VALUES = {
    ("fedmdfg", "theta"): (5.0, 30.0, 80.0),
    ("fairmoo", "prefer"): (0.1, 0.5, 9.0),
    ("fedeba_plus", "theta"): (1.0, 30.0, 80.0),
}


@pytest.mark.parametrize(("name", "setting"), NUMBERS)
def test_numbers_may_be_swept(name, setting):
    """Built inside vmap, with the hyper-parameter a tracer: the same as built one by one. And it matters."""

    def outcome(value):
        method = as_method(registry.make_rule(name, {setting: value}, learning_rate=0.1))
        return played(method), trained(method)

    values = VALUES.get((name, setting), (0.01, 0.3, 0.9))
    swept = jax.jit(jax.vmap(outcome))(jnp.array(values))
    alone = [outcome(value) for value in values]
    assert_trees_all_close(swept, stack(alone), rtol=1e-4, atol=1e-5)  # solvers end at their rounding
    change = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), alone[0], alone[-1])
    assert max(jax.tree.leaves(change)) > 1e-5  # an agent that has learned for two rounds has moved little


def played(method):
    """Three rounds of a rule, its second look and its transform: coefficients, step and what the server keeps."""
    reports = [random_report(seed, N) for seed in range(3)]
    params = jax.tree.map(lambda u: u[0], reports[0].updates)
    transform = server_transform(method, N, N)
    state, server = method.aggregator.init(jnp.asarray(SIZES)), transform.init(params)
    outcome = []
    for report in reports:
        silent = message_of(method.memory, params)
        sent = jax.tree.map(lambda form: jnp.ones((N, *form.shape), form.dtype), silent)
        report = report._replace(message=sent)
        coef, state = method.aggregator.weigh(state, report, KEY)
        if method.revise is not None:
            coef, state = method.revise(state, coef, report, KEY, lambda update, ids: jnp.asarray(LOSS)[ids])
        g, server = transform.update(params, server, params, report=report, coef=coef, key=KEY)
        outcome.append((coef, g, server))
    return outcome


def trained(method):
    """A round of a client that finds what it had at first: what it trains on, or what it makes of it."""
    losses, point, anchor = jnp.array([1.0, 3.5]), jnp.array([1.0, 2.0]), jnp.zeros(2)
    objective = 0.0
    if method.objective is not None:
        objective = method.objective(lambda losses, *_: losses.sum())(losses, losses > 0, point, anchor)
    if method.memory is None:
        return objective
    rows = jnp.arange(2, dtype=jnp.int32)
    server = (server_transform(method, N, N).init(point), ())
    state = SimpleNamespace(server=server, aggregator=method.aggregator.init(jnp.asarray(SIZES)))
    client = Client(
        jnp.int32(0),
        rows,
        2,
        lambda rows: (rows, rows),
        memory=method.memory.init(point),
        broadcast=broadcaster(method)(state),
    )
    train = method.local(ff.local_sgd(optax.sgd(0.1), steps=3, batch_size=None))
    after = train(lambda w, *_: ((w**2).sum(), w.sum()), point, client, KEY, jnp.int32(0))
    return objective, [part for part in after if not isinstance(part, ff.Trace)]


@pytest.mark.parametrize("name", list(CASES))
@settings(deadline=None, max_examples=25, derandomize=True)
@given(data=st.data())
def test_weights_whatever_the_losses_and_dropouts(name, data):
    case = rule(name)
    slots = {"min_size": case.slots, "max_size": case.slots}
    loss = st.one_of(st.floats(0, 10, width=32), st.floats(0, 2.0**14, width=32))
    state = case.init(jnp.asarray(SIZES))
    for seed in range(2):
        losses = data.draw(st.lists(loss, **slots))
        active = data.draw(st.lists(st.booleans(), **slots))
        coef, state = case.weigh(state, random_report(seed, case.slots, loss=losses, active=active), KEY)
        assert_weights(coef, active, case.kind)
        assert_tree_all_finite(state)

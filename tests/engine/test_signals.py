"""One model on many clients' data, against a plain loop over the clients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy import examples, federation, linear_apply, linear_init

from fedjax_fair.data import FederatedData
from fedjax_fair.data.split import table
from fedjax_fair.engine import signals
from fedjax_fair.models.losses import accuracy, softmax_cross_entropy
from fedjax_fair.numerics.client_sums import client_sums

SKEWED = (2, 40, 1, 9, 7, 33, 3, 60, 5, 8)  # a hundred examples and a half


pytestmark = pytest.mark.usefixtures("quick_to_compile")


def score(params, x, y):
    outputs = linear_apply(params, x)
    return softmax_cross_entropy(outputs, y), accuracy(outputs, y)


@pytest.fixture(scope="module")
def data():
    return federation(SKEWED)


@pytest.fixture(scope="module")
def params(data):
    return linear_init(jax.random.key(0), data.x)


def one_by_one(params, data, split, ids):
    """Mean scores f[2, K] of the clients ``ids``, each on its own examples, in NumPy."""
    w, b = np.asarray(params["w"], float), np.asarray(params["b"], float)
    means = []
    for x, y in (examples(data, k, split) for k in ids):
        logits = x @ w + b
        losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]
        means.append((losses.mean(), (logits.argmax(1) == y).mean()))
    return np.array(means).T


def with_validation(data, rows, owner):
    return data._replace(validation=table(np.array(rows, int), np.array(owner, int), data.n_clients))


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("batch", [1, 7, 168, 512])
def test_every_client_is_each_clients_own_mean_whatever_the_batch(data, params, split, batch):
    got = signals.every_client(score, params, data, getattr(data, split), batch)
    np.testing.assert_allclose(got, one_by_one(params, data, split, range(10)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("ids", [[2], [6, 0], [0, 2, 9, 6]], ids=str)
@pytest.mark.parametrize("batch", [1, 5, 512])
def test_a_cohort_of_small_clients_is_the_same(data, params, ids, batch):
    """Few against the whole: read a few examples of each at a time."""
    held = sum(SKEWED)
    assert len(ids) * 10 < held
    capacity = max(SKEWED[k] for k in ids)
    got = signals.cohort(score, params, data, data.train, jnp.array(ids), batch, capacity)
    np.testing.assert_allclose(got, one_by_one(params, data, "train", ids), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "ids",
    [[7], [4, 7], [2, 7], [1, 5, 7], [7, 6, 5, 4, 3, 2, 1, 0], list(range(10)), list(range(9, -1, -1))],
    ids=str,
)
@pytest.mark.parametrize("batch", [3, 512])
def test_a_cohort_of_any_size_and_order_is_the_same(data, params, ids, batch):
    """One and two clients are read by themselves; from three on, 3 x 60 examples are more than everybody's 168."""
    got = signals.cohort(score, params, data, data.train, jnp.array(ids), batch, max(SKEWED))
    np.testing.assert_allclose(got, one_by_one(params, data, "train", ids), rtol=1e-5, atol=1e-5)


def test_a_small_cohort_does_not_read_the_others_examples(data, params):
    seen = set()

    def spy(params, x, y):
        jax.debug.callback(lambda x: seen.update(map(bytes, np.asarray(x))), x)
        return score(params, x, y)

    signals.cohort(spy, params, data, data.train, jnp.array([0, 4]), 4, max(SKEWED))
    jax.effects_barrier()
    own = {row.tobytes() for k in (0, 4) for row in examples(data, k)[0]}
    assert own < seen
    assert len(seen) < 20  # theirs, and a neighbour's here and there as padding


@pytest.mark.parametrize("who", [[0], [4, 7], [9], range(10)], ids=str)
@pytest.mark.parametrize("batch", [5, 512])
def test_clients_judged_alone_have_what_they_have_among_all(data, params, who, batch):
    """To the last bit; the others have NaN."""
    mask = np.isin(np.arange(10), who)
    for split in (data.train, longer(data.train, 12)):
        everybody = np.array(signals.every_client(score, params, data, split, batch))
        got = np.array(signals.every_client(score, params, data, split, batch, who=jnp.asarray(mask)))
        np.testing.assert_array_equal(got, np.where(mask, everybody, np.nan))


def longer(split, by):
    """With rows of nobody at its end."""
    rows, owner = np.asarray(split.rows), np.asarray(split.owner)
    nobody = np.full(by, len(split.size))
    return split._replace(rows=jnp.asarray(np.append(rows, rows[:by])), owner=jnp.asarray(np.append(owner, nobody)))


def test_judging_some_does_not_read_the_others_examples(data, params):
    passes = []

    def spy(params, x, y):
        jax.debug.callback(lambda x: passes.append({bytes(row) for row in np.asarray(x)}), x)
        return score(params, x, y)

    signals.every_client(spy, params, data, data.train, 4, who=jnp.arange(10) == 4)
    jax.effects_barrier()
    own = {row.tobytes() for row in examples(data, 4)[0]}
    assert own <= set.union(*passes)
    assert all(not own.isdisjoint(one) for one in passes)  # neighbours' in the first pass and in the last


@pytest.mark.parametrize(
    ("sizes", "backend", "most"), [(SKEWED, "cpu", 4), ((17,) * 10, "cpu", 64), (SKEWED, "gpu", 64)]
)
def test_everybodys_losses_are_read_in_short_passes_where_sizes_differ_on_a_cpu(
    monkeypatch, sizes, backend, most, params
):
    monkeypatch.setattr(signals, "FLAT", 4)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    data, seen = federation(sizes), []

    def spy(params, x, y):
        seen.append(x.shape[0])
        return score(params, x, y)

    everybody = jnp.arange(len(sizes))
    jax.eval_shape(lambda: signals.cohort(spy, params, data, data.train, everybody, 64, max(sizes)))
    assert most / 2 < max(seen) <= most


def test_an_empty_split_is_nan_for_everybody(params):
    data = federation(SKEWED, validation=False)
    for got in (
        signals.every_client(score, params, data, data.validation, 512),
        signals.cohort(score, params, data, data.validation, jnp.array([1, 4]), 512, 0),
    ):
        assert np.isnan(got).all()
    assert [len(values) for values in got] == [2, 2]


def test_an_empty_split_is_nan_for_the_client_that_has_it_empty(data, params):
    own = with_validation(data, [3, 4, 5, 9], [1, 1, 4, 9])
    everybody = np.array(signals.every_client(score, params, own, own.validation, 3))
    assert np.flatnonzero(~np.isnan(everybody[0])).tolist() == [1, 4, 9]
    for ids in ([4, 0], [9]):  # S x 2 examples against 4: everybody, and the two alone
        got = signals.cohort(score, params, own, own.validation, jnp.array(ids), 512, 2)
        np.testing.assert_array_equal(np.isnan(got)[0], [k not in (1, 4, 9) for k in ids])
        np.testing.assert_allclose(got, everybody[:, ids], rtol=1e-6)


def test_signals_are_the_same_when_traced(data, params):
    def both(params, data, ids):
        return (
            signals.every_client(score, params, data, data.train, 16)[0],
            signals.cohort(score, params, data, data.train, ids, 16, max(SKEWED))[0],
        )

    everybody, some = jax.jit(both)(params, data, jnp.array([7, 4]))
    np.testing.assert_allclose(everybody, one_by_one(params, data, "train", range(10))[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(some, everybody[jnp.array([7, 4])], rtol=1e-5, atol=1e-5)


# A random minibatch of each client


def minibatch(data, params, ids, batch, seed=0):
    return np.array(signals.minibatch(score, params, data, jnp.array(ids), jax.random.key(seed), batch))


def test_a_minibatch_draws_from_the_clients_own_examples_alone(data, params):
    for seed in range(5):
        for k, (loss, _) in enumerate(minibatch(data, params, range(10), 1, seed).T):
            x, y = examples(data, k)
            logits = x @ np.asarray(params["w"]) + np.asarray(params["b"])
            own = np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]
            assert np.isclose(own, loss, rtol=1e-4).any()


def test_a_large_minibatch_comes_near_the_mean(data, params):
    got = minibatch(data, params, range(10), 4000)
    np.testing.assert_allclose(got, one_by_one(params, data, "train", range(10)), atol=0.25)


def test_a_minibatch_depends_on_key_and_client_and_not_on_the_slot(data, params):
    one = minibatch(data, params, [1, 5, 7], 3)
    np.testing.assert_allclose(one, minibatch(data, params, [7, 1, 5], 3)[:, [1, 2, 0]], rtol=1e-6)
    assert not np.isclose(one[0], minibatch(data, params, [1, 5, 7], 3, seed=1)[0]).any()


def test_clients_who_share_their_examples_draw_different_ones(data, params):
    twins = data._replace(train=table(np.tile(np.arange(40), 2), np.repeat([0, 1], 40), 2))
    one, other = minibatch(twins, params, [0, 1], 3)[0]
    assert not np.isclose(one, other)


# The Gram matrix


def test_gram_holds_the_inner_products_of_whole_updates():
    rng = np.random.default_rng(0)
    updates = {"w": rng.normal(size=(4, 3, 2)), "b": rng.normal(size=(4, 5)), "scale": rng.normal(size=4)}
    flat = np.concatenate([updates["w"].reshape(4, -1), updates["b"], updates["scale"][:, None]], axis=1)
    with jax.enable_x64(True):
        got = signals.gram(jax.tree.map(jnp.array, updates))
    np.testing.assert_allclose(got, [[a @ b for b in flat] for a in flat], rtol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_gram_of_half_precision_is_summed_in_float32(dtype):
    updates = {"w": jnp.array(np.random.default_rng(0).normal(size=(4, 300)), dtype), "b": jnp.ones((4, 2), dtype)}
    flat = np.concatenate([np.asarray(leaf, float) for leaf in jax.tree.leaves(updates)], axis=1)
    got = signals.gram(updates)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, flat @ flat.T, rtol=1e-5, atol=1e-4)


def test_equal_losses_stay_equal_however_many_examples_a_client_has():
    """Added one by one in float32, those of the largest were .4 % below those of the others."""
    sizes = [300_000, 5, 0, 1023, 2, 4000]
    rows = np.zeros(sum(sizes), int)
    one = FederatedData.from_arrays(np.zeros((3, 2), np.float32), np.zeros(3, int), client_id=np.zeros(3, int))
    split = table(rows, np.repeat(np.arange(6), sizes), 6)
    worth = np.float32([0.69314718, 1.0])
    same = lambda params, x, y: tuple(jnp.full(y.shape, value) for value in worth)  # noqa: E731
    losses, right = signals.every_client(same, None, one, split, 4096)
    there = np.array(sizes) > 0
    np.testing.assert_allclose(losses[there], worth[0], rtol=2e-5)
    np.testing.assert_array_equal(right[there], 1)
    assert np.isnan(losses[~there]).all()


def test_sums_in_pieces_are_each_clients_own_wherever_clients_and_pieces_end():
    rng = np.random.default_rng(0)
    for trial in range(120):
        n = int(rng.integers(1, 12))
        edges = ([0, 0, 1, 255, 256, 257, 512], [0, 1, 15, 16, 17, 31, 32, 33], [0, 1, 2, 3], range(600))
        sizes = rng.choice(edges[trial % 4], n)
        owner = np.repeat(np.arange(n), sizes)
        if owner.size:
            values = rng.integers(0, 100, owner.size).astype(np.float32)
            split = table(np.zeros(owner.size, int), owner, n)
            got = jax.jit(client_sums)(jnp.asarray(values), split.owner, split.start, split.size)
            np.testing.assert_array_equal(got, np.bincount(owner, values, minlength=n))


@pytest.mark.parametrize("sizes", [[40, 3, 0, 90, 20], [4, 3, 0, 9, 2] * 16], ids=["windows", "one by one"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_value_that_is_not_finite_stays_its_clients_own(sizes, bad):
    """Those of nobody, which fill a table up, are nobody's."""
    n = len(sizes)
    owner = np.repeat(np.arange(n + 1), [*sizes, 7])
    values = np.where((owner == 0) | (owner == n), bad, 1.0).astype(np.float32)
    split = table(np.zeros(sum(sizes), int), owner[:-7], n)
    got = client_sums(jnp.asarray(values), jnp.asarray(owner, jnp.int32), split.start, split.size)
    np.testing.assert_array_equal(got, [bad, *sizes[1:]])


@pytest.mark.parametrize("n", [10_000, 40_000])  # by windows, and one by one
def test_a_large_client_beside_many_of_one_example_is_summed_as_exactly(n):
    sizes = np.where(np.arange(n) == 7, 400_000, 1)
    split = table(np.zeros(sizes.sum(), int), np.repeat(np.arange(n), sizes), n)
    values = jnp.full(sizes.sum(), 0.69314718, jnp.float32)
    means = client_sums(values, split.owner, split.start, split.size) / sizes.astype(np.float32)
    np.testing.assert_allclose(means, 0.69314718, rtol=2e-5)

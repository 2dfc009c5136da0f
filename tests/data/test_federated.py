"""FederatedData: splits, official test examples, normalisation, and what is refused."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedjax_fair as ff
from fedjax_fair.data import FederatedData, Normalizer, partition

build = FederatedData.from_arrays
SETTINGS = settings(deadline=None, max_examples=25)
SPLITS = ("train", "validation", "test")


def toy(n=120, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)).astype(np.float32), rng.integers(0, classes, n)


X, Y = toy()
IID = partition.iid(3)


def rows_of(split, k):
    return np.asarray(split.rows)[int(split.start[k]) : int(split.start[k] + split.size[k])]


def assert_table(split, n_clients):
    """start, size, rows and owner tell the same story, in int32."""
    assert all(part.dtype == jnp.int32 for part in split)
    size = np.asarray(split.size)
    np.testing.assert_array_equal(split.start, np.cumsum(size) - size)
    np.testing.assert_array_equal(split.owner, np.repeat(np.arange(n_clients), size))
    assert len(split.rows) == size.sum()


@given(
    sizes=st.lists(st.integers(3, 40), min_size=1, max_size=8),
    shares=st.sampled_from(
        [(0.8, 0.1, 0.1), (5 / 6, 0, 1 / 6), (1, 0, 0), (0.01, 0.495, 0.495), (0.5, 0.5, 0), (0.1, 0, 0.9)]
    ),
    seed=st.integers(0, 1000),
)
@SETTINGS
def test_splits_partition_each_client(sizes, shares, seed):
    client = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    data = build(
        np.arange(len(client), dtype=np.float32)[:, None], client, client_id=client, split=shares, seed=seed
    )
    assert data.n_clients == len(sizes)
    for split in data[2:5]:
        assert_table(split, len(sizes))
    for k, n in enumerate(sizes):
        mine = [rows_of(getattr(data, name), k) for name in SPLITS]
        np.testing.assert_array_equal(np.sort(np.concatenate(mine)), np.flatnonzero(client == k))
        assert len(mine[0]) >= 1
        for share, rows in zip(shares, mine):
            assert (len(rows) > 0) == (share > 0)
            assert abs(len(rows) - share * n) <= 1.5
    np.testing.assert_array_equal(data.sizes, data.train.size)


def test_the_papers_sixths():
    x, y = np.zeros((600, 1), np.float32), np.zeros(600, int)
    data = build(x, y, client_id=y, split=(5 / 6, 0, 1 / 6))
    assert [int(split.size[0]) for split in data[2:5]] == [500, 0, 100]


def test_same_seed_same_data():
    x, y = toy()
    a, b, c = (build(x, y, partition=partition.iid(5), seed=seed) for seed in (1, 1, 2))
    jax.tree.map(np.testing.assert_array_equal, a, b)
    assert not np.array_equal(a.train.rows, c.train.rows)


def test_clients_may_share_examples():
    x, y = toy()
    data = build(x, y, partition=lambda labels, seed: [np.arange(60), np.arange(30, 90)])
    assert len(np.unique(np.concatenate([rows_of(split, 0) for split in data[2:5]]))) == 60
    assert len(data.x) == 120


@given(n_test=st.integers(40, 200), seed=st.integers(0, 1000))
@SETTINGS
def test_official_test_examples_follow_the_training_labels(n_test, seed):
    x, y = toy(200, 4, seed)
    y_test = np.random.default_rng(seed + 1).integers(0, 5, n_test)  # nobody trains on class 4
    x_test = np.full((n_test, 3), 7, np.float32)
    data = build(x, y, partition=partition.dirichlet(4, 2.0), seed=seed, test=(x_test, y_test))
    assert_table(data.test, 4)
    rows = np.asarray(data.test.rows)
    assert (np.asarray(data.validation.size) > 0).all()
    np.testing.assert_array_equal(np.sort(rows), 200 + np.flatnonzero(y_test < 4))
    assert (np.asarray(data.x)[rows] == 7).all()
    for c in range(4):
        held = np.array([(np.asarray(data.y)[rows_of(data.train, k)] == c).sum() for k in range(4)])
        got = np.array([(np.asarray(data.y)[rows_of(data.test, k)] == c).sum() for k in range(4)])
        assert (np.abs(got - (y_test == c).sum() * held / held.sum()) < 1).all()


def test_take_normalises_uint8_on_the_fly():
    x = np.arange(240, dtype=np.uint8).reshape(20, 2, 2, 3)
    data = build(x, np.zeros(20, int), partition=partition.iid(2))
    assert data.x.dtype == jnp.uint8
    rows = jnp.array([[3, 1], [0, 19]])
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        for take in (
            data.take,
            jax.jit(data.take),
            jax.vmap(data.take),
            lambda r: jax.jit(lambda d, r: d.take(r))(data, r),
        ):
            got, y = take(rows)
            assert got.dtype == jnp.float32
            assert y.shape == (2, 2)
            np.testing.assert_allclose(got, x[np.asarray(rows)] / 255, rtol=1e-6)


def test_a_normalizer_of_plain_numbers_is_in_the_float_type_of_x():
    with jax.enable_x64(True):
        wide, narrow = (
            build(np.ones((12, 2), kind), np.zeros(12, int), partition=partition.iid(2), normalizer=scales)
            for kind, scales in ((np.float64, Normalizer(0.1, 3.0)), (np.float32, Normalizer(0.1, 3.0)))
        )
        assert [part.dtype for part in wide.normalizer] == [np.float64] * 2
        assert [part.dtype for part in narrow.normalizer] == [np.float32] * 2
        assert wide.take(np.array([0]))[0].tolist() == [[(1 - 0.1) * 3.0] * 2]


@pytest.mark.parametrize("shape", [(), (3,), (1, 1, 3), (2, 2, 3), (2, 1, 1)])
def test_normalizers_broadcast_to_an_example(shape):
    x = np.random.default_rng(0).integers(0, 256, (12, 2, 2, 3), dtype=np.uint8)
    shift, scale = np.full(shape, 4.0), np.linspace(1, 2, int(np.prod(shape))).reshape(shape)
    data = build(x, np.zeros(12, int), partition=partition.iid(2), normalizer=Normalizer(shift, scale))
    with jax.numpy_rank_promotion("raise"):
        got, _ = data.take(jnp.arange(12))
    np.testing.assert_allclose(got, (x - shift) * scale, rtol=1e-6)


def test_floats_and_tokens_are_left_as_they_are():
    x, y = toy()
    data = build(x.astype(np.float64), y, partition=partition.iid(3))
    assert data.normalizer is None
    assert data.x.dtype == jnp.float32
    np.testing.assert_array_equal(data.take(jnp.arange(120))[0], x)
    tokens = build(np.arange(12).reshape(6, 2), np.arange(12).reshape(6, 2), partition=partition.iid(2))
    got, targets = tokens.take(jnp.arange(6))
    assert got.dtype == targets.dtype == jnp.int32


def test_float64_stays_where_jax_allows_it():
    x, y = toy()
    with jax.enable_x64(True):
        data = build(x.astype(np.float64) * 1e300, y.astype(np.int64), partition=partition.iid(3))
        assert data.x.dtype == jnp.float64
        assert data.y.dtype == jnp.int32
        assert_table(data.train, 3)
        image = build(np.zeros((9, 2, 2), np.uint8), y[:9], partition=partition.iid(3))
        assert image.take(jnp.arange(2))[0].dtype == jnp.float32


BYTES = np.random.default_rng(0).integers(0, 100, (20, 4, 5)).astype(np.uint8)
PIXELS = np.random.default_rng(0).integers(0, 256, (20, 4, 5, 3)).astype(np.uint8)
SAME, FRACTION = (1.0, jnp.uint8), (255.0, jnp.float32)


@pytest.mark.parametrize("leaf", [lambda x: x, lambda x: {"a": x}, lambda x: (np.ones((20, 2)), x)])
@pytest.mark.parametrize(
    ("x", "wanted"),
    [
        (BYTES, FRACTION),  # grey
        (PIXELS, FRACTION),
        (PIXELS[..., :1], FRACTION),
        (np.concatenate([PIXELS, PIXELS[..., :1]], -1), FRACTION),
        (np.eye(20, dtype=np.uint8), SAME),  # one-hot codes
        (np.eye(5, dtype=np.uint8)[BYTES[:, 0] % 5], (1.0, jnp.float32)),  # sequences of them: nothing to scale
        (BYTES[:, 0], SAME),  # tokens, counts
        (BYTES[:, 0, 0], SAME),
        (BYTES[..., None, None], SAME),
        (BYTES[:, :1], SAME),
        (PIXELS[..., :2] // 2, SAME),
        (PIXELS.astype(np.int32), (1.0, jnp.int32)),
    ],
)
def test_bytes_are_scaled_by_shape_alone_inside_a_pytree_too(x, wanted, leaf):
    """Row 18: features that are no image were divided by 255, and images in a pytree were not."""
    data = build(leaf(x), np.zeros(20, int), partition=partition.iid(2))
    got = jax.tree.leaves(jax.jit(lambda d, r: d.take(r))(data, jnp.arange(20))[0])[-1]
    over, dtype = wanted
    assert got.dtype == dtype
    np.testing.assert_allclose(got, x / over, rtol=1e-6)
    assert jax.tree.leaves(data.x)[-1].dtype == x.dtype
    raw = build(leaf(x), np.zeros(20, int), partition=partition.iid(2), normalizer=None)
    np.testing.assert_array_equal(jax.tree.leaves(raw.take(jnp.arange(20))[0])[-1], x)


def test_bytes_that_may_be_pixels_are_what_the_caller_says():
    flat = PIXELS.reshape(20, -1)
    for normalizer, over in ((None, 1), (Normalizer(0.0, 1 / 255), 255)):
        data = build(flat, np.zeros(20, int), partition=partition.iid(2), normalizer=normalizer)
        np.testing.assert_allclose(data.take(jnp.arange(20))[0], flat / over, rtol=1e-6)


NAMES = np.array(["b", "a", "c", "a", "b", "c", "a", "c", "b"])


@pytest.mark.parametrize("form", [np.asarray, list, tuple, lambda names: [(name, 1) for name in names]])
def test_test_examples_go_to_those_they_are_named_for(form):
    """Row 12."""
    x = np.arange(9, dtype=np.float32)[:, None]
    who = ["c", "a", "c", "c"]
    data = build(
        x, np.zeros(9, int), client_id=form(NAMES), test=(-x[:4] - 1, np.arange(4)), test_client_id=form(who)
    )
    assert_table(data.test, 3)
    assert data.test.size.tolist() == [1, 0, 3]
    assert data.x[data.test.rows, 0].tolist() == [-2, -1, -3, -4]
    assert data.y[data.test.rows].tolist() == [1, 0, 2, 3]
    assert data.train.size.tolist() == [2, 2, 2]


def test_named_test_examples_may_have_any_targets():
    x, y = toy(20)
    who = np.arange(20) % 2
    data = build(x, y[:, None] / 7, client_id=who, test=(x, y[:, None] / 7), test_client_id=who)
    np.testing.assert_array_equal(data.test.owner, np.sort(who))


def test_a_client_without_a_test_example_has_no_test_accuracy():
    x, y = toy(20)
    data = build(x, y, client_id=np.arange(20) % 2, test=(x[:3], y[:3]), test_client_id=[1, 1, 1])
    sim = ff.simulation(
        ff.models.logistic_regression(4),
        data,
        aggregator=ff.fedavg(),
        trainer=ff.local_sgd(optax.sgd(0.1), batch_size=5),
    )
    accuracy = sim.evaluate(sim.init(jax.random.key(0)).params, data)["test"].accuracy
    assert np.isnan(accuracy).tolist() == [True, False]


CONTRARY = np.arange(120) % 2


@pytest.mark.parametrize("by", [{"client_id": CONTRARY}, {"partition": partition.by_client(CONTRARY)}])
def test_natural_clients_are_warned_where_the_test_is_dealt_by_class(by):
    with pytest.warns(UserWarning, match="dealt to the clients by class.*by test_client_id=") as said:
        build(X, Y, test=(X, Y), **by)
    assert len(said) == 1
    assert said[0].filename == __file__


def test_nobody_is_warned_where_there_is_nothing_to_guess():
    build(X, Y, client_id=Y, test=(X, Y))
    build(X, Y, client_id=CONTRARY, test=(X, Y), test_client_id=CONTRARY)
    build(X, Y, partition=IID, test=(X, Y))


def test_data_may_be_made_where_jax_traces():
    """As in what ff.sweep builds: the data are known there, and so are the arrays that are made of them."""
    made = []

    def count(scale):
        made.append(build(X, Y, client_id=CONTRARY))
        return scale * made[-1].train.rows.shape[0]

    assert jax.jit(count)(2.0) == 2 * build(X, Y, client_id=CONTRARY).train.rows.shape[0]
    jax.tree.map(np.testing.assert_array_equal, made[0], build(X, Y, client_id=CONTRARY))


def test_pytrees_and_regression_targets():
    x, y = toy()
    tree = {"a": x, "b": np.arange(120, dtype=np.uint8)}
    data = build(tree, y / 7.0, partition=partition.iid(3))
    got, targets = data.take(jnp.array([5, 6]))
    np.testing.assert_array_equal(got["a"], x[[5, 6]])
    np.testing.assert_array_equal(got["b"], [5, 6])
    np.testing.assert_allclose(targets, y[[5, 6]] / 7.0, rtol=1e-6)
    assert partition.describe(data).tolist() == [[40], [40], [40]]


def test_the_store_is_a_copy():
    x, y = toy()
    data, first = build(x, y, partition=partition.iid(3)), x[0].copy()
    x[:] = 0
    np.testing.assert_array_equal(data.x[0], first)


NAN = np.where(np.arange(120)[:, None] == 17, np.nan, X)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: build(X, Y), "exactly one of client_id and partition, got neither"),
        (lambda: build(X, Y, client_id=Y, partition=IID), "exactly one of client_id and partition, got both"),
        (lambda: build(X, Y[:-1], partition=IID), "one entry per example, got 120 and 119"),
        (lambda: build(X, Y, client_id=Y[:-1]), "one entry per example, 120, got 119"),
        (lambda: build(NAN, Y, partition=IID), "x holds NaN or infinity in 1 examples, first in example 17"),
        (lambda: build(X / 0.0, Y, partition=IID), "x holds NaN or infinity"),
        (lambda: build(X, np.where(Y > 2, np.nan, Y), partition=IID), "y holds NaN or infinity"),
        (
            lambda: build(np.where(np.isnan(NAN), 1e300, X.astype(float)), Y, partition=IID),
            "x holds numbers too large for float32 in 1 examples, first in example 17",
        ),
        (
            lambda: build(X, np.where(np.arange(120) > 4, 1e300, 0.5), partition=IID),
            "y holds numbers too large for float32, first in example 5",
        ),
        (
            lambda: build(X, Y, partition=IID, test=(X.astype(float) * 1e300, Y)),
            "x_test holds numbers too large for float32",
        ),
        (lambda: build(X, Y - 1, partition=IID), "y must hold labels from 0"),
        (lambda: build(X, Y.astype(str), partition=IID), "y must be a non-empty array"),
        (
            lambda: build(X, "y.npy", partition=IID),
            r"y must be a non-empty array .*: read the file first, np\.load$",
        ),
        (lambda: build(X.astype(str), Y, partition=IID), "x must hold numbers"),
        (lambda: build((), Y, partition=IID), "x must be an array, or a pytree"),
        (lambda: build(np.full((120, 1), 2**40), Y, partition=IID), "integers in x must fit 32 bits"),
        (lambda: build(X, Y, partition="iid"), "partition must be a function"),
        *[
            (
                lambda factory=factory: build(X, Y, partition=factory),
                rf"partition must be a partition such as [^\n]+, got the factory {factory.__name__}: call it$",
            )
            for factory in (getattr(partition, name) for name in partition.__all__)
            if factory not in (partition.Partition, partition.describe)
        ],
        (
            lambda: build(X, Y, partition=lambda labels: [labels]),
            r"partition must take \(labels, seed\), got \(labels\)",
        ),
        (
            lambda: build([[1.0], [2.0, 3.0]], [0, 1], partition=IID),
            "x must be an array, or lists of one length, got",
        ),
        (lambda: build(X, [[1.0], [2.0, 3.0]], partition=IID), "y must be an array, or lists of one length, got"),
        (
            lambda: build(X, Y, partition=IID, normalizer=Normalizer([[1.0], [2.0, 3.0]], 1.0)),
            "normalizer.shift must be an array, or lists of one length, got list",
        ),
        (
            lambda: build(X[:, :0], Y, partition=IID),
            r"x must have a number in every example, got the shape \[120, 0\]",
        ),
        (lambda: build(X, Y, partition=IID, seed=-1), "seed must be at least 0"),
        (lambda: build(X, Y, partition=IID, split=(0.9, 0.1)), "split must be three shares"),
        (lambda: build(X, Y, partition=IID, split=(0.9, 0.2, -0.1)), "split must be three shares"),
        (lambda: build(X, Y, partition=IID, split=(0.8, 0.1, 0.2)), "that sum to 1"),
        (lambda: build(X, Y, partition=IID, split=(0.8, np.nan, 0.2)), "that sum to 1"),
        (lambda: build(X, Y, partition=IID, split="abc"), "split must be three shares"),
        (lambda: build(X, Y, partition=IID, split=(0, 0.5, 0.5)), "leave training a share"),
        (
            lambda: build(X[:5], Y[:5], client_id=[0, 0, 0, 1, 1]),
            "client 1 has 2 examples, but a split into 3 parts needs at least 3",
        ),
        (lambda: build(X, Y, partition=lambda y, s: []), "returned no client"),
        (lambda: build(X, Y, partition=lambda y, s: [np.arange(9), np.arange(0)]), "client 1 has no example"),
        (lambda: build(X, Y, partition=lambda y, s: [np.arange(121)]), "rows from 0 to 120 of 120"),
        (lambda: build(X, Y, partition=lambda y, s: [np.zeros(9, int)]), "client 0 gets an example twice"),
        (lambda: build(X, Y, partition=lambda y, s: [np.zeros(9)]), "vector of integer rows"),
        (lambda: build(X, Y, partition=IID, test=X), "test must be a pair"),
        (lambda: build(X, Y, partition=IID, test=(X[:, :2], Y)), "x_test must have examples like those of x"),
        (lambda: build(X, Y, partition=IID, test=(X, Y[1:])), "x_test and y_test must have one entry"),
        (lambda: build(X, Y, partition=IID, test=(X, Y), split=(0.8, 0.1, 0.1)), "test share must be 0"),
        (lambda: build(X, Y, partition=IID, test=(X[:2], Y[:2])), "gets none of the official test"),
        (lambda: build(X, Y / 2, partition=IID, test=(X, Y)), "dealt by class"),
        (lambda: build(X, Y, partition=IID, normalizer="mean"), "normalizer must be a Normalizer"),
        (
            lambda: build(X, Y, partition=IID, normalizer=Normalizer(np.zeros(2), 1.0)),
            "normalizer.shift must",
        ),
        (
            lambda: build(X, Y, partition=IID, normalizer=Normalizer(0.0, np.inf)),
            "normalizer.scale must be finite in float32, got inf",
        ),
        (
            lambda: build(X, Y, partition=IID, normalizer=Normalizer(np.float64(1e300), 1.0)),
            r"normalizer.shift must be finite in float32, got 1e\+300",
        ),
        (
            lambda: build(X, Y, partition=IID, normalizer=Normalizer(1e300, 1.0)),
            r"normalizer.shift must be finite in float32, got 1e\+300",
        ),
        (
            lambda: build(X, Y, partition=IID, normalizer=Normalizer(1j, 1.0)),
            "shift must hold numbers, got complex",
        ),
        (lambda: build(X, Y, partition=IID, normalizer=Normalizer(0, "a")), "scale must hold numbers, got <U1"),
        (lambda: build({"a": X}, Y, partition=IID, normalizer=Normalizer(0.0, 1.0)), "x to be one array"),
        *[
            (lambda leaf=leaf: build(leaf, np.zeros(20, int), client_id=np.arange(20) % 2), sentence)
            for leaf, sentence in [
                (
                    PIXELS.reshape(20, -1),
                    r"x holds bytes up to 25\d that are no images by their shape, \[20, 60\] .* for pixels "
                    r"normalizer=ff.data.Normalizer\(0., 1 / 255\), .* as they are normalizer=None",
                ),
                (np.moveaxis(PIXELS, -1, 1), "channels last"),
                ({"a": PIXELS.reshape(20, -1)}, r"x\['a'\] holds bytes .* divide it by 255 beforehand"),
            ]
        ],
        (lambda: build(X, Y, client_id=Y, test_client_id=Y), r"it needs test=\(x_test, y_test\) beside it"),
        (lambda: build(X, Y, partition=IID, test=(X, Y), test_client_id=Y), "it needs client_id= beside it"),
        *[
            (lambda who=who: build(X, Y, client_id=Y, test=(X, Y), test_client_id=who), sentence)
            for who, sentence in [
                (Y[1:], "test_client_id must have one entry per test example, 120, got 119"),
                (
                    Y.astype(str),
                    "test_client_id must hold names of client_id, 0, 1, 2, ..., got '.' for test example 0",
                ),
                (np.where(np.arange(120) == 9, 4, Y), "got 4 for test example 9"),
                (np.where(np.arange(120) == 9, np.nan, Y), "got nan for test example 9"),
                (Y[:, None], "test_client_id must be a list of names"),
                (7, "test_client_id must be a list of names"),
            ]
        ],
        (
            lambda: build(X, Y, client_id=Y, test=(X, Y / 2), test_client_id=Y),
            r"y_test must have labels like those of y, int32\[\] each, got float64\[\]",
        ),
        (lambda: build(X, Y / 2, client_id=Y, test=(X, Y)), "client_id= and test_client_id="),
        *[
            (lambda make=make: jax.eval_shape(make, X), "must hold numbers that are known, got what JAX traces")
            for make in (
                lambda x: build(x, Y, partition=IID).x,
                lambda x: build([x, x], [0, 1], partition=IID).x,
                lambda x: build(X, x[:, 0], partition=IID).x,
                lambda x: build(X, Y, partition=IID, normalizer=Normalizer(x[0], 1.0)).x,
            )
        ],
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.filterwarnings("ignore:invalid value")
def test_wrong_calls_say_so_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_row_that_one_client_is_tested_on_is_never_trained_on_by_another():
    y = np.repeat(np.arange(10), 200)
    x = np.arange(2000, dtype=np.float32)[:, None]
    shared = partition.blocks(20, 5, overlap=True)
    data = FederatedData.from_arrays(x, y, partition=shared, split=(0.6, 0.2, 0.2))
    parts = [set(np.asarray(getattr(data, name).rows)) for name in ("train", "validation", "test")]
    assert len(set(np.asarray(data.train.rows))) < data.train.rows.shape[0]  # rows are shared
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    share = data.test.rows.shape[0] / sum(
        getattr(data, name).rows.shape[0] for name in ("train", "validation", "test")
    )
    assert abs(share - 0.2) < 0.03


@pytest.mark.parametrize("seed", range(5))
def test_one_shared_row_leaves_every_size_exact(seed):
    """The row's split is one for both its owners; the rest of theirs fill what is left."""
    x, y = toy(300)
    clients = [np.arange(100), np.arange(99, 200), np.arange(200, 300)]
    data = build(x, y, partition=lambda labels, _: clients, seed=seed)
    assert data.train.size.tolist() == [80, 81, 80]
    assert data.validation.size.tolist() == data.test.size.tolist() == [10, 10, 10]
    of_row = [99 in np.asarray(split.rows) for split in data[2:5]]
    assert sum(of_row) == 1
    assert (np.asarray(data[2 + of_row.index(True)].rows) == 99).sum() == 2


def test_who_shares_nothing_has_exact_sizes_beside_those_who_share_all():
    x, y = toy(300)
    data = build(x, y, partition=lambda labels, seed: [np.arange(200), np.arange(200), np.arange(200, 300)])
    assert [int(split.size[2]) for split in data[2:5]] == [80, 10, 10]
    for split in data[2:5]:
        np.testing.assert_array_equal(np.sort(rows_of(split, 0)), np.sort(rows_of(split, 1)))
        assert_table(split, 3)


@pytest.mark.parametrize("shares", [(0.1, 0.1, 0.8), (0.2, 0.4, 0.4)], ids=str)
def test_clients_with_rows_of_their_own_always_get_every_split(shares):
    x, y = toy(20)
    clients = [np.arange(10), np.arange(7, 17)]
    for seed in range(150):
        data = build(x, y, partition=lambda labels, _: clients, seed=seed, split=shares)
        assert all(split.size.min() > 0 for split in data[2:5])


@given(seed=st.integers(0, 1000), n_shared=st.integers(0, 100))
@SETTINGS
def test_shared_rows_never_leak_and_no_row_is_lost(seed, n_shared):
    x, y = toy(400)
    rng = np.random.default_rng(seed)
    clients = [np.union1d(np.arange(k * 100, k * 100 + 100), rng.choice(400, n_shared)) for k in range(4)]
    data = build(x, y, partition=lambda labels, _: clients, seed=seed)
    for k, mine in enumerate(clients):
        np.testing.assert_array_equal(np.sort(np.concatenate([rows_of(split, k) for split in data[2:5]])), mine)
    parts = [set(np.asarray(split.rows).tolist()) for split in data[2:5]]
    assert sum(map(len, parts)) == len(set.union(*parts))


def test_a_clients_examples_are_shuffled_by_the_seed_before_the_cut():
    """Files are often sorted by label: the test split must not hold the last classes alone."""
    x, y = np.zeros((300, 1), np.float32), np.repeat(np.arange(10), 30)
    one, other = (build(x, y, client_id=np.zeros(300, int), seed=seed) for seed in (0, 1))
    for split in one[2:5]:
        assert len(np.unique(y[np.asarray(split.rows)])) > 6
    assert not np.array_equal(np.sort(one.test.rows), np.sort(other.test.rows))


def test_an_example_of_padding_alone_is_warned_of():
    y = np.array([[1, -1], [-1, -1], [0, 2], [-1, -1]])
    sentence = "y holds nothing but padding (labels below 0) in 2 examples, first in example 1: each counts as one"
    with pytest.warns(UserWarning, match=re.escape(sentence)):
        ff.FederatedData.from_arrays(np.zeros((4, 2)), y, client_id=[0, 0, 1, 1], split=(1, 0, 0))

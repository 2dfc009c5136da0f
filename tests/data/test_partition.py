"""Partitions: every example has one owner, sizes add up, and it always ends."""

from decimal import Decimal

import jax
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedjax_fair import registry
from fedjax_fair.data import partition
from fedjax_fair.data.partition.dealing import rows_by_class
from fedjax_fair.data.partition.dirichlet import _fill_up, _split_classes

SETTINGS = settings(deadline=None, max_examples=40)
seeds = st.integers(0, 2**31)
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 200))

FACTORIES = {
    "iid": lambda n: partition.iid(n),
    "shards": lambda n: partition.shards(n, 2),
    "shards, free": lambda n: partition.shards(n, 2, distinct_labels=False),
    "dirichlet": lambda n: partition.dirichlet(n, 0.5),
    "dirichlet, prior": lambda n: partition.dirichlet(n, 0.5, convention="client_prior"),
    "dirichlet, class": lambda n: partition.dirichlet(n, 0.5, convention="class"),
    "blocks": lambda n: partition.blocks(n, 2),
    "power law": lambda n: partition.power_law(n),
    "log-normal": lambda n: partition.log_normal(n),
    "by client": lambda n: partition.by_client(np.arange(len(LABELS)) % n),
}
every = pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES)


def assert_exact(clients, n_clients, total):
    """Disjoint and exhaustive, nobody empty."""
    assert len(clients) == n_clients
    assert min(len(rows) for rows in clients) > 0
    np.testing.assert_array_equal(np.sort(np.concatenate(clients)), np.arange(total))


def test_the_invariants_are_tried_on_every_registered_partition():
    assert {*registry.PARTITIONS} <= {name.split(",")[0].replace(" ", "_").replace("-", "_") for name in FACTORIES}


def counts_of(clients, labels):
    return np.stack([np.bincount(labels[rows], minlength=labels.max() + 1) for rows in clients])


@every
def test_every_example_has_one_owner(make):
    assert_exact(make(20)(LABELS, 3), 20, len(LABELS))


@every
def test_same_seed_same_partition_and_the_labels_stay(make):
    before = LABELS.copy()
    first, again, other = make(20)(LABELS, 3), make(20)(LABELS, 3), make(20)(LABELS, 4)
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    if make is not FACTORIES["by client"]:
        assert not all(np.array_equal(a, b) for a, b in zip(first, other))
    np.testing.assert_array_equal(LABELS, before)


@every
def test_the_global_generator_is_left_alone(make):
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    make(20)(LABELS, 3)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@given(n=st.integers(1, 30), extra=st.integers(0, 100), seed=seeds)
@SETTINGS
def test_iid_sizes_differ_by_at_most_one(n, extra, seed):
    clients = partition.iid(n)(np.zeros(n + extra), seed)  # any labels do, targets too
    assert_exact(clients, n, n + extra)
    assert np.ptp([len(rows) for rows in clients]) <= 1


@given(n=st.integers(1, 25), s=st.integers(1, 5), data=st.data(), seed=seeds)
@SETTINGS
def test_shards_hold_different_labels_whenever_they_can(n, s, data, seed):
    """Random numbers of size-3 shards per class, no class above n shards: always feasible, hence solved."""
    left, per_class = n * s, []
    while left:
        per_class.append(data.draw(st.integers(1, min(n, left))))
        left -= per_class[-1]
    labels = np.repeat(np.arange(len(per_class)), 3 * np.array(per_class))
    clients = partition.shards(n, s)(labels, seed)
    assert_exact(clients, n, len(labels))
    assert all(sorted(np.bincount(labels[rows])[np.unique(labels[rows])]) == [3] * s for rows in clients)


@given(n=st.integers(1, 10), s=st.integers(1, 4), total=st.integers(1, 200), seed=seeds)
@SETTINGS
def test_free_shards_of_any_length(n, s, total, seed):
    labels = np.random.default_rng(seed).integers(0, 4, total)
    deal = partition.shards(n, s, distinct_labels=False)
    if total < n * s:
        with pytest.raises(ValueError, match="need at least"):
            deal(labels, seed)
    else:
        clients = deal(labels, seed)
        assert_exact(clients, n, total)
        assert np.ptp([len(rows) for rows in clients]) <= s


def test_two_shards_of_mcmahan():
    clients = partition.shards(100, 2)(np.repeat(np.arange(10), 600), 0)
    assert {len(rows) for rows in clients} == {60}
    assert ((counts_of(clients, np.repeat(np.arange(10), 600)) > 0).sum(1) == 2).all()


def test_free_deal_leaves_one_client_in_ten_with_one_class():
    """A client's second shard has its first one's label with probability (2N/10 - 1) / (2N - 1) = 9.5 %."""
    labels = np.repeat(np.arange(10), 200)
    deals = [partition.shards(100, 2, distinct_labels=False)(labels, seed) for seed in range(20)]
    single = np.mean([(counts_of(clients, labels) > 0).sum(1) == 1 for clients in deals])
    assert abs(single - 19 / 199) < 0.02


def test_straddling_shards_count_by_their_majority():
    labels = np.repeat([0, 1, 2], [50, 30, 40])  # shards of 20: 0 0 0|1 1 1|2 2 2
    clients = partition.shards(3, 2)(labels, 0)
    assert_exact(clients, 3, 120)
    assert (counts_of(clients, labels).max(1) < 40).all()


def test_shards_that_cannot_differ():
    with pytest.raises(ValueError, match="label 0 fills 19 shards, but only 10 clients can hold one each"):
        partition.shards(10, 2)(np.repeat([0, 1], [95, 5]), 0)


CONVENTIONS = ("client", "client_prior", "class")


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("alpha", [5e-324, 1e-310, 1e-300, 1e-3, 0.5, 1e3, 1e300, 1.7e308])
def test_dirichlet_is_finite_at_any_alpha(convention, alpha):
    clients = partition.dirichlet(20, alpha, convention)(LABELS, 0)
    assert_exact(clients, 20, len(LABELS))
    sizes = np.array([len(rows) for rows in clients])
    assert np.ptp(sizes) <= 1 if convention != "class" else sizes.min() >= 10


@given(
    n=st.integers(1, 12),
    alpha=st.floats(1e-6, 1e6),
    convention=st.sampled_from(CONVENTIONS),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    seed=seeds,
)
@SETTINGS
def test_dirichlet_invariants(n, alpha, convention, sizes, seed):
    labels = np.repeat(np.arange(len(sizes)) * 3, sizes)  # classes need not be consecutive
    deal = partition.dirichlet(n, alpha, convention, min_size=2)
    if len(labels) < n * (2 if convention == "class" else 1):
        with pytest.raises(ValueError, match=f"{n} clients with at least"):
            deal(labels, seed)
        return
    clients = deal(labels, seed)
    assert_exact(clients, n, len(labels))
    own = [len(rows) for rows in clients]
    assert min(own) >= 2 if convention == "class" else np.ptp(own) <= 1


def test_dirichlet_alpha_goes_from_one_class_to_all_alike():
    for convention in CONVENTIONS:
        spread = [
            counts_of(partition.dirichlet(10, alpha, convention)(LABELS, 0), LABELS).std() for alpha in (0.05, 1e4)
        ]
        assert spread[0] > 20
        assert spread[1] < 6


def test_dirichlet_conventions_differ_by_the_number_of_classes():
    """Var p = (1/C)(1 - 1/C) / (A + 1) while no class runs out; A = C alpha, or alpha under the prior."""
    labels = np.repeat(np.arange(10), 20000)
    for convention, total in (("client", 10 * 0.5), ("client_prior", 0.5)):
        p = np.concatenate(
            [counts_of(partition.dirichlet(200, 0.5, convention)(labels, seed), labels) / 1000 for seed in range(3)]
        )
        assert abs(p.var() / (0.09 / (total + 1)) - 1) < 0.15


def test_dirichlet_min_size_takes_from_the_largest_only():
    labels = np.repeat(np.arange(2), 60)
    small = partition.dirichlet(10, 0.05, "class", min_size=1)(labels, 1)
    filled = partition.dirichlet(10, 0.05, "class", min_size=10)(labels, 1)
    assert min(len(rows) for rows in small) < 10
    assert min(len(rows) for rows in filled) == 10


def from_iid(clients, labels):
    """The mean over the clients of the total variation between their labels and everybody's."""
    counts = counts_of(clients, labels)
    return 0.5 * np.abs(counts / counts.sum(1, keepdims=True) - counts.sum(0) / counts.sum()).sum(1).mean()


UNEVEN = np.repeat(np.arange(6), [900, 500, 300, 200, 70, 30])


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize(
    ("n", "labels", "least"),
    [(100, LABELS, 0.88), (5, LABELS, 0.77), (30, UNEVEN, 0.66)],
    ids=["100", "5", "uneven"],
)
def test_the_skew_rises_as_alpha_falls(n, labels, least, convention):
    """Row 11: filling up to min_size, or the classes that are used up, must not undo it."""
    alphas = (1e3, 10, 1, 0.1, 1e-2, 1e-3, 1e-6, 1e-300, 5e-324)
    means = [
        np.mean([from_iid(partition.dirichlet(n, alpha, convention)(labels, seed), labels) for seed in range(8)])
        for alpha in alphas
    ]
    assert (np.diff(means) > -0.015).all()  # so many seeds agree to that
    assert min(means[5:]) > least
    assert means[3] > means[2] > means[1] > means[0]


@given(n=st.integers(1, 20), alpha=st.floats(1e-4, 10), low=st.integers(1, 12), seed=seeds)
@SETTINGS
def test_filling_up_moves_no_row_too_many(n, alpha, low, seed):
    """Everybody who lacks some gets just them, from those who have more, and of one class or of its own."""
    before = unfilled(n, alpha, seed)
    after = counts_of(partition.dirichlet(n, alpha, "class", low)(UNEVEN, seed), UNEVEN)
    sizes, filled = before.sum(1), after.sum(1)
    np.testing.assert_array_equal(filled[sizes < low], low)
    assert (filled[sizes >= low] >= low).all()
    assert np.abs(after - before).sum() == 2 * np.maximum(low - sizes, 0).sum()


def unfilled(n, alpha, seed):
    """The counts that "class" draws, before anybody is filled up."""
    rng = np.random.default_rng(seed)
    stock = np.array([len(pool) for pool in rows_by_class(UNEVEN, rng)])
    return _split_classes(stock, n, alpha, rng)


def test_who_holds_nothing_is_filled_with_one_class():
    deal = partition.dirichlet(100, 1e-6, "class")(LABELS, 0)
    counts = counts_of(deal, LABELS)
    small = counts[counts.sum(1) == 10]
    assert len(small) > 85
    assert (small.max(1) == 10).mean() > 0.95


def test_who_holds_some_gets_more_of_the_same():
    counts = np.array([[3, 1, 0], [50, 0, 60], [0, 40, 0]])
    np.testing.assert_array_equal(
        _fill_up(counts, 8, np.random.default_rng(0)), [[6, 2, 0], [47, 0, 60], [0, 39, 0]]
    )


def test_pg_ffl_cases():
    hundred, ten = np.repeat(np.arange(100), 500), np.repeat(np.arange(10), 5000)
    one = counts_of(partition.blocks(100, 20)(hundred, 0), hundred)
    assert (one.sum(1) == 500).all()
    assert (one % 25 == 0).all()
    two = counts_of(partition.blocks(5, 4)(ten, 0), ten)
    assert (two.sum(1) == 10000).all()
    assert (two % 2500 == 0).all()
    three = counts_of(partition.blocks(5, 2)(ten, 0), ten)
    assert ((three > 0).sum(0) == 1).all()  # classes do not overlap
    assert ((three > 0).sum(1) == 2).all()


def test_overlapping_blocks_are_distinct_within_a_client():
    clients = partition.blocks(20, 5, overlap=True)(LABELS, 0)
    assert all(len(np.unique(rows)) == len(rows) == 100 for rows in clients)
    assert len(np.unique(np.concatenate(clients))) < 20 * 100


@given(n=st.integers(1, 20), low=st.integers(1, 5), extra=st.integers(0, 300), seed=seeds)
@SETTINGS
def test_skewed_sizes_add_up(n, low, extra, seed):
    for make in (partition.power_law, partition.log_normal):
        clients = make(n, min_size=low)(np.zeros(n * low + extra), seed)
        assert_exact(clients, n, n * low + extra)
        assert min(len(rows) for rows in clients) >= low


def test_skew_grows_with_its_parameter():
    def largest(deal):
        return max(len(rows) for rows in deal(np.zeros(10000), 0))

    assert largest(partition.log_normal(100, 0)) == 100
    assert 100 < largest(partition.log_normal(100, 1)) < largest(partition.log_normal(100, 3))
    assert largest(partition.power_law(100, 10)) < largest(partition.power_law(100, 2))
    assert largest(partition.power_law(100, 1 + 1e-9)) == 10000 - 99 * 10  # winner takes all, no overflow


def test_natural_clients_are_sorted_by_name():
    for names in (
        ["b", "a", "b"],
        np.array([7, 3, 7]),
        [(2, "x"), (1, "y"), (2, "x")],
        np.array([0.5, 0.1, 0.5]),
    ):
        rows = partition.by_client(names)(np.zeros(3), 0)
        assert [list(mine) for mine in rows] == [[1], [0, 2]]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: partition.iid(0), "n_clients must be at least 1, got 0"),
        (lambda: partition.iid(2.5), "n_clients must be a whole number"),
        (
            lambda: partition.iid(5)(np.zeros(4), 0),
            "5 clients with at least 1 example each need 5 examples, got 4",
        ),
        (lambda: partition.shards(5, 0), "shards_per_client must be at least 1"),
        (lambda: partition.dirichlet(5, 0.0), "alpha must be above 0, got 0"),
        (lambda: partition.dirichlet(5, float("nan")), "alpha must be above 0"),
        (lambda: partition.dirichlet(5, 1, "klass"), "did you mean 'class'"),
        *[
            (lambda make=make: jax.eval_shape(make, 2.0), "must be a number that is known when the data are made")
            for make in (
                lambda a: len(partition.dirichlet(5, a)(LABELS, 0)),
                lambda a: len(partition.power_law(5, a)(LABELS, 0)),
                lambda a: len(partition.log_normal(5, a)(LABELS, 0)),
            )
        ],
        (lambda: partition.dirichlet(5, 1)(np.zeros((4, 2), int), 0), r"got shape \(4, 2\) of int64"),
        (lambda: partition.dirichlet(5, 1)(np.zeros(9), 0), "one integer label per example"),
        (lambda: partition.shards(5)(np.zeros(0, int), 0), "non-empty vector"),
        (lambda: partition.blocks(3, 3)(LABELS, 0), "must be a multiple of the 10 classes, got 9"),
        (lambda: partition.blocks(5, 4)(np.arange(10), 0), "cannot cut a class of 1 examples into 2 blocks"),
        *[
            (lambda make=make: make(5)(LABELS, -1), "^seed must be at least 0, got -1$")
            for name, make in FACTORIES.items()
            if name != "by client"  # of which nothing is drawn
        ],
        (lambda: partition.blocks(3, 2, "False"), "overlap must be True or False, got 'False'"),
        (lambda: partition.shards(60, 2, "false"), "distinct_labels must be True or False, got 'false'"),
        (lambda: partition.power_law(5, 1.0), "exponent must be above 1"),
        (lambda: partition.log_normal(5, -1.0), "sigma must be at least 0"),
        (
            lambda: partition.power_law(5)(np.zeros(49), 0),
            "at least 10 examples each need 50 examples, got 49",
        ),
        (lambda: partition.by_client([1, "a"]), "hashed and sorted"),
        (lambda: partition.by_client([[1], [2]]), "hashed and sorted"),
        (lambda: partition.by_client(np.array([0.0, np.nan])), "NaN, first for example 1"),
        (lambda: partition.by_client([0.0, float("nan")]), "client_id holds NaN, first for example 1"),
        (lambda: partition.by_client(["a", None, "b"]), "client_id holds None, first for example 1"),
        (lambda: partition.by_client(["a", "b", float("nan")]), "client_id holds NaN, first for example 2"),
        (lambda: partition.by_client(["a", pd.NA]), "client_id holds <NA>, first for example 1"),
        (
            lambda: partition.by_client(np.array(["2020-01-01", "NaT", "NaT"], "datetime64[D]")),
            "client_id holds NaT, first for example 1",
        ),
        (lambda: partition.by_client([Decimal(1), Decimal("NaN")]), "client_id holds NaN, first for example 1"),
        (lambda: partition.by_client([np.zeros(2), np.ones(2)]), "hashed and sorted"),
        (lambda: partition.by_client(np.ma.array([0, 999], mask=[0, 1])), "must be complete, got a masked array"),
        (lambda: partition.by_client([1, 2])(np.zeros(3), 0), "one entry per example, 3, got 2"),
        (lambda: partition.describe([np.arange(3)]), "needs the labels"),
    ],
)
def test_wrong_calls_say_so_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_dirichlet_by_class_draws_each_class_for_itself():
    """Var q = (1/N)(1 - 1/N) / (N alpha + 1), and no class's split tells of another's."""
    labels = np.repeat(np.arange(10), 20000)
    deals = [partition.dirichlet(20, 0.5, "class", min_size=1)(labels, seed) for seed in range(5)]
    q = np.concatenate([counts_of(clients, labels) / 20000 for clients in deals])
    assert abs(q.var() / (0.05 * 0.95 / 11) - 1) < 0.15
    between = np.corrcoef(q.T)[~np.eye(10, dtype=bool)]
    assert abs(between.mean()) < 0.1


@pytest.mark.parametrize(
    ("make", "spread"),
    [
        (partition.log_normal(2000, 0.5, 1), 0.5),
        (partition.log_normal(2000, 1.5, 1), 1.5),
        (partition.power_law(2000, 3.0, 1), 0.5),  # log w is exponential with rate a - 1
        (partition.power_law(2000, 5.0, 1), 0.25),
    ],
)
def test_skewed_sizes_follow_their_law(make, spread):
    sizes = np.array([len(rows) for rows in make(np.zeros(2_000_000), 0)])
    assert abs(np.log(np.maximum(sizes - 1, 1)).std() / spread - 1) < 0.06

"""Shares of federations: those of separately run ones, whose sums, symmetries and intervals are Shapley's."""

import contextlib
import itertools
import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import toy
from numpy.testing import assert_allclose, assert_array_equal

import fedjax_fair as ff
from fedjax_fair.data.split import table
from fedjax_fair.engine.checkpoint import CheckpointError
from fedjax_fair.engine.coalitions import Course, trainings
from fedjax_fair.metrics.kind import ACCURACY
from fedjax_fair.results.contribution_runs import value_of
from fedjax_fair.results.shares import load

N = 6
DATA = toy.federation((3, 8, 5, 4, 6, 7))
ROUNDS = 3
TRAINER = ff.local_sgd(optax.sgd(0.3), epochs=1, batch_size=2)
MEASURES = ("accuracy", "worst10", "variance", "gini")


def build(data, **settings):
    given = {
        "aggregator": ff.fedavg(),
        "selector": ff.uniform(5),
        "trainer": TRAINER,
        "evaluate": ("test", "train"),
    }
    return ff.simulation(toy.linear, data, **given | settings)


def everybody(data):
    return build(data, selector=None)


def found_by(**settings):
    return ff.contribution(build, DATA, rounds=ROUNDS, split="train", **settings)


@pytest.fixture(scope="module", autouse=True)
def compiled_quickly():
    with toy.optimized(False):
        yield


@pytest.fixture(scope="module")
def found():
    return found_by()


@pytest.fixture(scope="module")
def whole():
    """The history of the federation of all clients."""
    return ff.run(build(DATA), 0, ROUNDS)[1]


@pytest.fixture(scope="module")
def separate():
    """What each of the 64 coalitions is worth by an ``ff.run`` of its own, f[64, M]; bit k is client k."""
    members = np.zeros(N, bool)

    def available(key, round, ids):  # looked up when the run is played: all runs share one program
        return jax.pure_callback(lambda ids: members[np.asarray(ids)], jax.ShapeDtypeStruct(ids.shape, bool), ids)

    sim, worth = build(DATA, available=available), []
    for number in range(2**N):
        members[:] = number >> np.arange(N) & 1
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "no update|.* never used")
            _, history = ff.run(sim, 0, ROUNDS, eval_every=ROUNDS)
        summary = ff.metrics.summary(history.scores["train"].accuracy[-1])
        worth.append([summary[measure] for measure in MEASURES])
    return np.array(worth)


def test_the_exact_shares_are_those_of_64_separately_run_federations(found, separate):
    wanted = np.zeros((N, len(MEASURES)))
    for number, k in itertools.product(range(2**N), range(N)):
        if number >> k & 1:
            size = number.bit_count()
            ways = np.prod(np.arange(1, size)) * np.prod(np.arange(1, N - size + 1)) / np.prod(np.arange(1, N + 1))
            wanted[k] += ways * (separate[number] - separate[number ^ 1 << k])
    for measure, shares in zip(MEASURES, wanted.T):
        assert np.ptp(shares) > 0
        assert_allclose(found.shares[measure], shares, rtol=1e-4, atol=1e-4, err_msg=measure)
    assert found.coalitions == 2**N


def test_a_coalition_is_the_run_of_whom_a_trace_lets_in(separate):
    members = np.array([1, 0, 1, 1, 0, 1], bool)
    sim = build(DATA, available=ff.availability.trace(members[None]))
    _, history = ff.run(sim, 0, ROUNDS, eval_every=ROUNDS)
    assert set(history.ids[history.active]) == {0, 2, 3, 5}
    number = int(members @ (1 << np.arange(N)))
    alone = ff.metrics.summary(history.scores["train"].accuracy[-1])
    assert_allclose([alone[measure] for measure in MEASURES], separate[number], rtol=1e-5)


def test_shares_add_up_to_what_training_changes(found, whole):
    untrained = build(DATA).evaluate(build(DATA).init(jax.random.key(0)).params, DATA)["train"].accuracy
    for measure in MEASURES:
        ends = (
            ff.metrics.summary(accuracy)[measure] for accuracy in (untrained, whole.scores["train"].accuracy[-1])
        )
        assert_allclose([found.empty[measure], found.grand[measure]], [*ends], rtol=1e-4)
        assert_allclose(found.shares[measure].sum(), found.gain[measure], atol=1e-9)


def test_monte_carlo_comes_to_the_exact_shares_within_its_intervals(found, tmp_path):
    drawn = {"tolerance": 0, "seed": 0, "checkpoint": tmp_path}  # the few find all that they need
    many, few = (found_by(permutations=p, **drawn) for p in (4000, 20))
    assert (many.permutations, few.permutations) == (4000, 20)
    for measure in MEASURES:
        low, high = many.intervals()[measure]
        assert ((low <= found.shares[measure]) & (found.shares[measure] <= high)).mean() > 0.6
        assert_allclose(many.shares[measure], found.shares[measure], atol=4.5 * many.errors[measure].max())
        assert (many.errors[measure] < 0.2 * few.errors[measure]).all()
        assert_allclose(few.shares[measure].sum(), few.gain[measure])
    assert many.coalitions == 2**N  # each but once
    assert few.coalitions < 2**N


def test_all_coalitions_share_one_program():
    sim = build(DATA)
    value = value_of(MEASURES, ACCURACY, np.ones(N, bool))
    game = trainings(sim, value, "train", jax.random.key(0), ROUNDS, Course(4, 1, lambda count: None))
    game(np.ones((1, N), bool))
    with toy.compilations() as made:
        game(np.random.default_rng(0).random((11, N)) < 0.5)
    assert made.count == 0, made.names


def twins():
    """Clients 0 and 1 hold the same rows."""

    def same(split):
        rows, start, size, owner = (np.asarray(part) for part in (split.rows, split.start, split.size, split.owner))
        mine = rows[start[0] : start[0] + size[0]]
        others = owner > 1
        ids = np.concatenate([np.zeros(len(mine), int), np.ones(len(mine), int), owner[others]])
        return table(np.concatenate([mine, mine, rows[others]]), ids, len(size))

    data = toy.federation((6, 6, 5, 4))
    return data._replace(train=same(data.train), validation=same(data.validation), test=same(data.test))


def without_first():
    """Uniform weights, of which client 0 gets none: it might as well not be there."""

    def weigh(state, report, key):
        heard = report.active & (report.ids != 0)
        return heard / jnp.maximum(heard.sum(), 1).astype(jnp.float32), state

    return ff.Aggregator(lambda sizes, key=None: (), weigh)


@pytest.mark.parametrize("method", ["shapley", "federated-shapley"])
def test_twins_share_alike(method):
    def full(data):
        return build(data, selector=None, trainer=ff.local_sgd(optax.sgd(1.0), steps=5, batch_size=None))

    shares = ff.contribution(full, twins(), method=method, rounds=3, split="train").shares
    for measure in MEASURES:
        assert_allclose(shares[measure][0], shares[measure][1], atol=1e-3)
    assert np.ptp(shares["accuracy"]) > 0.1


@pytest.mark.parametrize("method", ["shapley", "federated-shapley"])
def test_who_is_not_listened_to_has_no_share(method):
    def deaf(data):
        return build(data, selector=None, aggregator=without_first())

    shares = ff.contribution(deaf, toy.federation((3, 8, 5)), method=method, rounds=2, split="train").shares
    for measure in MEASURES:
        assert abs(shares[measure][0]) < 1e-3
        assert np.abs(shares[measure][1:]).max() > 1e-3


def test_of_one_round_both_of_shapleys_methods_are_one():
    one, other = (
        ff.contribution(everybody, DATA, method=method, rounds=1, split="train")
        for method in ("shapley", "federated-shapley")
    )
    for measure in MEASURES:
        assert_allclose(one.shares[measure], other.shares[measure], rtol=1e-3, atol=1e-3)


def test_by_rounds_who_is_never_selected_has_no_share(found):
    def some(data):
        return build(data, selector=ff.excluding([2], ff.uniform(3)))

    by_rounds = ff.contribution(some, DATA, method="federated-shapley", rounds=ROUNDS, split="train")
    _, history = ff.run(some(DATA), 0, ROUNDS)
    last = ff.metrics.summary(history.scores["train"].accuracy[-1])
    for measure in MEASURES:
        assert by_rounds.shares[measure][2] == 0
        assert_allclose(by_rounds.shares[measure].sum(), by_rounds.gain[measure], atol=1e-3)
        assert_allclose(by_rounds.grand[measure], last[measure], rtol=1e-4)
    assert by_rounds.coalitions == 8 * ROUNDS


def test_the_table_says_who_how_and_from_where_to_where(found):
    lines = str(found).splitlines()
    assert lines[0].split() == ["client", "acc", "%", "worst", "10%", "var", "%²", "Gini"]
    order = [int(line.split()[0]) for line in lines[2:8]]
    assert order == [*np.argsort(-found.shares["accuracy"])]
    assert lines[8].split()[:2] == ["all", f"{found.gain['accuracy']:+.2f}"]
    assert "exact (64 coalitions, 3 rounds)" in " ".join(lines)
    assert max(map(len, lines)) <= 116
    short = found.table(most=3).splitlines()
    assert [line.split()[0] for line in short[2:6]] == [str(order[0]), str(order[1]), "(3", str(order[-1])]


def test_a_tables_intervals_and_the_frames_are_those_of_students_t(found):
    kept = {"accuracy": found.shares["accuracy"]}
    drawn = found._replace(shares=kept, errors={"accuracy": np.linspace(0.1, 0.2, N)}, permutations=3)
    low, high = drawn.intervals()["accuracy"]
    assert_allclose((high - low) / 2, 4.3027 * drawn.errors["accuracy"], rtol=1e-4)
    k = drawn.order()[0]
    assert f"{drawn.shares['accuracy'][k]:+.2f} [{low[k]:+.2f}, {high[k]:+.2f}]" in str(drawn)
    assert "3 permutations" in str(drawn)
    frame = drawn.to_pandas()
    assert [*frame.columns] == ["client", "measure", "share", "error", "low", "high"]
    assert_array_equal(frame.high, high)
    assert len(found.to_pandas()) == N * len(MEASURES)


def test_what_is_saved_is_read_again(found, tmp_path):
    lost = found._replace(grand=found.grand | {"gini": float("nan")})
    assert load(tmp_path) is None
    place = lost.save(tmp_path)
    assert json.loads(place.read_text())["grand"]["gini"] is None
    again = load(tmp_path)
    for mine, theirs in zip(lost, again):
        jax.tree.map(assert_array_equal, mine, theirs)
    with pytest.raises(ValueError, match=r"folder .* cannot be written"):
        found.save(place / "in a file")


def test_a_replicate_is_that_of_compare(found):
    drawn = ff.contribution(
        everybody, lambda seed: toy.federation((4, 5, 6), seed=seed), seed=2, rounds=2, measures=["accuracy"]
    )
    _, history = ff.run(everybody(toy.federation((4, 5, 6), seed=2)), 2, 2)
    assert_allclose(drawn.grand["accuracy"], 100 * history.accuracy[-1].mean(), rtol=1e-5)


def test_who_is_judged_by_and_how_many_go_side_by_side(whole):
    few = np.arange(N) < 2
    judged = found_by(clients=few, side_by_side=1, threads=1, method="leave-one-out", measures=["accuracy"])
    wanted = 100 * whole.scores["train"].accuracy[-1, :2].mean()
    assert_allclose(judged.grand["accuracy"], wanted, rtol=1e-5)
    assert judged.coalitions == N + 2


def test_kept_coalitions_are_not_trained_again(tmp_path, monkeypatch):
    fresh = found_by(method="leave-one-out", checkpoint=tmp_path)
    module = "fedjax_fair.results.contribution_runs.trainings"
    monkeypatch.setattr(module, lambda *_: lambda coalitions: pytest.fail("trained again"))
    again = found_by(method="leave-one-out", checkpoint=tmp_path)
    assert_array_equal(fresh.shares["gini"], again.shares["gini"])
    with pytest.raises(CheckpointError, match="other coalitions: split was 'train' and is 'test'"):
        ff.contribution(build, DATA, rounds=ROUNDS, checkpoint=tmp_path)
    other = toy.federation((3, 8, 5, 4, 6, 7), seed=1)
    with pytest.raises(CheckpointError, match="the data is not the same"):
        ff.contribution(build, other, rounds=ROUNDS, split="train", checkpoint=tmp_path)

    def turned(data):
        metric = ff.losses.accuracy, {"name": "error", "higher_is_better": False}
        return ff.simulation(**(build(data).arguments | {"metric": ff.Metric(metric[0], **metric[1])}))

    with pytest.raises(CheckpointError, match="other coalitions: metric was"):
        ff.contribution(turned, DATA, rounds=ROUNDS, split="train", checkpoint=tmp_path)
    assert fresh.coalitions == again.coalitions == N + 2
    (tmp_path / "coalitions.npz").write_bytes(b"PK")
    with pytest.raises(CheckpointError, match="cannot be read"):
        found_by(method="leave-one-out", checkpoint=tmp_path)


def test_ctrl_c_keeps_what_was_trained(found, tmp_path, monkeypatch):
    calls = []

    @contextlib.contextmanager
    def asked(watch):
        assert watch
        yield lambda: calls.append(0) or len(calls) == 2

    monkeypatch.setattr("fedjax_fair.results.contribution_runs.asked_to_stop", asked)
    settings = {"checkpoint": tmp_path, "side_by_side": 4, "threads": 1}
    with pytest.raises(KeyboardInterrupt, match=r"stopped after 32 coalitions, kept in"):
        found_by(**settings)
    assert_allclose(found_by(**settings).shares["accuracy"], found.shares["accuracy"], atol=1e-4)
    assert len(calls) == 4  # 32 more, sixteen at a time


def not_built(data):
    return 1


def on_devices(data):
    return build(data)._replace(arguments=build(data).arguments | {"devices": 2})


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "shaply"}, "method must be one of .*; did you mean 'shapley'?"),
        ({"measures": "accuracy"}, "measures must be a list of names"),
        ({"measures": []}, "measures must be a list of names"),
        ({"measures": ["pooled"]}, "measures must be one of accuracy, variance"),
        ({"permutations": 1}, "permutations must be at least 2, got 1"),
        ({"permutations": "every"}, "permutations must be one of all, got 'every'"),
        (
            {"permutations": "all", "federation": toy.federation((3,) * 21)},
            r"up to 20 clients, 2\^20 coalitions, got 21",
        ),
        ({"permutations": 9, "method": "leave-one-out"}, "permutations are of Shapley's methods"),
        ({"tolerance": 1}, r"tolerance must be in \[0, 1\), got 1"),
        ({"rounds": 0}, "rounds must be at least 1, got 0"),
        ({"seed": -1}, "seed must be from 0"),
        ({"split": "validation"}, "build must evaluate the validation split"),
        ({"clients": [1, 2]}, r"clients must be bool\[6\]"),
        ({"side_by_side": "all"}, 'side_by_side must be "auto", None or a whole number'),
        ({"side_by_side": 0}, "side_by_side must be at least 1"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"checkpoint": 3}, "checkpoint must be a folder, got 3"),
        ({"checkpoint": "x", "method": "federated-shapley"}, "federated-shapley trains once"),
        ({"build": 3}, "build must be a function data -> ff.simulation"),
        ({"build": lambda: None}, r"build must take \(data\), got \(\)"),
        ({"build": not_built}, r"build must return an ff.simulation\(...\), got int"),
        ({"build": on_devices}, "build must leave the clients on one device, got devices=2"),
        ({"build": lambda data: build(data)._replace(arguments=None)}, "without arguments"),
        ({"build": lambda data: build(toy.federation())}, "build must use the data that it is given"),
        ({"federation": 3}, "federation must be a FederatedData or a function of a seed, got int"),
        ({"federation": lambda seed: seed}, "federation must return a FederatedData for every seed, got int"),
    ],
)
def test_wrong_calls(settings, sentence):
    given = {"build": build, "federation": DATA} | settings
    with toy.compilations() as made, pytest.raises(ValueError, match=sentence):
        ff.contribution(**given)
    assert not [name for name in made.names if "one" in name or "block" in name]


def test_by_rounds_all_coalitions_of_a_large_cohort_can_be_asked_for():
    data = toy.federation((3,) * 11)
    some, every = (
        ff.contribution(everybody, data, method="federated-shapley", rounds=1, split="train", permutations=p)
        for p in (50, "all")
    )
    assert every.coalitions == 2**11
    assert every.permutations == 0
    assert 50 < some.coalitions < 50 * 11
    assert some.errors["accuracy"].max() > 0
    for measure in MEASURES:
        assert_allclose(some.shares[measure], every.shares[measure], atol=5 * some.errors[measure].max())


def test_a_model_that_diverges_is_said_and_has_no_share():
    def broken(data):
        lost = {
            "deploy": lambda state: jax.tree.map(lambda w: jnp.where(state.round > 0, jnp.nan, w), state.params)
        }
        return build(data, **lost)

    with pytest.warns(UserWarning, match="shares are NaN where a coalition's model"):
        found = ff.contribution(broken, DATA, method="leave-one-out", rounds=3, split="train")
    assert np.isnan(found.shares["accuracy"]).all()


def test_a_rule_that_draws_clients_by_itself_is_shared_by_the_rounds_it_drew():
    def drawing(data):
        return build(data, aggregator=ff.drfa(lr=0.1), selector=ff.uniform(3))

    found = ff.contribution(drawing, DATA, method="federated-shapley", rounds=2, split="train")
    _, history = ff.run(drawing(DATA), 0, 2)
    for measure in MEASURES:
        assert_allclose(found.shares[measure].sum(), found.gain[measure], atol=1e-3)
        idle = ~np.isin(np.arange(N), history.ids)
        assert (found.shares[measure][idle] == 0).all()


def test_when_nobody_ever_takes_part_by_rounds_there_is_nothing_to_share():
    def nobody(data):
        return build(data, available=ff.availability.trace(np.zeros((1, N))))

    with pytest.raises(ValueError, match="nobody took part in 2 rounds"):
        ff.contribution(nobody, DATA, method="federated-shapley", rounds=2)

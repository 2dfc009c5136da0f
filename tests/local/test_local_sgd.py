"""Local SGD: which batches a client sees, the steps it makes on them, and the trace it leaves."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toy import CLASSES, DIM, close, linear_apply

import fedjax_fair as ff
from fedjax_fair.local.objectives import erm
from fedjax_fair.local.sgd import LocalSGD, full_batch_step
from fedjax_fair.types import Client

KEY = jax.random.key(7)
CAPACITY = 11  # training examples of the largest client


pytestmark = pytest.mark.usefixtures("quick_to_compile")


def a_client(size, capacity=CAPACITY, first=0, take=lambda rows: (rows, rows)):
    """A client that owns the store's rows ``first ... first + size - 1``, padded with its neighbours'."""
    return Client(jnp.int32(0), first + jnp.arange(capacity), size, take)


PEN = optax.sgd(1.0)


def batches(trainer, size, first=0, key=KEY):
    """What a client sees: i[steps, 30], how often each batch holds each row; and one number per step's key.

    Found out by training: the parameters are the record, and the gradient of the loss writes to it.
    """
    pen = trainer._replace(optimizer=PEN, schedule=None, objective=erm)
    record = _write(pen, jnp.int32(size), jnp.int32(first), key)
    steps = int(record["clock"])
    return np.asarray(record["held"], int)[:steps], np.asarray(record["noise"])[:steps]


@partial(jax.jit, static_argnames="pen")
def _write(pen, size, first, key, longest=40):
    def loss(params, batch, anchor):
        held = (jax.nn.one_hot(batch.x, 30) * batch.mask[:, None]).sum(0)
        now = jax.nn.one_hot(params["clock"].astype(jnp.int32), longest)
        written = (params["held"] * (now[:, None] * held[None, :])).sum()
        noise = (params["noise"] * now).sum() * jax.random.uniform(batch.key)
        return -(params["clock"] + written + noise), jnp.zeros(())

    blank = {"clock": jnp.zeros(()), "held": jnp.zeros((longest, 30)), "noise": jnp.zeros(longest)}
    return pen(loss, blank, a_client(size, first=first), key, jnp.int32(0))[0]


SGD = optax.sgd(0.1)


def sgd(**settings):
    return ff.local_sgd(SGD, **settings)


# Which examples make up a batch


@pytest.mark.parametrize("batch_size", [1, 3, 11, 50])
def test_every_epoch_visits_every_example_of_the_client_once_and_nobody_elses(batch_size):
    for size in (1, 4, 7, 11):
        seen, _ = batches(sgd(epochs=3, batch_size=batch_size), size, first=2)
        per_epoch = -(-size // batch_size)
        assert len(seen) == 3 * per_epoch
        own = np.isin(np.arange(30), 2 + np.arange(size)).astype(int)
        for epoch in seen.reshape(3, per_epoch, 30):
            assert np.array_equal(epoch.sum(0), own)


def test_only_the_last_batch_of_an_epoch_is_smaller():
    seen, _ = batches(sgd(epochs=3, batch_size=3), 7)
    assert seen.sum(1).tolist() == [3, 3, 1] * 3


def test_every_epoch_and_every_key_shuffles_anew():
    trainer = sgd(epochs=3, batch_size=1)
    one, other = batches(trainer, 11)[0], batches(trainer, 11, key=jax.random.key(8))[0]
    orders = {tuple(epoch.argmax(1)) for seen in (one, other) for epoch in seen.reshape(3, 11, 30)}
    assert len(orders) == 6
    assert np.array_equal(one, batches(trainer, 11)[0])


@pytest.mark.parametrize("batch_size", [1, 20])
def test_steps_make_that_many_batches_of_exactly_b_whatever_the_size(batch_size):
    for size in (1, 4, 11):
        seen, _ = batches(sgd(steps=6, batch_size=batch_size), size, first=2)
        assert seen.sum(1).tolist() == [batch_size] * 6
        assert seen[:, :2].sum() == seen[:, 2 + size :].sum() == 0


def test_steps_draw_uniformly_with_replacement():
    seen, _ = batches(sgd(steps=40, batch_size=250), 5)
    assert seen[:, :5].sum(0) / 10_000 == pytest.approx(0.2, abs=0.02)  # five standard deviations
    assert len(np.unique(seen, axis=0)) == 40


def test_one_epoch_is_the_default():
    assert sgd(batch_size=4) == LocalSGD(SGD, 1, None, 4, None, erm)


@pytest.mark.parametrize("settings", [{"epochs": 3}, {"steps": 3}])
def test_without_a_batch_size_every_step_is_on_everything(settings):
    seen, _ = batches(sgd(**settings, batch_size=None), 4, first=5)
    assert np.array_equal(seen, [[5 <= row < 9 for row in range(30)]] * 3)


def test_every_step_has_randomness_of_its_own():
    _, noise = batches(sgd(epochs=3, batch_size=3), 11)
    assert len(np.unique(noise)) == 12


# What the steps do, in float64


def cross_entropy(params, batch, anchor):
    losses = -jnp.take_along_axis(jax.nn.log_softmax(linear_apply(params, batch.x)), batch.y[:, None], 1)[:, 0]
    return erm(losses, batch.mask, params, anchor), erm(losses, batch.mask, params, anchor)


@pytest.fixture
def store():
    """Examples x f64[30, 4], labels, a starting point, and ``take``; within double precision."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, DIM)), rng.integers(0, CLASSES, 30)
    start = {"w": rng.normal(size=(DIM, CLASSES)), "b": rng.normal(size=CLASSES)}
    with jax.enable_x64(True):
        on_device = jnp.array(x), jnp.array(y)
        yield x, y, jax.tree.map(jnp.array, start), lambda rows: (on_device[0][rows], on_device[1][rows])


def by_hand(store, seen, rate, momentum=0.0):
    """Logistic regression by SGD in NumPy over the batches ``seen``; also the loss of every batch."""
    x, y, start, _ = store
    w, b = np.array(start["w"]), np.array(start["b"])
    memory_w, memory_b, losses = 0 * w, 0 * b, []
    for held in seen:
        share = held / held.sum()
        logits = x @ w + b
        probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        losses.append(-(share * np.log(probabilities[np.arange(30), y])).sum())
        error = (probabilities - np.eye(CLASSES)[y]) * share[:, None]
        memory_w, memory_b = momentum * memory_w + x.T @ error, momentum * memory_b + error.sum(0)
        w, b = w - rate * memory_w, b - rate * memory_b
    return {"w": w, "b": b}, np.array(losses)


def train(trainer, store, size, first=0, round=0, capacity=CAPACITY):
    """The real thing; where ``size`` is a Python integer it is static, as in a federation of equal sizes."""
    client = a_client(size, capacity, first, store[3])
    return trainer(cross_entropy, store[2], client, jax.random.fold_in(KEY, first), jnp.int32(round))


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 3, "batch_size": 4},
        {"epochs": 1, "batch_size": 100},
        {"steps": 7, "batch_size": 3},
        {"epochs": 2, "batch_size": None},
    ],
    ids=str,
)
def test_equals_sgd_written_by_hand_on_the_same_batches(store, settings):
    trainer = ff.local_sgd(optax.sgd(0.3, 0.9), **settings)
    compiled = jax.jit(lambda size: train(trainer, store, size, first=4))
    for size in (1, 6, 11):
        seen, _ = batches(trainer, size, 4, jax.random.fold_in(KEY, 4))
        expected, losses = by_hand(store, seen, 0.3, 0.9)
        trained, trace = compiled(jnp.int32(size))
        close(trained, expected, rtol=1e-12)
        np.testing.assert_allclose(trace.loss, losses.mean(), rtol=1e-12)
        np.testing.assert_allclose(trace.loss_std, losses.std(), rtol=1e-10, atol=1e-14)


def test_the_full_batch_is_one_exact_gradient_step(store):
    x, y, start, _ = store
    trained, _ = train(sgd(epochs=1, batch_size=None), store, 6)

    def risk(params):
        return -jax.nn.log_softmax(linear_apply(params, x[:6]))[jnp.arange(6), y[:6]].mean()

    close(trained, jax.tree.map(lambda p, g: p - 0.1 * g, start, jax.grad(risk)(start)), rtol=1e-14)


@pytest.mark.parametrize(
    ("schedule", "factor"),
    [
        (lambda r: 0.999**r, lambda r: 0.999**r),
        (lambda r: jnp.where(r < 300, 1.0, 0.5), lambda r: 1.0 if r < 300 else 0.5),
    ],
    ids=["decay", "halving"],
)
def test_a_schedule_scales_the_learning_rate_by_the_round(store, schedule, factor):
    trainer = ff.local_sgd(optax.sgd(0.3, 0.9), epochs=3, batch_size=4, schedule=schedule)
    seen, _ = batches(trainer, 11, 0, jax.random.fold_in(KEY, 0))
    compiled = jax.jit(lambda round: train(trainer, store, 11, round=round)[0])
    for round in (0, 9, 10, 299, 300):
        close(compiled(round), by_hand(store, seen, 0.3 * factor(round), 0.9)[0], rtol=1e-12)


@pytest.mark.parametrize(
    "settings",
    [
        {"epochs": 3, "batch_size": 3},
        {"steps": 5, "batch_size": 3},
        {"epochs": 2, "batch_size": None},
    ],
    ids=str,
)
def test_a_client_trains_the_same_beside_larger_clients(store, settings):
    """Its size traced, padded to theirs and vmapped with them: the same as alone with its own data."""
    trainer = sgd(**settings)
    firsts, sizes = jnp.array([0, 5, 6]), jnp.array([1, 4, 11])
    together = jax.jit(jax.vmap(lambda first, size: train(trainer, store, size, first)))(firsts, sizes)
    alone = jax.jit(lambda: train(trainer, store, 4, 5, capacity=4))()
    close(jax.tree.map(lambda leaf: leaf[1], together), alone, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "settings", [{"epochs": 2, "batch_size": 4}, {"steps": 3, "batch_size": 4}, {"batch_size": None}], ids=str
)
def test_a_neighbours_overflow_does_not_reach_a_client_through_its_padding(store, settings):
    x, _, start, take = store
    compiled = jax.jit(lambda x: train(sgd(**settings), (0, 0, start, lambda r: (x[r], take(r)[1])), jnp.int32(4)))
    clean = jnp.array(x)
    close(compiled(clean.at[4:].set(1e308)), compiled(clean), rtol=1e-12)


# The trace, and FedSGD's override


def test_the_trace_is_stable_in_float32():
    """Losses of 30,000 plus a little: sums of squares would lose the spread altogether."""
    values = 30_000 + np.random.default_rng(1).normal(size=30).astype(np.float32)
    loss = lambda params, batch, anchor: (params.sum(), erm(jnp.array(values)[batch.x], batch.mask, 0, 0))  # noqa: E731
    trainer, client = sgd(epochs=20, batch_size=1), a_client(11)
    _, trace = trainer(loss, jnp.zeros(1), client, KEY, jnp.int32(0))
    assert trace.loss.dtype == jnp.float32
    assert float(trace.loss) == pytest.approx(values[:11].mean(dtype=np.float64), abs=0.02)
    assert float(trace.loss_std) == pytest.approx(values[:11].std(dtype=np.float64), rel=0.01)


@pytest.mark.parametrize("settings", [{"epochs": 4, "batch_size": 3}, {"steps": 9, "batch_size": 2}], ids=str)
def test_fedsgd_makes_one_full_batch_step_of_any_trainer(settings):
    seen, _ = batches(full_batch_step(sgd(**settings)), 7)
    assert np.array_equal(seen, [[row < 7 for row in range(30)]])


def test_fedsgd_keeps_optimiser_schedule_and_objective():
    trainer = ff.local_sgd(
        optax.sgd(0.1), epochs=4, batch_size=3, schedule=lambda r: 0.5, objective=ff.proximal(0.1)
    )
    full = full_batch_step(trainer)
    assert (full.optimizer, full.schedule, full.objective) == (
        trainer.optimizer,
        trainer.schedule,
        trainer.objective,
    )


# Wrong calls


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"epochs": 1, "steps": 2, "batch_size": 3}, "epochs or steps, not both, got epochs=1 and steps=2"),
        ({"epochs": 0, "batch_size": 3}, "epochs must be at least 1, got 0"),
        ({"steps": -2, "batch_size": 3}, "steps must be at least 1, got -2"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number, got 2.5"),
        ({"epochs": True, "batch_size": 3}, "epochs must be a whole number, got True"),
        ({"batch_size": 3, "schedule": 0.5}, "schedule must be a function, got 0.5"),
        ({"batch_size": 3, "objective": "erm"}, "objective must be a function, got 'erm'"),
    ],
    ids=str,
)
def test_a_wrong_number_is_one_sentence(settings, sentence):
    with pytest.raises(ValueError, match=f"^[^\n]*{sentence}$"):
        sgd(**settings)


@pytest.mark.parametrize(
    ("schedule", "got"),
    [
        (lambda r: 1.0 if r < 300 else 0.5, "<lambda>: Attempted boolean conversion of traced array .*"),
        (lambda r: [1.0, 0.5][r], "<lambda>: .*"),
        (lambda r: np.ones(10)[r], "<lambda>: .*"),
        (lambda r: float(r), "<lambda>: .*"),
        (lambda: 1.0, "<lambda>: .*takes 0 positional arguments but 1 was given"),
        (lambda r: jnp.ones(2), r"float32\[2\]"),
        (lambda r: jnp.ones(1) * r, r"float32\[1\]"),
        (lambda r: r > 3, r"bool\[\]"),
        (lambda r: 1j * r, r"complex64\[\]"),
        (lambda r: None, "NoneType"),
        (lambda r: "no", "str"),
        (optax.sgd(0.1).init, ".*"),
    ],
)
def test_a_schedule_that_is_no_traced_number_is_one_sentence(schedule, got):
    with pytest.raises(
        ValueError,
        match=r"^schedule must be a function of the round, i32\[\], to one number, computed by JAX, "
        rf"such as jnp.where\(r < 300, 1., .5\) in the place of an if, got {got}$",
    ):
        sgd(batch_size=3, schedule=schedule)


@pytest.mark.parametrize(
    ("limit", "got"),
    [
        (lambda key, r, i: 3.0, r"float32\[\]"),
        (lambda key, r, i: jax.random.uniform(key) * 9, r"float32\[\]"),
        (lambda key, r, i: r > 2, r"bool\[\]"),
        (lambda key, r, i: jnp.array([1, 2]), r"int32\[2\]"),
        (lambda key, r, i: 3 if i < 2 else 9, "<lambda>: Attempted boolean conversion of traced array .*"),
        (lambda r: 3, "<lambda>: .*takes 1 positional argument but 3 were given"),
        (lambda key, r, i: None, "NoneType"),
    ],
)
def test_a_limit_that_is_no_traced_whole_number_is_one_sentence(limit, got):
    with pytest.raises(
        ValueError,
        match=r"^limit must be a function \(key, round i32\[\], id i32\[\]\) to one whole number, computed by JAX, "
        rf"such as jnp.where\(id < 5, 1, 20\) in the place of an if, got {got}$",
    ):
        sgd(batch_size=3, limit=limit)


def test_a_schedule_that_replaces_a_right_one_is_one_sentence_too(store):
    for field, function in (("schedule", lambda r: jnp.ones(2)), ("limit", lambda key, r, i: 1.5)):
        with pytest.raises(ValueError, match=f"^{field} must be a function"):
            train(sgd(batch_size=3)._replace(**{field: function}), store, 6)


@pytest.mark.parametrize("limit", [lambda key, r, i: 2, lambda key, r, i: np.int64(2), lambda *_: jnp.uint8(2)])
def test_a_limit_may_be_any_whole_number(store, limit):
    limited, _ = train(ff.local_sgd(SGD, epochs=3, batch_size=100, limit=limit), store, 6)
    close(limited, train(ff.local_sgd(SGD, epochs=2, batch_size=100), store, 6)[0], rtol=1e-12)


@pytest.mark.parametrize(
    ("optimizer", "got"),
    [
        (0.1, "0.1"),
        ("sgd", "'sgd'"),
        (optax.sgd, "sgd"),
        (optax.MultiSteps(optax.sgd(0.1), 2), "MultiSteps: pass its .gradient_transformation()"),
    ],
)
def test_an_optimiser_that_is_not_optax_is_one_sentence(optimizer, got):
    sentence = f"optimizer must be an optax optimiser, such as optax.sgd(.1), got {got}"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        ff.local_sgd(optimizer, batch_size=3)


def test_an_objective_that_was_not_called_is_one_sentence():
    with pytest.raises(ValueError, match="objective must be an objective, got the factory proximal: call it"):
        ff.local_sgd(optax.sgd(0.1), batch_size=3, objective=ff.proximal)

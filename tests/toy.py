"""Tiny federations, a model in two lines, and what the engine's tests measure compilations with."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_fair as ff

SIZES = (3, 8, 5, 4, 6)  # training examples of each client
DIM, CLASSES = 4, 3


def federation(sizes=SIZES, *, validation=True, dim=DIM, seed=0, dtype=np.float32) -> ff.FederatedData:
    """Clients with exactly ``sizes`` training examples (below 100), and one for each other split they keep."""
    rng = np.random.default_rng(seed)
    held_out = 2 if validation else 1
    owner = np.repeat(np.arange(len(sizes)), np.array(sizes) + held_out)
    x = (rng.normal(size=(len(owner), dim)) + rng.normal(size=(len(sizes), dim))[owner]).astype(dtype)
    y = rng.integers(0, CLASSES, len(owner))
    shares = (0.998, 0.001, 0.001) if validation else (0.999, 0, 0.001)
    data = ff.FederatedData.from_arrays(x, y, client_id=owner, seed=seed, split=shares)
    assert tuple(data.sizes) == tuple(sizes)
    return data


def examples(data: ff.FederatedData, client: int, split: str = "train") -> tuple[np.ndarray, np.ndarray]:
    """One client's (x, y) of a split, in the order of the store's table."""
    table = getattr(data, split)
    rows = np.asarray(table.rows)[np.asarray(table.owner) == client]
    return np.asarray(data.x)[rows], np.asarray(data.y)[rows]


def linear_init(key, x):
    """Logistic regression in the float type of its input."""
    w_key, b_key = jax.random.split(key)
    return {
        "w": jax.random.normal(w_key, (x.shape[-1], CLASSES), x.dtype),
        "b": jax.random.normal(b_key, (CLASSES,), x.dtype),
    }


def linear_apply(params, x):
    return x @ params["w"] + params["b"][None, :]


linear = (linear_init, linear_apply)


@jax.jit
def mean_loss(params, x, y):
    """Plain mean cross-entropy of the linear model, by the book."""
    return -jax.nn.log_softmax(linear_apply(params, x))[jnp.arange(len(y)), y].mean()


def close(a, b, **tolerance):
    """Two pytrees agree, leaf by leaf."""
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, **tolerance), a, b)


KEY = jax.random.key(5)
FULL = ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=None)
DRAWS = ff.local_sgd(optax.sgd(0.1), steps=2, batch_size=3)


def simulation(data, aggregator=None, trainer=FULL, **settings) -> ff.Simulation:
    """The linear model, FedAvg with one full-batch step unless told otherwise."""
    return ff.simulation(linear, data, aggregator=aggregator or ff.fedavg(), trainer=trainer, **settings)


def play(sim, rounds=1, key=KEY):
    """State and list of infos after some rounds, one compiled step at a time."""
    step, state, infos = jax.jit(sim.step), sim.init(key), []
    for _ in range(rounds):
        state, info = step(state, sim.data)
        infos.append(info)
    return state, infos


@contextmanager
def compilations() -> Iterator[SimpleNamespace]:
    """XLA compilations of any kind, with the names of the functions: ``made.count``, ``made.names``."""
    made = SimpleNamespace(count=0, names=[])

    def listen(event: str, duration: float, fun_name: str = "", **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            made.count += 1
            made.names.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield made
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


@contextmanager
def rounds_played() -> Iterator[list[int]]:
    """Rounds of each compiled call of ``run``."""
    module, played = sys.modules["fedjax_fair.engine.run"], []

    def counting(*arguments, **options):
        played.append(options["evaluations"] * options["every"])
        return original(*arguments, **options)

    original = module._play
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_play", counting)
        yield played


@contextmanager
def optimized(wanted: bool) -> Iterator[None]:
    """Whether XLA optimises: where only values are tested, compiling takes half the time without."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", not wanted)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


def flop_of(function, *args) -> float:
    """Floating-point operations of one call, loops counted once, after XLA has removed what nothing reads."""
    with optimized(True):
        return jax.jit(function).lower(*args).compile().cost_analysis()["flops"]


def same_arrays(one: Path, other: Path) -> None:
    """Two ``history.npz`` hold the same, bit for bit."""
    first, again = np.load(one), np.load(other)
    assert set(first) == set(again)
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])


def need_data(name: str) -> None:
    """Skip the test where a dataset is not prepared; fail it where ``$REQUIRE_DATA`` is 1, as in the gate."""
    root = os.environ.get("TFDS_DATA_DIR")
    if not root or not list(Path(root).expanduser().glob(f"{name}/*/dataset_info.json")):
        missing = pytest.fail if os.environ.get("REQUIRE_DATA") == "1" else pytest.skip
        missing(f"TFDS_DATA_DIR has no prepared {name}")

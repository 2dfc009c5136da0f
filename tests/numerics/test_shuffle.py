"""The swap-or-not shuffle: a bijection for every size and key, whose orders are equally likely."""

import functools
from math import factorial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedjax_fair.numerics import shuffle
from fedjax_fair.numerics.shuffle import FEW, shuffle_keys, shuffled
from fedjax_fair.numerics.xla_options import of_this_xla

UNLIKELY = 1e-3  # p-value below which a fixed seed would have been unlucky


@jax.jit
def permute(seed, positions, n):
    return shuffled(shuffle_keys(jax.random.key(seed)), positions, n)


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1])
def test_is_a_bijection_for_every_size_up_to_200(seed):
    sizes = jnp.arange(1, 201)
    sent = np.asarray(jax.vmap(permute, (None, None, 0))(seed, jnp.arange(200), sizes))
    for n, row in zip(range(1, 201), sent):
        assert sorted(row[:n]) == list(range(n))


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 5000), seed=st.integers(0, 2**31 - 1))
def test_is_a_bijection_for_any_size_and_key(n, seed):
    sent = np.asarray(permute(seed, jnp.arange(5000), n))[:n]
    assert np.array_equal(np.sort(sent), np.arange(n))


def test_is_a_bijection_far_beyond_16_bits():
    n = 100_003
    assert np.array_equal(np.sort(permute(5, jnp.arange(n), n)), np.arange(n))


AS_USERS = of_this_xla({"xla_cpu_use_fusion_emitters": True}) if jax.default_backend() == "cpu" else {}
"""XLA's way of making kernels that the tests' quick compilation leaves out."""


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("positions", [0, [0], [0, 1, 2], []], ids=str)
@pytest.mark.parametrize("known", ["python", "constant", "of every client", "traced"])
def test_a_domain_of_one_compiles_as_users_compile(n, positions, known):
    """Row 1: XLA failed on a size of 1 that it knew, also where only constants told it."""
    positions = jnp.array(positions, jnp.int32)
    keys, sizes = shuffle_keys(jax.random.key(1), (2,)), jnp.array([n, n])
    each = jax.vmap(shuffled, (0, None, 0))
    programs = {
        "python": lambda keys, sizes: jax.vmap(lambda k: shuffled(k, positions, n))(keys),
        "constant": lambda keys, sizes: jax.vmap(lambda k: shuffled(k, positions, jnp.array(n)))(keys),
        "of every client": lambda keys, _: each(keys, positions, jnp.array([n, n])),
        "traced": lambda keys, sizes: each(keys, positions, sizes),
    }
    sent = jax.jit(programs[known], compiler_options=AS_USERS)(keys, sizes)
    assert sent.shape == (2, *positions.shape)
    assert np.array_equal(sent, each(keys, positions, sizes))
    assert sent.size == 0 or (sent.min() >= 0 and sent.max() < n)


@pytest.mark.parametrize("n", [1, 2, 7, 64])
def test_positions_beyond_the_domain_give_something_inside(n):
    sent = np.asarray(permute(3, jnp.arange(n, 300), n))
    assert sent.min() >= 0
    assert sent.max() < n


def test_a_traced_size_gives_the_same_permutation_as_a_python_one():
    keys = shuffle_keys(jax.random.key(4))
    traced = jax.jit(jax.vmap(lambda n: shuffled(keys, jnp.arange(40), n)))(jnp.array([1, 13, 40]))
    for row, n in zip(traced, (1, 13, 40)):
        assert np.array_equal(row, shuffled(keys, jnp.arange(40), n))


def test_reading_some_positions_is_reading_them_off_the_whole():
    keys = shuffle_keys(jax.random.key(6))
    some = jnp.array([[5, 0], [19, 7]])
    assert np.array_equal(shuffled(keys, some, 20), shuffled(keys, jnp.arange(20), 20)[some])


def test_many_positions_at_a_time_are_the_same_as_few():
    keys, few = shuffle_keys(jax.random.key(8)), 50
    parts = [shuffled(keys, jnp.arange(at, at + few), 4 * few) for at in range(0, 4 * few, few)]
    assert np.array_equal(jnp.concatenate(parts), shuffled(keys, jnp.arange(4 * few), 4 * few))


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("n", [1, 99, 100, FEW, FEW + 1])
def test_the_loop_that_xla_does_not_fuse_is_for_a_cpu(n, backend, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    program = jax.jit(lambda keys: shuffled(keys, jnp.arange(n), n)).lower(shuffle_keys(jax.random.key(0)))
    assert ("while" in program.as_text()) == (backend == "cpu")


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other backends know no such kernels")
@pytest.mark.parametrize("size", [1, 50, FEW])
def test_few_positions_are_one_kernel(size):
    """A loop of several kernels would start each of them in every turn."""
    program = jax.jit(lambda keys, n: shuffled(keys, jnp.arange(size), n), compiler_options=AS_USERS)
    lowered = program.lower(shuffle_keys(jax.random.key(0)), 1000)
    assert 'xla_cpu_small_call="true"' in lowered.compile().as_text()


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="an accelerator fuses what it likes")
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("n", [10, 50, 1000])
def test_no_gather_has_the_shuffle_in_its_kernel(n, apart, monkeypatch):
    """In one with it LLVM makes no vector instructions, and the shuffle takes ten times as long."""
    if not apart:  # else the test would not see what it looks for
        for name in ("_in_turns", "_in_a_kernel_of_its_own"):
            monkeypatch.setattr(shuffle, name, functools.partial(shuffle._play, turn=shuffle.ROUNDS))
    rows, keys = jnp.arange(n), shuffle_keys(jax.random.key(0))
    program = jax.jit(
        lambda rows, keys, n: rows[shuffled(keys, jnp.arange(len(rows)), n)], compiler_options=AS_USERS
    )
    kernels = program.lower(rows, keys, n).compile().as_text().split("\n\n")
    both = [kernel for kernel in kernels if " gather(" in kernel and " multiply(" in kernel]
    assert bool(both) == (not apart)


def test_64_bit_mode_draws_the_same_permutations():
    narrow = permute(2, jnp.arange(300), 300)
    with jax.enable_x64(True):
        assert np.array_equal(permute(2, jnp.arange(300), 300), narrow)


def test_the_epochs_of_one_key_are_equally_likely_too():
    keys = shuffle_keys(jax.random.key(13), (24_000,))
    orders = np.asarray(jax.vmap(lambda k: shuffled(k, jnp.arange(4), 4))(keys))
    _, counts = np.unique(orders @ 4 ** np.arange(4), return_counts=True)
    assert len(counts) == 24
    assert chisquare(counts).pvalue > UNLIKELY


def test_each_of_a_batch_of_keys_is_an_order_of_its_own():
    keys = shuffle_keys(jax.random.key(0), (50,))
    orders = jax.vmap(lambda k: shuffled(k, jnp.arange(30), 30))(keys)
    assert len({tuple(row) for row in np.asarray(orders).tolist()}) == 50


def draws(positions, n, how_many, seed):
    """i[how_many, len(positions)]: where random permutations of n, each of a key of its own, send ``positions``."""
    keys = jax.vmap(shuffle_keys)(jax.random.split(jax.random.key(seed), how_many))
    return np.asarray(jax.jit(jax.vmap(lambda k: shuffled(k, jnp.array(positions), n)))(keys), np.int64)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_every_permutation_is_equally_likely(n):
    orders = draws(range(n), n, 24_000, seed=10)
    _, counts = np.unique(orders @ n ** np.arange(n), return_counts=True)
    assert len(counts) == factorial(n)
    assert chisquare(counts).pvalue > UNLIKELY


@pytest.mark.parametrize("places", [(0, 1), (24, 25), (0, 49), (13, 37)])
def test_every_ordered_pair_is_equally_likely(places):
    pairs = draws(places, 50, 60_000, seed=11)
    counts = np.bincount(pairs @ (50, 1), minlength=2500).reshape(50, 50)
    assert np.trace(counts) == 0
    assert chisquare(counts[~np.eye(50, dtype=bool)]).pvalue > UNLIKELY


def test_consecutive_epochs_of_one_key_are_independent():
    """The orders that two epochs of a client's round give one example form all n^2 pairs equally often."""
    keys = jax.vmap(lambda key: shuffle_keys(key, (2,)))(jax.random.split(jax.random.key(12), 20_000))
    both = jax.vmap(jax.vmap(lambda k: shuffled(k, jnp.array([3]), 20)[0]))(keys)
    counts = np.bincount(np.asarray(both) @ (20, 1), minlength=400)
    assert chisquare(counts).pvalue > UNLIKELY

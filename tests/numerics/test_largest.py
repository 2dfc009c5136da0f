"""The few largest of many are those of a sort of all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_fair.numerics import largest as module
from fedjax_fair.numerics.largest import largest
from fedjax_fair.selectors import ranking

RNG = np.random.default_rng(0)
ORDER = RNG.permutation(20_000)
MANY = {
    "all different": ORDER,
    "two alike among the first": np.where(ORDER == 19_998, 19_999, ORDER),
    "the seventh and the eighth alike": np.where(ORDER == 19_992, 19_993, ORDER),
    "few values": RNG.integers(0, 4, 20_000),
    "all alike": np.ones(20_000),
    "hardly any": np.where(RNG.random(20_000) < 2e-4, 1, -np.inf),
    "all unheard of": np.full(20_001, np.inf),
    "not numbers": np.where(RNG.random(20_000) < 0.5, np.nan, RNG.integers(0, 3, 20_000)),
}


@pytest.mark.parametrize("name", [name for name in MANY if name != "not numbers"])
def test_the_largest_are_those_of_top_k(name):
    values = jnp.asarray(MANY[name], jnp.float32)
    np.testing.assert_array_equal(largest(values, 7), jax.lax.top_k(values, 7)[1])


@pytest.mark.parametrize("name", MANY)
def test_ties_are_broken_as_by_a_sort(name, monkeypatch):
    values, key = jnp.asarray(MANY[name], jnp.float32), jax.random.key(3)
    found = ranking.top(values, 7, key)
    monkeypatch.setattr(ranking, "MANY", 10**9)
    np.testing.assert_array_equal(found, ranking.top(values, 7, key))


def test_of_two_alike_in_everything_the_later_comes_first(monkeypatch):
    monkeypatch.setattr(jax.random, "uniform", lambda key, shape, dtype: jnp.zeros(shape, dtype))
    values, key = jnp.asarray(MANY["few values"], jnp.float32), jax.random.key(3)
    found = ranking.top(values, 7, key)
    monkeypatch.setattr(ranking, "MANY", 10**9)
    np.testing.assert_array_equal(found, ranking.top(values, 7, key))


def test_large_cohorts_and_few_numbers_are_left_to_top_k():
    assert module.MANY > 100
    values = jnp.arange(100.0)
    np.testing.assert_array_equal(largest(values, 3), [99, 98, 97])
    np.testing.assert_array_equal(largest(jnp.arange(20_000.0), 19_999)[:2], [19_999, 19_998])

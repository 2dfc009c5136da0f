"""Selection strategies: what each promises, and the laws of the draws."""

from itertools import combinations, permutations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import SIZES, N, make_context, random_report
from numpy.testing import assert_array_equal
from scipy.stats import chisquare

import fedjax_fair as ff
from fedjax_fair import registry

M = 3
DRAWS = 6000


@pytest.fixture(params=list(registry.SELECTORS))
def selector(request):
    return registry.SELECTORS[request.param](M)


def draw(selector, sizes, count=DRAWS):
    """Cohorts of many rounds, each from the first state and with a key of its own, [count, m]."""
    sizes = jnp.asarray(sizes, jnp.result_type(float))
    keys = jax.random.split(jax.random.key(0), count)
    state, context = selector.init(sizes, jax.random.key(1)), make_context(sizes.size)

    def chosen(key, round):
        return selector.select(state, key, context._replace(round=round))[0]

    return np.asarray(jax.jit(jax.vmap(chosen))(keys, jnp.arange(count, dtype=jnp.int32)))


def assert_law(rows, law):
    """Pearson's test, of fixed draws, that the rows fall on the keys of ``law`` with its probabilities."""
    counts = dict.fromkeys(law, 0)
    for row in rows.tolist():
        counts[tuple(row)] += 1  # KeyError: an outcome that cannot happen
    expected = np.array(list(law.values())) * len(rows)
    assert expected.min() > 5
    assert chisquare(list(counts.values()), expected).pvalue > 0.01


# The contract


def test_a_cohort_is_m_distinct_clients(selector):
    ids = draw(selector, SIZES, 200)
    assert ids.dtype == np.int32
    assert ids.shape == (200, selector.cohort) == (200, M)
    assert ids.min() == 0
    assert ids.max() == N - 1
    assert all(len(set(row)) == M for row in ids.tolist())
    assert len({frozenset(row) for row in ids.tolist()}) > 20


def test_the_cohorts_are_the_same_where_float64_is_on(selector):
    """Else a run in it would show another experiment, and not what rounding does."""
    narrow = draw(selector, SIZES, 20)
    with jax.enable_x64(True):
        assert_array_equal(draw(selector, SIZES, 20), narrow)


def test_ids_stay_small_integers_where_float64_is_on(selector):
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        state = selector.init(jnp.asarray(SIZES), jax.random.key(1))
        ids, _ = jax.eval_shape(lambda key: selector.select(state, key, make_context(N)), jax.random.key(0))
    assert ids.dtype == jnp.int32


def test_the_key_alone_decides(selector):
    """Compiled, vmapped over keys, in a scan that carries the state: the same cohorts as one by one."""
    context, keys = make_context(N), jax.random.split(jax.random.key(3), 4)
    start = selector.init(jnp.asarray(SIZES), jax.random.key(1))

    def play(state, key):
        ids, state = selector.select(state, key, context)
        return selector.observe(state, random_report(0, M)._replace(ids=ids)), ids

    state, one_by_one = start, []
    for key in keys:
        state, ids = play(state, key)
        one_by_one.append(ids)
    last, scanned = jax.lax.scan(play, start, keys)
    assert_array_equal(scanned, one_by_one)
    assert jax.tree.map(jax.typeof, last) == jax.tree.map(jax.typeof, start)
    _, batched = jax.jit(jax.vmap(play, in_axes=(None, 0)))(start, keys)
    alone = jax.jit(play)
    assert_array_equal(batched, [alone(start, key)[1] for key in keys])


@pytest.mark.parametrize("m", [1, N])
@pytest.mark.parametrize("name", registry.SELECTORS)
def test_one_client_and_everybody(name, m):
    ids = draw(registry.SELECTORS[name](m), SIZES, 200)
    assert ids.shape == (200, m)
    assert set(ids.flat) == set(range(N))
    assert all(len(set(row)) == m for row in ids.tolist())


@pytest.mark.parametrize("m", [0, -1, 2.0, True])
@pytest.mark.parametrize("name", registry.SELECTORS)
def test_a_cohort_needs_a_whole_number_of_clients(name, m):
    with pytest.raises(ValueError, match=r"^m must be"):
        registry.SELECTORS[name](m)


# uniform


@pytest.mark.parametrize("m", [1, 2, 4])
def test_every_set_is_equally_likely(m):
    sets = list(combinations(range(5), m))
    assert_law(np.sort(draw(ff.uniform(m), np.ones(5))), dict.fromkeys(sets, 1 / len(sets)))


def test_everybody_comes_in_order():
    assert_array_equal(draw(ff.uniform(5), np.ones(5), 3), [range(5)] * 3)


def test_the_cost_of_a_uniform_cohort_is_that_of_its_size():
    """A million clients: the compiled program does and holds what it does for a thousand."""

    def cost(selector, n):
        state = selector.init(jnp.ones(n))
        select = jax.jit(lambda state, key: selector.select(state, key, make_context(n))[0])
        compiled = select.lower(state, jax.random.key(0)).compile()
        return compiled.cost_analysis()["flops"], compiled.memory_analysis().temp_size_in_bytes

    assert cost(ff.uniform(10), 10**6) == cost(ff.uniform(10), 10**3)
    assert cost(ff.size_proportional(10), 10**5)[0] > cost(ff.size_proportional(10), 10**3)[0]


def test_a_million_clients_are_all_within_reach():
    ids = np.sort(draw(ff.uniform(10), np.ones(10**6), 1000))
    assert (np.diff(ids) > 0).all()
    assert ids.min() >= 0
    assert ids.max() < 10**6
    assert chisquare(np.histogram(ids, bins=10, range=(0, 10**6))[0]).pvalue > 0.01


# size_proportional


def test_size_proportional_draws_one_after_another():
    """P(first i, then j) = n_i / n * n_j / (n - n_i), in this order."""
    sizes = np.array([1.0, 2.0, 3.0, 6.0])
    share = sizes / sizes.sum()
    law = {(i, j): share[i] * share[j] / (1 - share[i]) for i, j in permutations(range(4), 2)}
    assert abs(sum(law.values()) - 1) < 1e-12
    assert_law(draw(ff.size_proportional(2), sizes), law)


def test_a_client_without_examples_is_never_drawn():
    ids = draw(ff.size_proportional(2), [5, 0, 5, 5], 500)
    assert set(ids.flat) == {0, 2, 3}

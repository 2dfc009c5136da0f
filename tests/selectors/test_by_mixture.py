"""Selection by a rule's mixture: each client with its probability, together as many as there are slots."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedjax_fair.selectors.by_mixture import by_mixture, inclusion
from fedjax_fair.types import Context

N = 6
MIXTURES = {
    "even": [1 / 6] * 6,
    "one that would be drawn twice": [0.5, 0.1, 0.1, 0.1, 0.1, 0.1],
    "two": [0.45, 0.02, 0.4, 0.05, 0.05, 0.03],
    "fewer than slots": [0.7, 0, 0.3, 0, 0, 0],
    "one only": [0, 0, 0, 1, 0, 0],
}


@pytest.mark.parametrize("name", MIXTURES)
@pytest.mark.parametrize("m", [1, 3, 6])
def test_probabilities_are_in_proportion_up_to_1_and_fill_the_slots(name, m):
    weights = np.array(MIXTURES[name], np.float32)
    drawn = np.asarray(inclusion(jnp.asarray(weights), m))
    assert_allclose(drawn.sum(), min(m, (weights > 0).sum()), rtol=1e-5)
    assert (drawn <= 1).all()
    assert (drawn[weights == 0] == 0).all()
    free = (drawn > 0) & (drawn < 1)
    if free.any():
        ratio = drawn[free] / weights[free]
        assert_allclose(ratio, ratio[0], rtol=1e-5)
        assert (
            ratio[0] * weights[drawn == 1] >= 1 - 1e-5
        ).all()  # who is in for sure would be drawn more than once


@pytest.mark.parametrize("name", MIXTURES)
def test_clients_are_drawn_as_often_as_they_should_be(name):
    weights, m, draws = jnp.asarray(MIXTURES[name], jnp.float32), 3, 4000
    selector = by_mixture(m)

    class Rule:
        pass

    rule = Rule()
    rule.weights = weights

    def select(key):
        context = Context(jnp.int32(0), N, None, None, rule)
        return selector.select((), key, context)[0]

    ids = np.asarray(jax.jit(jax.vmap(select))(jax.random.split(jax.random.key(0), draws)))
    assert all(len({*row[row < N]}) == (row < N).sum() for row in ids)  # nobody twice
    often = np.bincount(ids[ids < N], minlength=N) / draws
    assert_allclose(often, inclusion(weights, m), atol=0.03)


def test_any_two_clients_may_be_drawn_together():
    weights, m = jnp.full(N, 1 / N), 3

    class Rule:
        pass

    rule = Rule()
    rule.weights = weights
    context = Context(jnp.int32(0), N, None, None, rule)
    keys = jax.random.split(jax.random.key(1), 500)
    ids = np.asarray(jax.vmap(lambda key: by_mixture(m).select((), key, context)[0])(keys))
    together = {
        tuple(sorted(pair)) for row in ids for pair in ((row[0], row[1]), (row[0], row[2]), (row[1], row[2]))
    }
    assert together == {(i, j) for i in range(N) for j in range(i + 1, N)}

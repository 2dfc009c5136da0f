"""A few of many clients who have never taken part, without a look at all of them."""

import importlib
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from contract import make_context
from numpy.testing import assert_array_equal
from scipy.stats import chisquare

import fedjax_fair as ff
from fedjax_fair.numerics.largest import MANY
from fedjax_fair.selectors.ranking import any_of

CHOSEN = jnp.asarray([True, True, False, True, True, False])


def drawn(chosen, m, count):
    """Cohorts, each in the order of its ids; of -1 where the draws hit on too few."""
    draw = jax.jit(
        jax.vmap(lambda key: any_of(chosen.__getitem__, len(chosen), m, key, lambda key: jnp.full(m, -1)))
    )
    return np.sort(draw(jax.random.split(jax.random.key(0), count)), axis=1)


def test_every_set_of_those_chosen_is_equally_likely():
    found = drawn(CHOSEN, 2, 6000)
    found = found[found[:, 0] >= 0]
    assert len(found) > 5990  # sixteen draws hit on less than two in 6 cases of 100,000
    sets, counts = np.unique(found, axis=0, return_counts=True)
    assert {*map(tuple, sets)} == {*combinations([0, 1, 3, 4], 2)}
    assert chisquare(counts).pvalue > 0.01


def test_where_fewer_are_chosen_than_are_wanted_the_other_way_is_taken():
    assert_array_equal(drawn(CHOSEN, 5, 50), -1)
    assert_array_equal(drawn(jnp.zeros(6, bool), 1, 50), -1)


def test_while_most_of_many_are_new_ucb_cs_ranks_nobody_in_any_precision(monkeypatch):
    module = importlib.import_module("fedjax_fair.selectors.ucb_cs")
    monkeypatch.setattr(module, "top", lambda values, m, key: jnp.full(m, -1, jnp.int32))  # the long way
    selector = ff.ucb_cs(5)
    for wide in (False, True):
        with jax.enable_x64(wide):
            ids, _ = selector.select(selector.init(jnp.ones(MANY)), jax.random.key(0), make_context(MANY))
        assert ids.dtype == jnp.int32
        assert len({*ids.tolist()}) == 5
        assert min(ids.tolist()) >= 0


def test_of_many_clients_nobody_is_played_twice_before_everybody_has_been():
    """UCB-CS on as many clients as make the short way worth it; at the end few are new, and it is the long way."""
    n, m = MANY + 10, MANY // 8
    selector, ones = ff.ucb_cs(m), jnp.ones(m)
    report = ff.Report(jnp.arange(m), ones, ones > 0, ones, ones, ones, ones, jnp.eye(m), None)

    def step(state, key):
        ids, state = selector.select(state, key, make_context(n))
        return selector.observe(state, report._replace(ids=ids, train_loss=ids / n)), ids

    state, ids = jax.lax.scan(step, selector.init(jnp.ones(n)), jax.random.split(jax.random.key(0), 9))
    assert len({*ids[:8].ravel().tolist()}) == 8 * m
    assert {*ids.ravel().tolist()} == {*range(n)}
    others = np.setdiff1d(ids[8], np.setdiff1d(np.arange(n), ids[:8]))
    assert len(others) == m - 10
    assert np.isfinite(state.log_count).all()

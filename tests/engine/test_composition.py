"""Any selector with any rule, any objective and any server optimiser: one program, three rounds, two seeds."""

import itertools
import operator
import os

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fedjax_fair as ff
from fedjax_fair import registry

N, S = 4, 2
OBJECTIVES = {
    "erm": ff.erm,
    "tilted": ff.tilted(1.0),
    "propfair": ff.propfair_objective(5.0),
    "proximal": ff.proximal(0.1),
}
SERVERS = {"sgd": optax.sgd(1.0), "adam": optax.adam(0.01)}
EVERYTHING = [*itertools.product(registry.AGGREGATORS, registry.SELECTORS, OBJECTIVES, SERVERS)]


def pairwise() -> list[tuple[str, ...]]:
    """Every pair of choices at least once: all rules x selectors, objectives and servers taking turns."""
    chosen = []
    for (i, rule), (j, selector) in itertools.product(
        enumerate(registry.AGGREGATORS), enumerate(registry.SELECTORS)
    ):
        objective, server = [*OBJECTIVES][(i + j) % 4], [*SERVERS][(i + j // 2) % 2]
        chosen.append((rule, selector, objective, server))
    return chosen


FULL = os.environ.get("COMPOSITION") == "full"
CASES = EVERYTHING if FULL else pairwise()
# Each rule once, with every selector, objective and server: compiling is slow.
WIDE = len(registry.SELECTORS)
ONE_OF_EACH = [case for k, case in enumerate(pairwise()) if k % WIDE == (k // WIDE + k // (4 * WIDE)) % WIDE]


@pytest.fixture(scope="module")
def data():
    x = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)
    return ff.FederatedData.from_arrays(x, y, client_id=np.arange(80) % N)


def test_the_cases_hold_every_pair_of_choices():
    columns = (registry.AGGREGATORS, registry.SELECTORS, OBJECTIVES, SERVERS)
    for a, b in itertools.combinations(range(4), 2):
        assert {(case[a], case[b]) for case in CASES} == {*itertools.product(columns[a], columns[b])}


def test_one_of_each_holds_every_choice():
    for a, names in enumerate((registry.AGGREGATORS, registry.SELECTORS, OBJECTIVES, SERVERS)):
        missing = set(names) - {case[a] for case in ONE_OF_EACH}
        assert not missing


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_three_rounds_alone_and_of_two_seeds_at_once(case, data):
    rule, selector, objective, server = case
    cohort = N if rule == "aaggff_s" else S  # which refuses less than everybody
    settings = {"sampling": "selector"} if rule == "drfa" and selector != "uniform" else {}  # which draws by itself
    sim = ff.simulation(
        ff.models.logistic_regression(classes=2),
        data,
        aggregator=registry.make_rule(rule, settings, learning_rate=0.1),
        selector=registry.SELECTORS[selector](cohort),
        trainer=ff.local_sgd(optax.sgd(0.1), steps=2, batch_size=5, objective=OBJECTIVES[objective]),
        server_optimizer=SERVERS[server],
    )

    def play(key, data):
        begun = sim.init(key)
        state, info = jax.lax.scan(lambda state, _: sim.step(state, data), begun, length=3)
        return begun.params, state, info

    # Unoptimised code: this test is about composing, not about speed.
    compiler = {"compiler_options": {"xla_backend_optimization_level": 0}}
    alone, keys = jax.jit(play, **compiler), jax.random.split(jax.random.key(0), 2)
    singly = [alone(key, data) for key in keys]
    assert alone._cache_size() == 1
    for begun, state, info in singly:
        for leaf in jax.tree.leaves((state.params, state.server, info.coef, info.loss)):
            assert jnp.isfinite(leaf).all()
        assert state.round == 3
        assert info.coef.shape == info.ids.shape == (3, cohort)
        assert info.active.all()
        assert all(len(set(ids)) == cohort for ids in info.ids.tolist())
        moved = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), state.params, begun)
        assert max(jax.tree.leaves(moved)) > 0
    if case in (pairwise() if FULL else ONE_OF_EACH):
        at_once = jax.jit(jax.vmap(play, in_axes=(0, None)), **compiler)(keys, data)
        for seed, (_, expected, told) in enumerate(singly):
            _, state, info = jax.tree.map(operator.itemgetter(seed), at_once)
            assert told.ids.tolist() == info.ids.tolist()
            chex.assert_trees_all_close(expected.params, state.params, rtol=2e-3, atol=2e-4)

"""Any selector with any kind of rule, objective and server optimiser: one program, three rounds, two seeds."""

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
from fedjax_fair.types import as_method

N, S = 4, 2
OBJECTIVES = {
    "erm": ff.erm,
    "tilted": ff.tilted(1.0),
    "propfair": ff.propfair_objective(5.0),
    "proximal": ff.proximal(0.1),
}
SERVERS = {"sgd": optax.sgd(1.0), "adam": optax.adam(0.01)}
EVERYTHING = [*itertools.product(registry.AGGREGATORS, registry.SELECTORS, OBJECTIVES, SERVERS)]
# To the engine a rule is the signals that it reads and the parts that it brings: rules alike in both take turns.
KINDS = [
    ["fedavg", "size_softmax"],
    ["fedsgd"],
    ["fedprox", "propfair"],
    ["qfedavg", "fedfv", "fedmdfg", "adafed", "fairmoo"],
    ["qfedsgd"],
    ["afl", "fedmaba", "aaggff_d", "fedeba", "loss_proportional", "loss_softmax", "reweighted", "gifair", "drfl"],
    ["aaggff_s"],  # apart from those: its cohort is everybody
    ["term", "superquantile"],
    ["fedmgda_plus"],
    ["pg_ffl"],
    ["fednova"],
    ["fedlf"],
    ["fedheal"],
    ["scaffold"],
    ["feddyn"],
    ["ditto", "apfl", "fedper", "fedrep"],
    ["drfa"],
    ["fedeba_plus"],
]
WIDE = len(registry.SELECTORS)


def pairwise() -> list[tuple[str, ...]]:
    """Every pair of choices at least once: all kinds x selectors, rules, objectives and servers taking turns."""
    selectors, objectives, servers = [*registry.SELECTORS], [*OBJECTIVES], [*SERVERS]
    return [
        (kind[j % len(kind)], selectors[j % WIDE], objectives[(i + j) % 4], servers[(i + j // 2) % 2])
        for i, kind in enumerate(KINDS)
        for j in range(max(len(kind), WIDE))
    ]


def kind_of(rule: str) -> int:
    return next(i for i, kind in enumerate(KINDS) if rule in kind)


def one_of_each() -> list[tuple[str, ...]]:
    """Each kind once, with every selector, objective and server: compiling is slow."""
    chosen = []
    for i, (_, cases) in enumerate(itertools.groupby(pairwise(), lambda case: kind_of(case[0]))):
        chosen.append([*cases][(i + i // 4) % WIDE])
    return chosen


FULL = os.environ.get("COMPOSITION") == "full"
CASES = EVERYTHING if FULL else pairwise()
AT_ONCE = pairwise() if FULL else one_of_each()


@pytest.fixture(scope="module")
def data():
    x = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)
    return ff.FederatedData.from_arrays(x, y, client_id=np.arange(80) % N)


def test_rules_of_one_kind_are_alike_to_the_engine():
    """And those of another kind are not: a new rule belongs where it is like the others, or to itself."""
    alike = {}
    for rule in registry.AGGREGATORS:
        method = as_method(registry.make_rule(rule, {}, learning_rate=0.1))
        signals = ff.reads(method, n_clients=N, cohort=N)
        parts = tuple(name for name, part in method._asdict().items() if part is not None)
        alike.setdefault((signals, parts, rule == "aaggff_s"), set()).add(rule)
    assert sorted(map(sorted, KINDS)) == sorted(map(sorted, alike.values()))


def test_the_cases_hold_every_rule_and_every_pair_of_choices():
    assert {case[0] for case in CASES} == {*registry.AGGREGATORS}
    columns = (range(len(KINDS)), registry.SELECTORS, OBJECTIVES, SERVERS)
    cases = [(kind_of(rule), *choices) for rule, *choices in CASES]
    for a, b in itertools.combinations(range(4), 2):
        assert {(case[a], case[b]) for case in cases} == {*itertools.product(columns[a], columns[b])}


def test_one_of_each_holds_every_choice():
    cases = [(kind_of(rule), *choices) for rule, *choices in AT_ONCE]
    for a, names in enumerate((range(len(KINDS)), registry.SELECTORS, OBJECTIVES, SERVERS)):
        missing = set(names) - {case[a] for case in cases}
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
    if case in AT_ONCE:
        at_once = jax.jit(jax.vmap(play, in_axes=(0, None)), **compiler)(keys, data)
        for seed, (_, expected, told) in enumerate(singly):
            _, state, info = jax.tree.map(operator.itemgetter(seed), at_once)
            assert told.ids.tolist() == info.ids.tolist()
            chex.assert_trees_all_close(expected.params, state.params, rtol=2e-3, atol=2e-4)

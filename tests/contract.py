"""What the tests of the rules share: the contract table, reports to feed it, the authors' own figures."""

import functools
import json
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fedjax_fair as ff
from fedjax_fair import registry
from fedjax_fair.types import Aggregator, Context, Report, as_method

N, S = 8, 5  # clients in the federation, slots of a partial cohort
SIZES = np.array([50, 20, 400, 75, 310, 120, 33, 90], np.float32)
LOSS = np.array([0.3, 2.1, 1.2, 0.9, 3.3, 0.7, 1.9, 2.6], np.float32)  # one of each client, all distinct
SUB_SIMPLEX = {"qfedavg", "qfedsgd"}  # a step size of their own: nonnegative coefficients that sum to at most 1
DIRECTION = {  # rescaled: coefficients of any size and (but for FedMGDA+ and FedNova) sign
    "fedmgda_plus",
    "fedfv",
    "fednova",
    "fedmdfg",
    "adafed",
    "fairmoo",
}
# Everybody else's coefficients are nonnegative and sum to 1.

# Choices that change the arithmetic, beside the defaults of every registered rule.
VARIANTS = {
    "fedavg-uniform": ("fedavg", {"weighting": "uniform"}),
    "fedmaba-literal": ("fedmaba", {"kl_set": "literal", "scatter_back": "literal"}),
    "aaggff_s-repo": ("aaggff_s", {"variant": "repo"}),
    "aaggff_d-repo": ("aaggff_d", {"variant": "repo", "cdf": "normal"}),
    "gifair-groups": ("gifair", {"groups": [0, 1, 2, 0, 1, 2, 0, 1]}),
    "gifair-rate": ("gifair", {"reading": "rate"}),
}
CASES = {name: (name, {}) for name in registry.AGGREGATORS} | VARIANTS


class Rule(NamedTuple):
    """One line of the contract table."""

    init: object
    weigh: object  # compiled
    eager: object
    slots: int  # S, or N for a rule that refuses a partial cohort
    kind: str  # "simplex", "sub-simplex" or "direction"


@functools.cache
def rule(case: str) -> Rule:
    name, settings = CASES[case]
    method = as_method(registry.make_rule(name, settings, learning_rate=0.1))
    try:
        ff.reads(method, n_clients=N, cohort=S)
    except ValueError:
        slots = N
    else:
        slots = S
    init, weigh = method.aggregator
    kind = "sub-simplex" if name in SUB_SIMPLEX else "direction" if name in DIRECTION else "simplex"
    return Rule(init, jax.jit(weigh), weigh, slots, kind)


def make_report(seed: int, ids, **changes) -> Report:
    """A random report of the clients ``ids``, all active; ``changes`` replace whole signals."""
    rng = np.random.default_rng(seed)
    ids = np.asarray(ids, np.int32)
    s = ids.size

    def signal(low: float, high: float) -> np.ndarray:
        return rng.uniform(low, high, s).astype(np.float32)

    updates = {"w": rng.normal(0, 0.3, (s, 4, 4)).astype(np.float32), "b": signal(-0.3, 0.3)}
    flat = np.concatenate([u.reshape(s, -1) for u in updates.values()], axis=1)
    report = Report(
        ids=ids,
        n=SIZES[ids],
        active=np.ones(s, bool),
        loss=signal(0.2, 4),
        train_loss=signal(0.2, 4),
        train_loss_std=signal(0.1, 1),
        accuracy=signal(0, 1),
        gram=flat @ flat.T,
        updates=updates,
        steps=rng.integers(1, 9, s).astype(np.int32),
    )
    new = {k: np.asarray(v, getattr(report, k).dtype) for k, v in changes.items()}
    return jax.tree.map(jnp.asarray, report._replace(**new))


def random_report(seed: int, slots: int, n_clients: int = N, **changes) -> Report:
    """A random report of a random cohort."""
    return make_report(seed, np.random.default_rng(seed + 1000).permutation(n_clients)[:slots], **changes)


def play(aggregator: Aggregator | Rule, reports, sizes=SIZES):
    """Play the rounds one by one: the coefficients and the states after each."""
    state, coefs, states = aggregator.init(jnp.asarray(sizes)), [], []
    weigh = aggregator.weigh if isinstance(aggregator, Rule) else jax.jit(aggregator.weigh)
    for t, report in enumerate(reports):
        coef, state = weigh(state, report, jax.random.key(t))
        coefs.append(coef)
        states.append(state)
    return coefs, states


@functools.cache
def seen_two_rounds(case: Rule):
    """A state that is no longer the initial one."""
    return play(case, [random_report(seed, case.slots) for seed in (50, 51)])[1][-1]


def everybody(loss, **changes):
    return make_report(0, range(N), loss=loss, **changes)


def coefficients(rule, *reports, sizes=SIZES):
    """The coefficients of the last of some rounds."""
    return np.asarray(play(as_method(rule).aggregator, reports, sizes)[0][-1])


def partial_rounds(rule, rounds=200, n=100, m=10):
    """Many rounds of small cohorts whose losses persist: the states after each round, and every coefficient."""
    rng = np.random.default_rng(0)
    base = rng.gamma(2, 0.7, n)
    ids = np.stack([rng.permutation(n)[:m] for _ in range(rounds)]).astype(np.int32)
    loss = (base[ids] * rng.uniform(0.8, 1.2, ids.shape)).astype(np.float32)
    toy = make_report(0, range(5))
    toy = jax.tree.map(lambda v: jnp.resize(v, (m, *v.shape[1:])), toy)._replace(gram=jnp.eye(m))

    def step(state, data):
        coef, state = rule.weigh(state, toy._replace(ids=data[0], loss=data[1]), jax.random.key(0))
        return state, (coef, state)

    return jax.lax.scan(step, rule.init(jnp.ones(n)), (jnp.asarray(ids), jnp.asarray(loss)))[1]


def take(report: Report, slots) -> Report:
    """The report with its slots in another order, or fewer of them."""
    moved = jax.tree.map(lambda v: v[slots], report)
    return moved._replace(gram=moved.gram[:, slots])


def stack(trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def unstack(tree, count: int):
    return [jax.tree.map(lambda v, i=i: v[i], tree) for i in range(count)]


def make_context(n_clients: int, round: int = 0) -> Context:
    """What the engine hands to a selector: everybody available, all losses equal, so that chance decides."""
    return Context(
        jnp.int32(round),
        n_clients,
        lambda ids, key=None, batch=None: jnp.ones(ids.shape),
        lambda ids: ids >= 0,
    )


def golden(name: str):
    """The inputs and outputs of the authors' own code."""
    return json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text())

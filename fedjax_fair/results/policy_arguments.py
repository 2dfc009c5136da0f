"""The arguments of a policy's training, checked and made regular."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_fair.aggregators.exploring import exploring
from fedjax_fair.aggregators.pg_ffl import pg_ffl, reward_of
from fedjax_fair.aggregators.policy import STATES, WEIGHTS, Network, Policy, check_policy
from fedjax_fair.checks import check_choice, check_range, check_takes, said
from fedjax_fair.data.alike import Alike
from fedjax_fair.engine.episodes import Lesson, explored_of
from fedjax_fair.engine.keys import as_key
from fedjax_fair.engine.made_alike import made_alike
from fedjax_fair.engine.side_by_side import LARGE, given_width
from fedjax_fair.results.compare_arguments import check_build
from fedjax_fair.types import Simulation

BASELINES = ("round", "own")
SIDE_BY_SIDE = 16
"""Small models' federations in one block, at most: with 32 an episode of 64 took 1.2 times as long, with 4 or 8 1.0
to 1.3 times."""


def lesson_of(
    state: str, weights: str, policy: Policy | None, discount: float, baseline: str | None, beta: float
) -> tuple[Policy, Lesson]:
    """What a policy sees and how it weighs, without parameters; and how it learns."""
    check_choice("state", state, STATES)
    check_choice("weights", weights, WEIGHTS)
    check_range("discount", discount, 0, 1)
    check_range("beta", beta, 0)
    if baseline is not None:
        check_choice("baseline", baseline, BASELINES)
    if policy is not None:
        check_policy(policy)
    form = Policy(None, state, weights) if policy is None else policy._replace(params=None, rewards=None)
    return form, Lesson(float(discount), baseline, float(beta))


def deviations_of(std: Any, episodes: int) -> np.ndarray:
    """f64[E], from the first of ``std`` to the last by one factor."""
    if not isinstance(std, tuple | list) or len(std) != 2:
        raise ValueError(
            f"std must be that of the first and that of the last episode, such as (.5, .1), got {std!r}"
        )
    for value in std:
        check_range("std", value, 0, open_low=True)
    return np.geomspace(float(std[0]), float(std[1]), episodes)


def first_policy(form: Policy, policy: Policy | None, seed: int) -> Policy:
    """The policy before the first episode."""
    if policy is not None:
        return policy
    width = STATES[form.state][1]
    return form._replace(params=Network().init(as_key(seed), jnp.zeros((1, width), jnp.result_type(float))))


def check_simulations(build: Any, form: Policy, of: Alike) -> tuple[Simulation, int]:
    """The simulation on the largest federation, with a policy that does not explore, and its cohort S."""
    if not callable(build):
        raise ValueError(f"build must be a function (rule, data) -> ff.simulation(...), got {build!r}")
    check_takes("build", build, "rule", "data")
    rule = pg_ffl(policy=first_policy(form, None, 0))
    sim = check_build("the policy", lambda: build(rule, of.largest), of.largest, {}, set())
    if sim.arguments is None:
        raise ValueError("build must return what ff.simulation(...) made, got a simulation without arguments")
    if sim.arguments["devices"] != 1:
        raise ValueError(f"build must leave the clients on one device, got devices={sim.arguments['devices']!r}")
    other = build(rule, of.each[-1])
    if not made_alike(*({k: v for k, v in (s.arguments or {}).items() if k != "data"} for s in (sim, other))):
        raise ValueError("build must make the same of all federations, got something else for those of other data")
    selector = sim.arguments["selector"]
    cohort = sim.data.n_clients if selector is None else selector.cohort
    if cohort < 2:
        raise ValueError(
            "build must select two or more clients a round: one alone has all the weight, got cohort 1"
        )
    tried = build(exploring(first_policy(form, None, 0), 1.0, cohort, reward_of), of.largest)
    explored_of(jax.eval_shape(tried.init, jax.random.key(0)).aggregator)
    return sim, cohort


def check_reward(reward: Any, cohort: int) -> None:
    """A function of the clients' accuracies that gives one number."""
    if not callable(reward):
        raise ValueError(f"reward must be a function (accuracy, active) -> f[], got {reward!r}")
    cohorts = (jax.ShapeDtypeStruct((cohort,), jnp.result_type(float)), jax.ShapeDtypeStruct((cohort,), bool))
    try:
        given = jax.eval_shape(reward, *cohorts)
    except Exception as error:  # whatever a user's function raises
        raise ValueError(
            f"reward must take accuracy f[{cohort}] and active bool[{cohort}], got {said(error)}"
        ) from error
    if getattr(given, "shape", None) != ():
        got = f"shape {given.shape}" if hasattr(given, "shape") else type(given).__name__
        raise ValueError(f"reward must return one number, got {got}")


def width_of(side_by_side: Any, sim: Simulation, federations: int, threads: int) -> int:
    """How many federations are vmapped at a time."""
    if (given := given_width(side_by_side, federations)) is not None:
        return given
    if jax.default_backend() != "cpu":
        return federations
    params = jax.eval_shape(sim.init, jax.random.key(0)).params
    if sum(leaf.size for leaf in jax.tree.leaves(params)) > LARGE:
        return 1
    return min(SIDE_BY_SIDE, -(-federations // threads))

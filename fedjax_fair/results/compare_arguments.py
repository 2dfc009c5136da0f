"""The arguments of a comparison, checked and made regular: rules, grids, federations, what builds a simulation."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax

from fedjax_fair.checks import check_choice
from fedjax_fair.data import FederatedData
from fedjax_fair.engine.grid import values_of
from fedjax_fair.types import Aggregator, Method, Simulation


def check_rules(rules: Any) -> None:
    """Names of rules, or of their factories."""
    if not isinstance(rules, Mapping) or not rules:
        raise ValueError(f"rules must map names to rules, such as {{'fedavg': ff.fedavg()}}, got {rules!r}")
    for name, rule in rules.items():
        if not isinstance(rule, Aggregator | Method) and not callable(rule):
            raise ValueError(f"rules[{name!r}] must be a rule such as ff.fedavg(), or a factory, got {rule!r}")


def grids_of(rules: Mapping[str, Any], build: Any, tune: Any) -> dict[str, dict[str, list[Any]]]:
    """Per rule its grid, ``{}`` where it is not tuned; ValueError for what neither the rule nor build takes."""
    if not callable(build):
        raise ValueError(f"build must be a function (rule, data, **settings) -> simulation, got {build!r}")
    if not isinstance(tune, Mapping):
        raise ValueError(
            f"tune must map rules to their grids, such as {{'qfedavg': {{'q': [.1, 1.]}}}}, got {tune!r}"
        )
    for rule, grid in tune.items():
        check_choice("rule in tune", rule, rules)
        if not isinstance(grid, Mapping) or not grid:
            raise ValueError(f"tune[{rule!r}] must map settings to their values, got {grid!r}")
        own = (
            [] if isinstance(rules[rule], Aggregator | Method) else list(inspect.signature(rules[rule]).parameters)
        )
        for setting in grid:
            check_choice(f"setting in tune[{rule!r}]", setting, [*own, *settings_of_build(build)])
    grids = {r: {name: values_of(name, values) for name, values in tune.get(r, {}).items()} for r in rules}
    for rule, given in rules.items():
        parameters = {} if isinstance(given, Aggregator | Method) else inspect.signature(given).parameters
        for name, parameter in parameters.items():
            if parameter.default is parameter.empty and name not in grids[rule]:
                raise ValueError(f"rules[{rule!r}] needs {name}: give it a value, or values in tune, got nothing")
    return grids


def settings_of_build(build: Callable[..., Any]) -> list[str]:
    """The settings of ``build``, behind the rule and the data."""
    return list(inspect.signature(build).parameters)[2:]


def draw(federation: Any, replicates: int) -> list[FederatedData]:
    """The replicates' federations; one where all share it."""
    if isinstance(federation, FederatedData):
        return [federation]
    if not callable(federation):
        raise ValueError(
            f"federation must be a FederatedData or a function of a seed, got {type(federation).__name__}"
        )
    drawn = [federation(seed) for seed in range(replicates)]
    for data in drawn:
        if not isinstance(data, FederatedData):
            raise ValueError(f"federation must return a FederatedData for every seed, got {type(data).__name__}")
    if len({data.n_clients for data in drawn}) > 1:
        raise ValueError(f"federation must draw as many clients for every seed, got {[d.n_clients for d in drawn]}")
    return drawn


def maker_of(build: Any, given: Any) -> Callable[[FederatedData], Callable[..., Simulation]]:
    """``data -> (settings -> simulation)``: the rule takes those of its own, ``build`` the others."""
    builds = set(settings_of_build(build))
    owns = set() if isinstance(given, Aggregator | Method) else set(inspect.signature(given).parameters)

    def on(data: FederatedData) -> Callable[..., Simulation]:
        def make(**point: Any) -> Simulation:
            rule = (
                given
                if isinstance(given, Aggregator | Method)
                else given(**{k: point[k] for k in point if k in owns})
            )
            return build(rule, data, **{k: point[k] for k in point if k in builds and k not in owns})

        return make

    return on


def check_build(rule: str, make: Callable[..., Any], grid: Mapping[str, list[Any]], wanted: set[str]) -> None:
    """What is built is a simulation that evaluates all splits that are read."""
    sim = make(**{name: values[0] for name, values in grid.items()})
    if not isinstance(sim, Simulation):
        raise ValueError(f"build must return an ff.simulation(...), got {type(sim).__name__} for {rule}")
    scored = jax.eval_shape(lambda key: sim.evaluate(sim.deploy(sim.init(key)), sim.data), jax.random.key(0))
    for split in sorted(wanted - set(scored)):
        raise ValueError(
            f"build must evaluate the {split} split, as in evaluate=('test', 'validation'), got {[*scored]}"
        )

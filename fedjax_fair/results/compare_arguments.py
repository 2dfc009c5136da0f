"""The arguments of a comparison, checked and made regular: rules, grids, federations, what builds a simulation."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fedjax_fair.checks import check_choice
from fedjax_fair.data import FederatedData
from fedjax_fair.data.alike import equal
from fedjax_fair.engine.evaluation import scored
from fedjax_fair.engine.grid import extremes, values_of
from fedjax_fair.engine.joining import is_made
from fedjax_fair.engine.sharing import rule_of, score_alike
from fedjax_fair.types import Aggregator, Method, Simulation


def check_name(name: Any) -> None:
    """A rule's name, a word that is none of the reference rows'."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"rules must have words as names, got {name!r}")
    if name in ("local", "pooled"):
        raise ValueError(f"rules must not be called as the rows local and pooled are, got {name!r}")


def check_rules(rules: Any) -> None:
    """Names of rules, or of their factories."""
    if not isinstance(rules, Mapping) or not rules:
        raise ValueError(f"rules must map names to rules, such as {{'fedavg': ff.fedavg()}}, got {rules!r}")
    for name, rule in rules.items():
        check_name(name)
        if not isinstance(rule_of(rule), Aggregator | Method) and not callable(rule):
            raise ValueError(f"rules[{name!r}] must be a rule such as ff.fedavg(), or a factory, got {rule!r}")


def grids_of(rules: Mapping[str, Any], build: Any, tune: Any) -> dict[str, dict[str, list[Any]]]:
    """Per rule its grid, ``{}`` where it is not tuned; ValueError for what neither the rule nor build takes."""
    if not callable(build):
        raise ValueError(f"build must be a function (rule, data, **settings) -> simulation, got {build!r}")
    if not isinstance(tune, Mapping):
        raise ValueError(f"tune must map rules to grids, such as {{'qfedavg': {{'q': [.1, 1.]}}}}, got {tune!r}")
    of_build = settings_of_build(build)
    for rule, grid in tune.items():
        check_choice("rule in tune", rule, rules)
        if not isinstance(grid, Mapping) or not grid:
            raise ValueError(f"tune[{rule!r}] must map settings to their values, got {grid!r}")
        for setting in grid:
            try:
                check_choice(f"setting in tune[{rule!r}]", setting, [*settings_of_rule(rules[rule]), *of_build])
            except ValueError as error:
                if not is_made(rules[rule]):
                    raise
                raise ValueError(
                    f"{error}: a rule that is made has no settings to tune, its factory has"
                ) from error
    grids = {r: {name: values_of(name, values) for name, values in tune.get(r, {}).items()} for r in rules}
    for rule, given in rules.items():
        of_rule = settings_of_rule(given)
        for name in of_rule.keys() & of_build.keys() - grids[rule].keys():
            if (mine := of_rule[name].default) != (its := of_build[name].default):
                raise ValueError(
                    f"{name} is a setting of both rules[{rule!r}] and build, and must have one default, or values "
                    f"in tune[{rule!r}], got {mine!r} and {its!r}: for a {name} of the rule's own give the rule "
                    f"made, or a factory that calls it otherwise, lambda own={mine!r}: ..."
                )
        for name, parameter in {**of_rule, **of_build}.items():
            if parameter.default is parameter.empty and name not in grids[rule]:
                whose = f"rules[{rule!r}]" if name in of_rule else "build"
                raise ValueError(f"{whose} needs {name}: give it a value, or values in tune[{rule!r}], got nothing")
    return grids


def settings_of_rule(given: Any) -> dict[str, inspect.Parameter]:
    """What a factory can be given by name; a rule that is made takes nothing."""
    return {} if is_made(given) else _named(given)


def settings_of_build(build: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The settings of ``build``, behind the rule and the data."""
    return dict(list(_named(build).items())[2:])


def _named(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    found = inspect.signature(function).parameters
    return {name: p for name, p in found.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}


def check_clients(clients: Any, n_clients: int) -> np.ndarray | None:
    """bool[N] or None; ValueError for anything else."""
    if clients is None:
        return None
    who = np.asarray(clients)
    if who.dtype != bool or who.shape != (n_clients,) or not who.any():
        got = f"{who.dtype}{list(who.shape)}" if who.dtype != bool or who.shape != (n_clients,) else "nobody"
        raise ValueError(f"clients must be bool[{n_clients}], True for those to judge by, got {got}")
    return who


def draw(federation: Any, replicates: int, first_seed: int = 0) -> list[FederatedData]:
    """The replicates' federations; one where all share it."""
    if isinstance(federation, FederatedData):
        return [federation]
    if not callable(federation):
        raise ValueError(
            f"federation must be a FederatedData or a function of a seed, got {type(federation).__name__}"
        )
    drawn = [federation(seed) for seed in range(first_seed, first_seed + replicates)]
    for data in drawn:
        if not isinstance(data, FederatedData):
            raise ValueError(f"federation must return a FederatedData for every seed, got {type(data).__name__}")
    if len({data.n_clients for data in drawn}) > 1:
        raise ValueError(f"federation must draw as many clients for every seed, got {[d.n_clients for d in drawn]}")
    return drawn


def maker_of(build: Any, given: Any) -> Callable[[FederatedData], Callable[..., Simulation]]:
    """``data -> (settings -> simulation)``: the rule takes those of its own, ``build`` the others."""
    builds, owns = set(settings_of_build(build)), set(settings_of_rule(given))

    def on(data: FederatedData) -> Callable[..., Simulation]:
        def make(**point: Any) -> Simulation:
            rule = given
            if not is_made(given):
                rule = given(**{k: point[k] for k in point if k in owns})
            return build(rule, data, **{k: point[k] for k in point if k in builds})

        return make

    return on


@contextlib.contextmanager
def named(rule: str) -> Iterator[None]:
    """What is raised says for which of the rules."""
    try:
        yield
    except Exception as error:  # whatever a rule or build of the user's raises
        error.add_note(f"This is of rules[{rule!r}].")
        raise


def check_build(
    rule: str,
    make: Callable[..., Any],
    data: FederatedData,
    grid: Mapping[str, list[Any]],
    wanted: set[str],
    known: Sequence[Simulation] = (),
) -> Simulation:
    """The simulation of the first point; ValueError where at the smallest or the largest of a setting there is
    none, of this data and of all splits that are read. It scores as one of the ``known`` does, or is traced."""
    points = extremes(grid)
    made = [make(**point) for point in points]
    for sim in made:
        if not isinstance(sim, Simulation):
            raise ValueError(f"build must return an ff.simulation(...), got {type(sim).__name__} for {rule}")
        if sim.data.train.size.shape != data.train.size.shape or not np.array_equal(sim.data.sizes, data.sizes):
            raise ValueError("build must use the data that it is given, got a simulation of other clients")
        if not equal(sim.data, data):
            raise ValueError(
                "build must use the data that it is given, got a simulation of other examples: change them before, "
                "where federations are made"
            )
    first = made[0]
    if any(score_alike(first, other) for other in known):
        return first
    splits = jax.eval_shape(
        lambda key: scored(first.evaluate, first.deploy, first.init(key), data), jax.random.key(0)
    )
    if missing := sorted(wanted - set(splits)):
        want = "as in evaluate=('test', 'validation')"
        raise ValueError(f"build must evaluate the {missing[0]} split, {want}, got {[*splits]}")
    return first

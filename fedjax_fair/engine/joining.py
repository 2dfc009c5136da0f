"""Which runs of several rules share a program: those of rules that train alike and read the same signals.

Of tiny models and few clients those, too, of which one reads what the updates show, such as their Gram matrix:
that costs less than a program of its own.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from fedjax_fair.aggregators.one_of import one_of
from fedjax_fair.data import FederatedData
from fedjax_fair.engine.grid import Point, label
from fedjax_fair.engine.made_alike import made_alike
from fedjax_fair.numerics.model_size import is_tiny
from fedjax_fair.reads import explained, selects_by_rule
from fedjax_fair.types import Aggregator, Method, Simulation, as_method

Rule = Aggregator | Method


class Variant(NamedTuple):
    """A rule with those of its settings that are part of the program."""

    rule: str
    make: Callable[..., Rule]
    """``**settings -> rule``."""
    fixed: Point
    """Its settings that are no floats."""
    floats: tuple[str, ...]
    """Names of those that are."""


class Run(NamedTuple):
    """One rule at one point of its grid."""

    variant: Variant
    point: Point
    """The rule's own floats."""
    given: Point
    """The settings that ``build`` takes."""
    swept: tuple[str, ...]
    """Which of these are floats."""


class Group(NamedTuple):
    """Runs that share a program."""

    runs: list[int]
    """Their places in what :func:`group` was given."""
    build: Callable[..., Simulation]
    """``**point -> simulation``, with tracers in the place of a point's numbers."""
    points: list[Point]
    """Of each run: which rule it plays, and the floats of all rules and of ``build``."""
    name: str
    sim: Simulation
    """Of the first point."""


SLIGHT = frozenset(["gram", "updates", "steps"])
"""Signals that training leaves behind, whoever reads them: no other pass over the clients' examples."""

FEW = 32
"""Clients of a cohort whose updates of a tiny model are kept and compared in less time than they train."""

WHICH = "rule."
"""Of a point, which rule it plays: no setting can be called so."""

SEVERAL = 16
"""Runs of a comparison up to which one program less is worth it: side by side, every one weighs by all rules."""


def group(
    runs: list[Run],
    build: Callable[..., Simulation],
    data: FederatedData,
    made: Mapping[str, Simulation],
    side_by_side: bool,
) -> list[Group]:
    """The runs by program. ``build`` is ``(rule, data, **settings) -> simulation``; ``made`` holds what it makes of
    rules without settings.

    Runs that go ``side_by_side`` differ from those of a rule alone by rounding anyhow. So of a tiny model, few
    clients and several runs at most, rules share a program also where only one reads the updates. A client whose
    update is finite, but too long for its square to be, is then out of the round for both.

    Rules that bring a local objective, a trainer or a server transform of their own have programs of their own, and
    so has every value of a setting that is no float. So have rules that ``build`` wraps, and pairs whose second
    parts differ: the program has those of one.
    """
    variants: list[list[Variant]] = []
    members: list[list[int]] = []
    sims: list[Simulation] = []
    nearly = side_by_side and len(runs) <= SEVERAL
    for i, run in enumerate(runs):
        for k, first in enumerate(members):
            if not _same_settings(run, runs[first[0]]):
                continue
            if run.variant not in variants[k]:
                like = run._replace(given=runs[first[0]].given)  # of build's floats the same
                sim, of = _ready(like, made) or alone(like, build, data), made_by(like)
                if not (_pairs_alike(of, made_by(runs[first[0]])) and _handed_on(of, sim)):
                    continue
                if not (_handed_on(made_by(runs[first[0]]), sims[k]) and _share(sim, sims[k], nearly)):
                    continue
                variants[k].append(run.variant)
            members[k].append(i)
            break
        else:
            variants.append([run.variant])
            members.append([i])
            sims.append(_ready(run, made) or alone(run, build, data))
    found = []
    for mine, theirs, sim in zip(members, variants, sims):
        joined = _group(runs, mine, theirs, build, data)
        if len(theirs) == 1 or _same_but_rule(joined.sim, sim):
            found.append(joined)
        else:  # build asks which rule it is given, and makes something else of one that stands for several
            apart = [[i for i in mine if runs[i].variant == variant] for variant in theirs]
            found += [_group(runs, own, [variant], build, data) for own, variant in zip(apart, theirs)]
    return found


def _ready(run: Run, made: Mapping[str, Simulation]) -> Simulation | None:
    return None if run.point or run.given or run.variant.fixed else made.get(run.variant.rule)


def alone(run: Run, build: Callable[..., Simulation], data: FederatedData) -> Simulation:
    """The simulation of one run."""
    return build(made_by(run), data, **run.given)


def made_by(run: Run) -> Any:
    """The run's rule, or its pair."""
    return run.variant.make(**run.variant.fixed, **run.point)


def _handed_on(made: Any, sim: Simulation) -> bool:
    """Whether ``build`` gave the simulation the rule that it was given, and nothing made of it."""
    used = (sim.arguments or {}).get("aggregator")
    return used is not None and made_alike(as_method(rule_of(made)), as_method(used))


def _pairs_alike(one: Any, other: Any) -> bool:
    """Whether what comes with two rules is the same."""
    pairs = [() if rule_of(made) is made else tuple(made[1:]) for made in (one, other)]
    return made_alike(*pairs)


def _same_settings(one: Run, other: Run) -> bool:
    """Whether ``build`` is given the same, but for floats."""
    mine, theirs = ({k: v for k, v in run.given.items() if k not in run.swept} for run in (one, other))
    return one.swept == other.swept and made_alike(mine, theirs)


def _share(one: Simulation, other: Simulation, nearly: bool) -> bool:
    """Whether two simulations differ in their aggregation rules alone, and read the same signals, or ``nearly``."""
    if one.arguments is None or other.arguments is None:
        return False
    differ = ({*one.reads} ^ {*other.reads}) - {"n"}
    if differ and not (nearly and differ <= SLIGHT and _is_slight(one)):
        return False
    plain = [as_method(sim.arguments["aggregator"])._replace(aggregator=None) for sim in (one, other)]  # type: ignore
    if any(part is not None for method in plain for part in method):
        return False
    return _same_but_rule(one, other) and not any(_selects_by_rule(sim) for sim in (one, other))


def _is_slight(sim: Simulation) -> bool:
    """Whether comparing a cohort's updates costs next to nothing."""
    selector = (sim.arguments or {})["selector"]
    cohort = sim.data.n_clients if selector is None else selector.cohort
    return cohort <= FEW and is_tiny(jax.eval_shape(sim.init, jax.random.key(0)).params)


def _selects_by_rule(sim: Simulation) -> bool:
    """Whether its cohorts depend on the rule's state, which is another's where rules are joined."""
    selector, rule = (sim.arguments or {})["selector"], as_method((sim.arguments or {})["aggregator"]).aggregator
    return selector is not None and selects_by_rule(selector, rule, sim.data.n_clients)


def _same_but_rule(one: Simulation, other: Simulation) -> bool:
    mine, theirs = ({k: v for k, v in (s.arguments or {}).items() if k != "aggregator"} for s in (one, other))
    return made_alike(mine, theirs)


def _group(
    runs: list[Run], members: list[int], variants: list[Variant], build: Callable[..., Simulation], data: Any
) -> Group:
    swept = runs[members[0]].swept
    fixed = {name: value for name, value in runs[members[0]].given.items() if name not in swept}
    usual: Point = {}  # of every number, some value: runs of other rules do not look at it
    for i in members:
        usual |= _numbers(variants, runs[i])
    points = [usual | _numbers(variants, runs[i]) for i in members]

    def joined(**numbers: Any) -> Simulation:
        with explained():
            made = [
                variant.make(**variant.fixed, **{name: numbers[f"{k}.{name}"] for name in variant.floats})
                for k, variant in enumerate(variants)
            ]
        plain = [as_method(rule_of(each)).aggregator for each in made]
        rule = made[0] if len(made) == 1 else _replaced(made[0], one_of(plain, numbers[WHICH]))
        return build(rule, data, **fixed, **{name: numbers[name] for name in swept})

    named = dict.fromkeys(called(variant) for variant in variants)
    name = " ".join([*named, *([label(fixed)] if fixed else [])])
    return Group(members, joined, points, name, joined(**points[0]))


def rule_of(made: Any) -> Any:
    """The rule of what a factory makes: of a pair of rule and selector its first."""
    return made if isinstance(made, Aggregator | Method) or not isinstance(made, tuple) else made[0]


def _replaced(made: Any, rule: Aggregator) -> Any:
    """``made`` with another rule."""
    return rule if rule_of(made) is made else (rule, *made[1:])


def _numbers(variants: list[Variant], run: Run) -> Point:
    which = variants.index(run.variant)
    own = {f"{which}.{name}": run.point[name] for name in run.variant.floats}
    return {WHICH: which, **own, **{name: run.given[name] for name in run.swept}}


def called(variant: Variant) -> str:
    """The rule, with those of its settings that are part of the program."""
    return f"{variant.rule}({label(variant.fixed)})" if variant.fixed else variant.rule


def runs_of(
    rules: Mapping[str, Any], grids: Mapping[str, list[Point]], takes: Mapping[str, set[str]], build_takes: set[str]
) -> list[Run]:
    """Every rule at every point of its grid; ``takes`` and ``build_takes`` name the settings of each rule and of
    ``build``, to which one name may belong both."""
    found = []
    for rule, given in rules.items():
        points, make = grids[rule], _maker(given)
        floats = {name for name in points[0] if all(isinstance(point[name], float) for point in points)}
        for point in points:
            mine = {name: value for name, value in point.items() if name in takes[rule]}
            fixed = {name: value for name, value in mine.items() if name not in floats}
            numbers = {name: value for name, value in mine.items() if name in floats}
            of_build = {name: value for name, value in point.items() if name in build_takes}
            swept = tuple(sorted(floats & of_build.keys()))
            found.append(Run(Variant(rule, make, fixed, tuple(numbers)), numbers, of_build, swept))
    return found


def is_made(given: Any) -> bool:
    """Whether this is a rule, or a pair of a rule and something, not a factory."""
    return isinstance(given, tuple)  # as NamedTuples are


def _maker(given: Any) -> Callable[..., Rule]:
    return (lambda: given) if is_made(given) else given

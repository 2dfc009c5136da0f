"""The runs of several rules by program: one program plays those of all rules that may share it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fedjax_fair.aggregators.one_of import one_of
from fedjax_fair.data import FederatedData
from fedjax_fair.engine.grid import Point, label
from fedjax_fair.engine.made_alike import made_alike
from fedjax_fair.engine.sharing import Made, Rule, rule_of, same_but_rule, share, telling
from fedjax_fair.reads import explained
from fedjax_fair.types import Aggregator, Report, Simulation, as_method


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
    reads: list[tuple[str, ...]]
    """What the rule of each run reads, alone."""


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
    clients and several runs at most, rules share a program also where one reads more than the other, if that costs
    less than training. Every rule still hears what it reads alone.

    Rules that bring a local objective, a trainer or a server transform of their own have programs of their own, and
    so has every value of a setting that is no float. So have rules that ``build`` wraps, and pairs whose second
    parts differ: the program has those of one.
    """
    variants: list[list[Variant]] = []
    members: list[list[int]] = []
    mades: list[list[Made]] = []
    nearly = side_by_side and len(runs) <= SEVERAL
    for i, run in enumerate(runs):
        fitting = [k for k, first in enumerate(members) if _same_settings(run, runs[first[0]])]
        fitting.sort(key=lambda k: run.variant not in variants[k])  # where it is known nothing need be made
        for k in fitting:
            if run.variant not in variants[k]:
                like = run._replace(given=runs[members[k][0]].given)  # of build's floats the same
                mine = _made(like, build, data, made)
                if not share(mine, mades[k][0], nearly):
                    continue
                variants[k].append(run.variant)
                mades[k].append(mine)
            members[k].append(i)
            break
        else:
            variants.append([run.variant])
            members.append([i])
            mades.append([_made(run, build, data, made)])
    found = []
    for places, theirs, each_made in zip(members, variants, mades):
        read = [one.sim.reads for one in each_made]
        joined = _group(runs, places, theirs, read, build, data)
        if len(theirs) == 1 or same_but_rule(joined.sim, each_made[0].sim):
            found.append(joined)
        else:  # build asks which rule it is given, and makes something else of one that stands for several
            apart = [[i for i in places if runs[i].variant == variant] for variant in theirs]
            each = zip(apart, theirs, read)
            found += [_group(runs, own, [variant], [reads], build, data) for own, variant, reads in each]
    return found


def _made(run: Run, build: Callable[..., Simulation], data: FederatedData, made: Mapping[str, Simulation]) -> Made:
    rule = made_by(run)
    plain = not (run.point or run.given or run.variant.fixed)
    ready = made.get(run.variant.rule) if plain else None
    return Made(rule, ready or build(rule, data, **run.given))


def alone(run: Run, build: Callable[..., Simulation], data: FederatedData) -> Simulation:
    """The simulation of one run."""
    return build(made_by(run), data, **run.given)


def made_by(run: Run) -> Any:
    """The run's rule, or its pair."""
    return run.variant.make(**run.variant.fixed, **run.point)


def _same_settings(one: Run, other: Run) -> bool:
    """Whether ``build`` is given the same, but for floats."""
    mine, theirs = ({k: v for k, v in run.given.items() if k not in run.swept} for run in (one, other))
    return one.swept == other.swept and made_alike(mine, theirs)


def _group(
    runs: list[Run],
    members: list[int],
    variants: list[Variant],
    readings: list[tuple[str, ...]],
    build: Callable[..., Simulation],
    data: Any,
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
        rule = made[0] if len(made) == 1 else _replaced(made[0], _joined(plain, readings, numbers[WHICH]))
        return build(rule, data, **fixed, **{name: numbers[name] for name in swept})

    named = dict.fromkeys(called(variant) for variant in variants)
    name = " ".join([*named, *([label(fixed)] if fixed else [])])
    reads = [readings[variants.index(runs[i].variant)] for i in members]
    return Group(members, joined, points, name, joined(**points[0]), reads)


def _joined(rules: list[Aggregator], readings: list[tuple[str, ...]], which: Any) -> Aggregator:
    """One of the rules, which reads what it reads alone."""
    rule = one_of([telling(rule, read) for rule, read in zip(rules, readings)], which)
    known = tuple(name for name in Report._fields if any(name in read for read in readings))
    vars(rule.weigh).update(watches=(), known_reads=known)  # each looks at what it is told itself
    return rule


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

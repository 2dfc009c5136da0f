"""From settings to simulations: every choice checked before any training starts."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import optax

from fedjax_fair import registry
from fedjax_fair.checks import check_count, check_range
from fedjax_fair.cli import components as parts
from fedjax_fair.cli.experiment import Experiment
from fedjax_fair.cli.judging import check_judging, loss_of, metrics_of
from fedjax_fair.cli.own_parts import check_model, own_data, own_model
from fedjax_fair.cli.rule_syntax import Entry, check_unnamed, parse_axis, parse_rule
from fedjax_fair.cli.several import made_by_all
from fedjax_fair.data import FederatedData
from fedjax_fair.engine.devices import as_mesh
from fedjax_fair.engine.grid import extremes
from fedjax_fair.engine.simulation import simulation
from fedjax_fair.local.sgd import LocalSGD, local_sgd
from fedjax_fair.models import Model
from fedjax_fair.registry.plugins import blamed
from fedjax_fair.robustness.availability import always, bernoulli
from fedjax_fair.robustness.faults import Fault
from fedjax_fair.types import Aggregator, Method, Selector, Simulation


class Ground(NamedTuple):
    """What all simulations of an experiment share."""

    experiment: Experiment
    data: FederatedData
    model_name: str
    model: Model
    loss: Any
    metric: Any
    """One, or several by name; None for what the loss asks for."""
    faults: list[Fault]
    honest: np.ndarray | None
    """bool[N]: the clients to judge by; None for all."""
    defended: Callable[[Any], Any]
    """What the defence makes of a rule."""
    transform: optax.GradientTransformation
    """What the defence does before the server's optimiser."""
    draw: Callable[[int], FederatedData]
    """``seed -> data``: the federation drawn anew."""


class Plan(NamedTuple):
    """An experiment ready to run."""

    ground: Ground
    cohort: int
    simulations: dict[str, Simulation]
    """By the rule as the user wrote it, such as "fedmaba" or "fedmaba:alpha=0.8"."""


class Grid(NamedTuple):
    """A sweep ready to run: the arguments of ``ff.sweep``."""

    ground: Ground
    cohort: int | str
    """Clients a round; or the values of it that the grid has."""
    build: Callable[..., Simulation]
    points: dict[str, list[Any]]


SWEPT = ("lr", "lr_decay", "server_lr", "epochs", "steps", "batch_size", "cohort")
"""Settings of the experiment that a grid may vary, beside those of the rule."""


def prepare(experiment: Experiment, rules: tuple[str, ...]) -> Plan:
    """Build data, model and one simulation per rule.

    Raises:
      ValueError: whatever does not fit, in one sentence.
    """
    if not rules:
        raise ValueError("algorithms needs at least one rule, such as fedavg")
    for rule in rules:
        check_unnamed(rule)
    doubles = [rule for rule in rules if rules.count(rule) > 1]
    if doubles:
        raise ValueError(f"algorithms names {doubles[0]!r} twice")

    def lay() -> tuple[dict[str, Entry], Ground]:
        entries = {text: parse_rule(text) for text in rules}
        return entries, lay_ground(experiment, list(entries.values()))

    entries, ground = made_by_all(experiment, lay)  # a simulation puts its data on the devices of all
    simulations = made_by_all(
        experiment, lambda: {text: simulate(ground, experiment, entry) for text, entry in entries.items()}
    )
    return Plan(ground, cohort_of(experiment, ground.data), simulations)


def prepare_sweep(experiment: Experiment, rule: str, grid: tuple[str, ...]) -> Grid:
    """Build data and model, and what makes a simulation of a point of the grid.

    Raises:
      ValueError: whatever does not fit, in one sentence.
    """
    check_unnamed(rule)
    entry, points = parse_rule(rule), {}
    for text in grid:
        name, values = parse_axis(text, entry.rule, SWEPT)
        if name in points:
            raise ValueError(f"grid names {name!r} twice")
        if name not in SWEPT and name.removeprefix(f"{entry.rule}.") in entry.settings:
            raise ValueError(f"{name} is either in grid or in aggregator, got both {text!r} and {rule!r}")
        points[name] = values
    if not points:
        raise ValueError("grid needs a setting and its values, such as --grid q=.1,1.,5., got nothing")
    as_mesh(experiment.devices)
    ground = lay_ground(experiment, [entry._replace(settings=entry.settings | own(points, entry.rule, first=True))])

    def build(**point: Any) -> Simulation:
        theirs = {name: value for name, value in point.items() if name in SWEPT}
        mine = entry._replace(settings=entry.settings | own(point, entry.rule))
        # The devices are for the runs.
        return simulate(ground, dataclasses.replace(experiment, **theirs, devices=1), mine)

    for point in extremes(points):
        build(**point)
    sizes = points.get("cohort", [cohort_of(experiment, ground.data)])
    return Grid(ground, sizes[0] if len(sizes) == 1 else ", ".join(map(str, sizes)), build, points)


def own(point: dict[str, Any], rule: str, first: bool = False) -> dict[str, Any]:
    """The settings of a point that are the rule's; the first value of each where the point is a whole grid."""
    mine = {name.removeprefix(f"{rule}."): value for name, value in point.items() if name not in SWEPT}
    return {name: value[0] for name, value in mine.items()} if first else mine


def lay_ground(experiment: Experiment, entries: list[Entry]) -> Ground:
    """Check the settings, cheap things first, and build what all simulations share.

    Raises:
      ValueError: whatever does not fit, in one sentence.
    """
    for name in ("rounds", "seeds", "eval_every"):
        if hasattr(experiment, name):  # a comparison has replicates
            check_count(name, getattr(experiment, name))
    check_count("first_seed", getattr(experiment, "first_seed", 0), low=0)
    for name in ("clients", "cohort"):
        if getattr(experiment, name) is not None:
            check_count(name, getattr(experiment, name))
    for name in ("lr", "lr_decay"):  # before the rules that make a default of them
        check_range(name, getattr(experiment, name), 0, open_low=True)
    for entry in entries:
        rule_of(experiment, entry)
        parts.build_selector(experiment, experiment.cohort or 1, entry)
    trainer_of(experiment)
    check_model(experiment)
    check_judging(experiment)
    check_range("server_lr", experiment.server_lr, 0, open_low=True)
    draw = own_data(experiment) or (lambda seed: parts.build_data(dataclasses.replace(experiment, data_seed=seed)))
    data = draw(experiment.data_seed)
    cohort_of(experiment, data)
    if experiment.checkpoint_every is not None:
        check_count("checkpoint_every", experiment.checkpoint_every)
        if experiment.checkpoint is None:
            raise ValueError("checkpoint_every needs checkpoint, a folder, got none")
    data, faults, honest = parts.build_faults(experiment, data)
    defended, transform = parts.build_defence(experiment)
    check_range("available", experiment.available, 0, 1, open_low=True)
    model = own_model(experiment, data) or parts.build_model(experiment, data)
    judging = loss_of(experiment, data), metrics_of(experiment)
    return Ground(experiment, data, *model, *judging, faults, honest, defended, transform, draw)


def simulate(ground: Ground, experiment: Experiment, entry: Entry) -> Simulation:
    """The simulation of one rule; the numbers of ``experiment`` and ``entry`` may be traced."""
    selector = parts.build_selector(experiment, cohort_of(experiment, ground.data), entry)
    with blamed(entry.rule):
        return simulate_rule(ground, experiment, rule_of(experiment, entry), selector, (experiment.evaluate,))


def simulate_rule(
    ground: Ground, experiment: Experiment, rule: Any, selector: Selector | None, splits: tuple[str, ...]
) -> Simulation:
    """The simulation of a rule that is made; with the experiment's selector by default."""
    check_range("server_lr", experiment.server_lr, 0, open_low=True)
    if selector is None:
        selector = parts.build_selector(experiment, cohort_of(experiment, ground.data))
    with blamed(ground.model_name, "model"):
        return simulation(
            ground.model,
            ground.data,
            aggregator=ground.defended(rule),
            trainer=trainer_of(experiment),
            selector=selector,
            server_optimizer=optax.chain(ground.transform, optax.sgd(experiment.server_lr)),
            available=always if experiment.available == 1 else bernoulli(experiment.available),
            faults=ground.faults,
            loss=ground.loss,
            metric=ground.metric,
            evaluate=splits,
            precision=experiment.precision,
            devices=experiment.devices,
        )


def rule_of(experiment: Experiment, entry: Entry) -> Aggregator | Method:
    """The rule that an entry names, its settings over those of the experiment's own group."""
    settings = parts.settings_of_factory(experiment, entry.rule) | entry.settings
    check_range("lr", experiment.lr, 0, open_low=True)  # before the rule makes a default of it
    with blamed(entry.rule):
        return registry.make_rule(entry.rule, settings, learning_rate=rate_of(experiment))


def rate_of(experiment: Experiment) -> Any:
    """The clients' learning rate: a number, or a function of the round where it decays."""
    factor = decay_of(experiment)
    return experiment.lr if factor is None else lambda r: experiment.lr * factor(r)


def decay_of(experiment: Experiment) -> Callable[[Any], Any] | None:
    """The factor on the clients' learning rate as a function of the round; None for one of 1 throughout."""
    decay = experiment.lr_decay
    return None if isinstance(decay, (int, float)) and decay == 1 else lambda r: decay**r


def trainer_of(experiment: Experiment) -> LocalSGD:
    """The clients' SGD."""
    for name in ("lr", "lr_decay"):
        check_range(name, getattr(experiment, name), 0, open_low=True)
    return local_sgd(
        optax.sgd(experiment.lr),
        epochs=experiment.epochs,
        steps=experiment.steps,
        batch_size=experiment.batch_size,
        schedule=decay_of(experiment),
        objective=parts.build_objective(experiment),
    )


def cohort_of(experiment: Experiment, data: FederatedData) -> int:
    """Clients per round: as given, else 10, or all where there are fewer."""
    cohort = min(10, data.n_clients) if experiment.cohort is None else check_count("cohort", experiment.cohort)
    if cohort > data.n_clients:
        raise ValueError(f"cohort must be from 1 to the {data.n_clients} clients, got {cohort}")
    return cohort

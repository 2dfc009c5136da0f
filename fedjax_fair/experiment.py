"""From settings to simulations: every choice checked before any training starts."""

import ast
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import optax

from fedjax_fair import data as sources
from fedjax_fair import registry
from fedjax_fair.availability import always, bernoulli
from fedjax_fair.checks import check_choice, check_count, check_range, lookup
from fedjax_fair.config import SETTLED, Experiment, factories, settings_for
from fedjax_fair.data import FederatedData
from fedjax_fair.faults import Fault, flip_labels, some
from fedjax_fair.local import local_sgd
from fedjax_fair.models import Model
from fedjax_fair.objectives import erm
from fedjax_fair.own import NAMED
from fedjax_fair.simulate import simulation
from fedjax_fair.types import Objective, Selector, Simulation

IMAGES = ("fashion_mnist", "cifar10", "cifar100", "mnist")
DATASETS = ("synthetic", *IMAGES, "fashion_mnist_3")


class Plan(NamedTuple):
    """An experiment ready to run."""

    experiment: Experiment
    data: FederatedData
    model_name: str
    cohort: int
    simulations: dict[str, Simulation]
    """By the rule as the user wrote it, such as "fedmaba" or "fedmaba:alpha=0.8"."""
    honest: np.ndarray | None
    """bool[N]: the clients to judge by; None for all."""


class Entry(NamedTuple):
    """What ``rule:setting=value,...@selector:setting=value,...`` names; the second half may be missing."""

    rule: str
    settings: dict[str, Any]
    selector: str | None
    selector_settings: dict[str, Any]


def parse_rule(text: str) -> Entry:
    """Read ``name`` or ``name:setting=value,...``, either followed by ``@selector`` of the same form or not.

    A rule of the user's own is ``file.py:name`` or ``module:name`` instead of ``name``.

    Raises:
      ValueError: not of this form.
    """
    rule, at, selector = text.partition("@")
    if at and not (rule and selector and "@" not in selector):
        raise ValueError(f"algorithms takes rule@selector, got {text!r}")
    mine = NAMED.match(rule)
    if mine and mine["place"] not in registry.AGGREGATORS:
        settings = _parse(f"{mine['rule']}{rule[mine.end() :]}")[1]
        return Entry(mine[0], settings, *(_parse(selector) if at else (None, {})))
    return Entry(*_parse(rule), *(_parse(selector) if at else (None, {})))


def _parse(text: str, flag: str = "algorithms") -> tuple[str, dict[str, Any]]:
    name, colon, rest = text.partition(":")
    settings = {}
    for piece in rest.split(",") if colon else ():
        key, equals, value = piece.partition("=")
        if not (equals and key.strip() and value.strip()):
            raise ValueError(f"{flag} takes name or name:setting=value,..., got {text!r}")
        if key.strip().replace("-", "_") in settings:
            raise ValueError(f"{flag} gives {key.strip()!r} twice, in {text!r}")
        settings[key.strip().replace("-", "_")] = _literal(value.strip())
    return name, settings


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # a word, such as weibull


def prepare(experiment: Experiment, rules: tuple[str, ...]) -> Plan:
    """Build data, model and one simulation per rule.

    Raises:
      ValueError: whatever does not fit, in one sentence.
    """
    if not rules:
        raise ValueError("algorithms needs at least one rule, such as fedavg")
    doubles = [rule for rule in rules if rules.count(rule) > 1]
    if doubles:
        raise ValueError(f"algorithms names {doubles[0]!r} twice")
    for name in ("rounds", "seeds", "eval_every"):
        check_count(name, getattr(experiment, name))
    for name in ("clients", "cohort"):
        if getattr(experiment, name) is not None:
            check_count(name, getattr(experiment, name))
    for name in ("lr", "lr_decay", "server_lr"):
        check_range(name, getattr(experiment, name), 0, open_low=True)
    parsed = {text: parse_rule(text) for text in rules}
    methods = {
        text: registry.make_rule(e.rule, _settings(experiment, e.rule) | e.settings, learning_rate=experiment.lr)
        for text, e in parsed.items()
    }
    objective = build_objective(experiment)
    for entry in parsed.values():
        build_selector(experiment, experiment.cohort or 1, entry)
    check_choice("model", experiment.model, ("auto", *registry.MODELS))
    trainer = local_sgd(
        optax.sgd(experiment.lr),
        epochs=experiment.epochs,
        steps=experiment.steps,
        batch_size=experiment.batch_size,
        schedule=None if experiment.lr_decay == 1 else lambda r: experiment.lr_decay**r,
        objective=objective,
    )
    data = build_data(experiment)
    cohort = min(10, data.n_clients) if experiment.cohort is None else experiment.cohort
    if cohort > data.n_clients:
        raise ValueError(f"cohort must be from 1 to the {data.n_clients} clients, got {cohort}")
    if experiment.checkpoint_every is not None:
        check_count("checkpoint_every", experiment.checkpoint_every)
        if experiment.checkpoint is None:
            raise ValueError("checkpoint_every needs checkpoint, a folder, got none")
    data, faults, honest = build_faults(experiment, data)
    defended, transform = build_defence(experiment)
    check_range("available", experiment.available, 0, 1)
    model_name, model = build_model(experiment, data)
    simulations = {
        text: simulation(
            model,
            data,
            aggregator=defended(method),
            trainer=trainer,
            selector=build_selector(experiment, cohort, parsed[text]),
            server_optimizer=optax.chain(transform, optax.sgd(experiment.server_lr)),
            available=always if experiment.available == 1 else bernoulli(experiment.available),
            faults=faults,
            precision=experiment.precision,
            devices=experiment.devices,
        )
        for text, method in methods.items()
    }
    return Plan(experiment, data, model_name, cohort, simulations, honest)


def build_faults(
    experiment: Experiment, data: FederatedData
) -> tuple[FederatedData, list[Fault], np.ndarray | None]:
    """The data that the clients train on, what the liars send, and who is honest (None: all)."""
    check_range("liars", experiment.liars, 0, 1)
    name, settings = _named("fault", experiment.fault, registry.FAULTS)
    if experiment.liars == 0:
        return data, [], None
    liars = some(data.n_clients, experiment.liars, experiment.data_seed)
    if liars.all():
        raise ValueError(f"liars must leave an honest client to judge by, got {experiment.liars}")
    if name == "flip_labels":
        return flip_labels(data, liars), [], ~liars
    return data, [registry.make(registry.FAULTS[name], liars, **settings)], ~liars


def build_defence(experiment: Experiment) -> tuple[Callable[[Any], Any], optax.GradientTransformation]:
    """What is done to every rule, and the transform before the server's optimiser."""
    if experiment.defence == "none":
        return lambda rule: rule, optax.identity()
    name, settings = _named("defence", experiment.defence, registry.DEFENCES)
    if name == "clip_losses":
        registry.make(registry.DEFENCES[name], registry.AGGREGATORS["fedavg"](), **settings)  # its settings first
        return lambda rule: registry.DEFENCES[name](rule, **settings), optax.identity()
    for needed, parameter in registry.settings_of(registry.DEFENCES[name]).items():
        if parameter.default is parameter.empty and needed not in settings:
            got = experiment.defence
            raise ValueError(f"defence needs {needed}, as {name}:{needed}=value, got {got!r}")
    return lambda rule: rule, registry.make(registry.DEFENCES[name], **settings)


def _named(flag: str, text: str, table: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """``name:setting=value,...`` of a table's factory; a first argument that is no setting the experiment gives."""
    name, settings = _parse(text, flag)
    known = [s for s in registry.settings_of(lookup(flag, name, table)) if s not in ("who", "rule", "data")]
    for setting in settings:
        if not known:
            raise ValueError(f"{name} takes no settings, got {setting!r}")
        check_choice(f"setting of {name}", setting, known)
    return name, settings


def without_effect(experiment: Experiment, rules: tuple[str, ...]) -> list[tuple[str, str]]:
    """Settings that differ from their defaults but belong to something that is not used, each with the reason."""
    images, entries = experiment.dataset in IMAGES, [parse_rule(rule) for rule in rules]
    used = {entry.rule for entry in entries} | {
        entry.selector or _parse(experiment.selector, "selector")[0] for entry in entries
    }
    used |= {experiment.dataset, experiment.objective}
    used |= {experiment.partition} if images else set()
    used |= set(registry.MODELS) if experiment.model == "auto" else {experiment.model}
    default, found = type(experiment)(), []
    for group in (field.name for field in dataclasses.fields(experiment) if field.name in factories()):
        before = dataclasses.asdict(getattr(default, group))
        for name, value in settings_for(experiment, group).items():
            if group not in used and value != before[name]:
                found.append((f"{group}.{name}", f"this run has no {group}"))
    for setting in ("fault",) if experiment.liars == 0 else ():
        if getattr(experiment, setting) != getattr(default, setting):
            found.append((setting, "this run has no liars"))
    if not images and experiment.partition != default.partition:
        found.append(("partition", f"{experiment.dataset} has clients of its own"))
    return found


def _settings(experiment: Experiment, name: str) -> dict[str, Any]:
    """A factory's settings without those left at None, which stands for "the factory's own default"."""
    return {key: value for key, value in settings_for(experiment, name).items() if value is not None}


def build_objective(experiment: Experiment) -> Objective:
    """The local objective that the experiment names."""
    name = check_choice("objective", experiment.objective, ("erm", *registry.OBJECTIVES))
    if name == "erm":
        return erm
    return registry.make(registry.OBJECTIVES[name], **_complete(experiment, name, registry.OBJECTIVES))


def build_selector(experiment: Experiment, cohort: int, entry: Entry) -> Selector:
    """The selector of one row of the comparison: its own, or else the experiment's."""
    name, own = _parse(experiment.selector, "selector")
    name, own = (entry.selector, entry.selector_settings) if entry.selector else (name, own)
    factory = lookup("selector", name, registry.SELECTORS)
    known = [setting for setting in registry.settings_of(factory) if setting != "m"]
    for setting in own:
        if not known:
            raise ValueError(f"{name} takes no settings, got {setting!r}")
        check_choice(f"setting of {name}", setting, known)
    return registry.make(factory, cohort, **(_settings(experiment, name) | own))


def _complete(experiment: Experiment, name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """A factory's settings, or ValueError for one that has no default and was not given."""
    settings = _settings(experiment, name)
    for key, parameter in registry.settings_of(table[name]).items():
        if parameter.default is parameter.empty and key not in settings and key not in SETTLED:
            raise ValueError(f"{name} needs {name}.{key}, got nothing")
    return settings


def build_data(experiment: Experiment) -> FederatedData:
    """The federation that the experiment names."""
    name, seed, split = experiment.dataset, experiment.data_seed, experiment.split
    check_choice("dataset", name, DATASETS)
    check_choice("partition", experiment.partition, registry.PARTITIONS)
    if name == "synthetic":
        if experiment.test == "official":
            raise ValueError("test=official needs a public test set, which the synthetic dataset lacks")
        settings = _settings(experiment, name) | ({} if split is None else {"split": split})
        return registry.make(sources.synthetic, experiment.clients, seed=seed, **settings)
    if name == "fashion_mnist_3":
        return sources.load(name, seed=seed, split=split, data_dir=experiment.data_dir)
    settings = _complete(experiment, experiment.partition, registry.PARTITIONS)
    partition = registry.make(registry.PARTITIONS[experiment.partition], experiment.clients, **settings)
    return sources.load(
        name,
        partition=partition,
        seed=seed,
        split=split,
        test="official" if experiment.test == "official" else None,
        data_dir=experiment.data_dir,
    )


def build_model(experiment: Experiment, data: FederatedData) -> tuple[str, Model]:
    """The model that the experiment names, with as many classes as the labels have."""
    name = experiment.model
    if name == "auto":
        shape = data.x.shape[1:]
        vectors = len(shape) == 1 or experiment.dataset == "fashion_mnist_3"
        name = "logistic_regression" if vectors else "cnn" if shape[-1] == 3 else "mlp"
    classes = int(np.max(data.y)) + 1
    return name, registry.make(registry.MODELS[name], classes=classes, **_settings(experiment, name))

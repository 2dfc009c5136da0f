"""The parts of an experiment: data, model, selector, objective, faults and defence, from its settings."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import optax

from fedjax_fair import data as sources
from fedjax_fair import registry
from fedjax_fair.checks import check_choice, check_range, lookup
from fedjax_fair.cli.experiment import SETTLED, Experiment, settings_for
from fedjax_fair.cli.judging import outputs_of
from fedjax_fair.cli.rule_syntax import Entry, check_flagged, named, parse
from fedjax_fair.data import FederatedData
from fedjax_fair.data.sources.published import PUBLISHED
from fedjax_fair.data.sources.tfds import IMAGES
from fedjax_fair.local.objectives import erm
from fedjax_fair.models import Model
from fedjax_fair.robustness.faults import Fault, flip_labels, some
from fedjax_fair.types import Objective, Selector

DATASETS = ("synthetic", *IMAGES, "fashion_mnist_3", *PUBLISHED)


def build_objective(experiment: Experiment) -> Objective:
    """The local objective that the experiment names."""
    name = check_flagged("objective", experiment.objective, ("erm", *registry.OBJECTIVES))
    if name == "erm":
        return erm
    return registry.make(registry.OBJECTIVES[name], **_complete(experiment, name, registry.OBJECTIVES))


def build_selector(experiment: Experiment, cohort: int, entry: Entry | None = None) -> Selector:
    """The selector of one row of the comparison: its own, or else the experiment's."""
    name, own = parse(experiment.selector, "selector")
    if entry is not None and entry.selector is not None:
        name, own = entry.selector, entry.selector_settings
    factory = lookup("selector", name, registry.SELECTORS)
    known = [setting for setting in registry.settings_of(factory) if setting != "m"]
    for setting in own:
        if not known:
            raise ValueError(f"{name} takes no settings, got {setting!r}")
        check_choice(f"setting of {name}", setting, known)
    return registry.make(factory, cohort, **(settings_of_factory(experiment, name) | own))


def build_data(experiment: Experiment) -> FederatedData:
    """The federation that the experiment names."""
    name, seed, split = experiment.dataset, experiment.data_seed, experiment.split
    check_choice("dataset", name, DATASETS)
    check_choice("partition", experiment.partition, registry.PARTITIONS)
    if name == "synthetic":
        if experiment.test == "official":
            raise ValueError("--test official needs a public test set, which the synthetic dataset lacks")
        settings = settings_of_factory(experiment, name) | ({} if split is None else {"split": split})
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
    """The model that the experiment names, with as many outputs as the loss and the labels ask for."""
    name, outputs = experiment.model, outputs_of(experiment, data)
    if name == "auto":
        if not hasattr(data.x, "shape") or (data.names is not None and "x" in dict(data.names.categories)):
            raise ValueError(
                "model auto is for vectors and images, got texts or several arrays: name a model of your own, as "
                "--model my_models.py:net"
            )
        shape = data.x.shape[1:]
        vectors = len(shape) == 1 or experiment.dataset == "fashion_mnist_3"
        name = "logistic_regression" if vectors else "cnn" if shape[-1] == 3 else "mlp"
    settings = settings_of_factory(experiment, name)
    return name, registry.make(registry.MODELS[name], classes=outputs, **settings)


def build_faults(
    experiment: Experiment, data: FederatedData
) -> tuple[FederatedData, list[Fault], np.ndarray | None]:
    """The data that the clients train on, what the liars send, and who is honest (None: all)."""
    check_range("liars", experiment.liars, 0, 1)
    name, settings = named("fault", experiment.fault, registry.FAULTS)
    if experiment.liars == 0:
        return data, [], None
    liars = some(data.n_clients, experiment.liars, experiment.data_seed)
    if liars.all():
        raise ValueError(f"liars must leave an honest client to judge by, got {experiment.liars}")
    if name == "flip_labels":
        return flip_labels(data, liars), [], ~liars
    return data, [registry.make(registry.FAULTS[name], liars, **settings)], ~liars


def with_liars(experiment: Experiment, data: FederatedData, honest: np.ndarray | None) -> FederatedData:
    """Another draw of the federation, where the same clients lie: those whose fault is in their data."""
    flips = honest is not None and named("fault", experiment.fault, registry.FAULTS)[0] == "flip_labels"
    return flip_labels(data, ~honest) if flips else data  # type: ignore[operator]


def build_defence(experiment: Experiment) -> tuple[Callable[[Any], Any], optax.GradientTransformation]:
    """What is done to every rule, and the transform before the server's optimiser."""
    if experiment.defence == "none":
        return lambda rule: rule, optax.identity()
    name, settings = named("defence", experiment.defence, registry.DEFENCES)
    if name == "clip_losses":
        registry.make(registry.DEFENCES[name], registry.AGGREGATORS["fedavg"](), **settings)  # its settings first
        return lambda rule: registry.DEFENCES[name](rule, **settings), optax.identity()
    for needed, parameter in registry.settings_of(registry.DEFENCES[name]).items():
        if parameter.default is parameter.empty and needed not in settings:
            got = experiment.defence
            raise ValueError(f"defence needs {needed}, as {name}:{needed}=value, got {got!r}")
    return lambda rule: rule, registry.make(registry.DEFENCES[name], **settings)


def settings_of_factory(experiment: Experiment, name: str) -> dict[str, Any]:
    """A factory's settings without those left at None, which stands for "the factory's own default"."""
    return {key: value for key, value in settings_for(experiment, name).items() if value is not None}


def _complete(experiment: Experiment, name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """A factory's settings, or ValueError for one that has no default and was not given."""
    settings = settings_of_factory(experiment, name)
    for key, parameter in registry.settings_of(table[name]).items():
        if parameter.default is parameter.empty and key not in settings and key not in SETTLED:
            raise ValueError(f"{name} needs {name}.{key}, got nothing")
    return settings

"""Data and models of a user's own: files by what they are, functions by the file that they stand in."""

import functools
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn

from fedjax_fair import registry
from fedjax_fair.checks import check_choice, check_count
from fedjax_fair.cli.experiment import Experiment
from fedjax_fair.cli.judging import is_regression, outputs_of
from fedjax_fair.cli.rule_syntax import check_flagged, own_name
from fedjax_fair.data import FederatedData
from fedjax_fair.data.sources.examples import Examples, check_file, deal, large_enough
from fedjax_fair.data.sources.images import is_images, read_images
from fedjax_fair.data.sources.leaf import is_leaf, read_leaf
from fedjax_fair.data.sources.npz import is_npz, read_npz
from fedjax_fair.data.sources.published import PUBLISHED, read_published
from fedjax_fair.data.sources.table import read_columns
from fedjax_fair.data.sources.table_files import SUFFIXES, is_table
from fedjax_fair.models import Model, as_model
from fedjax_fair.models.flax_modules import is_nnx, is_nnx_class
from fedjax_fair.registry.plugins import blamed, own_factory

FORMS = {
    "a table": ("client", "label", "group", "features", "missing", "test_data"),
    "arrays": ("client", "label", "missing"),
    "LEAF's files": (),
    "images": ("image_size",),
}
"""What ``data`` may be, and the settings that say how it is read."""
OF_DATA = (*FORMS["a table"], *FORMS["images"], "min_examples")


def own_data(experiment: Experiment) -> Callable[[int], FederatedData] | None:
    """``seed -> federation`` of the user's data, which are read once; None where ``--data`` is not given.

    Raises:
      ValueError: whatever does not fit, in one sentence.
    """
    given = [name for name in OF_DATA if getattr(experiment, name) is not None]
    if experiment.dataset in PUBLISHED:
        return _published(experiment, given)
    if experiment.data is None:
        if given:
            raise ValueError(f"{given[0]} says how data are read and needs data, a path, got none")
        return None
    if experiment.dataset != "synthetic":
        raise ValueError(f"dataset and data are one too many, got {experiment.dataset} and {experiment.data}")
    if experiment.test == "official":
        raise ValueError("--test official needs a public test set, got data, whose files say what is for tests")
    named = None if Path(experiment.data).is_dir() else own_name(experiment.data, "data")
    if named is not None:
        if given:
            raise ValueError(f"{given[0]} says how a file is read, got the function {experiment.data}")
        return functools.partial(_called, *named, experiment.split)
    return _dealt(experiment, lambda: read(experiment, given))


def _published(experiment: Experiment, given: list[str]) -> Callable[[int], FederatedData]:
    """FEMNIST or Shakespeare, from ``data`` or ``data_dir``."""
    for name in given:
        if name != "min_examples":
            raise ValueError(f"{name} says how other data are read, got dataset {experiment.dataset}")
    if experiment.test == "official":
        raise ValueError(
            f"--test official needs a public test set, got {experiment.dataset}, whose files hold tests"
        )
    return _dealt(experiment, lambda: read_published(experiment.dataset, experiment.data or experiment.data_dir))


def _dealt(experiment: Experiment, find: Callable[[], Examples]) -> Callable[[int], FederatedData]:
    """``seed -> federation`` of what is found; remarks go to standard error."""
    if experiment.min_examples is not None:
        check_count("min_examples", experiment.min_examples)  # before the files are read
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        found = large_enough(find(), experiment.min_examples)
    for one in () if experiment.quiet else said:
        print(f"fedjax-fair: {one.message}", file=sys.stderr)
    return lambda seed: deal(found, seed=seed, split=experiment.split)


def read(experiment: Any, given: list[str]) -> Examples:
    """The examples in a file or folder, by what it is; ``given`` are the settings that were given for it."""
    path = check_file("data", experiment.data)
    form = form_of(path)
    for name in given:
        if name not in (*FORMS[form], "min_examples"):
            of = " or ".join(form for form, settings in FORMS.items() if name in settings)
            raise ValueError(f"{name} is for {of}, got {form} in {path}")
    if form == "LEAF's files":
        return read_leaf(path)
    if form == "images":
        return read_images(path, experiment.image_size)
    if form == "arrays":
        labels = experiment.label or ("y",)
        if len(labels) > 1:
            raise ValueError(f"label must be one array of {path}, got {' '.join(labels)}")
        return read_npz(path, y=labels[0], client=experiment.client or "client", missing=experiment.missing)
    for name in ("client", "label"):
        if name not in given:
            raise ValueError(f"{name} must name a column of the table {path}, got nothing")
    return read_columns(
        path,
        client=experiment.client,
        label=experiment.label,
        group=experiment.group,
        features=experiment.features,
        test=experiment.test_data,
        missing=experiment.missing,
        regression=is_regression(experiment),
    )


def form_of(path: Path) -> str:
    """Which of ``FORMS`` it is; ValueError for none of them."""
    if path.is_file() and is_table(path):
        return "a table"
    if is_npz(path):
        return "arrays"
    if path.is_dir() and is_leaf(path):
        return "LEAF's files"
    if path.is_dir() and is_images(path):
        return "images"
    kinds = "a folder of LEAF's JSON files, of images as CLIENT/LABEL/FILE or of .npy, a file "
    raise ValueError(f"data must be {kinds}{', '.join(SUFFIXES)} or .npz, or file.py:name, got {path}")


def _called(name: str, settings: dict[str, Any], split: Any, seed: int) -> FederatedData:
    """The federation that a function of the user's returns."""
    factory = own_factory(name, "data")
    if split is not None and "split" not in _settings(factory):
        raise ValueError(f"--split is for data that are split here: {name} must take split to get it, and does not")
    given = {"seed": seed} | ({} if split is None else {"split": split})
    with blamed(name, "data"):
        made = factory(**_checked(name, factory, settings, given))
    if not isinstance(made, FederatedData):
        raise ValueError(f"data {name} must return a FederatedData, got {type(made).__name__}")
    return made


def check_model(experiment: Experiment) -> None:
    """Raise ValueError unless the model's name is one that there is."""
    named = own_name(experiment.model, "model")
    if named is None:
        check_flagged("model", experiment.model, ("auto", *registry.MODELS))
    else:
        own_factory(named[0], "model")


def own_model(experiment: Experiment, data: FederatedData) -> tuple[str, Model] | None:
    """The model that a function of the user's returns; None where it is one of ours."""
    named = own_name(experiment.model, "model")
    if named is None:
        return None
    outputs = outputs_of(experiment, data)
    (name, settings), factory = named, own_factory(named[0], "model")
    if isinstance(factory, nn.Module) or is_nnx(factory, "Module"):  # no factory, but the model
        return name, as_model(factory)
    checked = _checked(name, factory, settings, {"classes": outputs}, later=("rngs",))
    with blamed(name, "model"):
        later = "rngs" in _settings(factory)
        made = (lambda rngs: factory(rngs=rngs, **checked)) if later else factory(**checked)
    return name, as_model(made)


def _settings(factory: Callable[..., Any]) -> dict[str, Any]:
    hidden = ("parent", "name") if isinstance(factory, type) and issubclass(factory, nn.Module) else ()
    if is_nnx_class(factory):  # its metaclass hides what it takes
        return dict([*registry.settings_of(factory.__init__).items()][1:])
    return {key: p for key, p in registry.settings_of(factory).items() if key not in hidden}


def _checked(
    name: str,
    factory: Callable[..., Any],
    settings: dict[str, Any],
    ours: dict[str, Any],
    later: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The settings that were given, with those of ``ours`` that the function takes.

    Raises:
      ValueError: one that the function does not take, or one that it needs and was not given; or a word where the
        default is a number.
    """
    known = {key: p for key, p in _settings(factory).items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    for setting in settings:
        if not known:
            raise ValueError(f"{name} takes no settings, got {setting!r}")
        check_choice(f"setting of {name}", setting, [key for key in known if key not in later])
        default, given = known[setting].default, settings[setting]
        if isinstance(default, int | float) and not isinstance(default, bool) and isinstance(given, str):
            raise ValueError(f"{setting} of {name} must be a number, got {given!r}")
    found = {key: value for key, value in ours.items() if key in known} | settings
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in found and key not in later:
            raise ValueError(f"{name} needs {key}, as {name}:{key}=value, got nothing")
    return found

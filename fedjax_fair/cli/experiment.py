"""An experiment's settings: dataclasses made out of the factories' signatures."""

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from fedjax_fair import registry
from fedjax_fair.data import synthetic
from fedjax_fair.registry.cards import argument_help

SETTLED = ("n_clients", "classes", "m", "seed", "split", "base")  # set by the experiment, not per factory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that decides a result, and where it goes."""

    dataset: str = "synthetic"
    """synthetic, fashion_mnist, cifar10, cifar100, mnist, fashion_mnist_3 (AFL's three clients), or femnist and
    shakespeare, from LEAF's files in data (or data_dir, or $LEAF_DATA_DIR)."""
    data: str | None = None
    """Instead of dataset, your own, with natural clients: a folder of LEAF's JSON files, a folder of images
    (CLIENT/LABEL/FILE), a table (.csv, .tsv, .parquet), .npz, a folder of .npy; or file.py:name, a function of
    yours that returns a FederatedData and may take seed."""
    client: str | None = None
    """Of data, a table: the column of the clients' names; of .npz the array, by default client."""
    label: tuple[str, ...] | None = None
    """Of data, a table: the column to be predicted, or several; of .npz the array, by default y."""
    group: str | None = None
    """Of data, a table: the column of what every client is one of, such as its country; tables sum groups up beside
    the clients. An .npz may hold an array group."""
    features: tuple[str, ...] | None = None
    """Of data, a table: the columns to predict from; by default all others."""
    missing: Literal["mean", "median"] | None = None
    """Of data, a table or .npz: what stands for missing numbers, of the rows clients train on; else refused."""
    test_data: str | None = None
    """Of data, a table: one of other rows of the same clients, to test on; the last share of --split is then 0."""
    image_size: tuple[int, int] | None = None
    """Of data, images: height and width to which all are scaled; by default they must have one size."""
    min_examples: int | None = None
    """Of data: leave out clients with fewer examples, given test examples not counted."""
    partition: str = "shards"
    """How an image dataset is dealt to clients: iid, shards, dirichlet, blocks, power_law, log_normal."""
    clients: int = 30
    """N, the number of clients (fashion_mnist_3 always has 3)."""
    cohort: int | None = None
    """S, clients per round; by default 10, or all where there are fewer."""
    rounds: int = 200
    """Communication rounds."""
    data_seed: int = 0
    """Decides the partition and the splits, or the synthetic data: the same for all runs."""
    split: tuple[float, float, float] | None = None
    """Shares of train, validation and test in each client's data; by default .8 .1 .1 (official test: .9 .1 0)."""
    test: Literal["clients", "official"] = "clients"
    """Test on a share of each client's own data, or on the public test set, dealt by each client's labels."""
    model: str = "auto"
    """logistic_regression, mlp, cnn; auto takes the first for vectors, mlp for grey and cnn for colour images; your
    own as file.py:name, a function that returns a model and may take classes, a flax module, or of rngs."""
    loss: str = "auto"
    """softmax_cross_entropy, sigmoid_cross_entropy (one output, or one per label), squared_error, absolute_error;
    auto takes what fits the labels; your own as file.py:name, a function of outputs and labels."""
    metric: tuple[str, ...] | None = None
    """What clients are judged by, the first in tables: accuracy, auroc, f1, f1_macro, balanced_accuracy, rmse, r2,
    perplexity, ...; your own as file.py:name, a function or an ff.Metric; by default what fits the loss."""
    regression: bool = False
    """Whole numbers among the labels are numbers to be predicted, not classes; squared_error says so, too."""
    selector: str = "uniform"
    """Client selection, such as uniform or pow_d, or with settings, pow_d:d=20; `fedjax-fair list` names all."""
    objective: str = "erm"
    """What clients minimise: erm, proximal (PGF-FedProx is pg_ffl with it), tilted or propfair_objective."""
    lr: float = 0.1
    """Learning rate of the clients' SGD."""
    lr_decay: float = 1.0
    """Factor on the learning rate per round; .999 in FedMABA's tables."""
    epochs: int | None = None
    """Local passes over the client's data; 1 unless steps is given."""
    steps: int | None = None
    """Local steps on batches drawn with replacement, instead of epochs."""
    batch_size: int = 50
    """Examples per local batch."""
    server_lr: float = 1.0
    """Step size of the server's SGD on the aggregated update."""
    eval_every: int = 10
    """Rounds between evaluations of every client."""
    evaluate: Literal["test", "validation", "train", "test@personal", "validation@personal", "train@personal"] = (
        "test"
    )
    """The split that the table judges by: choose settings by validation, quote test; test@personal for the models
    that clients of ditto, apfl, fedper and fedrep keep."""
    precision: Literal["highest", "high", "default"] = "highest"
    """Of the models' matrix products: float32, or faster and coarser where the hardware has it (TF32, bfloat16)."""
    available: float = 1.0
    """Probability that a client is there in a round; a selected client that is not sends nothing."""
    liars: float = 0.0
    """Share of the clients that do as fault says; the table then judges the others."""
    fault: str = "inflate_loss"
    """What liars do, as name or name:setting=value,...: inflate_loss:factor=10, scale_update, noisy_update, ..."""
    defence: str = "none"
    """What the server does about it, likewise: clip_losses:factor=3, clip_updates:max_norm=1, median, ..."""
    devices: int = 1
    """How many of JAX's devices a round's clients, or a sweep's runs, are shared out over, or of a CPU's cores."""
    checkpoint: Path | None = None
    """Keep all that is computed in this folder while training; --resume FOLDER goes on."""
    checkpoint_every: int | None = None
    """Rounds between checkpoints; by default a tenth of the run."""
    data_dir: Path | None = None
    """Where tensorflow-datasets keeps its prepared data; by default $TFDS_DATA_DIR, else its own place."""
    out: Path | None = None
    """Results folder; by default a new one under runs/."""
    overwrite: bool = False
    """Write into a folder that already holds results."""
    dry_run: bool = False
    """Check the call, count what would be trained, and end: nothing is trained, no result is written."""
    quiet: bool = False
    """Print the table only: no progress, no remarks."""
    json: bool = False
    """Print the folder and the content of its summary.json instead of the table."""


def source_of(experiment: Experiment) -> str:
    """What the data are called: the dataset; or the file, folder or function, without the way to it.

    >>> source_of(Experiment()), source_of(Experiment(data="a/heart.csv.gz"))
    ('synthetic', 'heart.csv.gz')
    """
    own = experiment.data is not None and experiment.dataset == "synthetic"
    return Path(str(experiment.data)).name if own else experiment.dataset


def plain_type(parameter: inspect.Parameter, hint: Any) -> Any:
    """What a flag or TOML value for this hyper-parameter is: a number stays a number, an Array is none."""
    if parameter.default is None or parameter.default is inspect.Parameter.empty:
        names = [t for t in get_args(hint) if t in (int, float, str)] or [hint if hint in (int, float) else float]
        return names[0] | None
    if get_origin(hint) is Literal or isinstance(parameter.default, bool):
        return hint
    if isinstance(parameter.default, tuple):
        return types.GenericAlias(tuple, (type(parameter.default[0]), ...))
    return type(parameter.default)


@functools.cache  # three commands ask, of some fifty factories
def settings_class(factory: Callable[..., Any]) -> type:
    """A dataclass with a field per hyper-parameter of ``factory`` that the experiment does not settle."""
    import tyro

    hints, help = get_type_hints(factory), argument_help(factory)
    fields = []
    for name, parameter in registry.settings_of(factory).items():
        if name in SETTLED or (parameter.default is not parameter.empty and callable(parameter.default)):
            continue
        kind = plain_type(parameter, hints[name])
        default = None if parameter.default is inspect.Parameter.empty else parameter.default
        fields.append((name, Annotated[kind, tyro.conf.arg(help=help.get(name, ""))], default))
    made = dataclasses.make_dataclass(factory.__name__, fields, frozen=True, kw_only=True)
    made.__doc__ = registry.summary(factory)
    return made


def factories() -> dict[str, Callable[..., Any]]:
    """Every factory that has settings of its own."""
    groups = (
        registry.AGGREGATORS,
        {"synthetic": synthetic},
        registry.PARTITIONS,
        registry.MODELS,
        registry.SELECTORS,
        registry.OBJECTIVES,
    )
    return {name: factory for group in groups for name, factory in group.items()}


def experiment_class(name: str, extra: list[tuple[str, Any, Any]], doc: str) -> type:
    """``Experiment`` with the fields of one command in front and a group of settings per factory behind."""
    groups = []
    for factory_name, factory in factories().items():
        group = settings_class(factory)
        if dataclasses.fields(group):
            groups.append((factory_name, group, dataclasses.field(default=group())))
    made = dataclasses.make_dataclass(name, extra + groups, bases=(Experiment,), frozen=True, kw_only=True)
    made.__doc__ = doc
    made.__module__ = __package__  # a short file: tyro looks through it for every field, in vain
    return made


def settings_for(experiment: Any, name: str) -> dict[str, Any]:
    """The hyper-parameters that the experiment sets for factory ``name``."""
    group = getattr(experiment, name, None)
    return {} if group is None else dataclasses.asdict(group)

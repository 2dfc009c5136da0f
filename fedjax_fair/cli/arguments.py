"""What the words of the command line mean, and a sentence for those that mean nothing."""

import contextlib
import dataclasses
import difflib
import io
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import tyro

from fedjax_fair.cli.short_help import HELP_ALL, short_help

COMPLETION = "--tyro-print-completion"
DEFAULT_RULES = ("fedavg", "fedavg:weighting=uniform", "qfedavg", "afl", "fedmaba", "aaggff_d")
COMPARE = """Train several rules on the same replicates; print and keep their table and paired differences.

Replicate r is the federation drawn from seed r, trained from seed r: all rules see the same clients, initial
models, cohorts and batches. --tune tries twelve settings of every rule and chooses by the validation split.

fedjax-fair compare --resume FOLDER goes on with one that --checkpoint FOLDER kept, settings included.

Settings may also come from a file: fedjax-fair compare SETTINGS.toml [flags]. Flags win over the file."""
SWEEP = """Train one rule at every point of a grid, from every seed; print and keep a row per point.

--grid q=.1,1.,5. lr=.05,.1 takes settings of the rule, and lr, lr_decay, server_lr, epochs, steps, batch_size or
cohort; where a rule has an lr of its own, that is afl.lr. All numbers with a decimal point go through one compiled
program; whole numbers and words compile one each. Results are written when all of it is done.

fedjax-fair sweep --resume FOLDER goes on with one that --checkpoint FOLDER kept, settings included.

Settings may also come from a file: fedjax-fair sweep SETTINGS.toml [flags]. Flags win over the file."""
RUN = """Train one rule; print and keep its results.

fedjax-fair run --resume FOLDER goes on with a run that --checkpoint FOLDER kept, settings included.

Settings may also come from a file: fedjax-fair run SETTINGS.toml [flags]. Flags win over the file."""


def _flag(name: str, kind: Any, default: Any, help: str) -> tuple[str, Any, Any]:
    return name, Annotated[kind, tyro.conf.arg(help=help)], default


SEEDS = _flag("seeds", int, 3, "How many runs; seed s decides initial model, selection and batches.")
FIRST_SEED = _flag("first_seed", int, 0, "Of the first run or replicate; the others follow. 100: fresh ones, say.")
COMPARING = [
    _flag("replicates", int, 5, "How many federations, each trained from a seed of its own; differences need two."),
    FIRST_SEED,
    _flag("data_seed", int | None, None, "One federation for all replicates, drawn from this seed."),
    _flag("baseline", str | None, None, "The rule that the others are compared with; by default the first."),
    _flag("last", int, 5, "A measure is the mean over so many last evaluations."),
    _flag("tune", bool, False, "Try twelve settings of every rule: grids of what is not given, rates around lr."),
    _flag(
        "choose",
        str,
        "accuracy",
        "How: accuracy, worst10, variance, gini, or accuracy_if_worst10 (the best "
        "accuracy of those whose worst 10 % are no lower than the baseline's), on the validation split.",
    ),
    _flag("plots", bool, False, "Draw Lorenz curves, histograms, curves and differences into the folder."),
    _flag("references", bool, True, "Also train every client alone, and one client that has all examples."),
]
"""The flags that only compare has."""
SHARING = [
    _flag("workers", int | None, None, "Processes of this machine that share out the runs; needs Dask."),
    _flag("scheduler", str | None, None, "The address of a Dask scheduler whose workers do, tcp://HOST:PORT."),
]
"""Of compare and sweep."""
TOGETHER = [
    _flag("coordinator", str | None, None, "HOST:PORT of process 0, of one run over several: docs/devices.md."),
    _flag("process", int | None, None, "Which of them this is, from 0; only 0 writes and prints."),
    _flag("processes", int | None, None, "How many there are; their devices share out a round's clients."),
]
"""Of run."""


@dataclasses.dataclass(frozen=True)
class Listing:
    """What rules, selectors, objectives, models, partitions, faults, data sets, losses and metrics there are."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Only these, such as fedmaba, or a rule of your own, my_rules.py:my_rule; everything by default."""
    markdown: bool = False
    """Print the table of the documentation instead."""


@dataclasses.dataclass(frozen=True)
class Reporting:
    """Turn a results folder into one HTML page with its tables, figures and configuration inside."""

    folder: tyro.conf.Positional[str] = ""
    """Where results are, such as runs/synthetic-20260101-120000."""
    out: Path | None = None
    """The page; by default report.html in the folder."""
    figures: Literal["pdf", "svg", "png"] | None = None
    """Also every figure as a file of this kind, for a paper: in figures beside report.html, else NAME-figures."""


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """Repeat a table or figure of a paper; needs a checkout of the project, where the studies are."""

    study: tyro.conf.Positional[str] = ""
    """Which, such as fmnist3; --list names them all."""
    list: bool = False
    """Print every study, what its full form costs and what results are committed."""
    quick: bool = False
    """A form of a minute or two that shows the ordering."""
    out: Path = Path("runs/reproduce")
    """Folder for the results, and for what lets a run that was cut off go on."""
    workers: int | None = None
    """Processes on this machine that train a study's separate runs; needs the extra [cluster]."""
    scheduler: str | None = None
    """Address of a Dask scheduler whose workers do, such as tcp://10.0.0.1:8786; they write to the same --out."""


def read_command(given: list[str]) -> tuple[Any, tuple[str, ...]]:
    """The settings of the command, and the rules that it names."""
    from fedjax_fair.checks import check_choice
    from fedjax_fair.cli.experiment import experiment_class
    from fedjax_fair.cli.toml import load_toml

    rules_type = Annotated[
        tuple[str, ...],
        tyro.conf.arg(
            help="Rules, as name, name:setting=value,... or with a selector of their own: fedavg@pow_d:d=20; "
            "your own as file.py:name or module:name; mild=qfedavg:q=.1 calls its row mild"
        ),
    ]
    one_type = Annotated[
        str, tyro.conf.arg(help="The rule, as name or name:setting=value,...; your own as file.py:name")
    ]
    grid_type = Annotated[
        tuple[str, ...],
        tyro.conf.arg(help="What varies, as setting=value,value,...; all combinations are trained"),
    ]
    one, rules = ("aggregator", one_type, "fedavg"), ("algorithms", rules_type, DEFAULT_RULES)
    classes = {
        "run": experiment_class("Run", [one, SEEDS, FIRST_SEED, *TOGETHER], RUN),
        "compare": experiment_class("Compare", [rules, *COMPARING, *SHARING], COMPARE),
        "sweep": experiment_class("Sweep", [one, ("grid", grid_type, ()), SEEDS, FIRST_SEED, *SHARING], SWEEP),
    }
    defaults = {name: kind() for name, kind in classes.items()}
    if len(given) > 1 and given[0] in classes and given[1].endswith(".toml"):
        defaults[given[0]] = load_toml(Path(given[1]), defaults[given[0]])
        given = [given[0], *given[2:]]
    commands = {
        name: Annotated[kind, tyro.conf.subcommand(name, default=defaults[name])] for name, kind in classes.items()
    }
    others: dict[str, Any] = {"list": Listing, "report": Reporting, "reproduce": Reproduction}
    choice: Any = Union[
        (*commands.values(), *(Annotated[kind, tyro.conf.subcommand(name)] for name, kind in others.items()))
    ]
    if given[:1] == ["--version"]:
        print(f"fedjax-fair {metadata.version('fedjax-fair')}")
        sys.exit()
    if COMPLETION in given:
        check_choice(COMPLETION.lstrip("-"), (*given, "nothing")[given.index(COMPLETION) + 1], ("bash", "zsh"))
    if given[:1] and given[0] in classes and {"--help", "-h"} & {*given}:
        print(short_help(given[0], classes[given[0]]))
        sys.exit()
    given = ["--help" if word == HELP_ALL else word for word in given]
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            experiment: Any = tyro.cli(
                choice,
                args=given,
                prog="fedjax-fair",
                description="Fair federated learning, simulated fast.",
                config=(tyro.conf.OmitSubcommandPrefixes,),
            )
    except SystemExit as stop:
        if not stop.code:  # --help and the completion scripts
            raise
        explain(given, defaults | {name: kind() for name, kind in others.items()})
        raise ValueError(sentence(complaint.getvalue())) from None
    print(complaint.getvalue(), end="", file=sys.stderr)
    if isinstance(experiment, Listing | Reporting | Reproduction):
        return experiment, ()
    return experiment, (experiment.aggregator,) if hasattr(experiment, "aggregator") else experiment.algorithms


def explain(given: list[str], defaults: dict[str, Any]) -> None:
    """Look for what is wrong in a call that could not be read.

    Raises:
      ValueError: the first wrong command, flag or value, with the nearest right one; nothing where none is found.
    """
    from fedjax_fair.checks import check_choice
    from fedjax_fair.cli.toml import from_words

    if not given:
        raise ValueError(f"command must be one of {', '.join(defaults)}, got nothing")
    command = check_choice("command", given[0], defaults)
    known = flags(defaults[command])
    uses: list[tuple[str, list[str]]] = [("", [])]
    for word in given[1:]:
        if re.match("--?[A-Za-z]", word):
            flag, equals, value = word.partition("=")
            uses.append((flag, [value] if equals else []))
        else:
            uses[-1][1].append(word)
    positional = {"list": len(uses[0][1]), "report": 1, "reproduce": 1}.get(command, 0)
    for stray in uses[0][1][positional:]:
        if positional:
            one = {"report": "folder", "reproduce": "study"}[command]
            raise ValueError(f"{command} takes one {one}, got {' '.join(uses[0][1])}")
        raise ValueError(f"{command} takes flags, or first a settings file that ends in .toml, got {stray!r}")
    everything = HELP_ALL if command in ("run", "compare", "sweep") else "--help"
    for flag, words in uses[1:]:
        plain = flag.replace("_", "-")
        if plain not in known:
            near = difflib.get_close_matches(plain.lstrip("-"), [name.lstrip("-") for name in known], n=1)
            hint = f"did you mean --{near[0]}?" if near else f"fedjax-fair {command} {everything} lists them all"
            others = [name for name, default in defaults.items() if plain in flags(default)]
            raise ValueError(f"{command} has no flag {flag}; {f'{others[0]} has' if others else hint}")
        from_words(words, known[plain], flag)


def flags(default: Any, prefix: str = "--") -> dict[str, Any]:
    """Every flag that sets a field of the dataclass instance ``default``, with the field's type."""
    found: dict[str, Any] = {"--help": bool, "-h": bool, HELP_ALL: bool}
    for field in dataclasses.fields(default):
        if field.name in ("names", "study", "folder"):  # positional
            continue
        name, value = field.name.replace("_", "-"), getattr(default, field.name)
        if dataclasses.is_dataclass(value):
            found |= flags(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = field.type
            if isinstance(value, bool):
                found[f"{prefix}no-{name}"] = bool
    return found


def sentence(box: str) -> str:
    """The message in tyro's framed complaint, on one line."""
    inside = []
    for line in box.splitlines():
        text = line.strip(" │|")
        if text[:1] in ("╭", "+"):  # the frame's top, with the title
            continue
        if text[:1] in ("─", "╰") or text.startswith(("--- ", "----", "For full helptext")):
            break
        inside.append(text)
    return " ".join(" ".join(inside).split()) or "the command could not be read: see fedjax-fair --help"

"""The short ``--help`` of run, compare and sweep: common flags, a line each, and where the others are."""

import ast
import dataclasses
import inspect
import itertools
import textwrap
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from fedjax_fair.cli.experiment import Experiment, factories

HELP_ALL = "--help-all"
WIDTH = 110
LONG = 20
"""Letters of a default beyond which the line does not show it."""
COMMON = (
    *("algorithms", "aggregator", "grid", "seeds", "replicates", "baseline", "tune", "choose"),
    *(
        "dataset",
        "partition",
        "data",
        "client",
        "label",
        "clients",
        "cohort",
        "selector",
        "model",
        "loss",
        "metric",
    ),
    *("rounds", "lr", "epochs", "batch_size", "eval_every", "evaluate"),
    *("checkpoint", "out", "workers", "devices"),
)
"""Flags that most calls need, in this order."""


def short_help(command: str, settings: type) -> str:
    """The help of a command whose settings are a class such as :func:`experiment_class` makes."""
    fields = {field.name: field for field in dataclasses.fields(settings) if field.name not in factories()}
    told = help_of_fields(Experiment) | _annotated(settings)
    shown = [fields[name] for name in COMMON if name in fields]
    others = [_flag(name) for name in fields if name not in COMMON]
    lines = [
        f"usage: fedjax-fair {command} [flags]",
        "",
        *(settings.__doc__ or "").split("\n\n")[0].splitlines(),
        "",
    ]
    lines += [_line(field, told.get(field.name, "")) for field in shown]
    lines += ["", *textwrap.wrap("More flags: " + ", ".join(others), WIDTH, break_on_hyphens=False)]
    everything, rule = f"fedjax-fair {command} {HELP_ALL}", "fedjax-fair list fedmaba"
    wide = len(everything) + 4
    lines += ["", f"{everything:<{wide}}every flag, and every setting of rules, data and models"]
    lines += [f"{rule:<{wide}}a rule's settings, which are flags such as --fedmaba.alpha .8"]
    return "\n".join(lines)


def help_of_fields(settings: type) -> dict[str, str]:
    """The sentences that stand below the fields of a dataclass, in its source."""
    (written,) = ast.parse(textwrap.dedent(inspect.getsource(settings))).body
    assert isinstance(written, ast.ClassDef)
    found = {}
    for field, below in itertools.pairwise(written.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = inspect.cleandoc(ast.literal_eval(below.value))
    return found


def _annotated(settings: type) -> dict[str, str]:
    """The help that fields carry in their types."""
    hints = get_type_hints(settings, include_extras=True)
    carried = {name: get_args(hint)[1:] for name, hint in hints.items() if get_origin(hint) is Annotated}
    return {name: help for name, rest in carried.items() for of in rest if (help := getattr(of, "help", None))}


def _line(field: Any, told: str) -> str:
    default = field.default
    named = " ".join(map(str, default)) if isinstance(default, tuple) else default
    plain = default is None or default == () or isinstance(default, bool) or len(str(named)) > LONG
    usual = "" if plain else f" ({named})"
    words = textwrap.shorten(told, WIDTH - 20 - len(usual), placeholder=" ...")
    return f"  {_flag(field.name):<18}{words}{usual}"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"

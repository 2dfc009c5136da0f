"""The command line: ``fedjax-fair list | run | compare``."""

import contextlib
import dataclasses
import difflib
import io
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Union

import tyro

DEFAULT_RULES = ("fedavg", "fedprox", "qfedavg", "afl", "fedmaba", "aaggff_d")
COMPARE = """Train several rules on the same data, seeds and initial models; print and keep the paper's table.

Settings may also come from a file: fedjax-fair compare SETTINGS.toml [flags]. Flags win over the file."""
RUN = """Train one rule; print and keep its results.

Settings may also come from a file: fedjax-fair run SETTINGS.toml [flags]. Flags win over the file."""


@dataclasses.dataclass(frozen=True)
class Listing:
    """What rules, selectors, objectives, models and partitions there are."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Only these, such as fedmaba; everything by default."""
    markdown: bool = False
    """Print the table of the documentation instead."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. A wrong call ends in one sentence on standard error and exit status 2."""
    if arguments is None:  # a process of its own, whose JAX nobody else has settled
        keep_programs()
    try:
        act(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:  # "fedjax-fair list | head": the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def act(given: list[str]) -> None:
    """Do what the words of the command line say."""
    from fedjax_fair.checkpoint import CheckpointError

    try:
        words, going_on = resumed(given)
        experiment, rules = read_command(words)
        if isinstance(experiment, Listing):
            show_list(experiment)
            return
        plan, folder = set_up(experiment, rules, going_on, words[0])
    except ValueError as error:
        print(f"fedjax-fair: {error}", file=sys.stderr)
        sys.exit(2)
    try:
        train(plan, folder, ["fedjax-fair", *given])
    except CheckpointError as error:
        print(f"fedjax-fair: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        if experiment.checkpoint is None or not str(stop):
            raise
        again = f"fedjax-fair {words[0]} --resume {shlex.quote(str(experiment.checkpoint))}"
        print(f"fedjax-fair: {stop}; go on with: {again}", file=sys.stderr)
        sys.exit(130)


def resumed(given: list[str]) -> tuple[list[str], bool]:
    """The words that ``run --resume FOLDER`` stands for, and whether it was that.

    Raises:
      ValueError: ``--resume`` with anything else, or a folder that no run left behind.
    """
    if "--resume" not in given:
        return given, False
    if len(given) != 3 or given[0] not in ("run", "compare") or given[1] != "--resume":
        raise ValueError(f"resume takes a folder and no other flag, run --resume FOLDER, got {shlex.join(given)}")
    folder = Path(given[2])
    try:
        left = json.loads((folder / RESUME).read_text())
        words = [left["command"], str(folder / "config.toml")]
        return [*words, "--checkpoint", str(folder), "--out", left["out"], "--overwrite"], True
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"resume {folder} is not a folder that --checkpoint left behind: no {RESUME}") from error


def keep_programs() -> None:
    """Keep compiled programs in the user's cache directory: the same call starts at once the next time.

    ``$JAX_COMPILATION_CACHE_DIR`` names another place, and ``JAX_ENABLE_COMPILATION_CACHE=0`` keeps nothing.
    """
    import jax

    from fedjax_fair.data.cache import directory

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(directory() / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def read_command(given: list[str]) -> tuple[Any, tuple[str, ...]]:
    """The settings of ``run`` or ``compare``, and the rules they name."""
    from fedjax_fair.config import experiment_class, load_toml

    rules_type = Annotated[
        tuple[str, ...],
        tyro.conf.arg(
            help="Rules, as name, name:setting=value,... or with a selector of their own: fedavg@pow_d:d=20"
        ),
    ]
    one_type = Annotated[str, tyro.conf.arg(help="The rule, as name or name:setting=value,...")]
    classes = {
        "run": experiment_class("Run", [("aggregator", one_type, "fedavg")], RUN),
        "compare": experiment_class("Compare", [("algorithms", rules_type, DEFAULT_RULES)], COMPARE),
    }
    defaults = {name: kind() for name, kind in classes.items()}
    if len(given) > 1 and given[0] in classes and given[1].endswith(".toml"):
        defaults[given[0]] = load_toml(Path(given[1]), defaults[given[0]])
        given = [given[0], *given[2:]]
    commands = {
        name: Annotated[kind, tyro.conf.subcommand(name, default=defaults[name])] for name, kind in classes.items()
    }
    listing = Annotated[Listing, tyro.conf.subcommand("list")]
    choice: Any = Union[(*commands.values(), listing)]
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
        explain(given, defaults | {"list": Listing()})
        raise ValueError(sentence(complaint.getvalue())) from None
    print(complaint.getvalue(), end="", file=sys.stderr)
    if isinstance(experiment, Listing):
        return experiment, ()
    return experiment, (experiment.aggregator,) if hasattr(experiment, "aggregator") else experiment.algorithms


def explain(given: list[str], defaults: dict[str, Any]) -> None:
    """Look for what is wrong in a call that could not be read.

    Raises:
      ValueError: the first wrong command, flag or value, with the nearest right one; nothing where none is found.
    """
    from fedjax_fair.checks import check_choice
    from fedjax_fair.config import from_words

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
    for stray in uses[0][1] if command != "list" else ():
        raise ValueError(f"{command} takes flags, or first a settings file that ends in .toml, got {stray!r}")
    for flag, words in uses[1:]:
        plain = flag.replace("_", "-")
        if plain not in known:
            near = difflib.get_close_matches(plain.lstrip("-"), [name.lstrip("-") for name in known], n=1)
            hint = f"did you mean --{near[0]}?" if near else f"fedjax-fair {command} --help lists them all"
            raise ValueError(f"{command} has no flag {flag}; {hint}")
        from_words(words, known[plain], flag)


def flags(default: Any, prefix: str = "--") -> dict[str, Any]:
    """Every flag that sets a field of the dataclass instance ``default``, with the field's type."""
    found: dict[str, Any] = {"--help": bool, "-h": bool}
    for field in dataclasses.fields(default):
        if field.name == "names":  # positional
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


RESUME = "resume.json"
"""In a checkpoint folder, beside config.toml: the command, and the folder of its results."""


def set_up(
    experiment: Any, rules: tuple[str, ...], going_on: bool = False, command: str = "run"
) -> tuple[Any, Path]:
    """Check everything, build the simulations, claim the results folder and that of the checkpoints."""
    from fedjax_fair.config import dump_toml
    from fedjax_fair.experiment import prepare, without_effect
    from fedjax_fair.results import claim_folder, new_folder, to_json, write_atomically

    plan = prepare(experiment, rules)
    keep = experiment.checkpoint
    if keep is not None and not going_on and (keep / RESUME).exists():
        raise ValueError(
            f"checkpoint {keep} already holds a run: go on with fedjax-fair {command} --resume {keep}, "
            "or name another folder"
        )
    if keep is not None:
        claim_folder(keep, overwrite=True, name="checkpoint")
    if experiment.out is None:
        folder = new_folder(Path("runs") / f"{experiment.dataset}-{time.strftime('%Y%m%d-%H%M%S')}")
    else:
        folder = claim_folder(experiment.out, experiment.overwrite)
    for setting, reason in without_effect(experiment, rules):
        print(f"fedjax-fair: {setting} has no effect: {reason}", file=sys.stderr)
    kept = dataclasses.replace(experiment, out=None, overwrite=False, checkpoint=None, cohort=plan.cohort)
    write_atomically(folder / "config.toml", dump_toml(dataclasses.replace(kept, checkpoint_every=None)))
    if keep is not None and not going_on:
        write_atomically(keep / "config.toml", dump_toml(kept))
        write_atomically(keep / RESUME, to_json({"command": command, "out": str(folder.absolute())}))
    return plan, folder


def train(plan: Any, folder: Path, command: list[str]) -> None:
    """Run every rule on every seed; what is finished is on disk before the next rule starts."""
    from rich.console import Console

    from fedjax_fair.results import about, left_out, table, write, write_plots
    from fedjax_fair.run import run

    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    experiment, seeds, keep = plan.experiment, plan.experiment.seeds, plan.experiment.checkpoint
    header = about(shlex.join(command)) | {
        "model": plan.model_name,
        "cohort": plan.cohort,
        "precision": experiment.precision,
    }
    notes.print(
        f"{experiment.dataset}: {plan.data.n_clients} clients, {plan.cohort} a round, {int(plan.data.sizes.sum())} "
        f"training examples, {plan.model_name}"
    )
    runs: dict[str, list[Any]] = {}
    for rule, sim in plan.simulations.items():
        start, histories = time.perf_counter(), []
        for seed in range(seeds):
            bar = f"{rule}, seed {seed + 1} of {seeds}" if sys.stderr.isatty() else False
            place = keep and keep / re.sub(r"[^\w.,=@-]+", "_", f"{len(runs)}-{rule}") / f"seed-{seed}"
            _, history = run(
                sim,
                seed,
                experiment.rounds,
                eval_every=experiment.eval_every,
                progress=bar,
                checkpoint=place,
                every=experiment.checkpoint_every,
            )
            histories.append(history)
        runs[rule] = histories
        write(folder, runs, header, plan.honest)
        seconds = time.perf_counter() - start
        notes.print(f"{rule}: {seeds} x {experiment.rounds} rounds in {seconds:.1f} s{left_out(histories)}")
    print(table(runs, plan.honest))
    if plan.honest is not None:
        liars = int((~plan.honest).sum())
        print(f"Judged by the {int(plan.honest.sum())} honest clients; {liars} do {experiment.fault}.")
    write_plots(folder, runs, plan.honest)
    notes.print(f"Results in {folder}")


def show_list(listing: Listing) -> None:
    """Print the cards of the registry: what each factory does, optimises, reads, its settings and its source.

    Raises:
      ValueError: a name that is not in the registry.
    """
    from rich.console import Console

    from fedjax_fair import cards
    from fedjax_fair.checks import check_choice
    from fedjax_fair.experiment import DATASETS

    if listing.markdown:
        if listing.names:
            raise ValueError(f"markdown prints every table and takes no names, got {' '.join(listing.names)}")
        print(cards.as_markdown(), end="")
        return
    known = [name for group in cards.GROUPS.values() for name in group]
    for name in listing.names:
        check_choice("name", name, known)
    width = min(Console().width, 110)
    for title, group in cards.GROUPS.items():
        asked = [factory for name, factory in group.items() if not listing.names or name in listing.names]
        if asked:
            print(f"{title}\n" + "\n".join(cards.as_text(cards.card(factory), width) for factory in asked) + "\n")
    if not listing.names:
        print(f"Datasets: {', '.join(DATASETS)}")

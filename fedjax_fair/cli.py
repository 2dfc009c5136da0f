"""The command line: ``fedjax-fair list | run | compare``."""

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Union

DEFAULT_RULES = ("fedavg", "fedprox", "qfedavg", "afl", "fedmaba", "aaggff_d")
COMPARE = """Train several rules on the same data, seeds and initial models; print and keep the paper's table.

Settings may also come from a file: fedjax-fair compare SETTINGS.toml [flags]. Flags win over the file."""
RUN = """Train one rule; print and keep its results.

Settings may also come from a file: fedjax-fair run SETTINGS.toml [flags]. Flags win over the file."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. A wrong call ends in one sentence on standard error and exit status 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        experiment, rules = read_command(given)
        if experiment is None:
            show_list()
            return
        plan, folder = set_up(experiment, rules)
    except ValueError as error:
        print(f"fedjax-fair: {error}", file=sys.stderr)
        sys.exit(2)
    train(plan, folder, ["fedjax-fair", *given])


def read_command(given: list[str]) -> tuple[Any, tuple[str, ...]]:
    """The settings of ``run`` or ``compare``, and the rules they name."""
    import tyro

    from fedjax_fair.config import experiment_class, load_toml

    rules_type = Annotated[tuple[str, ...], tyro.conf.arg(help="Rules, as name or name:setting=value,...")]
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
    listing = Annotated[None, tyro.conf.subcommand("list", description="Rules, selectors, models and partitions.")]
    choice: Any = Union[(*commands.values(), listing)]
    experiment: Any = tyro.cli(
        choice,
        args=given,
        prog="fedjax-fair",
        description="Fair federated learning, simulated fast.",
        config=(tyro.conf.OmitSubcommandPrefixes,),
    )
    if experiment is None:
        return None, ()
    return experiment, (experiment.aggregator,) if hasattr(experiment, "aggregator") else experiment.algorithms


def set_up(experiment: Any, rules: tuple[str, ...]) -> tuple[Any, Path]:
    """Check everything, build the simulations, claim the results folder."""
    from fedjax_fair.config import dump_toml
    from fedjax_fair.experiment import prepare
    from fedjax_fair.results import claim_folder, write_atomically

    plan = prepare(experiment, rules)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    folder = experiment.out or Path("runs") / f"{experiment.dataset}-{stamp}"
    claim_folder(folder, experiment.overwrite)
    write_atomically(folder / "config.toml", dump_toml(experiment))
    return plan, folder


def train(plan: Any, folder: Path, command: list[str]) -> None:
    """Run every rule on every seed; what is finished is on disk before the next rule starts."""
    from rich.console import Console

    from fedjax_fair.results import about, left_out, table, write, write_plots
    from fedjax_fair.run import run

    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    experiment, seeds = plan.experiment, plan.experiment.seeds
    header = about(shlex.join(command)) | {"model": plan.model_name, "cohort": plan.cohort}
    notes.print(
        f"{experiment.dataset}: {plan.data.n_clients} clients, {plan.cohort} a round, {int(plan.data.sizes.sum())} "
        f"training examples, {plan.model_name}"
    )
    runs: dict[str, list[Any]] = {}
    for rule, sim in plan.simulations.items():
        start, histories = time.perf_counter(), []
        for seed in range(seeds):
            bar = f"{rule}, seed {seed + 1} of {seeds}" if sys.stderr.isatty() else False
            _, history = run(sim, seed, experiment.rounds, eval_every=experiment.eval_every, progress=bar)
            histories.append(history)
        runs[rule] = histories
        write(folder, runs, header)
        seconds = time.perf_counter() - start
        notes.print(f"{rule}: {seeds} x {experiment.rounds} rounds in {seconds:.1f} s{left_out(histories)}")
    print(table(runs))
    write_plots(folder, runs)
    notes.print(f"Results in {folder}")


def show_list() -> None:
    """Print the registry: rules with what they read and their hyper-parameters, then the rest."""
    from rich.console import Console
    from rich.table import Table

    from fedjax_fair import registry
    from fedjax_fair.experiment import DATASETS
    from fedjax_fair.reads import reads

    console = Console()
    rules = Table("rule", "reads", "hyper-parameters", "what it does", title="Rules", title_justify="left")
    for name, factory in registry.AGGREGATORS.items():
        signals = ", ".join(reads(registry.make_rule(name, learning_rate=0.1))) or "nothing"
        rules.add_row(name, signals, registry.defaults(factory), registry.summary(factory))
    console.print(rules)
    groups: tuple[tuple[str, dict[str, Any]], ...] = (
        ("Selectors", registry.SELECTORS),
        ("Models", registry.MODELS),
        ("Partitions", registry.PARTITIONS),
    )
    for title, group in groups:
        made = Table("name", "settings", "what it does", title=title, title_justify="left")
        for name, factory in group.items():
            made.add_row(name, registry.defaults(factory), registry.summary(factory))
        console.print(made)
    console.print(f"Datasets: {', '.join(DATASETS)}")

"""What an experiment found, as a table: per rule the mean over the clients, and how evenly they are served."""

import textwrap
from collections.abc import Mapping
from io import StringIO
from typing import Any

import numpy as np

from fedjax_fair import metrics
from fedjax_fair.checks import check_choice
from fedjax_fair.engine.history import History

Runs = Mapping[str, list[History]]
"""Per rule, one history per seed."""

COLUMNS = {
    "accuracy": "acc %",
    "variance": "var %²",
    "worst5": "worst 5%",
    "best5": "best 5%",
    "gini": "Gini",
    "jain": "Jain",
    "peak": "peak %",
}
"""Keys of :func:`summarize` and their headings; peak is the best evaluation's mean client accuracy."""

COST = {"downloads": "sent", "evaluations": "asked"}
"""What selection costs a round; shown where clients are asked for a loss."""

LEGEND = (
    "Clients' {split} accuracy after the last round, mean±std over the seeds: its mean, "
    "variance, mean of the worst and best 5 % of clients{few}, Gini coefficient and Jain's "
    "index; peak is the mean accuracy at its best evaluation."
)
COST_LEGEND = (
    "Selection's cost a round: models sent (to train, and to be asked for a loss),\n"
    "and examples whose loss was asked for."
)


def summarize(
    histories: list[History], clients: np.ndarray | None = None, split: str | None = None
) -> dict[str, np.ndarray]:
    """Per measure, f64[seeds]: of the last evaluation; ``peak`` of the best.

    ``clients``, bool[N], are the ones to judge by, such as the honest; all by default. ``split`` is the histories'
    first by default.
    """
    per_seed = []
    for history in histories:
        judged = slice(None) if clients is None else np.asarray(clients)
        accuracy, loss = history.scores[split or next(iter(history.scores))]
        row = metrics.summary(accuracy[-1, judged], loss=loss[-1, judged])
        means = np.nanmean(accuracy[:, judged], axis=1)
        peak = np.maximum(100 * means.max(), row["accuracy"])  # the two round differently
        cost = {"downloads": history.downloads.mean(), "evaluations": history.evaluations.mean()}  # a round
        per_seed.append(row | {"peak": peak, "left_out": (~history.active).sum()} | cost)
    return {key: np.array([float(row[key]) for row in per_seed]) for key in per_seed[0]}


def table(
    runs: Mapping[str, History | list[History]], clients: np.ndarray | None = None, split: str | None = None
) -> str:
    """Mean and standard deviation over the seeds, a row per rule, as text.

    Args:
      runs: per rule its history, or a list of them, one per seed.
      clients: bool[N], the ones to judge by, such as the honest; all by default.
      split: one that was evaluated, such as "test"; by default the histories' first.

    Raises:
      ValueError: ``runs`` is not of this form, or a history lacks this split; by default, their first ones differ.
    """
    runs = check_runs(runs)
    all_scores = [history.scores for histories in runs.values() for history in histories]
    for scores in all_scores if split is not None else ():
        check_choice("split", split, scores)
    split, *others = dict.fromkeys(next(iter(scores)) if split is None else split for scores in all_scores)
    if others:
        raise ValueError(f"runs must be judged by one split, got {split} and {others[0]}")
    for rule, (history, *_) in runs.items():
        wanted = history.accuracy.shape[1:]
        if clients is not None and np.asarray(clients).shape != wanted:
            got = list(np.asarray(clients).shape)
            raise ValueError(f"clients must be bool{list(wanted)}, one for each client of {rule}, got shape {got}")
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    made.add_column("rule", no_wrap=True)
    for heading in COLUMNS.values():
        made.add_column(heading, justify="right", no_wrap=True)
    measured = {rule: summarize(histories, clients, split) for rule, histories in runs.items()}
    costly = any(h.evaluations.any() for histories in runs.values() for h in histories)
    for heading in COST.values() if costly else ():
        made.add_column(heading, justify="right", no_wrap=True)
    for rule, measures in measured.items():
        cells = [_spread(measures[key], 3 if key in ("gini", "jain") else 1) for key in COLUMNS]
        made.add_row(rule, *cells, *(f"{measures[key].mean():.0f}" for key in (COST if costly else ())))
    console = Console(
        width=1000, file=StringIO(), force_jupyter=False, color_system=None
    )  # never cut: a terminal that is too narrow wraps
    with console.capture() as captured:
        console.print(made)
    return (
        "\n".join(line.rstrip() for line in captured.get().splitlines() if line.strip())
        + f"\n\n{textwrap.fill(LEGEND.format(split=split, few=_few(all_scores, clients, split)), 79)}"
        + (f"\n{COST_LEGEND}" if costly else "")
    )


def _few(all_scores: list[dict[str, Any]], clients: np.ndarray | None, split: str) -> str:
    """How many clients 5 % are, as :func:`fedjax_fair.metrics.worst` counts; nothing where runs differ in it."""
    judged = slice(None) if clients is None else np.asarray(clients)
    n, *others = {int((~np.isnan(scores[split].accuracy[-1, judged])).sum()) for scores in all_scores}
    return "" if others or not n else f" (here {max(1, int(n * 5 / 100))} of {n})"


def check_runs(runs: Any) -> Runs:
    """``runs`` with a list of histories for every rule.

    Raises:
      ValueError: not a mapping of rules to their history or histories, or without any.
    """
    listed = {
        rule: [given] if isinstance(given, History) else given
        for rule, given in (runs.items() if isinstance(runs, Mapping) else ())
    }
    for given in listed.values():
        if not isinstance(given, list) or not given or not all(isinstance(h, History) for h in given):
            raise ValueError(f"runs must map each rule to its History, or to one per seed, got {given!r}")
    if not listed:
        raise ValueError(f"runs must map each rule to its History, or to one per seed, got {runs!r}")
    return listed


def _spread(values: np.ndarray, digits: int) -> str:
    numbers = [values.mean()] if len(values) == 1 else [values.mean(), values.std(ddof=1)]
    return "±".join(f"{number:.{digits}f}".replace("0.", ".", digits == 3) for number in numbers)


def left_out(histories: list[History]) -> str:
    """A remark on the updates that were dropped for not being finite; empty where there were none."""
    count = sum(int((~history.active).sum()) for history in histories)
    return f"; {count} updates were absent or not finite and were left out" if count else ""

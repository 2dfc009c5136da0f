"""What an experiment found, as a table: per rule the mean over the clients, and how evenly they are served."""

import textwrap
from collections.abc import Iterable, Mapping
from io import StringIO
from typing import Any

import numpy as np

from fedjax_fair import metrics
from fedjax_fair.checks import check_choice
from fedjax_fair.engine.history import History
from fedjax_fair.engine.outcome import LEGEND as FAILED
from fedjax_fair.engine.outcome import Outcome, identical, one_metric, outcome, remark, unused
from fedjax_fair.metrics.kind import ACCURACY, Metric, check_values, named_metric
from fedjax_fair.results.digits import digits_of, spread
from fedjax_fair.results.group_columns import GROUPS, GROUPS_LEGEND, of_groups

Runs = Mapping[str, list[History]]
"""Per rule, one history per seed."""

COLUMNS = {
    "accuracy": "acc %",
    "variance": "var %²",
    "worst10": "worst 10%",
    "worst5": "worst 5%",
    "best5": "best 5%",
    "gini": "Gini",
    "jain": "Jain",
}
"""Keys of :func:`summarize` and their headings."""

COUNTS = ("left_out", "downloads", "evaluations", "failed")  # say nothing of how clients are served
COST = {"downloads": "sent", "evaluations": "asked"}
"""What selection costs a round; shown where clients are asked for a loss."""

LEGEND = (
    "Clients' {split} accuracy after the last round, mean±std over the seeds: its mean, "
    "variance, mean of the worst 10 %, the worst and best 5 % of clients{few}, Gini coefficient and Jain's "
    "index."
)
COST_LEGEND = (
    "Selection's cost a round: models sent (to train, and to be asked for a loss),\n"
    "and examples whose loss was asked for."
)


def headings(metric: Metric) -> dict[str, str]:
    """Of the columns: what an accuracy has, in the metric's name and unit."""
    if metric == ACCURACY:
        return COLUMNS
    unit = f" {metric.unit}" if metric.unit else ""
    first = {"accuracy": metric.name + unit, "variance": f"var{unit}²" if unit else "var"}
    return COLUMNS | first


def summarize(
    histories: list[History], clients: np.ndarray | None = None, split: str | None = None
) -> dict[str, np.ndarray]:
    """Per measure, f64[seeds]: of the last evaluation. NaN for a run that failed.

    ``clients``, bool[N], are the ones to judge by, such as the honest; all by default. ``split`` is the histories'
    first by default.
    """
    name, mine = split or next(iter(histories[0].scores)), who(clients)
    ended = [outcome(history, name, mine) for history in histories]
    lasts = [[np.asarray(part)[-1, mine] for part in history.scores[name][:2]] for history in histories]
    rows: dict[str, list[float]] = {}
    for together in _of_one_size([o.counts for o in ended]):  # mostly all: a summary is compiled for each form
        accuracy, loss = (np.stack([lasts[i][part] for i in together]) for part in (0, 1))
        where = np.stack([ended[i].counts for i in together])
        row = metrics.summary(accuracy, loss=loss, metric=named_metric(histories[0].metric), where=where)
        for key, values in row.items():
            of = rows.setdefault(key, [np.nan] * len(histories))
            for i, value in zip(together, np.asarray(values, float)):
                of[i] = np.nan if ended[i].lost and key in metrics.SUMMARY else value
    counts: dict[str, list[float]] = {
        "left_out": [unused(history) for history in histories],
        "downloads": [history.downloads.sum() / max(1, len(history.ids)) for history in histories],  # a round
        "evaluations": [history.evaluations.sum() / max(1, len(history.ids)) for history in histories],
        "failed": [o.failed for o in ended],
    }
    if histories[0].groups is not None:
        served = [of_groups(last[0], history, o, mine) for last, history, o in zip(lasts, histories, ended)]
        rows |= {key: [one[i] for one in served] for i, key in enumerate(GROUPS)}
    return {key: np.array(values, float) for key, values in (rows | counts).items()}


def _of_one_size(arrays: list[np.ndarray]) -> list[list[int]]:
    """The places of those that can be stacked."""
    found: dict[tuple[int, ...], list[int]] = {}
    for i, array in enumerate(arrays):
        found.setdefault(array.shape, []).append(i)
    return [*found.values()]


def one_split(runs: Mapping[str, list[History]]) -> str:
    """The first split of all runs; ValueError where they differ."""
    split, *others = dict.fromkeys(next(iter(history.scores)) for of in runs.values() for history in of)
    if others:
        raise ValueError(f"runs must be judged by one split, got {split} and {others[0]}")
    return split


def table(
    runs: Mapping[str, History | list[History]], clients: np.ndarray | None = None, split: str | None = None
) -> str:
    """Mean and standard deviation over the seeds, a row per rule, as text; in the unit of the histories' metric.

    Runs whose model, or a client's loss or metric, is not finite are named beside their rule. Of those of which
    nothing can be said there is no figure; where some seeds are, the row is the others'. Rules with the same
    results, bit for bit, are named below.

    Args:
      runs: per rule its history, or a list of them, one per seed.
      clients: bool[N], the ones to judge by, such as the honest; all by default.
      split: one that was evaluated, such as "test"; by default the histories' first.

    Raises:
      ValueError: ``runs`` is not of this form, or a history lacks this split; by default, their first ones differ;
        ``clients`` is not bool[N], or of nobody; metrics that differ, or values outside the metric's range.
    """
    listed, split, metric = check_table(runs, clients, split)
    everything = [history for histories in listed.values() for history in histories]
    ended = {rule: [outcome(h, split, who(clients)) for h in histories] for rule, histories in listed.items()}
    measured = {rule: summarize(histories, clients, split) for rule, histories in listed.items()}
    costly = any(history.evaluations.any() for history in everything)
    grouped = all(history.groups is not None for history in everything)
    extra = GROUPS if grouped else {}
    rows = [
        [f"{rule}{remark(ended[rule])}", *_cells(measures, ended[rule], metric, (*COLUMNS, *extra))]
        + [f"{measures[key].mean():.0f}" for key in (COST if costly else ())]
        for rule, measures in measured.items()
    ]
    heads = [*headings(metric).values(), *extra.values(), *(COST.values() if costly else ())]
    notes = [legend_of(metric, split, few(ended)), *([textwrap.fill(GROUPS_LEGEND, 79)] if grouped else ())]
    notes += [*(COST_LEGEND.splitlines() if costly else ())]
    return "\n".join([drawn(["rule", *heads], rows), "", *notes, *remarks(listed, ended, split)])


def legend_of(metric: Metric, split: str, few: str) -> str:
    """What the columns are, in lines of 79."""
    text = LEGEND.format(split=split, few=few)
    if metric != ACCURACY:
        better = "higher" if metric.higher_is_better else "lower"
        text = text.replace("accuracy after", f"{metric.label} after") + f" Of {metric.name} {better} is better."
    return textwrap.fill(text, 79)


def remarks(runs: Mapping[str, list[History]], ended: dict[str, list[Outcome]], split: str | None) -> list[str]:
    """What a reader has to know of some rows."""
    nobody = [rule for rule, of in ended.items() if not any(o.counts.any() for o in of)]
    alike = "; ".join(", ".join(map(str, rules)) for rules in identical(runs, split))
    notes = [FAILED] * any(o.failed for of in ended.values() for o in of)
    notes += [f"No client has examples in the {split} split: {', '.join(map(str, nobody))}."] * bool(nobody)
    notes += [f"Identical, bit for bit: {alike}."] * bool(alike)
    return [textwrap.fill(note, 79, break_long_words=False, break_on_hyphens=False) for note in notes]


def drawn(heads: list[str], rows: list[list[str]]) -> str:
    """The table as text."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    for heading in heads:
        made.add_column(Text(heading), justify="left" if heading is heads[0] else "right", no_wrap=True)
    for row in rows:
        made.add_row(*map(Text, row))  # a name's brackets are no markup
    console = Console(
        width=1000, file=StringIO(), force_jupyter=False, color_system=None
    )  # never cut: a terminal that is too narrow wraps
    with console.capture() as captured:
        console.print(made)
    return "\n".join(line.rstrip() for line in captured.get().splitlines() if line.strip())


def _cells(
    measures: Mapping[str, np.ndarray], ended: list[Outcome], metric: Metric, columns: Iterable[str]
) -> list[str]:
    """A row's figures: of the seeds that did not fail, where there are any."""
    kept = np.array([not o.lost for o in ended])
    shown = [spread(measures[key][kept], *digits_of(key, metric)) for key in columns]
    return shown if kept.any() else ["failed", *shown[1:]]


def few(ended: Mapping[str, list[Outcome]]) -> str:
    """How many clients 5 % are, as :func:`fedjax_fair.metrics.worst` counts; nothing where runs differ in it."""
    n, *others = {int(o.counts.sum()) for of in ended.values() for o in of}
    return "" if others or not n else f" (here {max(1, int(n * 5 / 100))} of {n})"


def who(clients: Any) -> Any:
    """What picks those to judge by out of an array of clients."""
    return slice(None) if clients is None else np.asarray(clients)


def check_table(runs: Any, clients: Any, split: str | None) -> tuple[Runs, str, Metric]:
    """The runs as lists, the split and the metric of a table; ValueError for what :func:`table` refuses."""
    listed = check_runs(runs)
    everything = [history for histories in listed.values() for history in histories]
    for history in everything if split is not None else ():
        check_choice("split", split, history.scores)
    split = one_split(listed) if split is None else split
    metric = one_metric(everything)
    for rule, histories in listed.items():
        for history in histories:
            check_clients(clients, history, rule)
            check_values(f"{rule!r}", history.scores[split].accuracy, metric)
    return listed, split, metric


def check_clients(clients: Any, history: History, rule: str) -> None:
    """Raise ValueError unless ``clients`` is None or bool[N]: whole numbers would be taken for ids."""
    if clients is None:
        return
    mask, (n,) = np.asarray(clients), np.shape(next(iter(history.scores.values())).accuracy)[1:]
    if mask.dtype != bool or mask.shape != (n,):
        got, of_ids = f"{mask.dtype}{list(mask.shape)}", f"np.isin(np.arange({n}), ids)"
        got = f"shape {list(mask.shape)}" if mask.dtype == bool else got
        raise ValueError(f"clients must be bool[{n}], one for each client of {rule} (of ids {of_ids}), got {got}")
    if not mask.any():
        raise ValueError("clients must be True for at least one client, got none")


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
        got = f"a {type(runs).__name__}: pass its runs" if hasattr(runs, "runs") else repr(runs)
        raise ValueError(f"runs must map each rule to its History, or to one per seed, got {got}")
    return listed


def left_out(histories: list[History]) -> str:
    """A remark on the updates that were dropped for not being finite; empty where there were none."""
    count = sum(map(unused, histories))
    return f"; {count} updates were absent or not finite and were left out" if count else ""

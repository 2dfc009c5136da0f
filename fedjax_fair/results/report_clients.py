"""Whom the rules serve worst, on the report page: clients by their names."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np

from fedjax_fair.engine.history import History
from fedjax_fair.engine.outcome import outcome
from fedjax_fair.metrics.groups import group_means
from fedjax_fair.metrics.kind import Metric, worst_first
from fedjax_fair.results.digits import digits_of
from fedjax_fair.results.report_table import html_table

SHOWN = 10


def worst_served(
    rules: Sequence[str], arrays: Mapping[str, np.ndarray], metric: Metric, further: Mapping[str, Metric]
) -> str:
    """The section with a row per client, those first that the first rule serves worst, ten at most.

    Every rule's result is that of the last evaluation, mean over the runs that have one, by every metric. First of
    all come those who failed in every run; those who do not count are left out. Empty where clients have no names:
    a number may be another client in every run.
    """
    if "clients" not in arrays:
        return ""
    kinds = {"accuracy": metric} | {f"measures/{name}": kind for name, kind in further.items()}
    counted = arrays.get("honest", np.ones(len(arrays["clients"]), bool))
    served = {
        (kind, rule): kind.scale * last_of(arrays, rule, place)[counted]
        for place, kind in kinds.items()
        for rule in rules
    }
    names, first = arrays["clients"][counted], served[metric, rules[0]]
    judged = arrays.get(f"{rules[0]}/judged")  # folders of before 2026-11 lack it
    failed = np.isnan(first) & (judged is not None and judged[:, -1, counted].any(0))
    order = np.argsort(worst_first(first, failed, metric), kind="stable")[:SHOWN]
    rows = []
    for k in order:
        cells = [_cell(of[k], kind) for (kind, _), of in served.items()]
        rows.append([escape(str(names[k])), *cells])
    several = len(kinds) > 1
    heads = ["client", *(f"{m.name}, {r}" if several else r for m, r in served)]
    which = f"the {len(order)} of {len(names)} clients" if len(order) < len(names) else "the clients"
    legend = f"{_named(kinds.values())} at the last evaluation, mean over the runs: {which} from the worst served"
    legend += f" by {rules[0]}."
    legend += (
        " –: without a value in every run." if any(np.isnan(of[order]).any() for of in served.values()) else ""
    )
    return f'<h2>The worst served clients</h2>{html_table(heads, rows)}<p class="legend">{escape(legend)}</p>'


def last_of(arrays: Mapping[str, np.ndarray], rule: str, place: str = "accuracy") -> np.ndarray:
    """f[N]: every client's result at the last evaluation, mean over the runs in which it did not fail."""
    whole = np.isfinite(arrays[f"{rule}/loss"][:, -1])
    return over_runs(np.where(whole, arrays[f"{rule}/{place}"][:, -1], np.nan))


def by_group(runs: Mapping[str, Sequence[History]], metric: Metric) -> str:
    """The section with a row per group of clients, by rule; empty without groups.

    Of every run that did not fail the group's mean at the last evaluation is over its clients with a value, as in
    the summary's worst group; and the table's figure is the mean over the runs with one.
    """
    groups = next(iter(runs.values()))[0].groups
    if groups is None:
        return ""
    served = [[_group_means(history) for history in histories] for histories in runs.values()]
    rows, gaps = [], False
    for name, count in zip(*np.unique(groups, return_counts=True)):
        means = [float(over_runs(np.array([of[str(name)] for of in each]))) for each in served]
        gaps |= bool(np.isnan(means).any())
        cells = [escape(str(name)), str(count), *(_cell(metric.scale * mean, metric) for mean in means)]
        rows.append(cells)
    legend = f"{_named([metric])} at the last evaluation: the mean over the group's clients that have a value, "
    legend += "then over the runs."
    legend += " –: none of them has one, in any run." if gaps else ""
    return (
        f"<h2>Groups of clients</h2>{html_table(['group', 'clients', *runs], rows)}"
        f'<p class="legend">{escape(legend)}</p>'
    )


def _named(metrics: Iterable[Metric]) -> str:
    """What a legend begins with."""
    words = ", ".join(metric.label for metric in metrics)
    return words[:1].upper() + words[1:]


def _group_means(history: History) -> dict[str, float]:
    """Of one run; NaN where nothing can be said of it."""
    ended, groups = outcome(history), history.groups or ()
    return group_means(history.accuracy[-1], groups, ended.counts & (not ended.lost))


def over_runs(values: np.ndarray) -> np.ndarray:
    """f[R, ...] -> f[...]: the mean over the runs that have a value; NaN where none has."""
    known = ~np.isnan(values)
    total, count = np.where(known, values, 0).sum(0), known.sum(0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _cell(value: float, metric: Metric) -> str:
    digits, form = digits_of("accuracy", metric)
    return "–" if np.isnan(value) else f"{value:.{digits}{form}}"

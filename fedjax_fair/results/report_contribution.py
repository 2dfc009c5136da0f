"""What each client gives and what it gets, on the report page: its shares beside its own results."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

import numpy as np

from fedjax_fair import plot
from fedjax_fair.metrics.kind import Metric
from fedjax_fair.results.digits import digits_of
from fedjax_fair.results.report_clients import last_of
from fedjax_fair.results.report_table import html_table
from fedjax_fair.results.shares import Contribution, shown, titles


def by_client(
    rules: Sequence[str],
    found: Contribution | None,
    arrays: Mapping[str, np.ndarray],
    metric: Metric,
    anew: bool = False,
) -> str:
    """The section with a row per client, from the highest share of the first measure; empty without a contribution.

    Beside the shares stands what each rule gives the client at the last evaluation, mean over the runs with one.
    Not where clients were drawn ``anew`` for every run, unless they have names: a number is another in each.

    Raises:
      ValueError: the contribution is of other clients than the results.
    """
    if found is None:
        return ""
    clients, results = len(found.order()), arrays[f"{rules[0]}/accuracy"].shape[-1]
    if clients != results:
        raise ValueError(f"contribution.json is of {clients} clients, and the results are of {results}")
    named = arrays.get("clients")
    if named is not None and found.clients is not None and [*map(str, named)] != [*map(str, found.clients)]:
        raise ValueError("contribution.json is of other clients than the results, or of theirs in another order")
    known = named is not None or not anew
    served = {rule: metric.scale * last_of(arrays, rule) for rule in rules if known}
    intervals, names = found.intervals(), titles(found.metric)
    heads = ["client", *(f"share of {names[measure]}" for measure in found.shares)]
    heads += [f"{metric.name}, {rule}" for rule in served]
    digits, form = digits_of("accuracy", metric)
    rows, called = [], np.arange(clients) if found.clients is None else found.clients
    for k in found.order():
        cells = [
            shown(measure, found.metric, shares[k], intervals[measure][:, k], found.permutations)
            for measure, shares in found.shares.items()
        ]
        cells += ["–" if np.isnan(of[k]) else f"{of[k]:.{digits}{form}}" for of in served.values()]
        rows.append([escape(str(called[k])), *cells])
    legend = f'<p class="legend">{escape(" ".join(found.legend()))}</p>'
    return f"<h2>What each client contributes</h2>{html_table(heads, rows)}{legend}"


def shares_drawing(found: Contribution | None) -> list[tuple[str, Callable[[], Any]]]:
    """The caption, and what draws the figure; none without a contribution."""
    if found is None:
        return []
    bars = "; lines are 95 % intervals" if found.permutations else ""
    return [(f"Every client's share of accuracy and of fairness{bars}", partial(plot.contribution, found))]

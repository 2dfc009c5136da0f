"""A comparison's tables on the report page: measures, paired differences, what a reader must know."""

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from fedjax_fair import plot
from fedjax_fair.metrics.kind import Metric
from fedjax_fair.metrics.significance import Difference
from fedjax_fair.results.differences import MEASURES, PAIRED, Compared, columns, power
from fedjax_fair.results.digits import digits_of, signed, spread
from fedjax_fair.results.report_table import html_table, with_small


def comparison_section(kept: Mapping[str, Any], metric: Metric, drawing: str = "") -> str:
    """The page's sections, of what :meth:`Comparison.to_json` keeps: differences, warnings, measures.

    Of a folder that does not tell warnings from legends, all notes are shown as warnings.
    """
    warned = kept.get("flags", kept["notes"])
    legend = " ".join(escape(note) for note in kept["notes"] if note not in warned)
    care = "".join(f"<li>{escape(flag)}</li>" for flag in warned)
    parts = [f'<div class="care"><strong>Read with care</strong><ul>{care}</ul></div>'] if warned else []
    if kept["differences"]:
        parts += [f"<h2>Minus {escape(kept['baseline'])}, paired</h2>", _differences(kept, metric)]
        found = escape(f"{PAIRED} {power(_known(kept), metric)}")
        parts += [f'<p class="legend">{found}</p>', drawing]
    some = "s" if kept["replicates"] > 1 else ""
    many = f"the mean of the last {kept['last']} evaluations" if kept["last"] > 1 else "the last evaluation"
    parts += [f"<h2>Comparison over {kept['replicates']} replicate{some}</h2>"]
    parts += [f"<p>Quote these results: {many}.</p>", _measures(kept, metric)]
    return "".join([*parts, f'<p class="legend">{legend}</p>' if legend else ""])


def paired_drawing(kept: Mapping[str, Any], metric: Metric) -> Any:
    """The figure of the paired differences."""
    known = _known(kept)
    rules = [rule for rule in kept["measures"] if rule in {kept["baseline"], *known}]
    return plot.paired_frontier(known, kept["baseline"], rules=rules, metric=metric)


def _known(kept: Mapping[str, Any]) -> dict[str, dict[str, Compared]]:
    return {
        rule: {measure: Compared(_difference(c), c["holm"] or 1.0) for measure, c in of.items()}
        for rule, of in kept["differences"].items()
    }


def _difference(kept: Mapping[str, float | None]) -> Difference:
    known = {name: np.nan if value is None else float(value) for name, value in kept.items() if name != "holm"}
    return Difference(**known)


def _measures(kept: Mapping[str, Any], metric: Metric) -> str:
    rows = []
    for rule, of in kept["measures"].items():
        cells = [_spread(of[measure], *digits_of(measure, metric)) for measure in MEASURES]
        cells += [_spread(of["better_off"], 0, "f")] if "better_off" in of else []
        rows.append([escape(rule + kept.get("failures", {}).get(rule, "")), *cells])
    some = next(iter(kept["measures"].values()))
    further = ["better off %"] if "better_off" in some else []
    return html_table(["rule", *columns(metric).values(), *further], rows)


def _differences(kept: Mapping[str, Any], metric: Metric) -> str:
    rows = []
    for rule, of in kept["differences"].items():
        rows.append([escape(rule), *(_interval(of[measure], *digits_of(measure, metric)) for measure in MEASURES)])
    return html_table(["rule", *columns(metric).values()], rows)


def _spread(values: list[float | None], digits: int, form: str) -> str:
    return with_small(spread(np.array([value for value in values if value is not None]), digits, form))


def _interval(of: Mapping[str, float | None], digits: int, form: str) -> str:
    if of["mean"] is None:
        return "–"
    if of["low"] is None or of["high"] is None:
        return f"{of['mean']:+z.{digits}{form}}"
    mean, low, high = signed([of["mean"], of["low"], of["high"]], digits, form)
    star = "*" if of["holm"] is not None and of["holm"] < 0.05 else ""
    return f"{mean}{star} <small>[{low}, {high}]</small>"

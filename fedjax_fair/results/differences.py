"""Rules against the baseline, paired by replicate: a dictionary that prints as its table."""

import textwrap
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedjax_fair.metrics.kind import Metric
from fedjax_fair.metrics.significance import Difference
from fedjax_fair.results.digits import digits_of, signed
from fedjax_fair.results.latex import latex
from fedjax_fair.results.table import drawn, headings

MEASURES = ("accuracy", "worst10", "variance", "gini")
"""What rules are compared by, of :func:`fedjax_fair.metrics.summary`."""


PAIRED = "Paired differences by replicate, with 95 % intervals; * p < .05 after Holm over the rules."


class Compared(NamedTuple):
    """One rule against the baseline, by one measure."""

    difference: Difference
    holm: float
    """p after Holm's adjustment over the rules."""


class Differences(dict[str, dict[str, Compared]]):
    """``{rule: {measure: Compared}}``; in a notebook it is the table that stands below a comparison."""

    def __init__(self, found: dict[str, dict[str, Compared]], baseline: str, metric: Metric) -> None:
        super().__init__(found)
        self.baseline, self.metric = baseline, metric

    def __repr__(self) -> str:
        return "\n".join(lines(self))

    def to_latex(self) -> str:
        r"""A ``tabular`` (package booktabs): per rule mean [95 % interval] of every measure, ``^*`` where Holm's
        p < .05."""
        cells = {
            rule: [
                (_interval(compared := of[measure], *digits_of(measure, self.metric)), compared.holm < 0.05)
                for measure in MEASURES
            ]
            for rule, of in self.items()
        }
        return latex([*columns(self.metric).values()], cells, corner=f"minus {self.baseline}")


def lines(differences: Differences) -> list[str]:
    """The table, and what its signs mean."""
    metric = differences.metric
    rows = [
        [rule, *(f"{_interval(of[m], *digits_of(m, metric))}{'*' * (of[m].holm < 0.05)}" for m in MEASURES)]
        for rule, of in differences.items()
    ]
    text = f"{PAIRED} {power(differences, metric)}".strip()
    heading = [f"minus {differences.baseline}", *columns(metric).values()]
    return [drawn(heading, rows), "", *textwrap.wrap(text, 98)]


def power(differences: Mapping[str, Mapping[str, Compared]], metric: Metric) -> str:
    """Per measure the true difference that would be found in 80 % of repeats, of the rule whose differences vary
    most, and of which rules none would be: it is larger than any can be. Nothing where none is known."""
    names = {"accuracy": metric.name, "worst10": "worst 10 %", "variance": "variance", "gini": "Gini"}
    width = metric.scale * (metric.range[1] - metric.range[0])
    most = {
        "accuracy": width,
        "worst10": width,
        "variance": width**2 / 4,
        "gini": 1.0 if metric.range[0] >= 0 else np.inf,
    }
    found, none = [], []
    for measure, name in names.items():
        known = {rule: of[measure].difference.detectable for rule, of in differences.items()}
        known = {rule: value for rule, value in known.items() if np.isfinite(value) and value > 0}
        beyond = [rule for rule, value in known.items() if value > most[measure]]
        least = max([value for rule, value in known.items() if rule not in beyond], default=0.0)
        digits, form = digits_of(measure, metric)
        none += [name if len(beyond) == len(known) else f"{name} of {' and '.join(beyond)}"] * bool(beyond)
        found += [f"{least:.{digits}{form}} in {name}"] * (least > 0)
    told = [f"true differences of {', '.join(found)}"] * bool(found)
    told += [f"no difference that is possible in {', '.join(none)}"] * bool(none)
    return f"With so many replicates, {', and '.join(told)} would be found in 80 % of repeats." if told else ""


def columns(metric: Metric) -> dict[str, str]:
    """Headings of the measures, in the metric's name and unit."""
    own = headings(metric)
    return {"accuracy": own["accuracy"], "worst10": "worst 10%", "variance": own["variance"], "gini": "Gini"}


def _interval(compared: Compared, digits: int, form: str) -> str:
    if np.isnan(compared.difference.low):  # a run failed, or all replicates differ by the same number
        return "–" if np.isnan(compared.difference.mean) else f"{compared.difference.mean:+z.{digits}{form}}"
    mean, low, high = signed(compared.difference[:3], digits, form)
    return f"{mean} [{low}, {high}]"

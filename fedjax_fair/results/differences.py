"""Rules against the baseline, paired by replicate: a dictionary that prints as its table."""

import textwrap
from typing import NamedTuple

import numpy as np

from fedjax_fair.metrics.kind import Metric
from fedjax_fair.metrics.significance import Difference
from fedjax_fair.results.digits import digits_of, without_zero
from fedjax_fair.results.table import drawn, headings

MEASURES = ("accuracy", "worst10", "variance", "gini")
"""What rules are compared by, of :func:`fedjax_fair.metrics.summary`."""


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


def lines(differences: Differences) -> list[str]:
    """The table, and what its signs mean."""
    metric = differences.metric
    rows = [
        [rule, *(_interval(of[measure], *digits_of(measure, metric)) for measure in MEASURES)]
        for rule, of in differences.items()
    ]
    text = "Paired differences by replicate, with 95 % intervals; * p < .05 after Holm over the rules."
    least = max([d for of in differences.values() if np.isfinite(d := of["accuracy"].difference.detectable)] or [0])
    if least:
        digits, form = digits_of("accuracy", metric)
        true = f"a true difference in {metric.name} of {least:.{digits}{form}}"
        text += f" With so many replicates, {true} would be found in 80 % of repeats."
    heading = [f"minus {differences.baseline}", *columns(metric).values()]
    return [drawn(heading, rows), "", *textwrap.wrap(text, 98)]


def columns(metric: Metric) -> dict[str, str]:
    """Headings of the measures, in the metric's name and unit."""
    own = headings(metric)
    return {"accuracy": own["accuracy"], "worst10": "worst 10%", "variance": own["variance"], "gini": "Gini"}


def _interval(compared: Compared, digits: int, form: str) -> str:
    if np.isnan(compared.difference.low):  # a run failed, or all replicates differ by the same number
        return "–" if np.isnan(compared.difference.mean) else f"{compared.difference.mean:+z.{digits}{form}}"
    numbers = [f"{v:+z.{digits}{form}}" for v in compared.difference[:3]]
    ends = [without_zero(number) if digits == 3 else number for number in numbers]
    return f"{ends[0]} [{ends[1]}, {ends[2]}]{'*' if compared.holm < 0.05 else ''}"

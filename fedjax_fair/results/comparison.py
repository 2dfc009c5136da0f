"""What a comparison found: every rule's measures per replicate, paired differences, and what a reader must know."""

import re
from typing import Any, NamedTuple

import numpy as np

from fedjax_fair import metrics
from fedjax_fair.checks import check_choice
from fedjax_fair.engine.history import History, judged
from fedjax_fair.engine.outcome import one_metric, outcome, remark
from fedjax_fair.metrics.kind import Metric
from fedjax_fair.metrics.significance import Difference, holm, paired
from fedjax_fair.results.flags import flags
from fedjax_fair.results.table import digits_of, drawn, headings, spread

MEASURES = ("accuracy", "worst10", "variance", "gini")
"""What rules are compared by, of :func:`fedjax_fair.metrics.summary`."""


class Compared(NamedTuple):
    """One rule against the baseline, by one measure."""

    difference: Difference
    holm: float
    """p after Holm's adjustment over the rules."""


class Comparison(NamedTuple):
    """Rules on the same replicates; built by :func:`fedjax_fair.compare`."""

    runs: dict[str, list[History]]
    """Per rule one history per replicate, of the chosen setting where it was tuned: what plots take."""
    baseline: str
    split: str
    """The split that is quoted."""
    last: int
    """A measure is the mean over this many last evaluations."""
    examples: list[np.ndarray]
    """Per replicate the clients' numbers of examples in that split, i32[N]."""
    fixed: bool
    """Whether all replicates share one federation."""
    choose: str
    """The criterion by which settings were chosen, on validation."""
    settings: dict[str, dict[str, Any]]
    """Per tuned rule the chosen setting."""
    grids: dict[str, dict[str, list[Any]]]
    """Per tuned rule the values that were tried."""
    tried: dict[str, dict[str, dict[str, np.ndarray]]]
    """Per tuned rule and point the validation measures, f64[R] each."""

    def __repr__(self) -> str:
        return self.table()

    @property
    def metric(self) -> Metric:
        """What the numbers are."""
        return one_metric([history for histories in self.runs.values() for history in histories])

    def measures(self) -> dict[str, dict[str, np.ndarray]]:
        """``{rule: {measure: f64[R]}}``, in the units of :func:`fedjax_fair.metrics.summary`."""
        return {rule: measured(histories, self.split, self.last) for rule, histories in self.runs.items()}

    def differences(self) -> dict[str, dict[str, Compared]]:
        """``{rule: {measure: rule minus baseline}}`` of every other rule, paired by replicate.

        Raises:
          ValueError: a single replicate.
        """
        all_measures = self.measures()
        others = [rule for rule in self.runs if rule != self.baseline]
        found: dict[str, dict[str, Compared]] = {rule: {} for rule in others}
        for measure in MEASURES:
            reference = all_measures[self.baseline][measure]
            pairs = [paired(all_measures[rule][measure], reference) for rule in others]
            for rule, pair, adjusted in zip(others, pairs, holm([pair.p for pair in pairs])):
                found[rule][measure] = Compared(pair, float(adjusted))
        return found

    def table(self) -> str:
        """Mean and standard deviation over the replicates, and the differences from the baseline, as text."""
        differences = self.differences() if len(self.examples) > 1 and len(self.runs) > 1 else {}
        metric, rows = self.metric, []
        for rule, of in self.measures().items():
            cells = [rule + remark([outcome(history, self.split) for history in self.runs[rule]])]
            for measure in MEASURES:
                cells.append(spread(of[measure], *digits_of(measure, metric)))
                compared = differences.get(rule, {}).get(measure)
                if differences:
                    cells.append(_interval(compared, *digits_of(measure, metric)) if compared else "")
            rows.append(cells)
        heads = ["rule"]
        for title in _headings(metric).values():
            heads += [title, "Δ [95 %]"] if differences else [title]
        return "\n".join([drawn(heads, rows), "", *self._legend(bool(differences)), *flags(self)])

    def _legend(self, paired: bool) -> list[str]:
        count = len(self.examples)
        drawn = "training seeds on one federation" if self.fixed else "replicates (federation and training seed)"
        over = f"mean±std over {count} {drawn}" if count > 1 else "one replicate"
        each = f"the mean of the last {self.last} evaluations" if self.last > 1 else "the last evaluation"
        lines = [f"{self.split} {self.metric.name} over clients: {over}, each {each}."]
        if paired:
            lines.append(f"Δ: paired difference from {self.baseline}, its 95 % interval; * p < .05 after Holm.")
        if self.settings:
            lines.append(f"Settings were chosen by validation {self.choose}, on the trainings that are tested.")
        return lines

    def to_pandas(self) -> Any:
        """A data frame with a row per rule and replicate; needs ``pip install 'fedjax-fair[pandas]'``.

        Raises:
          ValueError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise ValueError("to_pandas needs pandas: pip install 'fedjax-fair[pandas]'") from error
        frames = [
            pandas.DataFrame({"rule": rule, "replicate": range(len(self.examples)), **of})
            for rule, of in self.measures().items()
        ]
        return pandas.concat(frames, ignore_index=True)

    def to_latex(self) -> str:
        r"""A ``tabular`` (package booktabs): per rule mean ± std of every measure, ``^*`` where Holm's p < .05."""
        differences = self.differences() if len(self.examples) > 1 else {}
        metric = self.metric
        titles = " & ".join(t.replace("%", r"\%").replace("²", "$^2$") for t in _headings(metric).values())
        lines = [r"\begin{tabular}{l" + "r" * len(MEASURES) + "}", r"\toprule", rf"rule & {titles} \\", r"\midrule"]
        for rule, of in self.measures().items():
            cells = [re.sub(r"([_%&#$])", r"\\\1", rule)]
            for measure in MEASURES:
                compared = differences.get(rule, {}).get(measure)
                star = "^{*}" if compared and compared.holm < 0.05 else ""
                cells.append(f"${spread(of[measure], *digits_of(measure, metric))}{star}$".replace("±", r" \pm "))
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def measured(histories: list[History], split: str, last: int) -> dict[str, np.ndarray]:
    """``{measure: f64[R]}``: each the mean over the last evaluations of the measure; NaN for a run that failed."""
    check_choice("split", split, histories[0].scores)
    found: dict[str, list[float]] = {measure: [] for measure in MEASURES}
    for history in histories:
        accuracy, counts = np.asarray(history.scores[split].accuracy), judged(history, split)
        row = metrics.summary(accuracy[-last:], metric=history.metric, where=counts[-last:])
        for measure, of in found.items():
            of.append(float("nan") if outcome(history, split).lost else float(np.mean(row[measure])))
    return {measure: np.array(of) for measure, of in found.items()}


def _headings(metric: Metric) -> dict[str, str]:
    own = headings(metric)
    return {"accuracy": own["accuracy"], "worst10": "worst 10%", "variance": own["variance"], "gini": "Gini"}


def _interval(compared: Compared, digits: int, form: str) -> str:
    if np.isnan(compared.difference.low):  # a run failed, or all replicates differ by the same number
        return "–" if np.isnan(compared.difference.mean) else f"{compared.difference.mean:+.{digits}{form}}"
    ends = [f"{v:+.{digits}{form}}".replace("0.", ".", digits == 3) for v in compared.difference[:3]]
    return f"{ends[0]} [{ends[1]}, {ends[2]}]{'*' if compared.holm < 0.05 else ''}"

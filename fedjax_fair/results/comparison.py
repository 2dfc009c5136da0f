"""What a comparison found: every rule's measures per replicate, paired differences, and what a reader must know."""

from io import StringIO
from typing import Any, NamedTuple

import numpy as np

from fedjax_fair import metrics
from fedjax_fair.checks import check_choice
from fedjax_fair.engine.history import History
from fedjax_fair.metrics.significance import Difference, holm, paired
from fedjax_fair.results.flags import flags

MEASURES = {"accuracy": "acc %", "worst10": "worst 10%", "variance": "var %²", "gini": "Gini"}
"""What rules are compared by, of :func:`fedjax_fair.metrics.summary`, and their headings."""


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
        differences = self.differences() if len(self.examples) > 1 else {}
        rows = []
        for rule, of in self.measures().items():
            cells = [rule]
            for measure in MEASURES:
                cells.append(_spread(of[measure], 3 if measure == "gini" else 1))
                compared = differences.get(rule, {}).get(measure)
                cells.append(_interval(compared, 3 if measure == "gini" else 1) if compared else "")
            rows.append(cells)
        headings = ["rule", *(cell for title in MEASURES.values() for cell in (title, "Δ [95 %]"))]
        return "\n".join([_as_text(headings, rows), "", self._legend(), *flags(self)])

    def _legend(self) -> str:
        drawn = "one federation, training seeds" if self.fixed else "replicates (federation and training seed)"
        tuned = f"; settings chosen on validation by {self.choose}" if self.settings else ""
        return (
            f"{self.split} accuracy over clients: mean±std over {len(self.examples)} {drawn}, each the mean of the "
            f"last {self.last} evaluation{'s' * (self.last > 1)}{tuned}.\n"
            f"Δ: paired difference from {self.baseline}, its 95 % interval; * p < .05 after Holm over the rules."
        )

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
        titles = " & ".join(title.replace("%", r"\%").replace("²", "$^2$") for title in MEASURES.values())
        lines = [r"\begin{tabular}{l" + "r" * len(MEASURES) + "}", r"\toprule", rf"rule & {titles} \\", r"\midrule"]
        for rule, of in self.measures().items():
            cells = [rule.replace("_", r"\_")]
            for measure in MEASURES:
                compared = differences.get(rule, {}).get(measure)
                star = "^{*}" if compared and compared.holm < 0.05 else ""
                spread = _spread(of[measure], 3 if measure == "gini" else 1, r" \pm ")
                cells.append(f"${spread}{star}$")
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def measured(histories: list[History], split: str, last: int) -> dict[str, np.ndarray]:
    """``{measure: f64[R]}``: each the mean over the last evaluations of the measure over clients."""
    check_choice("split", split, histories[0].scores)
    rows = [metrics.summary(np.asarray(h.scores[split].accuracy)[-last:]) for h in histories]
    return {measure: np.array([float(np.mean(row[measure])) for row in rows]) for measure in MEASURES}


def _spread(values: np.ndarray, digits: int, between: str = "±") -> str:
    numbers = [values.mean()] if len(values) == 1 else [values.mean(), values.std(ddof=1)]
    return between.join(_number(number, digits) for number in numbers)


def _interval(compared: Compared, digits: int) -> str:
    mean, low, high = (_number(v, digits, sign=True) for v in compared.difference[:3])
    return f"{mean} [{low}, {high}]{'*' if compared.holm < 0.05 else ''}"


def _number(value: float, digits: int, sign: bool = False) -> str:
    text = f"{value:{'+' if sign else ''}.{digits}f}"
    return text.replace("0.", ".", 1) if digits == 3 and abs(value) < 1 else text


def _as_text(headings: list[str], rows: list[list[str]]) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1), pad_edge=False)
    for i, heading in enumerate(headings):
        made.add_column(heading, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    console = Console(width=1000, file=StringIO(), force_jupyter=False, color_system=None)
    with console.capture() as captured:
        console.print(made)
    return "\n".join(line.rstrip() for line in captured.get().splitlines() if line.strip())

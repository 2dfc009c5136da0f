"""What a comparison found: every rule's measures per replicate, paired differences, and what a reader must know."""

import textwrap
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fedjax_fair import metrics
from fedjax_fair.checks import check_choice
from fedjax_fair.engine.grid import label, readable
from fedjax_fair.engine.history import History, judged
from fedjax_fair.engine.outcome import of_clients, one_metric, outcome, remark
from fedjax_fair.metrics.kind import ACCURACY, Metric
from fedjax_fair.metrics.significance import holm, paired
from fedjax_fair.results.differences import MEASURES, Compared, Differences, columns
from fedjax_fair.results.digits import digits_of, spread
from fedjax_fair.results.flags import budgets, flags
from fedjax_fair.results.frames import frame_of_rules, frame_of_tried
from fedjax_fair.results.latex import latex
from fedjax_fair.results.references import better_off
from fedjax_fair.results.table import drawn

NAMES = {"local": "(local)", "pooled": "(pooled)"}
"""How reference rows are printed."""
FEW_CLIENTS = 10
"""Below so many clients a tenth is a few, and their number is said."""


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
    same_examples: bool
    """Whether clients are judged by the same examples in every replicate."""
    choose: str
    """The criterion by which settings were chosen, on validation."""
    settings: dict[str, dict[str, Any]]
    """Per tuned rule the chosen setting."""
    grids: dict[str, dict[str, list[Any]]]
    """Per tuned rule the values that were tried."""
    tried: dict[str, dict[str, dict[str, np.ndarray]]]
    """Per tuned rule and point the validation measures, f64[R] each."""
    tried_runs: dict[str, dict[str, list[History]]]
    """Per tuned rule and point one history per replicate."""
    references: dict[str, list[History]]
    """"local", every client trained alone and scored on its own examples, and "pooled"; empty without them."""
    clients: np.ndarray | None
    """bool[N]: the clients to judge by; None for all."""
    values: dict[str, dict[str, np.ndarray]] | None = None
    """What :meth:`measures` gives, where it is known already."""
    rows: dict[str, str] = {}  # noqa: RUF012
    """By row what its name does not say, such as "is qfedavg(q=5)"."""
    first_seed: int = 0
    """Of the first replicate."""
    same_clients: bool = False
    """Whether every client has the same examples in all replicates, split anew."""

    def __repr__(self) -> str:
        return self.table()

    @property
    def metric(self) -> Metric:
        """What the numbers are."""
        return one_metric([history for histories in self.runs.values() for history in histories])

    def measures(self) -> dict[str, dict[str, np.ndarray]]:
        """``{rule: {measure: f64[R]}}``, in the units of :func:`fedjax_fair.metrics.summary`; the rules, then the
        references.

        With references, "better_off" is the share of clients, in per cent, whom the rule's model serves better than
        the one that each trains alone; ties count half. All measures of a run that failed are NaN.
        """
        if self.values is not None:
            return self.values
        found = {rule: self.measured(histories) for rule, histories in {**self.runs, **self.references}.items()}
        for rule, histories in {**self.runs, **self.references}.items() if self.references else ():
            pairs = zip(histories, self.references["local"])
            shares = [
                better_off(self.judged(run), self.judged(alone), self.split, self.last) for run, alone in pairs
            ]
            found[rule]["better_off"] = np.where(np.isnan(found[rule]["accuracy"]), np.nan, shares)
        return found

    def measured(self, histories: list[History]) -> dict[str, np.ndarray]:
        """``{measure: f64[R]}`` of some runs, on the quoted split."""
        return measured(histories, self.split, self.last, self.clients)

    def judged(self, history: History) -> History:
        """The history with the results of the clients to judge by alone."""
        return of_clients(history, self.clients)

    def differences(self, baseline: str | None = None) -> Differences:
        """``{rule: {measure: rule minus baseline}}`` of every other rule, by replicate; it prints as the table.

        ``baseline`` is another rule than the comparison's own. Choose one before you look at the numbers.

        Raises:
          ValueError: a single replicate, an unknown baseline.
        """
        all_measures = self.measures()
        baseline = check_choice("baseline", baseline or self.baseline, self.runs)
        others = [rule for rule in self.runs if rule != baseline]
        found: dict[str, dict[str, Compared]] = {rule: {} for rule in others}
        for measure in MEASURES:
            reference = all_measures[baseline][measure]
            pairs = [paired(all_measures[rule][measure], reference) for rule in others]
            for rule, pair, adjusted in zip(others, pairs, holm([pair.p for pair in pairs])):
                found[rule][measure] = Compared(pair, float(adjusted))
        return Differences(found, baseline, self.metric)

    def failures(self) -> dict[str, str]:
        """What has to be said behind the name of a row of which runs failed, such as " (1 of 3 seeds failed)"."""
        rows = {**self.runs, **self.references}
        how = partial(outcome, split=self.split, last=self.last)
        ended = {rule: remark([how(self.judged(h)) for h in of]) for rule, of in rows.items()}
        return {rule: said for rule, said in ended.items() if said}

    def table(self) -> str:
        """Mean and standard deviation over the replicates, the differences from the baseline, and the flags."""
        metric, heads = self.metric, columns(self.metric)
        rows, failures = [], self.failures()
        for rule, of in self.measures().items():
            cells = [spread(of[measure], *digits_of(measure, metric)) for measure in MEASURES]
            share = [spread(of["better_off"], 0)] if self.references else []
            name = NAMES.get(rule, rule) if rule in self.references else rule
            rows.append([name + failures.get(rule, ""), *cells, *share])
        heading = ["rule", *heads.values(), *(["better off"] if self.references else [])]
        lines = [drawn(heading, rows), "", *_folded(self.legend())]
        if len(self.examples) > 1 and len(self.runs) > 1:
            lines += ["", repr(self.differences())]
        noted = [textwrap.fill(flag, 98, subsequent_indent="  ", break_on_hyphens=False) for flag in flags(self)]
        return "\n".join([*lines, *([""] if noted else []), *(f"- {note}" for note in noted)])

    def legend(self) -> list[str]:
        """What the numbers are, in sentences."""
        count, metric = len(self.examples), self.metric
        each_draw = "split" if self.same_clients else "federation"
        drawn = "training seeds on one federation" if self.fixed else f"replicates ({each_draw} and training seed)"
        over = f"mean±std over {count} {drawn}" if count > 1 else "one replicate"
        over += f" from seed {self.first_seed} on" if self.first_seed else ""
        each = f"the mean of the last {self.last} evaluations" if self.last > 1 else "the last evaluation"
        lines = [f"Clients' {self.split} {metric.label}: {over}, each {each}."]
        if metric != ACCURACY:
            lines += [f"Of {metric.name} {'higher' if metric.higher_is_better else 'lower'} is better."]
        lines += [f"Rows: {'; '.join(f'{row} {said}' for row, said in self.rows.items())}."] * bool(self.rows)
        lines += self._few()
        if self.references:
            chosen = ", with the settings chosen for it" if self.baseline in self.settings else ""
            lines += [
                "Better off: share of clients, in %, served better than by the model they train alone (a tie "
                "counts one half). Local: every client alone; pooled: one client with all examples, as many steps. "
                f"Both train as {self.baseline}'s clients do{chosen}: "
                "another learning rate moves them, and better off."
            ]
        if self.settings:
            lines += [
                f"Each rule's setting is the one with the best validation {self.choose}; the {self.split} numbers "
                "come from the same trained models."
            ]
            lines += [f"Chosen: {self.chosen()}."]
            same, *unequal = {*budgets(self).values()}
            lines += [] if unequal else [f"Tuning: {same} points for every rule."]
        return lines

    def chosen(self) -> str:
        """The chosen settings of the rules that were tuned, as ``fedavg lr=0.1; qfedavg q=1,lr=0.1``."""
        return "; ".join(f"{rule} {label(point)}" for rule, point in self.settings.items())

    def _few(self) -> list[str]:
        """How many clients the worst 10 % are, where they are few."""
        everything = [self.judged(history) for of in self.runs.values() for history in of]
        counts = {int(judged(history, self.split)[-1].sum()) for history in everything} - {0}
        worst = {max(1, int(n * 10 / 100)) for n in counts}  # as fedjax_fair.metrics.worst counts
        if not counts or max(worst) >= FEW_CLIENTS:
            return []
        of, all_of = ("-".join(map(str, sorted({min(each), max(each)}))) for each in (worst, counts))
        return [f"Worst 10 %: the mean of {of} of {all_of} clients."]

    def to_pandas(self, tried: bool = False) -> Any:
        """A data frame with a row per rule and replicate; needs ``pip install 'fedjax-fair[pandas]'``.

        ``tried``: with one per rule, setting and replicate: columns ``setting``, ``chosen``, the measures, and
        those of validation, by which settings are chosen, as ``validation_accuracy``.

        Raises: ValueError, where pandas is not installed.
        """
        return frame_of_tried(self) if tried else frame_of_rules(self)

    def to_json(self) -> dict[str, Any]:
        """What a results folder keeps, of plain numbers and words: measures per replicate, differences, choices."""
        several = len(self.examples) > 1 and len(self.runs) > 1
        measures = {name: {k: v.tolist() for k, v in of.items()} for name, of in self.measures().items()}
        tried = {
            rule: {point: {k: v.tolist() for k, v in of.items()} for point, of in points.items()}
            for rule, points in self.tried.items()
        }
        differences = {
            rule: {measure: {**c.difference._asdict(), "holm": c.holm} for measure, c in of.items()}
            for rule, of in (self.differences() if several else {}).items()
        }
        names = ("baseline", "split", "last", "first_seed", "fixed", "same_examples")
        plain: dict[str, Any] = {name: getattr(self, name) for name in names}
        plain |= {"replicates": len(self.examples), "measures": measures, "differences": differences}
        if self.settings:
            plain |= {"choose": self.choose, "settings": readable(self.settings), "tried": tried}
        warned = flags(self)
        return plain | {"notes": [*self.legend(), *warned], "flags": warned, "failures": self.failures()}

    def to_latex(self) -> str:
        r"""A ``tabular`` (package booktabs): per rule mean ± std of every measure, ``^*`` where Holm's p < .05.

        ``differences().to_latex()`` has the paired differences with their intervals."""
        differences = self.differences() if len(self.examples) > 1 else {}
        stars = {rule: {m for m, c in of.items() if c.holm < 0.05} for rule, of in differences.items()}
        cells, heads, failures = {}, columns(self.metric), self.failures()
        names = {rule: rule + failures.get(rule, "") for rule in self.measures()}
        for rule, of in self.measures().items():
            shown = {m: spread(of[m], *digits_of(m, self.metric)) for m in MEASURES}
            mine = [(text, m in stars.get(rule, ())) for m, text in shown.items()]
            cells[names[rule]] = mine + ([(spread(of["better_off"], 0), False)] if self.references else [])
        titles = [*heads.values(), *(["better off %"] if self.references else [])]
        return latex(titles, cells, rule_before=names.get(next(iter(self.references), "")))


def measured(
    histories: list[History], split: str, last: int, clients: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """``{measure: f64[R]}``: each the mean over the last evaluations of the measure; NaN for a run that failed."""
    check_choice("split", split, histories[0].scores)
    mine = [of_clients(history, clients) for history in histories]
    accuracy = np.stack([np.asarray(history.scores[split].accuracy)[-last:] for history in mine])
    counts = np.stack([judged(history, split)[-last:] for history in mine])
    lost = np.array([outcome(history, split, last=last).lost for history in mine])
    rows = metrics.summary(accuracy, metric=mine[0].metric, where=counts)  # f[R, last]
    return {measure: np.where(lost, np.nan, np.asarray(rows[measure], float).mean(1)) for measure in MEASURES}


def _folded(sentences: list[str]) -> list[str]:
    return [line for text in sentences for line in textwrap.wrap(text, 98, break_on_hyphens=False)]

"""What a reader of a comparison must know: rules without effect, runs still climbing, choices at an edge."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedjax_fair.results.comparison import Comparison

CLIMB = 0.5
"""Percentage points over the last evaluations from which a run counts as still climbing."""
FEW = 10
"""Test examples below which a client's accuracy is mostly chance."""
STEP = 0.01
"""How far the coefficients' mean sum may be from 1 without a word."""


def flags(of: "Comparison") -> list[str]:
    """A sentence for everything that makes a row mean something else than it seems to."""
    return [*identical(of), *climbing(of), *few_examples(of), *left_out(of), *steps(of), *edges(of), *budgets(of)]


def identical(of: "Comparison") -> list[str]:
    """Rules whose accuracies and coefficients agree bit for bit in every replicate."""
    alike: dict[tuple[bytes, ...], list[str]] = {}
    for rule, histories in of.runs.items():
        made = tuple(
            np.ascontiguousarray(part).tobytes() for h in histories for part in (h.accuracy, h.loss, h.coef)
        )
        alike.setdefault(made, []).append(rule)
    return [f"identical bit for bit: {', '.join(rules)}" for rules in alike.values() if len(rules) > 1]


def climbing(of: "Comparison") -> list[str]:
    """Rules whose mean accuracy rises over the last evaluations, in the mean over the replicates."""
    rising = []
    for rule, histories in of.runs.items():
        courses = [100 * np.nanmean(h.scores[of.split].accuracy[-of.last :], axis=1) for h in histories]
        if len(courses[0]) > 1:
            slopes = [
                np.polyfit(np.arange(len(course)), course, 1)[0] for course in courses if np.isfinite(course).all()
            ]
            gain = float(np.mean(slopes)) * (len(courses[0]) - 1) if slopes else 0.0
            if gain > CLIMB:
                rising.append(f"{rule} (+{gain:.1f})")
    evaluations = f"the last {of.last} evaluations, in percentage points"
    return [f"still climbing over {evaluations}: {', '.join(rising)}"] if rising else []


def few_examples(of: "Comparison") -> list[str]:
    """Clients whose accuracy rests on few examples."""
    few = [int((sizes < FEW).sum()) for sizes in of.examples]
    if not any(few):
        return []
    return [f"{np.mean(few):.3g} of {len(of.examples[0])} clients have fewer than {FEW} {of.split} examples"]


def left_out(of: "Comparison") -> list[str]:
    """Selected clients whose update was not used."""
    lost = {rule: sum(int((~h.active).sum()) for h in histories) for rule, histories in of.runs.items()}
    named = [f"{rule} {count}" for rule, count in lost.items() if count]
    return [f"updates left out, absent or not finite: {', '.join(named)}"] if named else []


def steps(of: "Comparison") -> list[str]:
    """Rules whose coefficients do not sum to 1: their step is another one than FedAvg's."""
    sums = {
        rule: float(np.mean([h.coef.sum(1)[h.active.any(1)].mean() for h in histories if h.active.any()] or [1.0]))
        for rule, histories in of.runs.items()
    }
    named = [f"{rule} {total:.2g}" for rule, total in sums.items() if abs(total - 1) > STEP]
    return [f"effective step, the mean sum of the coefficients, is not 1: {', '.join(named)}"] if named else []


def edges(of: "Comparison") -> list[str]:
    """Chosen numbers that are the smallest or the largest of those tried: a better one may lie beyond."""
    found = []
    for rule, point in of.settings.items():
        for name, value in point.items():
            tried = of.grids[rule][name]
            numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in tried)
            if numbers and len(tried) > 2 and value in (min(tried), max(tried)):
                found.append(f"{rule} {name}={value:g}")
    return [f"chosen at the edge of its grid: {', '.join(found)}"] if found else []


def budgets(of: "Comparison") -> list[str]:
    """How many points were tried, where rules were tuned."""
    counts = {rule: len(of.tried.get(rule, {})) or 1 for rule in of.runs}
    if not of.settings:
        return []
    if len(set(counts.values())) == 1:
        return [f"tuning: {next(iter(counts.values()))} points for every rule"]
    return [f"tuning budgets differ: {', '.join(f'{rule} {count}' for rule, count in counts.items())} points"]

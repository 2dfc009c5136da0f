"""What a reader of a comparison must know: rules without effect, runs still climbing, choices at an edge."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedjax_fair.engine.outcome import identical, means, nearly_identical, unused
from fedjax_fair.results.flags_of_clients import few_examples, without_examples, without_value

if TYPE_CHECKING:
    from fedjax_fair.results.comparison import Comparison

CLIMB = 0.5
"""Percentage points over the last evaluations from which a run is still improving; a hundredth in other units."""
PRESENT = 0.95
"""The share of updates that counted from which a client is taken to have trained as long as one alone."""
STEP = 0.01
"""How far the coefficients' mean sum may be from 1, which FedAvg's is, without a word."""


def flags(of: "Comparison") -> list[str]:
    """Warnings about rows, a sentence each."""
    exact = identical(of.runs, of.split)
    near = [rules for rules in nearly_identical(of.runs, of.split) if rules not in exact]
    alike = [f"identical, bit for bit: {', '.join(rules)}" for rules in exact]
    alike += [f"identical but for rounding: {', '.join(rules)}" for rules in near]
    found = [
        *alike,
        *judged_alike(of),
        *early(of),
        *climbing(of),
        *without_examples(of),
        *few_examples(of),
        *without_value(of),
        *left_out(of),
        *absent_from_references(of),
        *steps(of),
        *costs(of),
    ]
    return [*found, *edges(of), *unequal_budgets(of)]


def early(of: "Comparison") -> list[str]:
    """A mean that holds the first half of the training."""
    rounds = next(iter(of.runs.values()))[0].rounds
    first, end = int(rounds[-of.last :][0]), int(rounds[-1])
    if first > end / 2 or len(rounds) == 1:
        return []
    return [
        f"the mean of the last {of.last} evaluations begins at round {first} of {end}; a smaller last takes fewer"
    ]


def climbing(of: "Comparison") -> list[str]:
    """Rules whose mean over clients still improves over the last evaluations; of these, which are merely slow."""
    found, unit = rising(of), " points" if of.metric.unit == "%" else f" {of.metric.unit}".rstrip()
    if not found:
        return []
    named = ", ".join(f"{rule} ({gain:+.2g}{unit * (i == 0)})" for i, (rule, gain) in enumerate(found.items()))
    said = [f"still improving in mean {of.metric.name} over the last {of.last} evaluations: {named}. Train longer"]
    rates = {rule: grid["lr"] for rule, grid in of.grids.items() if rule in found and "lr" in grid}
    slow = [
        rule
        for rule, tried in rates.items()
        if _are_numbers(tried) and len({*tried}) > 1 and of.settings[rule]["lr"] == min(tried)
    ]
    if slow and of.choose in ("worst10", "variance", "gini"):
        whose = "its" if len(slow) == 1 else "their"
        said += [
            f"still improving at the lowest rate of {whose} grid: {', '.join(slow)}. A model that has hardly moved "
            f"serves all clients evenly badly, and {of.choose} may choose it for that. Do not quote it: train "
            "longer, or choose by accuracy_if_worst10"
        ]
    return said


def rising(of: "Comparison") -> dict[str, float]:
    """By how much the rules that still improve do so, on average over the replicates, beyond what chance does."""
    metric = of.metric
    found: dict[str, float] = {}
    for rule, histories in of.runs.items():
        courses = np.array([metric.scale * means(of.judged(h), of.split)[-of.last :] for h in histories])
        if courses.shape[1] > 1 and np.isfinite(courses).all():
            steps = courses.shape[1] - 1
            gains = steps * np.polyfit(np.arange(steps + 1), courses.T, 1)[0]  # one per replicate
            gain = gains.mean() * (1 if metric.higher_is_better else -1)
            noise = 2 * gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
            ends = [abs(end) for end in metric.range if np.isfinite(end)]
            size = max([abs(courses.mean()), *(metric.scale * end for end in ends)])  # a mean near 0 is no scale
            if gain > max(noise, CLIMB if metric.unit == "%" else 0.01 * size):
                found[rule] = gains.mean()
    return found


def judged_alike(of: "Comparison") -> list[str]:
    """Replicates trained on other examples and judged by the same: the chance in these is common to all."""
    if of.fixed or not of.same_examples or len(of.examples) < 2:
        return []
    mine = of.examples[0] if of.clients is None else of.examples[0][of.clients]
    return [
        f"all replicates are judged by the same {int(mine.sum())} {of.split} examples: intervals and "
        "stars leave out the chance of which these are, for small clients the larger part. Draw them anew in every "
        "replicate, or repeat with others"
    ]


def left_out(of: "Comparison") -> list[str]:
    """Selected clients whose update was not used."""
    counts = {
        rule: (sum(map(unused, histories)), sum(int((h.ids >= 0).sum()) for h in histories))
        for rule, histories in of.runs.items()
    }
    named = [f"{rule} {lost} of {chosen}" for rule, (lost, chosen) in counts.items() if lost]
    return [f"updates left out, absent or not finite: {', '.join(named)}"] if named else []


def absent_from_references(of: "Comparison") -> list[str]:
    """Clients trained alone for more rounds than they took part in."""
    histories = of.runs[of.baseline] if of.references else []
    shares = [h.active.mean() for h in histories if h.active.size]
    if not shares or np.mean(shares) > PRESENT:
        return []
    return [
        "(local) and (pooled) train as if nobody was absent and no update lost, but of "
        f"{of.baseline}'s only {100 * np.mean(shares):.0f} % counted: both have trained longer than its "
        "clients, which moves better off"
    ]


def steps(of: "Comparison") -> list[str]:
    """Rules whose coefficients do not sum to 1: their step is another one than FedAvg's."""
    sums = {
        rule: float(np.mean([h.coef.sum(1)[h.active.any(1)].mean() for h in histories if h.active.any()] or [1.0]))
        for rule, histories in of.runs.items()
    }
    shorter = {rule: total for rule, total in sums.items() if total < 1 - STEP}
    longer = {rule: total for rule, total in sums.items() if total > 1 + STEP}
    pairs = ((shorter, "shorter"), (longer, "longer"))
    return [
        _of_sums(totals, word, tuned=all("lr" in of.settings.get(rule, ()) for rule in totals))
        for totals, word in pairs
        if totals
    ]


def _of_sums(totals: dict[str, float], word: str, tuned: bool) -> str:
    (rule, total), *others = totals.items()
    more = "".join(f", {rule}'s to {total:.2g}" for rule, total in others)
    whose = "their" if others else "its"
    said = f"{rule}'s coefficients add up to {total:.2g}{more} on average"
    so = f"compare at a learning rate of {whose} own (--tune, or tune= over lr)"
    so = f"the learning rate tuned for {'them' if others else 'it'} makes up for that" if tuned else so
    return f"{said}: {whose} server steps are {word} than FedAvg's; {so}"


def costs(of: "Comparison") -> list[str]:
    """What selection costs a round, where somebody is asked for a loss."""
    named = []
    for rule, histories in of.runs.items():
        asked, sent = (
            np.mean([getattr(h, name).mean() for h in histories]) for name in ("evaluations", "downloads")
        )
        if asked:
            named.append(f"{rule} {sent:.3g} models sent, {asked:.0f} examples' losses asked for")
    return [f"selection's cost a round: {'; '.join(named)}"] if named else []


def edges(of: "Comparison") -> list[str]:
    """Chosen numbers that are the smallest or the largest of those tried: a better one may lie beyond."""
    found, rates = [], []
    for rule, point in of.settings.items():
        for name, value in point.items():
            tried = of.grids[rule][name]
            if _are_numbers(tried) and len(tried) > 2 and value in (min(tried), max(tried)):
                found.append(f"{rule} {name}={value:g}")
                rates.append(name == "lr")
    how = ["around another rate (--lr X)"] * any(rates) + ["with a value given (RULE:SETTING=X)"] * (not all(rates))
    again = f"Better ones may lie beyond: run again {' or '.join(how)}; in Python, with more values in tune"
    return [f"chosen at the edge of its grid: {', '.join(found)}. {again}"] if found else []


def _are_numbers(tried: Iterable[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in tried)


def budgets(of: "Comparison") -> dict[str, int]:
    """How many points of every rule were tried."""
    return {rule: len(of.tried.get(rule, {})) or 1 for rule in of.runs}


def unequal_budgets(of: "Comparison") -> list[str]:
    """How many points were tried, where one rule had more than another."""
    counts = budgets(of)
    if len({*counts.values()}) == 1:
        return []
    return [f"tuning budgets differ: {', '.join(f'{rule} {count}' for rule, count in counts.items())} points"]

"""What a reader of a comparison must know of its clients: without examples, with few, without a value."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fedjax_fair.results.comparison import Comparison

FEW = 10
"""Test examples below which a client's accuracy is mostly chance."""
NAMED = 6
"""Clients that are named where many lack a value."""


def without_examples(of: "Comparison") -> list[str]:
    """Clients that nothing is judged by; by name, where they are the same ones in all replicates."""
    lacking = [mine == 0 if of.clients is None else (mine == 0) & of.clients for mine in of.examples]
    counts = np.sum(lacking, 1)
    if not counts.any():
        return []
    names, *others = {history.clients for history in of.runs[of.baseline]}
    same = not others and all(np.array_equal(mine, lacking[0]) for mine in lacking)
    who = [] if names is None or not same else [names[k] for k in np.flatnonzero(lacking[0])]
    more = f" and {len(who) - NAMED} more" if len(who) > NAMED else ""
    named = f": {', '.join(who[:NAMED])}{more}" if who else ""
    judged = len(lacking[0]) if of.clients is None else int(of.clients.sum())
    has, count = ("has", "counts") if counts.mean() == 1 else ("have", "count")
    return [f"{_mean(counts)} of {judged} clients {has} no {of.split} examples, and {count} in no measure{named}"]


def _mean(counts: Any) -> str:
    """Clients on average over the replicates."""
    return f"{np.mean(counts):.3g}" if np.mean(counts) < 100 else f"{np.mean(counts):.0f}"


def few_examples(of: "Comparison") -> list[str]:
    """Clients whose accuracy rests on few examples."""
    sizes = [mine if of.clients is None else mine[of.clients] for mine in of.examples]
    few = [int(((mine > 0) & (mine < FEW)).sum()) for mine in sizes]
    said = f"have fewer than {FEW} {of.split} examples: chance has a say in who is served worst"
    return [f"{_mean(few)} of {len(sizes[0])} clients {said}"] if any(few) else []


def without_value(of: "Comparison") -> list[str]:
    """Clients for whom the metric has no value, though they have examples: an AUROC of one class.

    By name, where a client is the same one in all replicates.
    """
    if of.metric.for_everybody:
        return []
    each = {rule: [_lacking(history, of) for history in histories] for rule, histories in of.runs.items()}
    histories, lacking = of.runs[of.baseline], each[of.baseline]
    told = f"{of.metric.name} has no value for"
    alive = {rule: np.isfinite([h.scores[of.split].loss[-1] for h in mine]) for rule, mine in of.runs.items()}
    both = {rule: mine & alive[of.baseline] for rule, mine in alive.items()}  # a run that died lacks nothing
    if any((both[rule] & (np.array(mine) != lacking)).any() for rule, mine in each.items()):  # as of an F1
        counts = ", ".join(f"{rule} {_mean(np.sum(mine, 1))}" for rule, mine in each.items())
        return [
            f"{told} some of {len(lacking[0])} clients, others under each rule, who count in no measure: {counts}"
        ]
    if not np.any(lacking):
        return []
    names, *others = {history.clients for history in histories}
    if others or (names is None and not of.fixed):
        count = _mean(np.sum(lacking, 1))
        return [f"{told} {count} of {len(lacking[0])} clients, mean over the replicates"]
    times = np.sum(lacking, 0)
    who = np.flatnonzero(times)
    called = [f"client {k}" if names is None else names[k] for k in who]
    seeds = " replicates" if len(histories) > 1 else " replicate"
    named = [f"{name} ({times[k]} of {len(histories)}{seeds * bool(k == who[0])})" for name, k in zip(called, who)]
    more = f" and {len(who) - NAMED} more clients" if len(who) > NAMED else ""
    return [f"{told} {', '.join(named[:NAMED])}{more}"]


def _lacking(history: Any, of: "Comparison") -> np.ndarray:
    """bool[N]: whom the metric has no value for at the end, though the loss has."""
    accuracy, loss, *_ = history.scores[of.split]
    mine = np.isnan(accuracy[-1]) & np.isfinite(loss[-1])
    return np.asarray(mine if of.clients is None else mine & of.clients)

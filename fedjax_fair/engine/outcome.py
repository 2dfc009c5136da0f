"""How runs ended: whose results count, and which runs failed; a model that is not finite is never a fair one."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_fair.data.names import Names
from fedjax_fair.engine.history import History, failed, judged
from fedjax_fair.metrics.kind import named_metric

LEGEND = "Failed: the model, or a client's loss or metric, is not finite."


class Outcome(NamedTuple):
    """How one run ended on a split, for the clients that are looked at."""

    counts: np.ndarray
    """bool[n]: who has examples."""
    failed: int
    """How many of them failed, of several evaluations at the worst."""
    lost: bool
    """Whether nothing can be said of all: everybody failed, or somebody's metric is not finite."""


def outcome(history: History, split: str | None = None, clients: Any = slice(None), last: int = 1) -> Outcome:
    """How the run ended, on its first split by default; lost is one that was so at any of its last evaluations."""
    split = next(iter(history.scores)) if split is None else split
    counts, broken = (of(history, split)[-last:, clients] for of in (judged, failed))
    accuracy = np.asarray(history.scores[split].accuracy)[-last:, clients]
    unknown = (broken == counts).all(1) | (counts & ~np.isfinite(accuracy)).any(1)
    return Outcome(counts[-1], int(broken.sum(1).max()), bool((broken.any(1) & unknown).any()))


def remark(outcomes: list[Outcome]) -> str:
    """What a row or a legend has to say of its runs, one per seed, in brackets; empty where none failed."""
    seeds, lost = len(outcomes), sum(o.lost for o in outcomes)
    worst = max(outcomes, key=lambda o: o.failed)
    if not worst.failed:
        return ""
    if lost and seeds > 1:
        return f" ({lost} of {seeds} seeds failed)"
    return f" ({'failed: ' * lost}{worst.failed} of {int(worst.counts.sum())} clients{' failed' * (not lost)})"


def means(history: History, split: str, clients: Any = slice(None)) -> np.ndarray:
    """f[T_eval]: the mean over those who have examples; NaN where somebody's is, all failed, or none has any."""
    counts, broken = (of(history, split)[:, clients] for of in (judged, failed))
    accuracy = np.where(counts, np.asarray(history.scores[split].accuracy)[:, clients], 0)
    total, n = accuracy.sum(1), counts.sum(1)
    return np.where((counts & ~broken).any(1), (total / np.maximum(n, 1)).astype(total.dtype), np.nan)


def of_clients(history: History, clients: Any = None) -> History:
    """The history with the results of some clients alone, bool[N]; of all by default.

    Their numbers are those of their columns then, and the others' come after; clients without names are called by
    the numbers that they had.
    """
    if clients is None:
        return history
    mine, others = np.flatnonzero(clients), np.flatnonzero(~np.asarray(clients))
    number = np.argsort(np.concatenate([mine, others, np.arange(len(clients), history.ids.max(initial=0) + 1)]))
    scores = {split: jax.tree.map(lambda values: values[:, clients], of) for split, of in history.scores.items()}
    examples = history.examples and {split: np.asarray(n)[:, clients] for split, n in history.examples.items()}
    names = history.names or Names()
    called = tuple(map(str, mine)) if names.clients is None else tuple(names.clients[k] for k in mine)
    groups = None if names.groups is None else tuple(names.groups[k] for k in mine)
    names = names._replace(clients=called, groups=groups)
    ids = np.where(history.ids < 0, -1, number[history.ids.astype(int)]).astype(history.ids.dtype)
    return history._replace(scores=scores, examples=examples, names=names, ids=ids)


def identical(runs: Mapping[str, list[History]], split: str | None = None) -> list[list[str]]:
    """Groups of rules whose runs gave the same results, bit for bit, at every evaluation."""
    found: dict[bytes, list[str]] = {}
    for rule, histories in runs.items():
        name = split or next(iter(histories[0].scores))
        arrays = [np.asarray(a) for h in histories for a in (h.rounds, *h.scores[name][:2])]
        if np.isfinite(np.concatenate([a.ravel() for a in arrays[1::3]])).any():  # of failures all are alike
            forms = repr([(a.shape, str(a.dtype)) for a in arrays]).encode()
            found.setdefault(forms + b"".join(a.tobytes() for a in arrays), []).append(rule)
    return [rules for rules in found.values() if len(rules) > 1]


ROUNDINGS = 100
"""Of a number's type, by which programs of the same computation may differ."""


def nearly_identical(runs: Mapping[str, list[History]], split: str | None = None) -> list[list[str]]:
    """Groups of rules whose runs gave every client the same loss at every evaluation, but for rounding.

    A rule in a program with others rounds otherwise than alone. The same is what differs by less than
    :data:`ROUNDINGS` of a client's loss, or of the median client's where that is more. Long or unstable training
    makes more of rounding than that, and such rules are then not found.
    """
    name = split or next(iter(next(iter(runs.values()))[0].scores))
    losses = {rule: [(h.rounds, np.asarray(h.scores[name].loss)) for h in of] for rule, of in runs.items()}
    found: list[list[str]] = []
    for rule, mine in losses.items():
        if not any(np.isfinite(values).any() for _, values in mine):  # of failures all are alike
            continue
        group = next((group for group in found if _are_near(mine, losses[group[0]])), None)
        found.append([rule]) if group is None else group.append(rule)
    return [rules for rules in found if len(rules) > 1]


def _are_near(some: list[Any], others: list[Any]) -> bool:
    """Whether runs, each its rounds [T] and its losses [T, N], are of the same rounds and losses."""
    if len(some) != len(others):
        return False
    for (rounds, mine), (their_rounds, theirs) in zip(some, others):
        if not np.array_equal(rounds, their_rounds) or (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            return False
        larger = np.maximum(np.abs(mine), np.abs(theirs))
        usual = np.median(np.nan_to_num(larger), axis=-1, keepdims=True)
        most = ROUNDINGS * float(jnp.finfo(mine.dtype).eps) * np.maximum(larger, usual)
        with np.errstate(invalid="ignore", over="ignore"):  # of infinite losses, and of the largest there are
            same = (mine == theirs) | (np.abs(mine - theirs) <= most) | (np.isnan(mine) & np.isnan(theirs))
        if not same.all():
            return False
    return True


def one_metric(histories: list[History]) -> Any:
    """The metric of all of these.

    Raises:
      ValueError: there are several.
    """
    metric, *others = dict.fromkeys(named_metric(history.metric) for history in histories)
    if others:
        kinds = [f"{m.label} in [{m.range[0]:g}, {m.range[1]:g}]" for m in (metric, others[0])]
        raise ValueError(f"runs must be judged by one metric, got {kinds[0]} and {kinds[1]}")
    return metric


def unused(history: History) -> int:
    """Updates that were not used, of clients that were selected: a slot that a selector leaves empty has none."""
    return int((~history.active & (history.ids >= 0)).sum())

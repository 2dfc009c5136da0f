"""What a run has to say of itself: losses that its rule cannot read, and updates that were never used."""

from typing import Any

import jax
import numpy as np

from fedjax_fair.checks import warn
from fedjax_fair.engine.history import History
from fedjax_fair.types import Params, Simulation

OFTEN = 3
"""Rounds of which a client without a single update used is news; in shorter runs all of them."""


def say(sentences: list[str]) -> bool:
    """Warn of each; whether there was any."""
    for sentence in sentences:
        warn(sentence)
    return bool(sentences)


def below_zero(sim: Simulation, history: History) -> list[str]:
    """A sentence where losses below 0 met a rule that takes them for positive; of the history or a part of it."""
    if not sim.positive_losses:
        return []
    seen: list[Any] = [score.loss for score in history.scores.values()]
    if history.received_loss is not None:
        seen.append(history.received_loss)
    lowest = min(float(np.min(v, where=np.isfinite(v), initial=np.inf)) for v in map(np.asarray, seen))
    if lowest >= 0:
        return []
    return [
        f"clients have losses below 0, down to {lowest:.3g}, which the rule (or clip_losses) takes to be at "
        "least 0: its coefficients say nothing of who is worse off; add a constant to loss= that keeps it above 0, "
        "or take a rule that reads differences of losses alone, such as ff.afl, ff.term or ff.fedmaba"
    ]


def unused(sim: Simulation, history: History, stayed: bool) -> list[str]:
    """Sentences for a run that left the model as it was (``stayed``), or that never used some client's update."""
    rounds, active, coef = len(history.active), history.active, history.coef
    if not rounds:  # stopped after the evaluation of the first model
        return []
    begun = f"no update was used in {rounds} rounds, so the model is as it began"
    if not active.any():
        return [
            f"{begun}: all clients were absent, made no local step (limit=), sent what is not finite, or got "
            "coefficients that are not finite (see ff.check_rule)"
        ]
    if not np.any(coef):
        return [f"{begun}: the rule gave every client a coefficient of 0 (see ff.check_rule)"]
    if stayed:
        return [
            f"no update moved the model in {rounds} rounds, so it is as it began: the clients made no local step "
            "(limit=), or none that is large enough to change a weight (the rates of trainer and server_optimizer)"
        ]
    silent = int((active.any(1) & ~np.any(coef, axis=1)).sum())
    said = [
        f"in {silent} of {rounds} rounds the rule gave every client a coefficient of 0: unless it is meant to, see "
        "whether its numbers overflow (ff.check_rule)"
    ]
    return said * (silent >= min(OFTEN, rounds)) + _never(sim, history)


def _never(sim: Simulation, history: History) -> list[str]:
    """A sentence where clients were there and their updates were never used."""
    never = never_used(history)
    if sim.faulty is not None:
        never = [(k, times) for k, times in never if not sim.faulty[k]]
    if not never:
        return []
    names = getattr(sim.data, "clients", None)
    called = ((k if names is None else repr(names[k]), times) for k, times in never[:3])
    named = ", ".join(f"{who} ({times} times)" for who, times in called) + (", ..." if len(never) > 3 else "")
    one = len(never) == 1
    return [
        f"{len(never)} {'client was' if one else 'clients were'} there and never used: {named}; every time "
        f"{'its' if one else 'their'} update, coefficient or a signal that the rule reads (such as the loss on "
        f"{'its' if one else 'their'} examples) was not finite, or limit= left no local step: look for NaN in "
        "the data, and put a rule of your own through ff.check_rule"
    ]


def never_used(history: History) -> list[tuple[int, int]]:
    """``(client, rounds in which it was certainly there)`` of those who sent something often and were never active.

    Who is not active was absent or failed. A round's downloads tell how many were there, unless a selector asked
    others as well; who it was is certain where all failed who are not active, or none.
    """
    active, chosen = np.asarray(history.active), history.ids >= 0
    missing, failed = (chosen & ~active).sum(1), np.asarray(history.downloads) - active.sum(1)
    certain = (np.asarray(history.evaluations) == 0) & (failed == missing) & (missing > 0)
    ids, times = np.unique(history.ids[certain][(chosen & ~active)[certain]], return_counts=True)
    silent = ~np.isin(ids, history.ids[active])
    often = times >= min(OFTEN, len(active))
    return [(int(k), int(count)) for k, count in zip(ids[silent & often], times[silent & often])]


def kept(params: Params) -> Any:
    """A model as it is now, on the host, to compare with later; None where another process has a part of it."""
    leaves = [leaf if isinstance(leaf, jax.Array) else np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    arrays = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    if not all(leaf.is_fully_addressable or leaf.is_fully_replicated for leaf in arrays):
        return None
    return jax.device_get([jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in leaves])


def moved(before: Params, after: Params) -> bool:
    """Whether two models differ, or cannot be seen; leaf by leaf from the smallest, which mostly decides."""
    pairs = sorted(zip(jax.tree.leaves(before), jax.tree.leaves(after)), key=lambda pair: np.size(pair[0]))
    return not pairs or any(not same(kept(a), kept(b)) for a, b in pairs)


def is_key(leaf: Any) -> bool:
    """Whether an array holds keys, which the host has no type for."""
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def same(before: Any, after: Any, part: Any = ...) -> bool:
    """Whether two models, as :func:`kept` has them, are one; of stacked ones, in this part."""
    if before is None or after is None or not before:
        return False
    return all(np.array_equal(a[part], b[part]) for a, b in zip(before, after))

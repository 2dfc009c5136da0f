"""What figures of clients' results are given, arrays or histories: checked, and without the runs that failed."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedjax_fair.checks import check_count
from fedjax_fair.engine.history import History, failed, judged
from fedjax_fair.engine.outcome import one_metric, outcome, remark
from fedjax_fair.metrics.kind import ACCURACY, Metric, check_values, named_metric
from fedjax_fair.plot.style import named

FORMS = ("accuracies [N], [seeds, N] or [seeds, T, N]", "accuracies [seeds, N] or [seeds, T, N]")
"""What may be drawn; the second where a vector could be anything."""


def kind_of(curves: Mapping[str, Any], metric: Metric | None) -> Metric:
    """What is drawn: ``metric``, or the histories' own; of arrays alone, accuracies.

    Raises:
      ValueError: histories of several metrics, or a ``metric`` that is none.
    """
    if metric is not None:
        return named_metric(metric)
    histories = [history for given in named(curves).values() for history in histories_of(given)]
    return one_metric(histories) if histories else ACCURACY


def check_accuracy(name: str, acc: NDArray[Any], metric: Metric = ACCURACY) -> None:
    """NaN, a client without test examples, is welcome; a row of nothing else is not."""
    if not acc.size or np.isnan(acc).all(-1).any():
        raise ValueError(f"{name!r} must hold at least one client's {metric.name} in every row, got {acc.shape}")
    low, high = np.nanmin(acc), np.nanmax(acc)
    if metric == ACCURACY and (low < 0 or high > 1):
        raise ValueError(f"{name!r} must hold accuracies in [0, 1], not percent, got {low:g} to {high:g}")
    check_values(f"{name!r}", acc, metric)


def histories_of(given: Any) -> list[History]:
    """The histories, where ``given`` is one or a list with one per seed, as a sweep's ``runs`` have; else none."""
    listed = [given] if isinstance(given, History) else given
    if not isinstance(listed, list) or not all(isinstance(history, History) for history in listed):
        return []
    if others := {history.accuracy.shape for history in listed} - {listed[0].accuracy.shape if listed else ()}:
        shapes = f"{listed[0].accuracy.shape} and {others.pop()}"
        raise ValueError(
            f"the histories of one name must be as long and of as many clients, got accuracies {shapes}"
        )
    return listed


def settled(name: str, given: Any, form: str, last: int) -> tuple[str, NDArray[np.float64]]:
    """``given`` as accuracies [seeds, T, N]; of histories those of the ``last`` evaluations.

    Runs that failed are left out, and the name says how many.
    """
    if histories := histories_of(given):
        ended = [outcome(history, last=last) for history in histories]
        kept = [h.accuracy[-last:] for h, end in zip(histories, ended) if not end.lost]
        none = np.zeros((0, *histories[0].accuracy[-last:].shape))
        return name + remark(ended), (np.stack(kept) if kept else none).astype(np.float64)
    try:
        acc = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        inside = f" of {type(given[0]).__name__}" if isinstance(given, list) and given else ""
        got = f"a {type(given).__name__}{inside}"
        raise ValueError(f"{name!r} must be {form}, or a History for every seed, got {got}") from None
    if not FORMS.index(form) < acc.ndim < 4:
        raise ValueError(f"{name!r} must be {form}, got {acc.shape}")
    return name, acc if acc.ndim == 3 else np.atleast_2d(acc)[:, None]


def check_some(rules: Mapping[str, NDArray[Any]]) -> None:
    """Raise ValueError where every run failed."""
    if not any(len(acc) for acc in rules.values()):
        raise ValueError(f"curves must hold at least one run that did not fail, got {', '.join(rules)}")


def per_client(
    curves: Mapping[str, Any], metric: Metric = ACCURACY, last: int = 1, form: str = FORMS[0]
) -> dict[str, NDArray[np.float64]]:
    """Every rule's accuracies as [seeds, T, N], checked; no seeds of a rule whose runs all failed."""
    check_count("last", last)
    rules = {}
    for name, given in named(curves).items():
        label, acc = settled(name, given, form, last)
        if len(acc):
            check_accuracy(name, acc, metric)
        rules[label] = acc
    check_some(rules)
    return rules


def course_of(name: str, histories: list[History]) -> tuple[str, NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The label, rounds [T], accuracies and who has any, [seeds, T, N]: of the seeds that did not fail, if any.

    NaN from where everybody failed: the lines end there.
    """
    ended = [outcome(history) for history in histories]
    kept = [history for history, end in zip(histories, ended) if not end.lost] or histories
    pieces = []
    for history in kept:
        split = next(iter(history.scores))
        counts, broken = judged(history, split), failed(history, split)
        dead = broken.any(1) & (broken == counts).all(1)
        pieces.append((np.where(dead[:, None], np.nan, history.accuracy), counts))
    acc, counted = (np.stack(part) for part in zip(*pieces))
    return name + remark(ended), np.asarray(histories[0].rounds), acc, counted

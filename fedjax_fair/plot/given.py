"""What figures of clients' results are given, arrays or histories: checked, and without the runs that failed."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedjax_fair.engine.history import History, failed, judged
from fedjax_fair.engine.outcome import one_metric, outcome, remark
from fedjax_fair.metrics.kind import ACCURACY, Metric, check_values, named_metric
from fedjax_fair.plot.style import named


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


def settled(name: str, given: Any, form: str) -> tuple[str, NDArray[np.float64]]:
    """``given`` as an array of numbers; of histories the accuracies after the last round, [seeds, N].

    Runs that failed are left out, and the name says how many.
    """
    if histories := histories_of(given):
        ended = [outcome(history) for history in histories]
        kept = [h.accuracy[-1] for h, end in zip(histories, ended) if not end.lost]
        rows = np.stack(kept) if kept else np.zeros((0, histories[0].accuracy.shape[1]))
        return name + remark(ended), rows.astype(np.float64)
    try:
        return name, np.asarray(given, np.float64)
    except (TypeError, ValueError):
        inside = f" of {type(given[0]).__name__}" if isinstance(given, list) and given else ""
        got = f"a {type(given).__name__}{inside}"
        raise ValueError(f"{name!r} must be {form}, or a History for every seed, got {got}") from None


def check_some(rules: Mapping[str, NDArray[Any]]) -> None:
    """Raise ValueError where every run failed."""
    if not any(len(acc) for acc in rules.values()):
        raise ValueError(f"curves must hold at least one run that did not fail, got {', '.join(rules)}")


def per_client(curves: Mapping[str, Any], metric: Metric = ACCURACY) -> dict[str, NDArray[np.float64]]:
    """Every rule's accuracies as [seeds, N], checked; no seeds of a rule whose runs all failed."""
    rules = {}
    for name, given in named(curves).items():
        label, acc = settled(name, given, "accuracies [N] or [seeds, N]")
        if acc.ndim not in (1, 2):
            raise ValueError(f"{name!r} must be accuracies [N] or [seeds, N], got {acc.shape}")
        if len(acc) or acc.ndim == 1:
            check_accuracy(name, acc, metric)
        rules[label] = np.atleast_2d(acc)
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

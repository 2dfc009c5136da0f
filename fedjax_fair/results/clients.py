"""Every client over several runs: means and standard deviations, as a data frame."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from fedjax_fair.engine.history import History, measures_of, pandas_for
from fedjax_fair.metrics.kind import worst_first


def client_table(histories: History | Iterable[History]) -> Any:
    """A data frame with a row per client, of several runs of the same clients; needs pandas.

    Rows go from the worst served on average to the best, first of all those that failed in every run. Columns are
    those of ``History.client_table``, after the last round of each run: ``rounds`` and ``examples`` are means over
    the runs. Each measure, such as ``accuracy``, is the mean over the runs that have a value of the client and in
    which it did not fail. Beside it stands the sample standard deviation, as ``accuracy std``, which is NaN of a
    single value. ``failed`` is in how many runs it failed.

    Clients are the same where they have the same names, in one order. Clients without names are taken by their
    numbers: they are refused where their numbers of examples differ, as in federations that are drawn anew for
    every replicate.

    Args:
      histories: runs, such as ``found.runs["fedavg"]`` of ``ff.compare``, or ``swept.histories[point]``.

    Raises:
      ValueError: none or something else than histories, runs of other clients, splits or metrics, or what
        ``History.client_table`` refuses.

    >>> _, one = ff.run(sim, 0, rounds=2)  # on the data of the example of ff.run
    >>> _, other = ff.run(sim, 1, rounds=2)
    >>> [*ff.client_table([one, other]).columns]
    ['client', 'rounds', 'examples', 'accuracy', 'accuracy std', 'loss', 'loss std', 'failed']
    """
    listed = [histories] if isinstance(histories, History) or not isinstance(histories, Iterable) else [*histories]
    if not listed or not all(isinstance(history, History) for history in listed):
        got = ", ".join(type(history).__name__ for history in listed) or "none"
        raise ValueError(f"histories must be those of one or more runs of a rule, got {got}")
    first = listed[0]
    for history in listed[1:]:
        _check_same(first, history)
    pandas = pandas_for("client_table")

    frames = [history.client_table().set_index("client") for history in listed]
    who = np.arange(np.shape(first.accuracy)[1]) if first.clients is None else first.clients

    def over(name: str) -> Any:
        return pandas.concat([frame[name].reindex(who) for frame in frames], axis=1)

    made = pandas.DataFrame({"client": who}).set_index("client", drop=False)
    if first.groups is not None:
        made["group"] = list(first.groups)
    made["rounds"] = over("rounds").mean(axis=1)
    measured, failures = [], []
    for split in first.scores:
        head = f"{split} " if len(first.scores) > 1 else ""
        failed = over(f"{head}failed").to_numpy()
        made[f"{head}examples"] = over(f"{head}examples").mean(axis=1)
        found = measures_of(first, split)
        for name in [head + measure for measure in (*(found if len(found) > 1 else ["accuracy"]), "loss")]:
            values = over(name).mask(failed)
            made[name], made[f"{name} std"] = values.mean(axis=1), values.std(axis=1)
            measured.append(name)
        made[f"{head}failed"] = failed.sum(1)
        failures.append(failed)
    values = made[measured[0]].to_numpy()
    order = np.argsort(worst_first(values, np.isnan(values) & failures[0].any(1), first.metric), kind="stable")
    return made.iloc[order].reset_index(drop=True)


def _check_same(first: History, other: History) -> None:
    """Whether two runs have the same clients and the same columns."""
    for what, of in (("splits", [*first.scores]), ("metrics", [*measures_of(first, next(iter(first.scores)))])):
        there = [*other.scores] if what == "splits" else [*measures_of(other, next(iter(other.scores)))]
        if there != of:
            raise ValueError(f"histories must have the same {what}, got {of} and {there}")
    counts = np.shape(first.accuracy)[1], np.shape(other.accuracy)[1]
    if counts[0] != counts[1]:
        raise ValueError(f"histories must be of the same clients, got {counts[0]} and {counts[1]} of them")
    if (first.clients, first.groups) != (other.clients, other.groups):
        raise ValueError("histories must be of the same clients, in one order, got others by name or group")
    for split, sizes in (first.examples or {}).items():
        ours, theirs = np.asarray(sizes)[-1], np.asarray((other.examples or {}).get(split, sizes))[-1]
        if first.clients is None and (differ := np.flatnonzero(ours != theirs)).size:
            k = differ[0]
            raise ValueError(
                f"histories must be of the same clients, got client {k} with {ours[k]} and with {theirs[k]} "
                f"{split} examples: those of a federation that is drawn anew for every replicate are others"
            )

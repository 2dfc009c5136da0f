"""Ready-made pieces for ``run(..., on_chunk=...)``, called with the state and the history after every chunk."""

import csv
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedjax_fair import metrics
from fedjax_fair.checks import check_choice, check_count
from fedjax_fair.engine.history import History, failed, judged
from fedjax_fair.engine.processes import writes
from fedjax_fair.metrics.kind import Metric
from fedjax_fair.types import SimState

Callback = Callable[[SimState, History], Any]


def early_stopping(
    patience: int,
    measure: str = "accuracy",
    best: Literal["highest", "lowest"] | None = None,
    split: str | None = None,
) -> Callback:
    """Stop a run, at the end of a chunk, when ``patience`` evaluations in a row have brought no better value.

    Args:
      patience: evaluations to wait.
      measure: a key of :func:`fedjax_fair.metrics.summary`, such as "accuracy", "variance", "gini", "worst5" or
        "loss".
      best: whether the highest or the lowest value is the best; by default what the history's metric says, the
        lowest of "variance", "std", "gini" and the losses, and the highest of "jain". NaN, as of an evaluation at
        which all clients failed or a client's metric is not finite, is never better.
      split: one that the simulation evaluates, by default the first; "validation" keeps the test split unseen.

    Raises:
      ValueError: a patience below 1, an unknown measure or ``best``; after the first chunk, a ``split`` that is not
        evaluated.
    """
    check_count("patience", patience)
    check_choice("measure", measure, metrics.summary(np.ones(2), loss=np.ones(2)))
    if best is not None:
        check_choice("best", best, ("highest", "lowest"))

    def enough(state: SimState, history: History) -> bool:
        watched = next(iter(history.scores)) if split is None else check_choice("split", split, history.scores)
        higher = _higher(measure, history.metric) if best is None else best == "highest"
        highest, waited, sign = -np.inf, 0, 1.0 if higher else -1.0
        for measures in _measures(history, watched):
            value = sign * measures[measure]
            highest, waited = (value, 0) if value > highest else (highest, waited + 1)
            if waited >= patience:
                return True
        return False

    return enough


def _higher(measure: str, metric: Metric) -> bool:
    """Whether more of a measure is better."""
    if measure in ("variance", "std", "gini") or measure.startswith("loss"):
        return measure == "loss_jain"
    return measure == "jain" or metric.higher_is_better


def stream(path: str | Path) -> Callback:
    """Keep a file of the history so far: a line per evaluation with the round and every measure of fairness.

    The file is replaced as a whole each time: after a run that went on from its checkpoint it holds every
    evaluation once. A run that continues a ``state=`` has a history of its own, and wants a file of its own.

    Args:
      path: ending in ``.csv``, or in ``.jsonl`` for one JSON object a line.

    Raises:
      ValueError: another ending, or a place that cannot be written.
    """
    place = Path(path).expanduser()
    check_choice("path's ending", place.suffix, (".csv", ".jsonl"))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"path {path} cannot be written: {error.strerror}") from error
    if place.is_dir():
        raise ValueError(f"path must be a file, got the folder {path}")

    def write(state: SimState, history: History) -> None:
        from fedjax_fair.engine.files import to_json, write_atomically

        if not writes(state):
            return
        rows = lines(history)
        text = StringIO()
        if place.suffix == ".csv":
            table = csv.DictWriter(text, rows[0], lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
        else:
            text.writelines(to_json(row, indent=None) for row in rows)
        write_atomically(place, text.getvalue())

    return write


def tensorboard(folder: str | Path) -> Callback:
    """Write every measure of each evaluation for TensorBoard; needs ``pip install 'fedjax-fair[tensorboard]'``.

    TensorBoard shows one run per folder: a second one replaces the first from the round of its first evaluation on.

    Args:
      folder: TensorBoard's log directory.

    Raises:
      ValueError: ``tensorboardX`` is not installed.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ValueError("tensorboard needs tensorboardX: pip install 'fedjax-fair[tensorboard]'") from error
    written: list[str] = []  # of the run so far: texts, of which NaN is equal to NaN

    def write(state: SimState, history: History) -> None:
        if not writes(state):
            return
        rows = lines(history)
        texts = [repr(row) for row in rows]
        # The same run has all of the last call's evaluations, and more; another run is to be written whole.
        if len(texts) <= len(written) or texts[: len(written)] != written:
            written.clear()
        # A resumed run writes what was before anew, and TensorBoard leaves the old out. A file for every chunk, for
        # only closing one waits until all is in it; with a suffix, for names count by the second.
        purge = None if written else rows[0]["round"]
        with SummaryWriter(
            str(Path(folder).expanduser()), purge_step=purge, filename_suffix=f".{rows[-1]['round']}"
        ) as writer:
            for row in rows[len(written) :]:
                for name, value in row.items():
                    writer.add_scalar(name, value, row["round"])
        written[:] = texts

    return write


def together(*callbacks: Callback) -> Callback:
    """Call each in turn, all of them every time; stop when any of them says so.

    Raises:
      ValueError: something among them that cannot be called.
    """
    for callback in callbacks:
        if not callable(callback):
            raise ValueError(f"together takes functions of the state and the history, got {callback!r}")

    def call(state: SimState, history: History) -> bool:
        answers = [bool(callback(state, history)) for callback in callbacks]
        return any(answers)

    return call


def lines(history: History) -> list[dict[str, Any]]:
    """A row per evaluation on the first split: the round, then the measures of the clients' accuracies."""
    found = _measures(history, next(iter(history.scores)))
    return [{"round": int(round), **measures} for round, measures in zip(history.rounds, found)]


def _measures(history: History, split: str) -> Iterator[dict[str, float]]:
    """Of each evaluation every measure of fairness; all NaN where the run is lost, as tables take it.

    That is where everybody failed, or a client's metric is not finite: what is left would be the others' results.
    """
    parts = (*history.scores[split][:2], judged(history, split), failed(history, split))
    for accuracy, loss, there, broken in zip(*parts):
        measures = metrics.summary(accuracy, loss=loss, metric=history.metric, where=there)
        lost = broken.any() and ((broken == there).all() or (broken & ~np.isfinite(accuracy)).any())
        yield {name: float("nan") if lost else float(value) for name, value in measures.items()}

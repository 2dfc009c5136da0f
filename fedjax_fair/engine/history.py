"""What a run leaves behind."""

from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_fair.data.names import Names
from fedjax_fair.metrics.groups import group_means
from fedjax_fair.metrics.kind import ACCURACY, Metric, check_values, described, worst_first
from fedjax_fair.types import Evaluation, Simulation


class History(NamedTuple):
    """What a run leaves behind, as NumPy arrays: T rounds, of which T_eval were followed by an evaluation."""

    rounds: np.ndarray
    """i64[T_eval]: rounds played when each evaluation was made."""
    scores: dict[str, Evaluation]
    """Per split: accuracy and loss, f32[T_eval, N] each, and in ``further`` by name the metrics after the first."""
    ids: np.ndarray
    """i32[T, S]: the clients of each round; -1 for a slot that a selector left empty."""
    coef: np.ndarray
    """f32[T, S]: their coefficients; 0 for a client that was not active."""
    active: np.ndarray
    """bool[T, S]: whose update was used."""
    received_loss: np.ndarray | None
    """f32[T, S]: loss of the received model on each client's training set, as reported: a liar's is a lie. NaN for
    a client that was not active, None where the rule does not read it."""
    downloads: np.ndarray
    """i32[T]: clients that were there and were sent the model, to train or to be asked for their loss by the
    selector. Models that a rule's second look sends are not in it."""
    evaluations: np.ndarray
    """i32[T]: per-example losses that clients evaluated for the selector. What a rule reads (received losses, a
    second look such as DRFA's) is not in it."""
    metric: Metric = ACCURACY
    """What the accuracies are: name, direction, unit and range, without the function."""
    examples: dict[str, np.ndarray] | None = None
    """Per split: how many examples each client was judged by, i32[T_eval, N]; None where that is not known."""
    names: Names | None = None
    """What clients and classes are called: those of the data."""
    further: dict[str, Metric] | None = None
    """By name, what the metrics after the first are; None where there is one."""

    def __repr__(self) -> str:
        scored = ", ".join(f"{name} {list(np.shape(s.accuracy))}" for name, s in self.scores.items())
        return f"History({len(self.ids)} rounds of {self.ids.shape[1]} clients; accuracy and loss on {scored})"

    @property
    def clients(self) -> tuple[str, ...] | None:
        """[N]: the clients' names; None for clients that are numbers."""
        return None if self.names is None else self.names.clients

    @property
    def groups(self) -> tuple[str, ...] | None:
        """[N]: the group that each client is of; None where there are none."""
        return None if self.names is None else self.names.groups

    @property
    def accuracy(self) -> np.ndarray:
        """f32[T_eval, N]: every client's metric (in [0, 1] for accuracy) on the first evaluated split."""
        return np.asarray(next(iter(self.scores.values())).accuracy)

    @property
    def measures(self) -> dict[str, np.ndarray]:
        """By name, f32[T_eval, N]: every client's metrics on the first evaluated split, the first one first."""
        return measures_of(self, next(iter(self.scores)))

    @property
    def loss(self) -> np.ndarray:
        """f32[T_eval, N]: every client's mean loss on the first evaluated split."""
        return np.asarray(next(iter(self.scores.values())).loss)

    @property
    def failed(self) -> np.ndarray:
        """bool[T_eval, N]: whose loss or metric is not finite on the first evaluated split, though it has examples
        there: of a model that has diverged, everybody's. A NaN of a client without examples is no failure."""
        return failed(self, next(iter(self.scores)))

    def to_pandas(self) -> Any:
        """A data frame with a row per evaluation, split and client; needs ``pip install 'fedjax-fair[pandas]'``.

        Columns: ``round``, ``split``, ``client`` (its name, or number), ``accuracy`` (in [0, 1], or as ``metric``
        says), ``loss`` and ``failed``, as the property of that name has it, of each split. Several metrics have
        columns of their own names in the place of ``accuracy``; ``group`` is there where clients have groups.

        Raises:
          ValueError: pandas is not installed.
        """
        pandas = pandas_for("to_pandas")
        frames = []
        for split in self.scores:
            evaluations, clients = np.shape(self.scores[split].accuracy)
            columns = {
                "round": np.repeat(self.rounds, clients),
                "split": split,
                "client": np.tile(np.arange(clients) if self.clients is None else self.clients, evaluations),
                **({} if self.groups is None else {"group": np.tile(self.groups, evaluations)}),
                **{name: np.ravel(values) for name, values in _columns(self, split).items()},
                "failed": np.ravel(failed(self, split)),
            }
            frames.append(pandas.DataFrame(columns))
        return pandas.concat(frames, ignore_index=True)

    def client_table(self) -> Any:
        """A data frame with a row per client, from the worst served to the best; needs pandas as ``to_pandas``.

        Columns: ``client`` (its name, or number), ``rounds`` (in how many its update was used), and of the last
        evaluation ``examples``, ``accuracy`` (in [0, 1], or as ``metric`` says; several metrics each by its name),
        ``loss`` and ``failed``; where several splits were evaluated, of each, as ``test accuracy``. Clients that
        failed come first, those without examples last. Where clients have groups, ``group`` is the second.

        Raises:
          ValueError: pandas is not installed, or values outside the metric's range.
        """
        pandas = pandas_for("client_table")
        _check_range(self)
        columns, n = dict[str, Any](), np.shape(self.accuracy)[1]
        for split in self.scores:
            examples = None if self.examples is None else self.examples.get(split)
            found = {
                "examples": np.full(n, np.nan) if examples is None else np.asarray(examples)[-1],
                **{name: values[-1] for name, values in _columns(self, split).items()},
                "failed": failed(self, split)[-1],
            }
            head = f"{split} " if len(self.scores) > 1 else ""
            columns |= {head + name: values for name, values in found.items()}
        taken = np.bincount(self.ids[self.active].ravel(), minlength=n)[:n]
        who = np.arange(n) if self.clients is None else self.clients
        group = {} if self.groups is None else {"group": self.groups}
        made = pandas.DataFrame({"client": who, **group, "rounds": taken, **columns})
        ended = self.accuracy[-1], failed(self, next(iter(self.scores)))[-1]
        order = np.argsort(worst_first(*ended, self.metric), kind="stable")
        return made.iloc[order].reset_index(drop=True)

    def group_table(self) -> Any:
        """A data frame with a row per group of clients, from the worst served to the best; needs pandas.

        Columns: ``group``, ``clients`` (how many of it have examples), and of the last evaluation on the first
        split the means of ``accuracy`` (or of several metrics each by its name) and ``loss``, each over those of
        them that have a value in it, who count alike. Groups of which a client failed come first, those without a
        value last, as clients do in ``client_table``.

        Raises:
          ValueError: the clients have no groups, pandas is not installed, or values outside the metric's range.
        """
        pandas = pandas_for("group_table")
        _check_range(self)
        if self.groups is None:
            raise ValueError("group_table needs clients with groups, as from_arrays(group=...) has, got none")
        split = next(iter(self.scores))
        means, counts = _of_groups(self, split), _there(self, split)[-1]
        names = [*means["loss"]]
        size = [int(counts[np.array(self.groups) == name].sum()) for name in names]
        made = pandas.DataFrame({"group": names, "clients": size, **{m: [*of.values()] for m, of in means.items()}})
        lost = failed(self, split)[-1]
        broken = np.array([lost[np.array(self.groups) == name].any() for name in names])
        order = np.argsort(worst_first(made.iloc[:, 2].to_numpy(), broken, self.metric), kind="stable")
        return made.iloc[order].reset_index(drop=True)


def _of_groups(history: History, split: str) -> dict[str, dict[str, float]]:
    """Per metric, and for the loss, the groups' means at the last evaluation, of the clients that have a value."""
    counts, known = _there(history, split)[-1], np.isfinite(history.scores[split].loss)[-1]
    found = {name: values[-1] for name, values in _columns(history, split).items()}
    assert history.groups is not None
    return {k: group_means(of, history.groups, counts & ~(np.isnan(of) & known)) for k, of in found.items()}


def _check_range(history: History) -> None:
    """As the table of rules does: worst and best of a metric that is not what it is taken for are the wrong way."""
    for split, score in history.scores.items():
        check_values(f"the history's {split} results", score.accuracy, history.metric)


def measures_of(history: History, split: str) -> dict[str, np.ndarray]:
    """By name, f32[T_eval, N]: the metrics on a split, the first one first."""
    found = history.scores[split]
    order = [*(history.further or ())] or [*found.further]  # JAX sorts the keys of a dict
    return {history.metric.name: np.asarray(found.accuracy)} | {k: np.asarray(found.further[k]) for k in order}


def _columns(history: History, split: str) -> dict[str, np.ndarray]:
    """What the tables call the metrics, and the loss, f[T_eval, N]."""
    found = measures_of(history, split)
    named = found if len(found) > 1 else {"accuracy": next(iter(found.values()))}
    return {**named, "loss": np.asarray(history.scores[split].loss)}


def pandas_for(method: str) -> Any:
    """The module; ValueError where it is not installed, with how to install it."""
    try:
        import pandas
    except ImportError as error:
        raise ValueError(f"{method} needs pandas: pip install 'fedjax-fair[pandas]'") from error
    return pandas


def join(pieces: list[tuple[np.ndarray, Any]], played: int) -> History:
    """One history of several calls' records; ``played`` rounds came before."""
    gaps = np.concatenate([gap for gap, _ in pieces])
    info = [jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), record[0]) for _, record in pieces]
    rounds = jax.tree.map(lambda *parts: np.concatenate(parts), *info)
    scores = jax.tree.map(lambda *parts: np.concatenate(parts), *[record[1] for _, record in pieces])
    return History(played + np.cumsum(gaps), scores, *rounds)


def told(history: History, sim: Simulation) -> History:
    """The history with what it is of; kept apart from the arrays, for checkpoints and sweeps hold these alone."""
    bases = {name: getattr(sim.data, name.partition("@")[0], None) for name in history.scores}
    sizes = {name: getattr(split, "size", None) for name, split in bases.items()}
    further = None if sim.further is None else {name: described(kind) for name, kind in sim.further.items()}
    names = getattr(sim.data, "names", None)
    history = history._replace(metric=described(sim.metric), further=further, names=names)
    if any(size is None for size in sizes.values()):  # data of the user's own
        return history
    shape = np.shape(history.accuracy)
    return history._replace(examples={split: np.broadcast_to(np.asarray(n), shape) for split, n in sizes.items()})


def judged(history: History, split: str) -> np.ndarray:
    """bool[T_eval, N]: who has examples in the split; where that is not known, who ever had a result.

    Without those for whom the metric has no value, though the loss has: an AUROC of one class.
    """
    accuracy, loss, *_ = history.scores[split]
    there = _there(history, split)
    if history.metric.for_everybody:
        return there
    return there & ~(np.isnan(accuracy) & np.isfinite(loss))


def _there(history: History, split: str) -> np.ndarray:
    """bool[T_eval, N]: who has examples in the split; where that is not known, who ever had a result."""
    accuracy, loss, *_ = history.scores[split]
    if history.examples is not None and split in history.examples:
        return np.asarray(history.examples[split]) > 0
    return np.broadcast_to(~(np.isnan(accuracy) & np.isnan(loss)).all(0), np.shape(accuracy))


def failed(history: History, split: str) -> np.ndarray:
    """bool[T_eval, N]: whose loss or metric is not finite, of those who have one in the split."""
    accuracy, loss, *_ = history.scores[split]
    return np.asarray(judged(history, split) & ~(np.isfinite(accuracy) & np.isfinite(loss)))


def after(past: History, now: History) -> History:
    """Two histories, one after the other."""
    return jax.tree.map(lambda *parts: np.concatenate(parts), past, now)

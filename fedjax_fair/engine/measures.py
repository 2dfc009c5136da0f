"""What an evaluation finds of every client: one metric or several, by name, and the loss, of one forward pass."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jax import Array

from fedjax_fair.engine.signals import PerExample, Score, scoring
from fedjax_fair.metrics.kind import Metric
from fedjax_fair.models import Model
from fedjax_fair.models.client_metrics import Whole
from fedjax_fair.models.metric import as_metric
from fedjax_fair.types import Evaluation

RESERVED = ("round", "split", "client", "clients", "rounds", "examples", "loss", "failed", "group", "judged")
"""Columns of the history's tables, and what they are of."""


class Measures(NamedTuple):
    """The metrics, of which the first leads."""

    kinds: dict[str, Metric]
    """By name, with their functions; one alone goes by its own name."""

    @property
    def first(self) -> Metric:
        """What tables, worst and best, and rules that read an accuracy go by."""
        return next(iter(self.kinds.values()))

    @property
    def further(self) -> dict[str, Metric] | None:
        """The others; None where there are none."""
        return dict([*self.kinds.items()][1:]) or None

    @property
    def wholes(self) -> tuple[Whole, ...]:
        """Those of whole clients."""
        functions: list[Any] = [kind.fn for kind in self.kinds.values()]
        return tuple(fn for fn in functions if isinstance(fn, Whole))

    def score(self, net: Model, loss: PerExample) -> Score:
        """All of an example: what the metrics of whole clients keep of it, the other metrics, and the loss."""
        return scoring(net, *(kind.fn for kind in self.kinds.values()), loss)  # type: ignore[arg-type]

    def evaluation(self, found: Sequence[Array]) -> Evaluation:
        """Every client's results, given those of metrics of whole clients, the means of the others, the loss."""
        of_wholes = iter(found[: len(self.wholes)])
        *means, loss = found[len(self.wholes) :]
        of_means = iter(means)
        values = {
            name: next(of_wholes if isinstance(kind.fn, Whole) else of_means) for name, kind in self.kinds.items()
        }
        accuracy, *_ = values.values()
        return Evaluation(accuracy, loss, {name: values[name] for name in self.further or ()})


def as_measures(metric: Any, loss: PerExample) -> Measures | None:
    """One door for what ``metric`` may be: nothing, one, or several by name.

    Raises:
      ValueError: none, names that are no words or are taken, or what is no metric.
    """
    if metric is None:
        return None
    if not isinstance(metric, Mapping):
        kind, _ = as_metric(metric, loss)
        return Measures({kind.name: kind})
    if not metric:
        raise ValueError("metric must hold at least one metric by name, such as ff.losses.accuracy, got none")
    kinds = {}
    for name, one in metric.items():
        if not isinstance(name, str) or not name or "/" in name or name in RESERVED:
            taken = ", ".join(RESERVED)
            raise ValueError(f"metric must have words without a slash as names, none of {taken}, got {name!r}")
        if not callable(one) and not isinstance(one, Metric):
            raise ValueError(f"metric must be a function of outputs and labels, got {one!r} for {name!r}")
        kinds[name] = as_metric(one, loss)[0]._replace(name=name)
    return Measures(kinds)


def settled(
    measures: Measures | None, loss: PerExample, fit: Callable[[list[Any] | None], list[Any]]
) -> tuple[Measures, list[Any]]:
    """The measures, where none are given the one that ``fit`` chooses, and their functions, checked."""
    metrics = fit(None if measures is None else [kind.fn for kind in measures.kinds.values()])
    if measures is None:
        kind, _ = as_metric(metrics[0], loss)
        measures = Measures({kind.name: kind})
    return measures, metrics

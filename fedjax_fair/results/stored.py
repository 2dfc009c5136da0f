"""What a results folder keeps, as histories and their metric."""

from typing import Any

import numpy as np

from fedjax_fair.data.names import Names
from fedjax_fair.engine.history import History
from fedjax_fair.metrics.kind import ACCURACY, Metric
from fedjax_fair.types import Evaluation


def metric_of(summary: dict[str, Any]) -> Metric:
    """The metric that the results are of; accuracy where nothing is said."""
    if "metric" not in summary:
        return ACCURACY
    return _metric(summary["metric"])


def further_of(summary: dict[str, Any]) -> dict[str, Metric]:
    """By name, the metrics after the first."""
    return {name: _metric(kept) for name, kept in summary.get("further", {}).items()}


def _metric(kept: dict[str, Any]) -> Metric:
    low, high = kept["range"]  # infinity is null in JSON
    return Metric(**kept | {"range": (-np.inf if low is None else low, np.inf if high is None else high)})


def histories_of(rule: str, arrays: dict[str, np.ndarray], metric: Metric = ACCURACY) -> list[History]:
    """The runs of a rule, one per seed, as far as a folder keeps them."""
    fields = ("ids", "coef", "active", "accuracy", "loss")
    judged = arrays.get(f"{rule}/judged")
    words = {key: tuple(arrays[key].tolist()) for key in ("clients", "groups") if key in arrays}
    names = Names(**words) if words else None
    runs = []
    for seed, (ids, coef, active, accuracy, loss) in enumerate(zip(*(arrays[f"{rule}/{name}"] for name in fields))):
        scores, none = {"test": Evaluation(accuracy, loss)}, np.zeros(len(ids), int)
        sizes = None if judged is None else {"test": judged[seed].astype(int)}
        rounds = arrays[f"{rule}/rounds"]
        runs.append(History(rounds, scores, ids, coef, active, None, none, none, metric, sizes, names))
    return runs

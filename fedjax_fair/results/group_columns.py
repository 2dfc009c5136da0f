"""What the table says of groups of clients: how the worst is served, and how far the groups are apart."""

from typing import Any

import numpy as np

from fedjax_fair.engine.history import History
from fedjax_fair.engine.outcome import Outcome
from fedjax_fair.metrics.groups import group_means, worst_group

GROUPS = {"worst_group": "worst group", "group_gap": "group gap"}
"""Keys of a summary and their headings; in the unit of the accuracy."""

GROUPS_LEGEND = (
    "Groups of clients: the worst served one's mean over its clients, and how far the best served one's is from it."
)


def of_groups(accuracy: np.ndarray, history: History, ended: Outcome, who: Any) -> tuple[float, float]:
    """The worst group and the gap by the clients' ``accuracy`` f[n]; NaN where nothing can be said of the run.

    Args:
      accuracy: of the clients ``who``, an index of all N.
      history: the run's, of whose metric the direction and the unit are.
      ended: how it ended for these clients.
      who: bool[N], or a slice of all.
    """
    if ended.lost:
        return np.nan, np.nan
    means = group_means(accuracy, np.array(history.groups)[who].tolist(), ended.counts)
    worst, gap = worst_group(means, history.metric.higher_is_better)
    return history.metric.scale * worst, history.metric.scale * gap

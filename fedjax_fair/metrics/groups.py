"""How groups of clients are served: the mean of each, the worst, and the gap between the best and the worst."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedjax_fair.checks import check_complete
from fedjax_fair.metrics.masked import NOBODY, mask_of


def group_means(values: Any, groups: Sequence[str], where: Any = None) -> dict[str, float]:
    """Per group the mean over its clients, each of whom counts alike; NaN for a group of whom nobody counts.

    Args:
      values: f[N], such as ``history.accuracy[-1]``.
      groups: [N], such as ``data.groups``.
      where: bool[N], who counts; by default those whose value is finite.

    Raises:
      ValueError: arrays of other lengths, or a ``where`` that is not bool.

    >>> group_means([0.5, 0.75, 0.875], ["north", "north", "south"])
    {'north': 0.625, 'south': 0.875}
    """
    check_complete("values", values, NOBODY)
    check_complete("groups", groups, "fill it, by a name for who has none")
    numbers, names = np.asarray(values, float), np.asarray(groups, str)
    if numbers.ndim != 1 or names.shape != numbers.shape:
        raise ValueError(f"groups must name a group per client, {list(numbers.shape)}, got {list(names.shape)}")
    counts = np.isfinite(numbers) if where is None else np.asarray(mask_of(where))
    if counts.shape != numbers.shape:
        raise ValueError(f"where must have one entry per client, {list(numbers.shape)}, got {list(counts.shape)}")
    found = {}
    for name in np.unique(names):
        mine = numbers[(names == name) & counts]
        found[str(name)] = float(mine.mean()) if len(mine) else float("nan")
    return found


def worst_group(means: dict[str, float], higher_is_better: bool = True) -> tuple[float, float]:
    """The mean of the worst served group, and the gap between the best and the worst; NaN where there is none.

    >>> worst_group({"north": 0.5, "south": 0.75})
    (0.5, 0.25)
    """
    known = [mean for mean in means.values() if np.isfinite(mean)]
    if not known:
        return float("nan"), float("nan")
    low, high = min(known), max(known)
    return (low if higher_is_better else high), high - low

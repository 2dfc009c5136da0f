"""Every run's measures and settings, as a data frame."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_fair.engine.grid import Point, numbered, word
from fedjax_fair.engine.history import History, pandas_for
from fedjax_fair.engine.sweep import Sweep
from fedjax_fair.results.table import check_table, summarize


def run_table(
    runs: Mapping[str, History | list[History]] | Sweep, clients: Any = None, split: str | None = None
) -> Any:
    """A data frame with a row per run: its settings, and its measures after the last round; needs pandas.

    The first columns are ``name`` (the rule's, or of a sweep the point's label) and ``run``, which counts the runs
    of a name from 0. A sweep has a column ``seed``, where its seeds are whole numbers, and one for each setting of
    its grid. The measures are those of ``ff.table``, in its units, such as ``accuracy`` (the clients' mean in %),
    ``variance`` (%²), ``worst10`` and ``gini``. They are NaN of a run that failed, which pandas leaves out of
    means; ``failed`` counts the clients with whom it did.

    A setting that is a function is its name, and several of one name are numbered. A setting that is called like
    another column has "setting " before its name. Of a comparison ``found.to_pandas()`` has the quoted measures:
    means of its last evaluations.

    Args:
      runs: what ``ff.sweep`` returned; or per rule its history, or a list of them.
      clients: bool[N], the ones to judge by, such as the honest; all by default.
      split: one that was evaluated, such as "test"; by default the histories' first.

    Raises:
      ValueError: pandas is not installed, or what ``ff.table`` refuses.

    >>> def build(mu):  # on the data of the example of ff.run
    ...     model = ff.models.logistic_regression()
    ...     return ff.simulation(model, data, aggregator=ff.fedprox(mu), trainer=trainer)
    >>> frame = ff.run_table(ff.sweep(build, {"mu": [0.0, 0.1]}, seeds=2, rounds=2))
    >>> [*frame.columns[:5]], len(frame)
    (['name', 'run', 'seed', 'mu', 'accuracy'], 4)
    """
    if hasattr(runs, "to_pandas"):
        raise ValueError(
            f"runs must be a sweep or histories by rule, got a {type(runs).__name__}: see its to_pandas()"
        )
    swept = runs if isinstance(runs, Sweep) else None
    listed, split, _ = check_table(runs if swept is None else swept.runs, clients, split)
    pandas, frames = pandas_for("run_table"), []
    measured = {name: summarize(histories, clients, split) for name, histories in listed.items()}
    taken = itertools.chain.from_iterable(measured.values())
    settings = setting_columns([{} for _ in listed] if swept is None else swept.points, {*taken})
    seeds = {} if swept is None or swept.seeds is None else {"seed": swept.seeds}
    for i, (name, measures) in enumerate(measured.items()):
        of_point = {setting: values[i] for setting, values in settings.items()}
        columns = {"name": name, "run": np.arange(len(listed[name])), **seeds, **of_point, **measures}
        frames.append(pandas.DataFrame(columns))
    return pandas.concat(frames, ignore_index=True)


def setting_columns(points: Sequence[Point], measures: set[str]) -> dict[str, list[Any]]:
    """Per setting its value at each point; "setting " before the name of one that is called like another column.

    Functions stand by their names, those of one name numbered: other values are never one.
    """
    taken = measures | {"name", "rule", "run", "seed", "seeds", "seeds_failed"}
    columns = {}
    for name in points[0]:
        values = [point[name] for point in points]
        different = [value for i, value in enumerate(values) if value not in values[:i]]
        made = [value for value in different if not isinstance(value, bool | int | float | str | None)]
        words = numbered([word(value) for value in made])
        values = [words[made.index(value)] if value in made else value for value in values]
        columns[f"setting {name}" if name in taken else name] = values
    return columns

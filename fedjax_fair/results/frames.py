"""A comparison's numbers as data frames of pandas."""

from typing import Any

from fedjax_fair.engine.history import pandas_for


def frame_of_rules(found: Any) -> Any:
    """A row per rule, references included, and replicate of a comparison."""
    pandas = pandas_for("to_pandas")
    frames = [
        pandas.DataFrame({"rule": rule, "replicate": range(len(found.examples)), **of})
        for rule, of in found.measures().items()
    ]
    return pandas.concat(frames, ignore_index=True)


def frame_of_tried(found: Any) -> Any:
    """A row per rule, setting that was tried and replicate; a rule that was not tuned has the setting ""."""
    pandas, frames = pandas_for("to_pandas"), []
    for rule, runs in found.runs.items():
        for setting, histories in found.tried_runs.get(rule, {"": runs}).items():
            scores = found.tried[rule][setting] if rule in found.tried else {}
            columns = {"rule": rule, "setting": setting, "chosen": histories is runs}
            columns |= {"replicate": range(len(histories)), **found.measured(histories)}
            columns |= {f"validation_{measure}": values for measure, values in scores.items()}
            frames.append(pandas.DataFrame(columns))
    return pandas.concat(frames, ignore_index=True)

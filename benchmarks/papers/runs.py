"""A study's runs: one row of its table trained from one seed, and the evaluations that are kept of it."""

import io
import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fedjax_fair as ff
from fedjax_fair.engine.files import write_atomically
from fedjax_fair.results.folder import about
from fedjax_fair.types import Evaluation


class Row(NamedTuple):
    """One line of a paper's table."""

    name: str
    build: Callable[[int], ff.Simulation]
    """The simulation of a seed, which may decide the data too."""
    printed: Mapping[str, float] = {}
    """What the paper prints, by the same measures."""


def fixed(make: Callable[[], ff.Simulation]) -> Callable[[int], ff.Simulation]:
    """A row's ``build`` whose simulation is the same for every seed, and so compiles once; it can be pickled."""
    made: list[ff.Simulation] = []

    def build(seed: int) -> ff.Simulation:
        if not made:
            made.append(make())
        return made[0]

    return build


def path_of(place: Path, row: Row, seed: int) -> Path:
    """The evaluations of a run that has ended; beside it, without the suffix, the checkpoint of one under way."""
    return place / re.sub(r"[^\w.,=@-]+", "_", row.name) / f"seed-{seed}.npz"


def train(row: Row, seed: int, place: Path, asked: Mapping[str, int], progress: bool | None = None) -> ff.History:
    """Train one row from one seed, and keep its evaluations."""
    path, made = path_of(place, row, seed), {name: about("")[name] for name in ("commit", "device")}
    folder, (rounds, eval_every) = path.with_suffix(""), (asked["rounds"], asked["eval_every"])
    _, history = ff.run(row.build(seed), seed, rounds, eval_every=eval_every, checkpoint=folder, progress=progress)
    kept = save_evaluations(path, history, {**asked, **made})
    shutil.rmtree(folder)
    return kept


def save_evaluations(path: Path, history: ff.History, asked: Mapping[str, Any]) -> ff.History:
    """Write what a run was asked for, by what it was made, and its evaluations; return it with nothing else."""
    fields = ("accuracy", "loss")
    arrays = {f"{split}/{f}": getattr(scores, f) for split, scores in history.scores.items() for f in fields}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, about=np.array(json.dumps(asked)), rounds=history.rounds, **arrays)
    write_atomically(path, buffer.getvalue())
    return _scored(history.rounds, {split: Evaluation(*scores[:2]) for split, scores in history.scores.items()})


def load_evaluations(path: Path, asked: Mapping[str, Any]) -> ff.History | None:
    """The evaluations of a run that has ended; None where it has not.

    Raises:
      ValueError: they are of a run that was asked for something else.
    """
    if not path.exists():
        return None
    with np.load(path) as kept:
        kept_about = json.loads(str(kept["about"]))
        was = {name: kept_about[name] for name in asked}
        if was != asked:
            raise ValueError(f"{path} is of a run with {was}, this study has {asked}: remove it to train again")
        print(f"{path.parent.name}/{path.stem}: kept, trained by {kept_about['commit']}", flush=True)
        splits = dict.fromkeys(name.split("/")[0] for name in kept.files if "/" in name)
        scores = {s: Evaluation(*(kept[f"{s}/{field}"] for field in ("accuracy", "loss"))) for s in splits}
        return _scored(kept["rounds"], scores)


def _scored(rounds: np.ndarray, scores: dict[str, Evaluation]) -> ff.History:
    """A history of evaluations alone."""
    none = np.zeros((0, 0))
    return ff.History(rounds, scores, none, none, none, None, np.zeros(0), np.zeros(0))

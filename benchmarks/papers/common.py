"""What the studies share: rows of a table, seeds, resuming, the statistic, and the files that are left behind."""

import io
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import fedjax_fair as ff
from benchmarks.papers import sharing
from fedjax_fair.engine.files import to_json, write_atomically
from fedjax_fair.results.folder import about
from fedjax_fair.types import Evaluation

Measured = dict[str, float]
Found = dict[str, list[Measured]]
"""Per row, a dictionary of measures for every seed."""


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


class Column(NamedTuple):
    """A measure's heading, and its digits after the point."""

    heading: str
    digits: int = 1


ACCURACY = {
    "accuracy": Column("acc %"),
    "variance": Column("var %²"),
    "worst5": Column("worst 5 %"),
    "best5": Column("best 5 %"),
    "gini": Column("Gini", 3),
}


def last_ten(history: ff.History) -> Measured:
    """Mean over the last ten evaluations; ``best_`` for those of the evaluation with the highest mean accuracy."""
    rows = ff.metrics.summary(history.accuracy[-10:], loss=history.loss[-10:])
    means = {name: float(np.mean(values)) for name, values in rows.items()}
    best = int(np.nanmean(history.accuracy, axis=1).argmax())
    at_best = ff.metrics.summary(history.accuracy[best], loss=history.loss[best])
    return means | {f"best_{name}": float(value) for name, value in at_best.items()}


def play(
    rows: Sequence[Row],
    place: Path,
    *,
    seeds: int,
    rounds: int,
    eval_every: int = 10,
    measure: Callable[[ff.History], Measured] = last_ten,
    so_far: Callable[[Found], None] = lambda found: None,
) -> tuple[Found, dict[str, list[ff.History]]]:
    """Train every row from every seed; called again, it goes on where it stopped.

    ``place`` holds the checkpoint of a run under way, ``ROW/seed-0``, and of those that have ended the evaluations,
    ``ROW/seed-0.npz``, small enough to be committed, so that another machine can go on with a study of hours.
    These are taken for what they are named: a line says which commit trained them. The histories, also those that
    ``measure`` gets, hold evaluations alone. ``so_far`` is told what has been measured before each run that is
    still to be trained.

    Raises:
      ValueError: evaluations of a run of another length.
    """
    asked = {"rounds": rounds, "eval_every": eval_every}
    runs = kept_runs(rows, place, seeds, asked)
    left = [(row, seed) for row in rows for seed in range(seeds) if seed not in runs[row.name]]
    if sharing.share_out(train, left, place, asked):
        runs = kept_runs(rows, place, seeds, asked)

    def found() -> Found:
        return {name: [measure(h) for _, h in sorted(of.items())] for name, of in runs.items() if of}

    for row in rows:
        for seed in sorted(set(range(seeds)) - set(runs[row.name])):
            so_far(found())
            runs[row.name][seed] = train(row, seed, place, asked)
        told = [measure(history) for history in runs[row.name].values()]
        means = [f"{name} {np.mean([seed[name] for seed in told]):.4g}" for name in told[0]]
        jax.clear_caches()  # a process may hold only so many programs, and no two rows share any
        print(f"{row.name}: {', '.join(means) or 'trained'}", flush=True)
    return found(), {name: [history for _, history in sorted(of.items())] for name, of in runs.items()}


def kept_runs(
    rows: Sequence[Row], place: Path, seeds: int, asked: Mapping[str, int]
) -> dict[str, dict[int, ff.History]]:
    """Of each row the runs that have ended, by their seeds."""
    runs = {}
    for row in rows:
        kept = {seed: load_evaluations(path_of(place, row, seed), asked) for seed in range(seeds)}
        runs[row.name] = {seed: history for seed, history in kept.items() if history is not None}
    return runs


def path_of(place: Path, row: Row, seed: int) -> Path:
    """The evaluations of a run that has ended; beside it, without the suffix, the checkpoint of one under way."""
    return place / re.sub(r"[^\w.,=@-]+", "_", row.name) / f"seed-{seed}.npz"


def train(row: Row, seed: int, place: Path, asked: Mapping[str, int], progress: bool | None = None) -> ff.History:
    """Train one row from one seed, and keep its evaluations."""
    path, commit = path_of(place, row, seed), about("")["commit"]
    folder, settings = path.with_suffix(""), {"eval_every": asked["eval_every"], "progress": progress}
    _, history = ff.run(row.build(seed), seed, asked["rounds"], checkpoint=folder, **settings)
    kept = save_evaluations(path, history, {**asked, "commit": commit})
    shutil.rmtree(folder)
    return kept


def save_evaluations(path: Path, history: ff.History, asked: Mapping[str, Any]) -> ff.History:
    """Write what a run was asked for, the commit that was, and its evaluations; return it with nothing else."""
    arrays = {f"{split}/{f}": a for split, scores in history.scores.items() for f, a in scores._asdict().items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, about=np.array(json.dumps(asked)), rounds=history.rounds, **arrays)
    write_atomically(path, buffer.getvalue())
    return _scored(history.rounds, dict(history.scores))


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


def tabulate(
    rows: Sequence[Row],
    out: Path,
    name: str,
    columns: Mapping[str, Column],
    settings: Mapping[str, Any],
    note: str = "",
    **how: Any,
) -> None:
    """Play the rows and write their table and a ``note``; before every run the table so far, with the number of its
    ``runs``."""
    seeds, rounds = settings["seeds"], settings["rounds"]

    def write_so_far(found: Found) -> None:
        there = settings_of(out / f"{name}.json")
        if found and (there is None or "runs" in there):  # a finished table stays until the next is finished
            done = f"{sum(map(len, found.values()))} of {seeds * len(rows)}"
            text = f"{table(rows, found, columns, seeds)}\n{done} runs.\n{note}"
            keep(out, name, {**settings, "runs": done}, rows, found, text)

    found, _ = play(rows, out / f"{name}.parts", seeds=seeds, rounds=rounds, so_far=write_so_far, **how)
    keep(out, name, settings, rows, found, table(rows, found, columns) + note)


def table(rows: Sequence[Row], found: Found, columns: Mapping[str, Column], seeds: int = 0) -> str:
    """Markdown: mean ± standard deviation over the seeds, and in brackets what the paper prints."""
    lines = ["| | " + " | ".join(c.heading for c in columns.values()) + " |", "|---" * (1 + len(columns)) + "|"]
    for row in rows:
        if row.name not in found:  # in a study that is under way
            lines.append(f"| {row.name} |" + " |" * len(columns))
            continue
        cells = []
        for name, (_, digits) in columns.items():
            cell = spread([seed[name] for seed in found[row.name]], digits)
            cells.append(cell + (f" [{row.printed[name]:.{digits}f}]" if name in row.printed else ""))
        lacking = f" ({len(found[row.name])} of {seeds} seeds)" * (len(found[row.name]) < seeds)
        lines.append(f"| {row.name}{lacking} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n" + NOTE * any(row.printed for row in rows)


NOTE = "\nMean ± standard deviation over the seeds; in brackets what the paper prints.\n"


def spread(values: Sequence[float], digits: int) -> str:
    """Mean ± sample standard deviation, or the one value."""
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"


def keep(out: Path, name: str, settings: Mapping[str, Any], rows: Sequence[Row], found: Found, text: str) -> None:
    """Write ``NAME.json``, with every seed, and ``NAME.md``; print the text, of a study under way a line."""
    out.mkdir(parents=True, exist_ok=True)
    table = {row.name: {"printed": dict(row.printed), "seeds": found.get(row.name, [])} for row in rows}
    header = about(f"fedjax-fair reproduce {name}{' --quick' if settings['quick'] else ''}")
    write_atomically(out / f"{name}.json", to_json({**header, **settings, "rows": table}, indent=1))
    write_atomically(out / f"{name}.md", text)
    print(f"{name}.md: {settings['runs']} runs" if "runs" in settings else text, flush=True)


def settings_of(results: Path) -> dict[str, Any] | None:
    """What a study's JSON says about itself; None where there is none."""
    try:
        kept: dict[str, Any] = json.loads(results.read_text())
    except FileNotFoundError:
        return None
    return kept

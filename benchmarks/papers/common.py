"""A study: its rows played from every seed, resuming, the statistic, and the files that are left behind."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import fedjax_fair as ff
from benchmarks.papers.runs import Row, load_evaluations, path_of, train
from benchmarks.papers.sharing import share_out
from fedjax_fair.engine.files import to_json, write_atomically
from fedjax_fair.results.folder import about

Measured = dict[str, float]
Found = dict[str, list[Measured]]
"""Per row, a dictionary of measures for every seed."""


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
    ``measure`` gets, hold evaluations alone. Where runs are still to be trained, ``so_far`` is told what has been
    measured, before the first of them and whenever one has ended, here or in another process.

    Raises:
      ValueError: evaluations of a run of another length.
    """
    asked = {"rounds": rounds, "eval_every": eval_every}
    runs: dict[str, dict[int, ff.History]] = {row.name: {} for row in rows}

    def read() -> list[tuple[Row, int]]:
        """Read the runs that have ended since the last time; those that have not."""
        left = [(row, seed) for row in rows for seed in range(seeds) if seed not in runs[row.name]]
        ended = {(row.name, seed): load_evaluations(path_of(place, row, seed), asked) for row, seed in left}
        for (name, seed), history in ended.items():
            if history is not None:
                runs[name][seed] = history
        return [(row, seed) for row, seed in left if seed not in runs[row.name]]

    def found() -> Found:
        return {name: [measure(h) for _, h in sorted(of.items())] for name, of in runs.items() if of}

    def one_ended() -> None:
        read()
        so_far(found())

    left = read()
    if left:
        so_far(found())
    share_out(left, place, asked, one_ended)
    read()  # what the last piece wrote may have come late, over a network
    for row in rows:
        for seed in sorted(set(range(seeds)) - set(runs[row.name])):
            runs[row.name][seed] = train(row, seed, place, asked)
            so_far(found())
        told = [measure(history) for history in runs[row.name].values()]
        means = [f"{name} {np.mean([seed[name] for seed in told]):.4g}" for name in told[0]]
        jax.clear_caches()  # a process may hold only so many programs, and no two rows share any
        print(f"{row.name}: {', '.join(means) or 'trained'}", flush=True)
    return found(), {name: [history for _, history in sorted(of.items())] for name, of in runs.items()}


def tabulate(
    rows: Sequence[Row],
    out: Path,
    name: str,
    columns: Mapping[str, Column],
    settings: Mapping[str, Any],
    note: str = "",
    **how: Any,
) -> None:
    """Play the rows and write their table and a ``note``; after every run the table so far, with the number of its
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
    note = NOTE if any(len(told) > 1 for told in found.values()) else NOTE_OF_ONE
    return "\n".join(lines) + "\n" + note * any(row.printed for row in rows)


NOTE = "\nMean ± standard deviation over the seeds; in brackets what the paper prints.\n"
NOTE_OF_ONE = "\nOne seed; in brackets what the paper prints.\n"


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


def plain_log(ax: Any) -> None:
    """A logarithmic y axis with plain numbers, such as 60 and 200, in the place of powers of ten."""
    from matplotlib.ticker import LogLocator

    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 4, 6)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter("")


def settings_of(results: Path) -> dict[str, Any] | None:
    """What a study's JSON says about itself; None where there is none."""
    try:
        kept: dict[str, Any] = json.loads(results.read_text())
    except FileNotFoundError:
        return None
    return kept

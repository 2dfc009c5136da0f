"""What the studies share: rows of a table, seeds, resuming, the statistic, and the files that are left behind."""

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import fedjax_fair as ff
from fedjax_fair.results import about, to_json, write_atomically

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
    """A row's ``build`` whose simulation is the same for every seed, and so compiles once."""
    made = functools.cache(make)
    return lambda seed: made()


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
) -> tuple[Found, dict[str, list[ff.History]]]:
    """Train every row from every seed, with checkpoints in ``place``: called again, it goes on where it stopped."""
    found: Found = {}
    histories: dict[str, list[ff.History]] = {}
    for row in rows:
        for seed in range(seeds):
            folder = place / re.sub(r"[^\w.,=@-]+", "_", row.name) / f"seed-{seed}"
            _, history = ff.run(row.build(seed), seed, rounds, eval_every=eval_every, checkpoint=folder)
            histories.setdefault(row.name, []).append(history)
            found.setdefault(row.name, []).append(measure(history))
        means = {name: np.mean([seed[name] for seed in found[row.name]]) for name in found[row.name][0]}
        jax.clear_caches()  # a process may hold only so many programs, and no two rows share any
        told = ", ".join(f"{name} {value:.4g}" for name, value in means.items()) or "trained"
        print(f"{row.name}: {told}", flush=True)
    return found, histories


def table(rows: Sequence[Row], found: Found, columns: Mapping[str, Column]) -> str:
    """Markdown: mean ± standard deviation over the seeds, and in brackets what the paper prints."""
    lines = ["| | " + " | ".join(c.heading for c in columns.values()) + " |", "|---" * (1 + len(columns)) + "|"]
    for row in rows:
        cells = []
        for name, (_, digits) in columns.items():
            cell = spread([seed[name] for seed in found[row.name]], digits)
            cells.append(cell + (f" [{row.printed[name]:.{digits}f}]" if name in row.printed else ""))
        lines.append(f"| {row.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n" + NOTE * any(row.printed for row in rows)


NOTE = "\nMean ± standard deviation over the seeds; in brackets what the paper prints.\n"


def spread(values: Sequence[float], digits: int) -> str:
    """Mean ± sample standard deviation, or the one value."""
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"


def keep(out: Path, name: str, settings: Mapping[str, Any], rows: Sequence[Row], found: Found, text: str) -> None:
    """Write ``NAME.json``, with every seed, and ``NAME.md``; print the text."""
    out.mkdir(parents=True, exist_ok=True)
    table = {row.name: {"printed": dict(row.printed), "seeds": found[row.name]} for row in rows}
    header = about(f"fedjax-fair reproduce {name}{' --quick' if settings['quick'] else ''}")
    write_atomically(out / f"{name}.json", to_json({**header, **settings, "rows": table}, indent=1))
    write_atomically(out / f"{name}.md", text)
    print(text)


def settings_of(results: Path) -> dict[str, Any] | None:
    """What a study's JSON says about itself; None where there is none."""
    try:
        kept: dict[str, Any] = json.loads(results.read_text())
    except FileNotFoundError:
        return None
    return kept

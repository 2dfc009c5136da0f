"""A results folder as one HTML page that opens anywhere: tables, figures, configuration and command, all inside."""

import base64
import io
import json
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fedjax_fair import plot
from fedjax_fair.data.sources.tfds import IMAGES
from fedjax_fair.engine.files import write_atomically
from fedjax_fair.engine.history import History
from fedjax_fair.engine.outcome import LEGEND as FAILED
from fedjax_fair.engine.outcome import of_clients, outcome, remark
from fedjax_fair.metrics.kind import ACCURACY, Metric
from fedjax_fair.results.digits import digits_of
from fedjax_fair.results.report_clients import by_group, worst_served
from fedjax_fair.results.report_comparison import comparison_section, paired_drawing
from fedjax_fair.results.report_contribution import by_client, shares_drawing
from fedjax_fair.results.report_style import NARROW, STYLE
from fedjax_fair.results.report_table import foldable, html_table
from fedjax_fair.results.shares import Contribution, load
from fedjax_fair.results.stored import further_of, histories_of, metric_of
from fedjax_fair.results.table import COLUMNS, COST, COST_LEGEND, few, headings

LEGEND = (
    "Clients' {split} accuracy, mean ± standard deviation over the seeds: its mean, variance, mean of the worst "
    "10 %, the worst and best 5 % of clients{few}, Gini coefficient, Jain's index."
)

COEFFICIENTS = (
    "Coefficients in the first run, over the mean of their round: 1 is an equal share. White: took no part; "
    "darkest: a quarter or less, or below 0"
)
ONE_EVALUATION = "<p>A single evaluation, for a look at the clients below: quote the comparison.</p>"
KEPT = ("rules", "versions", "command", "metric", "further", "identical", "comparison")
"""What of a summary the page shows in places of its own."""


def report(folder: Path, out: Path | None = None) -> Path:
    """Write the page of a results folder, by default ``FOLDER/report.html``.

    Raises:
      ValueError: no results there, damaged ones, or a place that cannot be written.
    """
    try:
        summary = json.loads((folder / "summary.json").read_text())
        with np.load(io.BytesIO((folder / "history.npz").read_bytes())) as arrays:
            history = {name: arrays[name] for name in arrays.files}
        config = (folder / "config.toml").read_text()
        page = render(summary, history, config, load(folder))
    except NotADirectoryError as error:
        raise ValueError(f"folder must be a folder of results, got the file {folder}") from error
    except FileNotFoundError as error:
        raise ValueError(f"folder {folder} holds no results: no {Path(error.filename).name}") from error
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"folder {folder} holds damaged results: {type(error).__name__}: {error}") from error
    place = folder / "report.html" if out is None else out
    try:
        write_atomically(place, page)
    except OSError as error:
        raise ValueError(f"out {place} cannot be written: {error.strerror}") from error
    return place


def render(summary: Any, arrays: dict[str, np.ndarray], config: str, found: Contribution | None = None) -> str:
    """The page of what ``results.write`` keeps."""
    rules = [*summary["rules"]]
    honest = arrays.get("honest")
    settings = tomllib.loads(config)
    swept = f"{settings['aggregator']}: " if {"grid", "aggregator"} <= settings.keys() else ""
    title = f"{swept}{', '.join(rules[:4])}{' and others' if len(rules) > 4 else ''}"
    seeds = len(next(iter(summary["rules"].values()))["accuracy"]["per_seed"])
    rounds = int(arrays[f"{rules[0]}/ids"].shape[1])
    clients = int(arrays[f"{rules[0]}/accuracy"].shape[-1])
    judged = "" if honest is None else f" Judged by {int(honest.sum())} of them."
    if honest is not None and "fault" in settings:
        liars = f"{int((~honest).sum())} do {settings['fault']}"
        judged = f" Judged by the {int(honest.sum())} honest clients; {liars}."
    dataset = str(settings.get("dataset", "data of one's own"))
    dataset += f" ({settings['partition']})" if dataset in IMAGES and "partition" in settings else ""
    dataset = Path(settings["data"]).name if isinstance(settings.get("data"), str) else dataset
    where = f"{dataset}: {clients} clients, {summary['cohort']} a round"
    runs_called = "replicate" if "comparison" in summary else "seed"
    intro = f"{where}, {rounds} rounds, {seeds} {runs_called}{'s' if seeds > 1 else ''}, {summary['model']}."
    metric = metric_of(summary)
    runs = {rule: [of_clients(seed, honest) for seed in histories_of(rule, arrays, metric)] for rule in rules}
    ended = {rule: [outcome(seed) for seed in histories] for rule, histories in runs.items()}
    legend = legend_of(metric, str(settings.get("evaluate", "test")), few(ended)) + "".join(
        f" Identical, bit for bit: {escape(', '.join(alike))}." for alike in summary.get("identical", ())
    )
    failed = {rule: remark(of) for rule, of in ended.items()}
    legend += f" {FAILED}" if any(failed.values()) else ""
    costly = any(measures["evaluations"]["mean"] for measures in summary["rules"].values())
    kept = summary.get("comparison", {})
    first = ""
    if kept.get("differences"):
        text = "Paired differences from the baseline: worst 10 % against the mean; crosses are 95 % intervals"
        first = f'<div class="first">{figure(text, embedded(partial(paired_drawing, kept)))}</div>'
    compared = comparison_section(kept, metric, first) if kept else ""
    drawn = [*drawings(runs, arrays, metric, kept.get("last")), *shares_drawing(found)]
    figures = "".join(figure(escape(caption), embedded(draw)) for caption, draw in drawn)
    everybodys = coefficients_figure(rules, arrays, metric, clients)
    made = {key: value for key, value in summary.items() if key not in KEPT}
    about = "\n".join(f"{key}: {value}" for key, value in {**made, **summary["versions"]}.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{escape(title)}</title><style>{STYLE}</style></head>'
        f"<body><h1>{foldable(escape(title))}</h1><p>{escape(intro + judged)}</p>"
        f"{compared}<h2>After the last round</h2>{ONE_EVALUATION if kept else ''}"
        f"{table(summary['rules'], costly, metric, failed)}"
        f'<p class="legend">{legend}{" " + COST_LEGEND if costly else ""}</p>'
        f"{by_client(rules, found, arrays, metric)}"
        f"{worst_served(rules, arrays, metric, further_of(summary))}{by_group(runs, metric)}"
        f'<h2>Figures</h2><div class="figures">{figures}{everybodys}</div>'
        f"<h2>Command</h2><pre>{escape(summary['command'])}</pre>"
        f"{folded('Configuration', config)}{folded('Made with', about)}</body></html>\n"
    )


def folded(title: str, text: str) -> str:
    """Text that opens on a click; on paper it is as it is on the screen."""
    return f"<details><summary>{title}</summary><pre>{escape(text)}</pre></details>"


def figure(caption: str, source: str, kind: str = "", narrow: str = "") -> str:
    """One figure with its caption; on a telephone ``narrow`` in its place."""
    shown, image = f' class="{kind}"' if kind else "", f'<img alt="{caption}" src="{source}">'
    if narrow:
        media = f"screen and (max-width: {NARROW})"
        image = f'<picture><source media="{media}" srcset="{narrow}">{image}</picture>'
    return f"<figure{shown}>{image}<figcaption>{caption}</figcaption></figure>"


def legend_of(metric: Metric, split: str, few: str) -> str:
    """What the table's columns are."""
    text = LEGEND.format(split=escape(split), few=few)
    if metric == ACCURACY:
        return text
    return text.replace("accuracy,", f"{escape(metric.label)},")


def table(
    rules: dict[str, dict[str, dict[str, Any]]],
    costly: bool = False,
    metric: Metric = ACCURACY,
    failed: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """A row per rule, a column per measure; what selection costs besides where there is something to show.

    ``failed`` says of which rules runs failed; their figures are of the seeds that did not.
    """
    shown_costs = COST if costly else {}
    rows = []
    for rule, measures in rules.items():
        cells: list[str] = []
        for name in COLUMNS:
            digits, form = digits_of(name, metric)
            mean, std, seeds = (measures[name][key] for key in ("mean", "std", "per_seed"))
            if mean is None and any(value is not None for value in seeds):
                seeds = [value for value in seeds if value is not None]
                mean, std = np.mean(seeds), np.std(seeds, ddof=min(1, len(seeds) - 1))
            missing = "failed" if failed.get(rule) and not cells else "–"
            shown = missing if mean is None else f"{mean:.{digits}{form}}"
            spread = f" <small>± {std:.{digits}{form}}</small>" if len(seeds) > 1 and std is not None else ""
            cells.append(f"{shown}{spread}")
        cells += [f"{measures[name]['mean']:.0f}" for name in shown_costs]
        rows.append([escape(rule + failed.get(rule, "")), *cells])
    return html_table(["rule", *headings(metric).values(), *shown_costs.values()], rows)


def drawings(
    runs: dict[str, list[History]], arrays: dict[str, np.ndarray], metric: Metric, last: int | None
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Captions, and what draws the figure; of the results none where every run failed.

    ``last``: how many evaluations a comparison averages.
    """
    name = "Accuracy" if metric == ACCURACY else metric.name
    values = "accuracies" if metric == ACCURACY else metric.name
    if not all(outcome(seed).lost for histories in runs.values() for seed in histories):
        if metric.range[0] >= 0:
            yield f"Lorenz curves of the clients' {values}", lambda: plot.lorenz(runs)
        yield f"{name} from the worst served client to the best", lambda: plot.sorted_accuracy(runs)
        yield f"Clients by {name.lower()}, mean over the seeds", lambda: plot.client_histogram(runs)
        yield f"Mean {name.lower()} and variance over the rounds", lambda: plot.accuracy_and_fairness(runs)
    if len(runs) > 1 and (late := ends(runs, last)):
        count = next(iter(late.values())).shape[1]
        over = f"mean over the last {count} evaluations" if count > 1 else "at the last evaluation"
        yield (
            f"Fairness against {name.lower()}, {over}; crosses are 95 % confidence intervals, cut off at the frame",
            lambda: plot.frontier(late, metric=metric),
        )
    first = {rule: histories_of(rule, arrays, metric)[0] for rule in runs}
    clients = next(iter(first.values())).accuracy.shape[1]
    drawn: dict[bytes, list[str]] = {}  # rules of which the same clients took part are one line
    for rule, history in first.items():
        drawn.setdefault(np.where(history.active, history.ids, -1).tobytes(), []).append(rule)
    alike = {_several(names): first[names[0]] for names in drawn.values()}
    yield "How often clients took part, first seed", lambda: plot.selections(alike, clients)


def coefficients_figure(rules: list[str], arrays: dict[str, np.ndarray], metric: Metric, clients: int) -> str:
    """Every rule's coefficients in its first run, on one scale; one below the other on a telephone."""
    first = {rule: histories_of(rule, arrays, metric)[0] for rule in rules}
    wide, narrow = (embedded(partial(plot.coefficients_by_rule, first, clients, columns=n)) for n in (3, 1))
    return figure(COEFFICIENTS, wide, "large", narrow)


def _several(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more, alike"


def ends(runs: dict[str, list[History]], last: int | None = None) -> dict[str, np.ndarray]:
    """Accuracies [seeds, T, N] of the ``last`` evaluations, of the seeds that did not fail in them.

    By default of ten at most, and of a short run only its end: untrained models would be averaged in.
    """
    count = last or max(1, min(10, len(next(iter(runs.values()))[0].rounds) // 4))
    late = {}
    for rule, histories in runs.items():
        seeds = [seed.accuracy[-count:] for seed in histories if not outcome(seed).lost]
        seeds = [accuracy for accuracy in seeds if not np.isnan(accuracy).all(1).any()]
        of_none = np.zeros((0, count, histories[0].accuracy.shape[1]))  # it keeps its place, and so its colour
        late[rule + remark([outcome(seed) for seed in histories])] = np.stack(seeds) if seeds else of_none
    return late if any(map(len, late.values())) else {}


def embedded(draw: Callable[[], Any]) -> str:
    """A drawing as a data address: vectors, so that it is sharp at any width."""
    drawn = draw()
    ax = drawn[0] if isinstance(drawn, (tuple, list)) else drawn
    buffer = io.BytesIO()
    with plot.paper():
        ax.get_figure(root=True).savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()

"""A results folder as one HTML page that opens anywhere: tables, figures, configuration and command, all inside."""

import io
import json
import tomllib
import zipfile
import zlib
from collections.abc import Mapping
from functools import partial
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fedjax_fair.checks import check_choice
from fedjax_fair.data.sources.tfds import IMAGES
from fedjax_fair.engine.files import write_atomically
from fedjax_fair.engine.outcome import LEGEND as FAILED
from fedjax_fair.engine.outcome import of_clients, outcome, remark
from fedjax_fair.metrics.kind import ACCURACY, Metric
from fedjax_fair.results.digits import digits_of, spread
from fedjax_fair.results.report_clients import by_group, worst_served
from fedjax_fair.results.report_comparison import comparison_section
from fedjax_fair.results.report_contribution import by_client
from fedjax_fair.results.report_figures import FORMATS, Drawing, embedded, figures_of, save_figures
from fedjax_fair.results.report_style import NARROW, STYLE
from fedjax_fair.results.report_table import foldable, html_table, with_small
from fedjax_fair.results.shares import Contribution, load
from fedjax_fair.results.stored import further_of, histories_of, metric_of
from fedjax_fair.results.table import COLUMNS, COST, COST_LEGEND, few, headings

LEGEND = (
    "Clients' {split} accuracy, mean ± standard deviation over the seeds: its mean, variance, mean of the worst "
    "10 %, the worst and best 5 % of clients{few}, Gini coefficient, Jain's index."
)

ONE_EVALUATION = "<p>A single evaluation, for a look at the clients below: quote the comparison.</p>"
KEPT = ("rules", "versions", "command", "metric", "further", "identical", "comparison")
"""What of a summary the page shows in places of its own."""


def report(folder: Path, out: Path | None = None, figures: str | None = None) -> Path:
    """Write the page of a results folder, by default ``FOLDER/report.html``; with ``figures``, one of ``"pdf"``,
    ``"svg"`` and ``"png"``, also every figure as a file of that kind, in the folder ``figures_beside`` the page.

    Raises:
      ValueError: no results there, damaged ones, a place that cannot be written, or figures of another kind.
    """
    if figures is not None:
        check_choice("figures", figures, FORMATS)
    try:
        summary = json.loads((folder / "summary.json").read_text())
        with np.load(io.BytesIO((folder / "history.npz").read_bytes())) as arrays:
            history = {name: arrays[name] for name in arrays.files}
        config = (folder / "config.toml").read_text()
        drawn = figures_of(summary, history, found := load(folder))
        page = render(summary, history, config, drawn, found)
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
    if figures is not None:
        try:
            save_figures(drawn, figures_beside(place), figures)
        except OSError as error:
            raise ValueError(f"figures {figures_beside(place)} cannot be written: {error.strerror}") from error
    return place


def figures_beside(page: Path) -> Path:
    """The folder of a page's figures: ``figures``, of a page ``NAME.html`` of another name ``NAME-figures``."""
    return page.with_name("figures" if page.name == "report.html" else f"{page.stem}-figures")


def render(
    summary: Any,
    arrays: dict[str, np.ndarray],
    config: str,
    drawn: dict[str, Drawing],
    found: Contribution | None = None,
) -> str:
    """The page of what ``results.write`` keeps, with its figures."""
    rules = [*summary["rules"]]
    honest = arrays.get("honest")
    settings = tomllib.loads(config)
    swept = f"{settings['aggregator']}: " if {"grid", "aggregator"} <= settings.keys() else ""
    title = f"{swept}{', '.join(rules[:4])}{' and others' if len(rules) > 4 else ''}"
    seeds = len(next(iter(summary["rules"].values()))["accuracy"]["per_seed"])
    rounds, clients = (_one_or_all(arrays, rules, *of) for of in (("ids", 1), ("accuracy", -1)))
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
    anew = bool(kept) and seeds > 1 and not kept.get("fixed")
    shown = {
        name: figure(escape(drawing.caption), embedded(drawing.draw))
        for name, drawing in drawn.items()
        if name != "coefficients"
    }
    first = f'<div class="first">{shown.pop("paired")}</div>' if "paired" in shown else ""
    compared = comparison_section(kept, metric, first) if kept else ""
    made = {key: value for key, value in summary.items() if key not in KEPT}
    about = "\n".join(f"{key}: {value}" for key, value in {**made, **summary["versions"]}.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{escape(title)}</title><style>{STYLE}</style></head>'
        f"<body><h1>{foldable(escape(title))}</h1><p>{escape(intro + judged)}</p>"
        f"{compared}<h2>After the last round</h2>{ONE_EVALUATION if kept else ''}"
        f"{table(summary['rules'], costly, metric, failed)}"
        f'<p class="legend">{legend}{" " + COST_LEGEND if costly else ""}</p>'
        f"{by_client(rules, found, arrays, metric, anew)}"
        f"{worst_served(rules, arrays, metric, further_of(summary))}{by_group(runs, metric)}"
        f'<h2>Figures</h2><div class="figures">{"".join(shown.values())}'
        f"{coefficients_figure(drawn['coefficients'])}</div>"
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


def _one_or_all(arrays: dict[str, np.ndarray], rules: list[str], name: str, axis: int) -> str:
    """A length of the rules' arrays, or theirs in turn where they differ."""
    lengths = [str(arrays[f"{rule}/{name}"].shape[axis]) for rule in rules]
    return lengths[0] if len(set(lengths)) == 1 else ", ".join(lengths)


def legend_of(metric: Metric, split: str, few: str) -> str:
    """What the table's columns are."""
    text = LEGEND.format(split=escape(split), few=few)
    if metric == ACCURACY:
        return text
    better = "higher" if metric.higher_is_better else "lower"
    return text.replace("accuracy,", f"{escape(metric.label)},") + f" Of {escape(metric.name)} {better} is better."


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
            known = np.array([value for value in measures[name]["per_seed"] if value is not None])
            missing = "failed" if failed.get(rule) and not cells else "–"
            cells.append(with_small(spread(known, digits, form)) if len(known) else missing)
        cells += [f"{measures[name]['mean']:.0f}" for name in shown_costs]
        rows.append([escape(rule + failed.get(rule, "")), *cells])
    return html_table(["rule", *headings(metric).values(), *shown_costs.values()], rows)


def coefficients_figure(drawing: Drawing) -> str:
    """Every rule's coefficients in its first run, on one scale; one below the other on a telephone."""
    wide, narrow = (embedded(partial(drawing.draw, columns=n)) for n in (3, 1))
    return figure(drawing.caption, wide, "large", narrow)

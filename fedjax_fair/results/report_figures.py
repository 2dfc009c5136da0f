"""The figures of a results folder: what draws each, on the page and as files of their own."""

import base64
import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_fair import plot
from fedjax_fair.engine.history import History
from fedjax_fair.engine.outcome import of_clients, outcome, remark
from fedjax_fair.metrics.kind import ACCURACY, Metric
from fedjax_fair.results.report_comparison import paired_drawing
from fedjax_fair.results.report_contribution import shares_drawing
from fedjax_fair.results.shares import Contribution
from fedjax_fair.results.stored import histories_of, metric_of

FORMATS = ("pdf", "svg", "png")
NAMES = (
    "paired",
    "lorenz",
    "sorted",
    "histogram",
    "over_rounds",
    "frontier",
    "selections",
    "contribution",
    "coefficients",
)
REPORTED = tuple(f"figures/{name}.{form}" for name in NAMES for form in FORMATS)
"""What a report may have drawn in a results folder."""
PAIRED = "Paired differences from the baseline: worst 10 % against the mean; crosses are 95 % intervals"
COEFFICIENTS = (
    "Coefficients in the first run, over the mean of their round: 1 is an equal share. White: took no part; "
    "darkest: a quarter or less, or below 0"
)


class Drawing(NamedTuple):
    """A figure that is not drawn yet."""

    name: str
    """Of its file, without the suffix."""
    caption: str
    draw: Callable[..., Any]


def figures_of(summary: Any, arrays: dict[str, np.ndarray], found: Contribution | None) -> dict[str, Drawing]:
    """By name, in the page's order: a comparison's paired differences, the results, who took part, the shares of
    a contribution, and the coefficients, whose ``draw`` takes ``columns``."""
    metric, honest, rules = metric_of(summary), arrays.get("honest"), [*summary["rules"]]
    stored = {rule: histories_of(rule, arrays, metric) for rule in rules}
    runs = {rule: [of_clients(seed, honest) for seed in seeds] for rule, seeds in stored.items()}
    first = {rule: seeds[0] for rule, seeds in stored.items()}
    clients = next(iter(first.values())).accuracy.shape[1]
    kept = summary.get("comparison", {})
    drawn = [Drawing("paired", PAIRED, partial(paired_drawing, kept, metric))] if kept.get("differences") else []
    drawn += [*_of_results(runs, metric, kept.get("last")), _selections(first, clients)]
    drawn += [Drawing("contribution", caption, draw) for caption, draw in shares_drawing(found)]
    drawn.append(Drawing("coefficients", COEFFICIENTS, partial(plot.coefficients_by_rule, first, clients)))
    return {drawing.name: drawing for drawing in drawn}


def _of_results(runs: dict[str, list[History]], metric: Metric, last: int | None) -> Iterator[Drawing]:
    """None where every run failed. ``last``: how many evaluations a comparison averages; a run's table has one."""
    name = "Accuracy" if metric == ACCURACY else metric.name
    values = "accuracies" if metric == ACCURACY else metric.name
    late = ends(runs, last or 1)
    count = max((accuracy.shape[1] for accuracy in late.values()), default=0)
    over = f"mean over the last {count} evaluations" if count > 1 else "at the last evaluation"
    if late and metric.range[0] >= 0:
        curves = f"Lorenz curves of the clients' {values}, {over}"
        yield Drawing("lorenz", curves, partial(plot.lorenz, late, metric=metric))
    if late:
        sorted_by = f"{name} from the worst served client to the best, {over}"
        yield Drawing("sorted", sorted_by, partial(plot.sorted_accuracy, late, metric=metric))
        by = f"Clients by {name.lower()}, mean over the seeds; {over}"
        yield Drawing("histogram", by, partial(plot.client_histogram, late, metric=metric))
    if not all(outcome(seed).lost for histories in runs.values() for seed in histories):
        both = f"Mean {name.lower()} and variance over the rounds"
        yield Drawing("over_rounds", both, partial(plot.accuracy_and_fairness, runs))
    if late and len(runs) > 1:
        crosses = "crosses are 95 % confidence intervals, cut off at the frame"
        caption = f"Fairness against {name.lower()}, {over}; {crosses}"
        yield Drawing("frontier", caption, partial(plot.frontier, late, metric=metric))


def _selections(first: dict[str, History], clients: int) -> Drawing:
    caption = "How often clients took part, first seed"
    return Drawing("selections", caption, partial(plot.selections, first, clients))


def ends(runs: dict[str, list[History]], last: int) -> dict[str, np.ndarray]:
    """Accuracies [seeds, T, N] of the ``last`` evaluations, of the seeds that did not fail in them and
    have a value in each, if any; a rule's name says how many have not."""
    late = {}
    for rule, histories in runs.items():
        ended = [outcome(seed, last=last) for seed in histories]
        seeds = [seed.accuracy[-last:] for seed, how in zip(histories, ended) if not how.lost]
        valued = [accuracy for accuracy in seeds if not np.isnan(accuracy).all(1).any()]
        silent = len(seeds) - len(valued)
        said = f" ({silent} of {len(histories)} seeds without a value)" * bool(silent)
        of_none = np.zeros((0, *histories[0].accuracy[-last:].shape))  # it keeps its place, and so its colour
        late[rule + remark(ended) + said] = np.stack(valued) if valued else of_none
    return late if any(map(len, late.values())) else {}


def save_figures(drawn: dict[str, Drawing], folder: Path, form: str) -> list[Path]:
    """Every figure as ``folder/NAME.form``."""
    with plot.paper():
        return [plot.save(drawing.draw(), folder / f"{name}.{form}") for name, drawing in drawn.items()]


def embedded(draw: Callable[[], Any]) -> str:
    """A drawing as a data address: vectors, so that it is sharp at any width."""
    drawn = draw()
    ax = drawn[0] if isinstance(drawn, (tuple, list)) else drawn
    buffer = io.BytesIO()
    with plot.paper():
        ax.get_figure(root=True).savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()

"""Whom the rules serve worst, on the report page: clients by their names."""

from collections.abc import Mapping
from html import escape

import numpy as np

from fedjax_fair.metrics.groups import group_means
from fedjax_fair.metrics.kind import Metric
from fedjax_fair.results.stored import rules_of
from fedjax_fair.results.table import digits_of

SHOWN = 10


def worst_served(arrays: Mapping[str, np.ndarray], metric: Metric, further: Mapping[str, Metric]) -> str:
    """The section with a row per client, those first that the first rule serves worst, ten at most.

    Every rule's result is that of the last evaluation, mean over the runs, by every metric. Empty where clients
    have no names: a number may be another client in every run.
    """
    if "clients" not in arrays:
        return ""
    rules = rules_of(arrays)
    kinds = {"accuracy": metric} | {f"measures/{name}": kind for name, kind in further.items()}
    served = {
        (kind, rule): kind.scale * arrays[f"{rule}/{place}"][:, -1].mean(0)
        for place, kind in kinds.items()
        for rule in rules
    }
    names, first = arrays["clients"], served[metric, rules[0]]
    order = np.argsort(first if metric.higher_is_better else -first, kind="stable")[:SHOWN]
    rows = []
    for k in order:
        cells = [_cell(of[k], kind) for (kind, _), of in served.items()]
        rows.append("".join(f"<td>{cell}</td>" for cell in [escape(str(names[k])), *cells]))
    head = "".join(f"<th>{escape(text)}</th>" for text in ("client", *(f"{m.name} by {r}" for m, r in served)))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    which = f"the {len(order)} of {len(names)} clients" if len(order) < len(names) else "the clients"
    legend = f"At the last evaluation, mean over the runs: {which} from the worst served by {rules[0]}."
    return (
        f'<h2>The worst served clients</h2><div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div><p>{escape(legend)}</p>"
    )


def by_group(arrays: Mapping[str, np.ndarray], metric: Metric) -> str:
    """The section with a row per group of clients: the mean over its clients, by rule; empty without groups.

    As the table has them: of those to judge by, such as the honest, who have examples; none where one failed.
    """
    if "groups" not in arrays:
        return ""
    who = arrays.get("honest", np.ones(len(arrays["groups"]), bool))
    names, counts = np.unique(arrays["groups"][who], return_counts=True)
    served = {rule: _of_groups(rule, arrays, who) for rule in rules_of(arrays)}
    rows = [
        f"<td>{escape(str(name))}</td><td>{count}</td>"
        + "".join(f"<td>{_cell(metric.scale * means[k], metric)}</td>" for means in served.values())
        for k, (name, count) in enumerate(zip(names, counts))
    ]
    heads = ["group", "clients", *(f"{metric.name} by {rule}" for rule in served)]
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<h2>Groups of clients</h2><div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        "</table></div><p>At the last evaluation, mean over the group's clients and over the runs.</p>"
    )


def _of_groups(rule: str, arrays: Mapping[str, np.ndarray], who: np.ndarray) -> np.ndarray:
    """f[groups]: the means over the groups' clients, sorted by name, mean over the runs."""
    groups = arrays["groups"][who].tolist()
    runs = zip(*(arrays[f"{rule}/{field}"][:, -1, who] for field in ("accuracy", "judged")))
    return np.mean([[*group_means(accuracy, groups, judged).values()] for accuracy, judged in runs], 0)


def _cell(value: float, metric: Metric) -> str:
    digits, form = digits_of("accuracy", metric)
    return "–" if np.isnan(value) else f"{value:.{digits}{form}}"

"""Whom the rules serve worst, on the report page: clients by their names."""

from collections.abc import Mapping
from html import escape

import numpy as np

from fedjax_fair.metrics.kind import Metric
from fedjax_fair.results.table import digits_of

SHOWN = 10


def worst_served(arrays: Mapping[str, np.ndarray], metric: Metric) -> str:
    """The section with a row per client, those first that the first rule serves worst, ten at most.

    Every rule's result is that of the last evaluation, mean over the runs. Empty where clients have no names: a
    number may be another client in every run.
    """
    if "clients" not in arrays:
        return ""
    served = {
        name.removesuffix("/accuracy"): metric.scale * of[:, -1].mean(0)
        for name, of in arrays.items()
        if name.endswith("/accuracy")
    }
    names, first = arrays["clients"], next(iter(served.values()))
    order = np.argsort(first if metric.higher_is_better else -first, kind="stable")[:SHOWN]
    digits, form = digits_of("accuracy", metric)
    rows = []
    for k in order:
        cells = ["–" if np.isnan(of[k]) else f"{of[k]:.{digits}{form}}" for of in served.values()]
        rows.append("".join(f"<td>{cell}</td>" for cell in [escape(str(names[k])), *cells]))
    head = "".join(f"<th>{escape(text)}</th>" for text in ("client", *(f"{metric.name} by {r}" for r in served)))
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    which = f"the {len(order)} of {len(names)} clients" if len(order) < len(names) else "the clients"
    legend = f"At the last evaluation, mean over the runs: {which} from the worst served by {next(iter(served))}."
    return (
        f'<h2>The worst served clients</h2><div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div><p>{escape(legend)}</p>"
    )

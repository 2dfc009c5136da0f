"""What :func:`fedjax_fair.contribution` found: every client's share of each measure, as numbers, table and file."""

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_fair import metrics
from fedjax_fair.checks import check_choice, check_count
from fedjax_fair.engine.files import to_json, write_atomically
from fedjax_fair.engine.history import pandas_for
from fedjax_fair.metrics.kind import ACCURACY, Metric
from fedjax_fair.results.differences import columns
from fedjax_fair.results.digits import digits_of
from fedjax_fair.results.table import drawn, headings

FILE = "contribution.json"
"""In a results folder."""


class Contribution(NamedTuple):
    """Every client's share of what training together changes; built by :func:`fedjax_fair.contribution`."""

    shares: dict[str, np.ndarray]
    """Per measure, f64[N], in its unit: per cent for accuracies. Of a measure that is better low, as variance and
    Gini coefficient are, a share below 0 is a good one."""
    errors: dict[str, np.ndarray]
    """Their standard errors over the permutations, f64[N]; 0 where the shares are exact."""
    empty: dict[str, float]
    """Per measure the initial model's, which nobody has trained."""
    grand: dict[str, float]
    """Per measure that of the model which all have trained."""
    method: str
    """"shapley", "federated-shapley" or "leave-one-out"."""
    split: str
    """The split that the clients are judged by."""
    rounds: int
    permutations: int
    """Of Monte Carlo, of every round's own where the method is "federated-shapley"; 0 where no permutation was
    drawn."""
    cut: int
    """How many permutations were cut off before their end."""
    coalitions: int
    """How many were trained, now or kept before; of "federated-shapley", how many models were judged."""
    metric: Metric = ACCURACY
    """What the accuracies are."""
    clients: tuple[str, ...] | None = None
    """[N]: the clients' names; None for clients that are numbers."""

    def __repr__(self) -> str:
        return self.table()

    @property
    def gain(self) -> dict[str, float]:
        """Per measure what all add to the initial model: what the shares of Shapley's methods add up to."""
        return {measure: self.grand[measure] - self.empty[measure] for measure in self.shares}

    def intervals(self) -> dict[str, np.ndarray]:
        """Per measure the ends of the 95 % intervals, f64[2, N], by Student's t over the permutations.

        They are about the draws of permutations alone: not about the training seed, nor the cut.
        """
        if not self.permutations:
            return {measure: np.stack([share, share]) for measure, share in self.shares.items()}
        from scipy import special

        t = float(special.stdtrit(self.permutations - 1, 0.975))
        ends = ((share, t * self.errors[measure]) for measure, share in self.shares.items())
        return {measure: np.stack([s - reach, s + reach]) for measure, (s, reach) in zip(self.shares, ends)}

    def order(self) -> np.ndarray:
        """The clients from the highest share of the first measure to the lowest, i64[N]."""
        return np.argsort(-next(iter(self.shares.values())), kind="stable")

    def table(self, most: int = 20) -> str:
        """A row per client, from the highest share of the first measure; of more than ``most`` clients those at
        both ends.

        Raises:
          ValueError: ``most`` is no whole number from 2.
        """
        check_count("most", most, low=2)
        order, intervals, n = self.order(), self.intervals(), len(self.order())
        ends = (n, n) if n <= most else (-(-most // 2), n - most // 2)
        names = titles(self.metric)

        def row(k: int) -> list[str]:
            each = [
                shown(m, self.metric, s[k], intervals[m][:, k], self.permutations) for m, s in self.shares.items()
            ]
            return [str(k) if self.clients is None else self.clients[k], *each]

        rows = [row(k) for k in order[: ends[0]]]
        rows += [[f"({n - most} more)", *([""] * len(self.shares))]] if n > most else []
        rows += [row(k) for k in order[ends[1] :]]
        gain = self.gain
        rows.append(["all", *(shown(m, self.metric, gain[m], np.zeros(2), 0) for m in self.shares)])
        return "\n".join([drawn(["client", *(names[m] for m in self.shares)], rows), "", *self.legend()])

    def legend(self) -> list[str]:
        """What the numbers are, in sentences of at most 98 letters a line."""
        what = {
            "shapley": "Shapley's share of each client, every coalition trained from the start",
            "federated-shapley": "each client's Shapley shares of the rounds' changes, added up",
            "leave-one-out": "what the model of all clients loses without each",
        }[self.method]
        if self.permutations:
            each = " a round" if self.method == "federated-shapley" else ""
            over = f"mean over {self.permutations} permutations{each} [95 % interval]"
            how = over + (f", {self.cut} of them cut off before their end" if self.cut else "")
        else:
            how = "exact"
        made = f"{self.coalitions} coalitions, {self.rounds} rounds"
        names, ends = titles(self.metric), []
        for measure in self.shares:
            digits, form = digits_of(measure, self.metric)
            ends.append(
                f"{names[measure]} {self.empty[measure]:.{digits}{form}} → {self.grand[measure]:.{digits}{form}}"
            )
        sentences = [
            f"Of the clients' {self.split} {self.metric.label}: {what}; {how} ({made}).",
            f"From the initial model to that of all clients: {', '.join(ends)}.",
        ]
        return [line for text in sentences for line in textwrap.wrap(text, 98, break_on_hyphens=False)]

    def to_pandas(self) -> Any:
        """A data frame with a row per client and measure; needs ``pip install 'fedjax-fair[pandas]'``.

        Columns: ``client``, ``measure``, ``share``, ``error``, and ``low`` and ``high``, the interval's ends.

        Raises:
          ValueError: pandas is not installed.
        """
        pandas, frames = pandas_for("to_pandas"), []
        for measure, (low, high) in self.intervals().items():
            of = {"share": self.shares[measure], "error": self.errors[measure], "low": low, "high": high}
            who = np.arange(len(low)) if self.clients is None else self.clients
            frames.append(pandas.DataFrame({"client": who, "measure": measure, **of}))
        return pandas.concat(frames, ignore_index=True)

    def save(self, folder: str | Path) -> Path:
        """Write ``contribution.json`` into a results folder, whose report then has a table by client; it is made.

        Raises:
          ValueError: it cannot be written.
        """
        plain = self._asdict() | {"metric": self.metric._replace(fn=None)._asdict()}
        for name in ("shares", "errors"):
            plain[name] = {measure: of.tolist() for measure, of in plain[name].items()}
        place = Path(folder).expanduser() / FILE
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(place, to_json(plain))
        except OSError as error:
            raise ValueError(f"folder {folder} cannot be written: {error.strerror}") from error
        return place


def load(folder: Path) -> Contribution | None:
    """What :meth:`Contribution.save` left in a folder; None where nothing is.

    Raises:
      ValueError, KeyError, TypeError: a damaged file.
    """
    if not (folder / FILE).exists():
        return None

    def number(value: float | None) -> float:
        return np.nan if value is None else float(value)

    kept = json.loads((folder / FILE).read_text())
    low, high = kept["metric"]["range"]
    bounds = (-np.inf if low is None else low, np.inf if high is None else high)
    found = kept | {"metric": Metric(**kept["metric"] | {"range": bounds})}
    for name in ("shares", "errors"):
        found[name] = {m: np.array([number(v) for v in of]) for m, of in kept[name].items()}
    for name in ("empty", "grand"):
        found[name] = {m: number(v) for m, v in kept[name].items()}
    found["clients"] = None if kept.get("clients") is None else tuple(kept["clients"])
    return Contribution(**found)


def check_measures(measures: Any) -> tuple[str, ...]:
    """Names of :func:`fedjax_fair.metrics.summary`, each once, for which the clients' accuracies are enough."""
    if isinstance(measures, str) or not isinstance(measures, Sequence) or not measures:
        raise ValueError(f"measures must be a list of names, such as ('accuracy', 'worst10'), got {measures!r}")
    for name in measures:
        check_choice("measures", name, [key for key in metrics.SUMMARY if key != "pooled"])
    return tuple(dict.fromkeys(measures))


def titles(metric: Metric) -> dict[str, str]:
    """Headings of the measures."""
    unit = f" {metric.unit}" if metric.unit else ""
    tails = {f"{end}{k}": f"{end} {k}%" for k in (5, 10) for end in ("worst", "best")}
    return {"std": f"std{unit}", **tails, **headings(metric), **columns(metric)}


def shown(measure: str, metric: Metric, share: float, ends: np.ndarray, permutations: int) -> str:
    """A share with its sign, and its interval where it has one."""
    digits, form = digits_of(measure, metric)
    digits += form == "f"  # shares are parts of what is printed
    low, high = (f"{end:+z.{digits}{form}}" for end in ends)
    return f"{share:+z.{digits}{form}}" + (f" [{low}, {high}]" if permutations else "")

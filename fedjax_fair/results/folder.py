"""What an experiment leaves behind: a folder of files."""

import contextlib
import csv
import itertools
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_fair import plot
from fedjax_fair.engine.files import HALVES, to_json, write_atomically
from fedjax_fair.engine.grid import Point
from fedjax_fair.engine.history import judged
from fedjax_fair.engine.outcome import identical, of_clients, one_metric, outcome
from fedjax_fair.metrics.kind import ACCURACY
from fedjax_fair.results.comparison import Comparison
from fedjax_fair.results.differences import PAIRED
from fedjax_fair.results.report_figures import REPORTED, ends
from fedjax_fair.results.run_table import setting_columns
from fedjax_fair.results.table import COUNTS, Runs, summarize, who

FIGURES = ("paired.png", "lorenz.png", "histogram.png", "over_rounds.png", "frontier.png")
DERIVED = ("comparison.txt", "comparison.tex", *FIGURES)


def check_free(folder: Path, overwrite: bool, name: str = "out", how: str = "--overwrite") -> None:
    """Look for results in a folder, which need not be there.

    Raises:
      ValueError: it holds some, and ``overwrite`` is not set; or it is a file, or may not be read.
    """
    try:
        held, file = (folder / "summary.json").exists(), folder.exists() and not folder.is_dir()
    except OSError as error:
        raise ValueError(f"{name} {folder} cannot be read: {error.strerror}") from error
    if file:
        raise ValueError(f"{name} {folder} cannot be written: File exists")
    if held and not overwrite:
        raise ValueError(f"{name} {folder} already holds results: name another folder, or pass {how}")


def claim_folder(folder: Path, overwrite: bool, name: str = "out", how: str = "--overwrite") -> Path:
    """Create the results folder and prove that it can be written.

    Raises:
      ValueError: it cannot, or it already holds results and ``overwrite`` is not set.
    """
    check_free(folder, overwrite, name, how)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
        for half in folder.glob(HALVES):  # of a call that was killed while it wrote
            half.unlink(missing_ok=True)
    except OSError as error:
        raise ValueError(f"{name} {folder} cannot be written: {error.strerror}") from error
    return folder


def clear(folder: Path) -> None:
    """Remove the results that a folder holds, before others come: a call that is cut off leaves none half of which
    are of another call."""
    beside = ("contribution.json",) if (folder / "summary.json").exists() else ()  # without results it came first
    drawn = [name for name in REPORTED if (folder / name).is_file()]  # "figures" may be a file of the user's
    for name in (*beside, "summary.json", "summary.csv", "history.npz", "report.html", *DERIVED, *drawn):
        (folder / name).unlink(missing_ok=True)


def new_folder(wanted: Path) -> Path:
    """Create ``wanted``, or, where another job was faster, the first free of wanted-2, wanted-3, ...

    Raises:
      ValueError: it cannot be created.
    """
    try:
        wanted.parent.mkdir(parents=True, exist_ok=True)
        for folder in itertools.chain(
            [wanted], (wanted.with_name(f"{wanted.name}-{i}") for i in itertools.count(2))
        ):
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                break
    except OSError as error:
        raise ValueError(f"out {wanted} cannot be written: {error.strerror}") from error
    return claim_folder(folder, overwrite=False)


Files = dict[str, str | bytes]
"""What is written, by name, in this order."""


def write(folder: Path, files: Files) -> None:
    """Write files; tables and figures of results that were there before go.

    Raises:
      ValueError: the folder cannot be written, as on a full disk.
    """
    try:
        for name in DERIVED:
            (folder / name).unlink(missing_ok=True)
        for name, text in files.items():
            write_atomically(folder / name, text)
    except OSError as error:
        raise ValueError(f"results cannot be written to {folder}: {error.strerror or error}") from error


def files_of(
    runs: Runs,
    about: Mapping[str, Any],
    clients: np.ndarray | None = None,
    comparison: Comparison | None = None,
    points: Sequence[Point] = (),
) -> Files:
    """``summary.json``, ``summary.csv`` and ``history.npz`` for the rules that have finished so far.

    The summaries judge by ``clients``, bool[N]; the history holds all. A comparison's measures and differences are
    in the summary, and its tables in ``comparison.txt`` and ``comparison.tex``. A sweep's ``points``, one for each
    of the runs, are columns of the CSV.
    """
    files: Files = {}
    summaries = {rule: summarize(histories, clients) for rule, histories in runs.items()}
    lost = {rule: np.array([outcome(h, None, who(clients)).lost for h in of]) for rule, of in runs.items()}
    rules = {
        rule: {
            key: dict(zip(("mean", "std"), _over_seeds(key, values, lost[rule]))) | {"per_seed": values.tolist()}
            for key, values in measures.items()
        }
        for rule, measures in summaries.items()
    }
    alike, metric = identical(runs), one_metric([history for of in runs.values() for history in of])
    kind = {} if metric == ACCURACY else {"metric": metric._asdict()}
    kinds = _of_all(history.further or {} for of in runs.values() for history in of)
    kind |= {"further": {name: of._asdict() for name, of in kinds.items()}} if kinds else {}
    found = {**about, "rules": rules, **kind, **({"identical": alike} if alike else {})}
    if comparison is not None:
        found["comparison"] = comparison.to_json()
        files |= {"comparison.txt": comparison.table() + "\n", "comparison.tex": _tabulars(comparison)}
    keys = _of_all(dict.fromkeys(measures) for measures in summaries.values())
    headings = [f"{key}_{s}" for key in keys for s in ("mean", "std")]
    settings = setting_columns(points or [{} for _ in runs], {*keys, *headings})
    rows: list[list[Any]] = [["rule", *settings, "seeds", "seeds_failed", *headings]]
    for i, (rule, measures) in enumerate(summaries.items()):
        figures = [f"{value:.6g}" for key in keys for value in _over_seeds(key, measures[key], lost[rule])]
        rows.append([rule, *(of[i] for of in settings.values()), len(lost[rule]), lost[rule].sum(), *figures])
    files["summary.csv"] = _csv(rows)

    arrays = {} if clients is None else {"honest": clients}
    names = {history.clients for histories in runs.values() for history in histories}
    if names != {None} and len(names) == 1:  # a client is the same one in all runs
        arrays["clients"] = np.array(names.pop())
    groups = {history.groups for histories in runs.values() for history in histories}
    if groups != {None} and len(groups) == 1:
        arrays["groups"] = np.array(groups.pop())
    for rule, histories in runs.items():
        arrays[f"{rule}/rounds"] = histories[0].rounds
        for field in ("accuracy", "loss", "ids", "coef", "active"):
            arrays[f"{rule}/{field}"] = np.stack([getattr(history, field) for history in histories])
        for name in kinds:
            arrays[f"{rule}/measures/{name}"] = np.stack([history.measures[name] for history in histories])
        first = next(iter(histories[0].scores))
        arrays[f"{rule}/judged"] = np.stack([judged(history, first) for history in histories])
    buffer = BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return files | {"history.npz": buffer.getvalue(), "summary.json": to_json(found)}  # last: what has it has all


def _tabulars(of: Comparison) -> str:
    """The LaTeX of both tables."""
    several = len(of.examples) > 1 and len(of.runs) > 1
    stars = ["* p < .05 after Holm over the rules, of the paired difference from the baseline."] * several
    notes = "".join(f"% {sentence}\n" for sentence in [*of.legend(), *stars])
    return notes + of.to_latex() + (f"\n% {PAIRED}\n{of.differences().to_latex()}" if several else "")


def _of_all(found: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What all of them hold alike: runs may be of several metrics, or of groups, and others not."""
    first, *others = found
    return {key: of for key, of in first.items() if all(key in other and other[key] == of for other in others)}


def _over_seeds(key: str, values: np.ndarray, lost: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of a measure over the seeds that are not ``lost``, of a cost over all of them."""
    of = values if key in COUNTS else values[~lost]
    if not np.isfinite(of).all():
        return np.nan, np.nan
    return float(of.mean()) if of.size else np.nan, float(of.std(ddof=1)) if of.size > 1 else np.nan


def _csv(rows: list[list[Any]]) -> str:
    text = StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def write_plots(folder: Path, runs: Runs, clients: np.ndarray | None = None, last: int = 1) -> None:
    """Lorenz curves and histograms of the clients' accuracies, over the ``last`` evaluations, and accuracy and
    fairness over rounds, as PNG. None where every run failed; no Lorenz curves below 0."""
    seen = {rule: [of_clients(history, clients) for history in histories] for rule, histories in runs.items()}
    every = [*itertools.chain(*seen.values())]
    if all(outcome(history).lost for history in every):
        return
    if late := ends(seen, last):
        metric = one_metric(every)
        if metric.range[0] >= 0:  # of an R² there are none
            plot.save(plot.lorenz(late, metric=metric), folder / "lorenz.png")
        plot.save(plot.client_histogram(late, metric=metric), folder / "histogram.png")
    plot.save(plot.accuracy_and_fairness(seen), folder / "over_rounds.png")


def write_frontier(folder: Path, runs: Runs, clients: np.ndarray | None = None) -> None:
    """Mean against variance of every point of a sweep after the last round, as in its table, as PNG."""
    seen = {rule: [of_clients(history, clients) for history in histories] for rule, histories in runs.items()}
    if len(seen) > 1 and (late := ends(seen, 1)):
        metric = one_metric([*itertools.chain(*seen.values())])
        plot.save(plot.frontier(late, metric=metric), folder / "frontier.png")


def about(command: str) -> dict[str, Any]:
    """What a reader needs to repeat the run: command, versions, machine, commit."""
    import jax

    packages = ("fedjax-fair", "jax", "jaxlib", "flax", "optax", "numpy")
    device = jax.devices()[0]
    return {
        "command": command,
        "versions": {"python": platform.python_version()} | {name: metadata.version(name) for name in packages},
        "platform": platform.platform(),
        "device": f"{device.platform}: {device.device_kind}",
        "commit": _commit(),
    }


def _commit() -> str | None:
    """The commit of the package's own checkout, with -dirty where it was edited; None for an installed package."""
    git = ["git", "--no-optional-locks", "-C", str(Path(__file__).parent)]
    tracked = [*git, "ls-files", "--error-unmatch", Path(__file__).name]
    describe = [*git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"]
    try:
        for asked in (tracked, describe):
            answer = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()

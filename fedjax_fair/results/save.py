"""A folder of results from Python, as the command line writes it."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_fair.engine.files import write_atomically
from fedjax_fair.engine.history import History
from fedjax_fair.engine.sweep import Sweep
from fedjax_fair.results.comparison import Comparison
from fedjax_fair.results.folder import about, claim_folder, clear, files_of, write, write_plots
from fedjax_fair.results.table import check_clients, check_runs, one_split


def save(
    folder: str | Path,
    runs: Mapping[str, History | list[History]] | Comparison | Sweep,
    settings: Mapping[str, Any] | None = None,
    *,
    clients: Any = None,
    plots: bool = False,
    overwrite: bool = False,
) -> Path:
    """Write the folder of results that the command line writes; ``fedjax-fair report FOLDER`` makes its page.

    It has ``summary.json`` and ``summary.csv``, ``history.npz`` (every client at every evaluation), ``config.toml``
    with ``settings``, and of a comparison ``comparison.txt`` and ``comparison.tex``.

    Args:
      folder: where; it is made.
      runs: per rule its history, or a list of them, one per seed; or what ``ff.compare`` or ``ff.sweep`` returned.
        Everything is of the first split, which must be one for all, and of a comparison of the split that it
        quotes: ``evaluate`` in ``settings`` is that one, whatever is given.
      settings: what a reader needs to repeat it: words, numbers, truth values, lists and tables of them. The page
        shows all, and ``dataset`` and ``model`` in its first line.
      clients: bool[N], the ones to judge by, such as the honest; all by default, or the comparison's.
      plots: also draw Lorenz curves, histograms and curves over the rounds, as PNG.
      overwrite: write over earlier results.

    Returns:
      the folder.

    Raises: ValueError, before anything is written: ``runs`` or ``clients`` of another form, settings that TOML has
    no form for, a folder that cannot be written, or that already holds results.
    """
    found = runs if isinstance(runs, Comparison) else None
    listed = check_runs(runs.runs if isinstance(runs, Comparison | Sweep) else runs)
    for rule, histories in listed.items():
        if not isinstance(rule, str):
            raise ValueError(f"runs must have words as names, got {rule!r}")
        for history in histories:
            check_clients(clients, history, rule)
        if len(lengths := sorted({(len(h.ids), len(h.rounds)) for h in histories})) > 1:
            got = " and ".join(f"{rounds} rounds with {judged} evaluations" for rounds, judged in lengths)
            raise ValueError(f"runs must have seeds of one length under each name, got {got} for {rule!r}")
        if len({(h.ids.shape, h.accuracy.shape, *map(int, h.rounds)) for h in histories}) > 1:
            wanted = "as many clients, cohorts as large and evaluations at the same rounds"
            raise ValueError(f"runs must have {wanted} for all seeds of a name, got others for {rule!r}")
    if found is not None and clients is not None:
        raise ValueError("clients is settled by ff.compare(clients=...) where runs is a comparison, got both")
    if not isinstance(settings, Mapping | None):
        raise ValueError(f"settings must map names to values, got {type(settings).__name__}")
    split = one_split(listed) if found is None else found.split
    given = {**(settings or {}), "evaluate": split}  # what the page is about
    if found is not None:
        listed = {
            rule: [h._replace(scores={split: h.scores[split], **h.scores}) for h in histories]
            for rule, histories in listed.items()
        }
    config = FROM_PYTHON + _as_toml(given)
    place = claim_folder(Path(folder).expanduser(), overwrite, name="folder", how="overwrite=True")
    who = found.clients if found is not None else None if clients is None else np.asarray(clients)
    sizes = sorted({history.ids.shape[1] for histories in listed.values() for history in histories})
    cohort = sizes[0] if len(sizes) == 1 else ", ".join(map(str, sizes))
    head = about(_command()) | {"model": str(given.get("model", "a model of one's own")), "cohort": cohort}
    files = files_of(listed, head, who, found, runs.points if isinstance(runs, Sweep) else ())
    clear(place)  # all that could fail has been made
    write_atomically(place / "config.toml", config)
    write(place, files)
    if plots:
        write_plots(place, listed, who, 1 if found is None else found.last)
    return place


FROM_PYTHON = "# What ff.save was given. No command can repeat the run from it.\n"
"""By which the command line knows such a file."""


def _as_toml(settings: Mapping[str, Any]) -> str:
    """The settings as TOML, in which None is left out.

    Raises:
      ValueError: a value that TOML has no form for.
    """
    import tomli_w

    def plain(value: Any, name: str) -> Any:
        if isinstance(value, np.ndarray | np.generic):
            value = value.tolist()
        if isinstance(value, Mapping):
            return {str(key): plain(v, f"{name}.{key}") for key, v in value.items() if v is not None}
        if isinstance(value, list | tuple):
            return [plain(v, name) for v in value]
        if isinstance(value, Path):
            return str(value)
        if not isinstance(value, str | bool | int | float):
            kinds = "words, numbers, truth values, lists and tables of them"
            raise ValueError(f"settings must hold {kinds}, got {type(value).__name__} for {name}")
        return value

    return tomli_w.dumps({str(key): plain(value, str(key)) for key, value in settings.items() if value is not None})


def _command() -> str:
    """The script that is running; of a notebook nothing can be said."""
    script = sys.argv[0] if sys.argv else ""
    known = script.endswith(".py") and "ipykernel" not in script
    return shlex.join(["python", *sys.argv]) if known else "in Python"

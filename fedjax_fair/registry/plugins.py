"""A rule, model or data of the user's own, from a file or a module, by name."""

import contextlib
import functools
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedjax_fair.checks import check_choice
from fedjax_fair.metrics.kind import Metric

NAMED = re.compile(r"(?P<place>[^:@,]+\.py|[A-Za-z_][\w.]*):(?P<rule>[A-Za-z_]\w*)(?=$|[:@])")
"""``file.py:rule`` or ``package.module:rule``, at the start of an entry of ``--algorithms``."""

OWN = "own rule "
"""What the names of modules begin with that are read from a file: nobody can import them by these."""


def own_factory(name: str, kind: str = "rule") -> Callable[..., Any]:
    """The factory that ``file.py:rule`` or ``package.module:rule`` names; modules are looked for here, too.

    ``kind`` is what sentences call it: a rule, a model, data, a loss, a metric (which may be an ``ff.Metric``).

    Raises:
      ValueError: no such file, module or name in it, or something that cannot be called.
    """
    place, _, rule = name.rpartition(":")
    module = _from_file(Path(place).expanduser(), kind) if place.endswith(".py") else _from_module(place, kind)
    fits = (lambda value: isinstance(value, Metric) or callable(value)) if kind == "metric" else callable
    public = [key for key, value in vars(module).items() if fits(value) and not key.startswith("_")]
    check_choice(f"{kind} in {place}", rule, public)
    factory: Callable[..., Any] = getattr(module, rule)
    return factory


def is_own(name: str) -> bool:
    """Whether a name is one of the user's."""
    return ":" in name


@contextlib.contextmanager
def blamed(name: str, kind: str = "rule") -> Iterator[None]:
    """What a rule of the user's own raises inside, as one sentence that says in which line of it; and whose
    functions they are that take or return something else than they should.

    Raises:
      ValueError: the rule raised what is likely a mistake in it; a stock rule's goes through as it is, and what a
        model or data (``kind``) did not raise.
    """
    try:
        yield
    except ValueError as error:
        if is_own(name) and kind == "rule" and str(error).startswith(("init must", "weigh must", "revise must")):
            raise ValueError(f"rule {name}: {error}") from error
        raise
    except Exception as error:  # whatever a user's rule raises
        if not is_own(name):
            raise
        place = name.rpartition(":")[0]
        file = (
            Path(place).expanduser()
            if place.endswith(".py")
            else Path(getattr(sys.modules[place], "__file__", None) or place)
        )
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == file.resolve()]
        if kind != "rule" and not lines:
            raise
        where = f" in line {lines[-1]}" if lines else ""
        raise ValueError(f"{kind} {name} fails{where}: {said(error)}") from error


def said(error: Exception) -> str:
    """An error's kind and first line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _from_file(path: Path, kind: str) -> Any:
    if not path.is_file():
        here = "" if path.is_absolute() else f", from {Path.cwd()}"
        raise ValueError(f"{kind} {path} cannot be read: there is no such file{here}") from FileNotFoundError(
            str(path)
        )
    return _loaded(kind, str(path), lambda: _executed(path.resolve(), path.stat().st_mtime_ns))


@functools.cache  # once per version of the file, outside of any tracing, however often a sweep builds the rule
def _executed(path: Path, changed: int) -> Any:
    spec = importlib.util.spec_from_file_location(f"{OWN}{path.stem}", path)
    assert spec is not None  # a file that ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look their module up; by a name that nobody imports
    spec.loader.exec_module(module)
    return module


def _from_module(name: str, kind: str) -> Any:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return _loaded(kind, name, lambda: importlib.import_module(name))


def _loaded(kind: str, place: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except Exception as error:  # whatever a user's file raises
        raise ValueError(f"{kind} {place} cannot be imported: {said(error)}") from error

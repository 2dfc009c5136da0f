"""A rule of the user's own, from a file or a module, by name."""

import functools
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedjax_fair.checks import check_choice

NAMED = re.compile(r"(?P<place>[^:@=,]+\.py|[A-Za-z_][\w.]*):(?P<rule>[A-Za-z_]\w*)(?=$|[:@])")
"""``file.py:rule`` or ``package.module:rule``, at the start of an entry of ``--algorithms``."""


def own_rule(name: str) -> Callable[..., Any]:
    """The factory that ``file.py:rule`` or ``package.module:rule`` names; modules are looked for here, too.

    Raises:
      ValueError: no such file, module or name in it, or something that cannot be called.
    """
    place, _, rule = name.rpartition(":")
    module = _from_file(Path(place).expanduser()) if place.endswith(".py") else _from_module(place)
    public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    check_choice(f"rule in {place}", rule, public)
    factory: Callable[..., Any] = getattr(module, rule)
    return factory


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise ValueError(f"algorithms takes a rule from {path}, but there is no such file")
    return _loaded(str(path), lambda: _executed(path.resolve(), path.stat().st_mtime_ns))


@functools.cache  # once per version of the file, outside of any tracing, however often a sweep builds the rule
def _executed(path: Path, changed: int) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None  # a file that ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _from_module(name: str) -> Any:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return _loaded(name, lambda: importlib.import_module(name))


def _loaded(place: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except Exception as error:  # whatever a user's file raises
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(f"algorithms takes a rule from {place}, which cannot be imported: {what}") from error

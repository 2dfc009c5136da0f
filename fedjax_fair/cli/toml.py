"""Settings in TOML and in a command's words, and back to TOML."""

import contextlib
import dataclasses
import tomllib
import types
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from fedjax_fair.checks import check_choice
from fedjax_fair.results.save import FROM_PYTHON

T = TypeVar("T")


def load_toml(path: Path, default: T) -> T:
    """``default`` with the settings of a TOML file laid over it.

    Raises:
      ValueError: the file cannot be read, is not TOML, or holds an unknown setting or a value of another type.
    """
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ValueError(f"config {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"config {path} is not valid TOML: {error}") from error
    if path.read_text().startswith(FROM_PYTHON):
        raise ValueError(f"config {path} was written by ff.save, from Python: it does not hold all of the run")
    for command, own in (("sweep", "grid"), ("run", "aggregator"), ("compare", "algorithms")):
        if own in table and not hasattr(default, own):
            raise ValueError(f"config {path} sets {own}: it is one for fedjax-fair {command}")
    return overlay(default, table, str(path))


def overlay(default: T, table: Mapping[str, Any], where: str) -> T:
    """A copy of the dataclass instance ``default`` with the values of ``table``, checked against its types."""
    hints = {field.name: field.type for field in dataclasses.fields(default)}  # type: ignore[arg-type]
    changes = {}
    for name, value in table.items():
        check_choice(f"setting in {where}", name, hints)
        old = getattr(default, name)
        if dataclasses.is_dataclass(old) and isinstance(value, Mapping):
            changes[name] = overlay(old, value, f"[{name}] of {where}")
        else:
            changes[name] = convert(value, hints[name], f"{name} in {where}")
    return dataclasses.replace(default, **changes)  # type: ignore[type-var]


def convert(value: Any, kind: Any, name: str) -> Any:
    """A TOML value as ``kind``; an int does for a float."""
    origin, options = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return convert(value, options[0], name)
    if origin in (Union, types.UnionType):
        return convert(value, next(option for option in options if option is not type(None)), name)
    if origin is Literal:
        return check_choice(name, value, options)
    if origin is tuple and isinstance(value, list):
        wanted = options[:1] * len(value) if options[-1:] == (...,) else options
        if len(wanted) == len(value):
            return tuple(convert(v, k, name) for v, k in zip(value, wanted))
    elif kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    elif kind is Path and isinstance(value, str):
        return Path(value)
    elif type(value) is kind:
        return value
    raise ValueError(f"{name} must be {describe(kind)}, got {value!r}")


def describe(kind: Any) -> str:
    """What a value of this type is called in a sentence."""
    if get_origin(kind) is tuple:
        first, *more = get_args(kind)
        item = describe(first).removeprefix("a ") + "s"
        return f"a list of {item}" if more == [...] else f"{1 + len(more)} {item}"
    names = {int: "a whole number", float: "a number", str: "a word", bool: "true or false", Path: "a path"}
    return names.get(kind, f"a table of settings for {kind.__name__}")


def from_words(words: list[str], kind: Any, name: str) -> Any:
    """What the words after a flag mean as ``kind``, in the way of :func:`convert`."""
    origin, options = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return from_words(words, options[0], name)
    if origin in (Union, types.UnionType):
        given = next(option for option in options if option is not type(None))
        return None if words == ["None"] else from_words(words, given, name)
    if kind is bool and words:
        off = words[0].lower() in ("false", "no", "off", "0") and not name.startswith("--no-")
        hint = f"; --no-{name.removeprefix('--')} turns it off" if off else ""
        raise ValueError(f"{name} takes no value, got {words[0]!r}{hint}")
    if origin is not tuple and kind is not bool and len(words) != 1:
        raise ValueError(f"{name} takes one value, got {' '.join(words) or 'nothing'}")
    if kind is bool:
        return True
    if origin is tuple:
        return convert([from_words([word], options[0], name) for word in words], kind, name)
    if kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(words[0])
    return convert(words[0], kind, name)


def dump_toml(experiment: Any, without: Collection[str] = ()) -> str:
    """The settings as TOML, but those ``without``, such as a group's ``qfedavg.q``; None, which TOML lacks, is left
    out and means the default."""
    import tomli_w

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {k: plain(v) for k, v in value.items() if v is not None}
        if isinstance(value, tuple):
            return [plain(v) for v in value]
        return str(value) if isinstance(value, Path) else value

    kept = {name: value for name, value in dataclasses.asdict(experiment).items() if name not in without}
    places = [place.split(".") for place in without if "." in place]
    for group, name in places:
        del kept[group][name]
    for group in {group for group, _ in places}:
        if all(value is None for value in kept[group].values()):
            del kept[group]
    return tomli_w.dumps(plain(kept))

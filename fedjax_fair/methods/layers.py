"""Which of a model's parameters stay at the client, and a model put together of both kinds."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_fair.types import Params

Personal = str | Callable[[str], bool]
"""``"last"``, in whose place ``simulation`` puts the paths of the parameters that make the outputs; a regular
expression that is looked for in a parameter's path such as ``Dense_1/kernel``, or ``path -> bool``."""


def check_personal(personal: Any, name: str = "personal") -> None:
    """ValueError, which calls it by ``name``, unless it is a pattern or a predicate."""
    if isinstance(personal, str):
        try:
            re.compile(personal)
        except re.error as error:
            raise ValueError(f"{name} must be a regular expression, got {personal!r}: {error}") from error
    elif not callable(personal):
        raise ValueError(
            f"{name} must be 'last', a pattern of parameters' paths or a function of one, such as 'Dense_1', got "
            f"{personal!r}"
        )


def paths_of(params: Params) -> list[str]:
    """The paths of a model's leaves, such as ``Dense_1/kernel``."""
    return [
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, _ in jax.tree_util.tree_leaves_with_path(params)
    ]


def chosen(personal: Personal, params: Params, name: str = "personal") -> list[bool]:
    """Which leaves of a model stay at the client; the argument is called by ``name``.

    Raises:
      ValueError: a pattern that no path matches.
    """
    paths = paths_of(params)
    if callable(personal):
        return [bool(personal(path)) for path in paths]
    if personal == "last":
        last = _layer(max(paths, key=_natural))
        flags = [_layer(path) == last for path in paths]
        if all(flags):  # one layer: with all of it at the clients, nothing would be shared
            vectors = [jnp.ndim(leaf) <= 1 for leaf in jax.tree.leaves(params)]
            return vectors if any(vectors) else flags
        return flags
    flags = [re.search(personal, path) is not None for path in paths]
    if not any(flags):
        raise ValueError(f"{name} must match a parameter of {', '.join(paths)}, got {personal!r}")
    return flags


def by_path(params: Params, name: str) -> dict[str, Any]:
    """A model's leaves by their paths; ValueError, which calls the model by ``name``, where two have one path."""
    paths = paths_of(params)
    if doubles := [path for path in paths if paths.count(path) > 1]:
        raise ValueError(f"{name} needs parameters with paths of their own, got two called {doubles[0]!r}")
    return dict(zip(paths, jax.tree.leaves(params)))


def kept(personal: Personal, params: Params) -> list[bool]:
    """Which leaves of a model stay at the client, of whom something is shared.

    Raises:
      ValueError: a pattern that no path matches, or one that all do; two parameters of one path.
    """
    flags, paths = chosen(personal, params), [*by_path(params, "personal")]
    if all(flags) and personal != "last":
        raise ValueError(
            f"personal must leave a parameter of {', '.join(paths)} to be shared, got {personal!r}, which takes all"
        )
    return flags


def named(params: Params, paths: Iterable[str]) -> dict[str, Any]:
    """The leaves of these paths, each by its path."""
    asked = set(paths)
    return {path: leaf for path, leaf in zip(paths_of(params), jax.tree.leaves(params)) if path in asked}


def with_named(params: Params, own: dict[str, Any]) -> Params:
    """The model with the leaves of ``own`` in their places."""
    leaves, structure = jax.tree.flatten(params)
    return jax.tree.unflatten(structure, [own.get(path, leaf) for path, leaf in zip(paths_of(params), leaves)])


def taken(params: Params, flags: list[bool]) -> list[Any]:
    """The leaves that are flagged."""
    return [leaf for leaf, flag in zip(jax.tree.leaves(params), flags) if flag]


def _layer(path: str) -> str:
    return path.rpartition("/")[0]


def _natural(path: str) -> list[Any]:
    """Numbers in a path count as numbers: Dense_10 comes after Dense_9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path)]

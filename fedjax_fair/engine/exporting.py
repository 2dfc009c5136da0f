"""A model's parameters on disk, and back: for other programs, and for ``ff.simulation(params=...)``."""

import logging
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import jax
import numpy as np

from fedjax_fair.checks import said
from fedjax_fair.engine.files import write_atomically
from fedjax_fair.methods.layers import by_path
from fedjax_fair.types import Params, SimState, Simulation

SAFETENSORS = ".safetensors"
MARK = "_METADATA"
"""A file that Orbax's folders have."""


def export(params: SimState | Params, path: str | Path, *, overwrite: bool = False) -> Path:
    """Write a model's parameters, to be read by other programs and by :func:`load_params`.

    * ``model.safetensors``: one file, whose tensors are called by their paths, such as ``body/kernel``, and laid as
      they are here; needs ``pip install 'fedjax-fair[safetensors]'``;
    * a folder, a path without an ending: an Orbax checkpoint of nested dictionaries.

    Types and bits are kept.

    Args:
      params: what ``ff.run`` left, of which the last model is written, or any parameters: ``sim.deploy(state)`` for
        the model that ``sim`` deploys.
      path: a file that ends in ".safetensors", or a folder, which is made.
      overwrite: write over an earlier export.

    Returns:
      the path.

    Raises:
      ValueError: something that is no parameters, another ending, a path that exists, that cannot be written, or
        safetensors that is not installed.
    """
    place = _place(path)
    leaves = _leaves(params.params if isinstance(params, SimState) else params)
    if place.exists() and not overwrite:
        raise ValueError(f"path {path} exists: give another, or overwrite=True")
    if place.exists() and not (place.is_file() if place.suffix else (place / MARK).is_file()):
        raise ValueError(f"path {path} must be an earlier export to be written over, got something else")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.suffix == SAFETENSORS:
            write_atomically(place, _safetensors("export").save(leaves))
        else:
            _save_orbax(place, leaves)
    except OSError as error:
        raise ValueError(f"path {path} cannot be written: {error.strerror or error}") from error
    return place


def load_params(path: str | Path) -> Params:
    """The parameters that :func:`export` wrote, as nested dictionaries of NumPy arrays.

    ``ff.simulation(params=...)`` takes them for any model whose parameters have the same paths, also where the
    model has lists in the place of the dictionaries. Of a file by another program the names are split at "/" too.

    Args:
      path: a file that ends in ".safetensors", or an Orbax folder.

    Raises:
      ValueError: a path that does not exist, holds something else or cannot be read; safetensors not installed.
    """
    place = _place(path)
    if not place.exists():
        raise ValueError(f"path {path} does not exist")
    wanted = "one .safetensors file" if place.suffix else "a folder that ff.export or Orbax wrote"
    if not (place.is_file() if place.suffix else (place / MARK).is_file()):
        raise ValueError(f"path must be {wanted}, got {path}, which is not")
    reader = _safetensors("load_params") if place.suffix else None
    try:
        if reader is not None:
            return _nested(reader.load_file(place))
        return jax.tree.map(np.asarray, _orbax().restore(place.absolute()))
    except Exception as error:  # a damaged file raises almost anything
        raise ValueError(f"path {path} cannot be read: {said(error)[:200]}") from error


def _place(path: Any) -> Path:
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"path must be a file or a folder, got {path!r}")
    place = Path(path).expanduser()
    if place.suffix not in ("", SAFETENSORS):
        raise ValueError(f"path must end in .safetensors, or in nothing for an Orbax folder, got {path}")
    return place


def _leaves(params: Any) -> dict[str, np.ndarray]:
    """A model's arrays by their paths."""
    if isinstance(params, Simulation):
        raise ValueError("export takes a state or a model's parameters, got a simulation: pass what ff.run left")
    found = by_path(params, "export")
    for name in found:
        if further := [path for path in found if path.startswith(f"{name}/")]:
            raise ValueError(
                f"export needs parameters that are no folder of others, got {name!r} and {further[0]!r}"
            )
    for name, leaf in found.items():
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
            raise ValueError(f"export takes a state or a tree of arrays, got a {type(leaf).__name__} at {name!r}")
    if not found:
        raise ValueError(f"export takes a state or a tree of arrays, got {params!r}, which has none")
    return {name: np.array(leaf, order="C") for name, leaf in found.items()}


def _nested(leaves: dict[str, np.ndarray]) -> Params:
    tree: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *inner, last = name.split("/")
        place = tree
        for key in inner:
            place = place.setdefault(key, {})
        place[last] = leaf
    return tree


def _save_orbax(place: Path, leaves: dict[str, np.ndarray]) -> None:
    for name, leaf in leaves.items():
        if not leaf.size:
            raise ValueError(f"a folder cannot keep {name!r} of shape {list(leaf.shape)}: end path in .safetensors")
    mark = uuid.uuid4().hex
    partial, earlier = (place.with_name(f".{place.name}.{mark}.{end}") for end in ("part", "earlier"))
    try:
        with _orbax() as writer:
            writer.save(partial.absolute(), _nested(leaves))
        if place.exists():  # it goes when the new one is whole, and in its place
            place.rename(earlier)
        partial.rename(place)
        if earlier.exists():
            shutil.rmtree(earlier)
    except ValueError as error:  # Orbax's of a full disk
        raise OSError(said(error)[:200]) from error
    finally:
        for rest in place.parent.iterdir():
            if rest.name.startswith(partial.name):
                shutil.rmtree(rest)


def _orbax() -> Any:
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.ERROR)  # a line for every save
    return ocp.StandardCheckpointer()


def _safetensors(name: str) -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ValueError(
            f"{name} to a .safetensors file needs safetensors: pip install 'fedjax-fair[safetensors]'"
        ) from error
    return safetensors.numpy

"""Checkpoints: all that a run has computed so far, on disk, whole or not at all (Orbax).

A checkpoint is the simulation's state, the history, and a description of the run that made it. Orbax writes it
beside the last one and commits it by a rename, so that a run may be killed at any moment.
"""

import contextlib
import hashlib
import logging
import re
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from fedjax_fair.data.host_store import HostStore
from fedjax_fair.engine.signals import scored
from fedjax_fair.types import SimState, Simulation

PROGRAM, DATA, START = "the simulation", "the data", "the key or state to start from"
KEPT = 2
"""How many checkpoints stay: the last, and the one before."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be written, read, or does not belong to this run."""


class Keeper(NamedTuple):
    """One run's place on disk."""

    folder: Path
    manager: Any
    about: dict[str, Any]

    def save(self, played: int, state: SimState, history: Any) -> None:
        """Commit state and history after ``played`` rounds.

        Raises:
          CheckpointError: it cannot be written; the checkpoint before stays.
        """
        import orbax.checkpoint as ocp

        arrays, empty = _pack({"state": state, "history": history})
        about = self.about | {"empty": empty}
        parts = ocp.args.Composite(arrays=ocp.args.StandardSave(arrays), about=ocp.args.JsonSave(about))
        try:
            saved = self.manager.save(played, args=parts)
            self.manager.wait_until_finished()
        except Exception as error:  # tensorstore, the file system and Orbax each have their own
            raise CheckpointError(
                f"checkpoint {self.folder} could not be written after round {played} "
                f"({' '.join(str(error).split())[:200]}); {self._last()}"
            ) from error
        if not saved:  # Orbax passes over steps that are not the newest, in silence
            raise CheckpointError(f"checkpoint {self.folder} takes no round {played}: {self._last()}")

    def check(self) -> None:
        """Look whether the last checkpoint, if there is one, is of this run.

        Raises:
          CheckpointError: it is of another run, or cannot be read.
        """
        if (played := self.manager.latest_step()) is not None:
            with self._reading(played):
                self._about(played)

    def load(self, state: Any, history: Any) -> tuple[int, SimState, Any] | None:
        """The last checkpoint as ``(rounds played, state, history)`` of the given forms; None without one.

        Raises:
          CheckpointError: it is of another run, or cannot be read.
        """
        import orbax.checkpoint as ocp

        played = self.manager.latest_step()
        if played is None:
            return None
        with self._reading(played):
            about = self._about(played)
            arrays = self.manager.restore(played, args=ocp.args.Composite(arrays=ocp.args.StandardRestore())).arrays
            found = _unpack({"state": state, "history": history}, arrays, about["empty"])
        return played, found["state"], found["history"]

    @contextlib.contextmanager
    def _reading(self, played: int) -> Iterator[None]:
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:  # a damaged file raises almost anything
            raise CheckpointError(
                f"checkpoint {self.folder} cannot be read after round {played} "
                f"({type(error).__name__}: {' '.join(str(error).split())[:200]}); "
                f"remove {self.folder / str(played)} to go on from the one before"
            ) from error

    def _about(self, played: int) -> dict[str, Any]:
        """The description in the checkpoint, which must be this run's."""
        import orbax.checkpoint as ocp

        about: dict[str, Any] = self.manager.restore(
            played, args=ocp.args.Composite(about=ocp.args.JsonRestore())
        ).about
        self._check(about)
        return about

    def _check(self, about: Mapping[str, Any]) -> None:
        for name, mine in self.about.items():
            theirs = about.get(name)
            if theirs != mine and name in (PROGRAM, DATA, START):
                raise CheckpointError(f"checkpoint {self.folder} is of another run: {name} is not the same")
            if theirs != mine:
                raise CheckpointError(
                    f"checkpoint {self.folder} is of another run: {name} was {theirs!r} and is {mine!r}"
                )

    def _last(self) -> str:
        kept = self.manager.latest_step()
        return "none was before" if kept is None else f"the one after round {kept} is whole"


def keeper(folder: str | Path, about: Mapping[str, Any]) -> Keeper:
    """Open a checkpoint folder for the run that ``about`` describes; leftovers of a killed write are removed.

    Raises:
      CheckpointError: the folder cannot be made or written.
    """
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.ERROR)  # a line for every save
    place = place_of(folder)
    options = ocp.CheckpointManagerOptions(max_to_keep=KEPT, create=True, enable_async_checkpointing=False)
    try:
        place.mkdir(parents=True, exist_ok=True)
        manager = ocp.CheckpointManager(place, options=options)
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder} cannot be written: {error.strerror or error}") from error
    return Keeper(place, manager, dict(about))


def place_of(folder: str | Path) -> Path:
    """The same place for every process that opens it, wherever that was started."""
    return Path(folder).expanduser().absolute()


def describe(sim: Simulation, start: SimState, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is told apart by: versions, settings, first state, data, and the program itself."""
    versions = {name: metadata.version(name) for name in ("fedjax-fair", "jax", "jaxlib")}
    # In this order: another rule often starts from another state, too.
    digests = {PROGRAM: _program(sim), DATA: _digest(*_bytes_of_data(sim.data)), START: _digest(*_bytes(start))}
    return versions | {"device": device()} | dict(settings) | digests


def device() -> str:
    """What computes: another kind rounds otherwise."""
    return str(jax.devices()[0].device_kind)


def _program(sim: Simulation) -> str:
    """A digest of the round and the evaluation as traced programs, constants included; what a callback into Python
    computes is not."""
    state = jax.eval_shape(sim.init, jax.random.key(0))
    shapes = jax.eval_shape(lambda: sim.data)
    return digest_of(
        jax.make_jaxpr(sim.init)(jax.random.key(0)),
        jax.make_jaxpr(sim.step)(state, shapes),
        jax.make_jaxpr(lambda s, d: scored(sim.evaluate, sim.deploy, s, d))(state, shapes),
    )


def digest_of(*traced: ClosedJaxpr) -> str:
    """A digest of traced programs, constants included."""
    words = [re.sub(r" at 0x[0-9a-f]+", "", str(program)).encode() for program in traced]  # where functions lie
    return _digest(*words, *(piece for program in traced for piece in _bytes([*_constants(program)])))


def digest_of_arrays(trees: Any) -> str:
    """A digest of the arrays of trees; one that several share is looked at once."""
    seen: dict[int, int] = {}
    pieces: list[bytes] = []
    for leaf in jax.tree.leaves(trees):
        if id(leaf) not in seen:
            pieces += _bytes(leaf)
        pieces.append(str(seen.setdefault(id(leaf), len(seen))).encode())
    return _digest(*pieces)


def _constants(program: Any) -> Iterator[Any]:
    """The constants of a traced program and of those inside it: a function under jit has its own."""
    yield from program.consts
    for step in program.jaxpr.eqns:
        for parameter in step.params.values():
            for inner in parameter if isinstance(parameter, tuple) else (parameter,):
                if isinstance(inner, ClosedJaxpr):
                    yield from _constants(inner)
                elif isinstance(inner, Jaxpr):
                    yield from _constants(ClosedJaxpr(inner, ()))


def _bytes(tree: Any) -> list[bytes]:
    return [np.ascontiguousarray(_plain(leaf)).tobytes() for leaf in jax.tree.leaves(tree)]


def _bytes_of_data(data: Any) -> list[bytes]:
    return [*_bytes(data), *(data.x.sample() if isinstance(data.x, HostStore) else ())]


def _digest(*pieces: bytes) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _plain(leaf: Any) -> np.ndarray:
    """A leaf as NumPy; a typed key as its words."""
    is_key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def _pack(tree: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The leaves by their paths, and the forms of those without any element, which Orbax does not store."""
    leaves = {jax.tree_util.keystr(path): _plain(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    empty = {name: [list(leaf.shape), str(leaf.dtype)] for name, leaf in leaves.items() if not leaf.size}
    return {name: leaf for name, leaf in leaves.items() if leaf.size}, empty


def _unpack(template: Any, arrays: Mapping[str, Any], empty: Mapping[str, Any]) -> Any:
    """The tree of the template's structure, with what :func:`_pack` stored of it."""

    def leaf(path: Any, like: Any) -> Any:
        name = jax.tree_util.keystr(path)
        value = np.zeros(*empty[name]) if name in empty else np.asarray(arrays[name])
        if jax.dtypes.issubdtype(like.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(jax.numpy.asarray(value), impl=jax.random.key_impl(like))
        return value if isinstance(like, np.ndarray) else jax.numpy.asarray(value, like.dtype)

    return jax.tree_util.tree_map_with_path(leaf, template)

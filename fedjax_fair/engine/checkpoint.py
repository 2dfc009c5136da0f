"""Checkpoints: all that a run has computed so far, on disk, whole or not at all (Orbax).

A checkpoint is the simulation's state, the history, and a description of the run that made it. Orbax writes it
beside the last one and commits it by a rename, so that a run may be killed at any moment.
"""

import contextlib
import logging
import textwrap
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_fair.data.host_store import HostStore
from fedjax_fair.engine.digests import bytes_of, digest, digest_of, plain
from fedjax_fair.engine.evaluation import scored
from fedjax_fair.types import SimState, Simulation

PROGRAM, DATA, START = "the simulation", "the data", "the key or state to start from"
DEVICES, ON_ONE = "devices that share a round", "the simulation on one device"
WIDE = "jax_enable_x64"
STEP = ("arrays", "about", "_CHECKPOINT_METADATA")
"""What lies in the folder of a round; one whose removal was cut off has some of it."""
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

        arrays, empty = pack({"state": state, "history": history})
        about = self.about | {"empty": empty, "values": _digest(arrays)}
        parts = ocp.args.Composite(arrays=ocp.args.StandardSave(arrays), about=ocp.args.JsonSave(about))
        there = max((int(step.name) for step in self.folder.iterdir() if step.name.isdigit()), default=None)
        if there != self.manager.latest_step():  # Orbax, which looked when it was opened, would write over it
            raise CheckpointError(
                f"checkpoint {self.folder} is in use by another run, which has kept round {there}: "
                "name another folder"
            )
        try:
            saved = self.manager.save(played, args=parts)
            self.manager.wait_until_finished()
        except Exception as error:  # tensorstore, the file system and Orbax each have their own
            raise CheckpointError(
                f"checkpoint {self.folder} could not be written after round {played} "
                f"({textwrap.shorten(str(error), 200, placeholder='...')}); {self._last()}"
            ) from error
        if not saved:  # Orbax passes over steps that are not the newest, in silence
            raise CheckpointError(f"checkpoint {self.folder} takes no round {played}: {self._last()}")

    def played(self) -> int:
        """After how many rounds the last checkpoint is; 0 without one."""
        return self.manager.latest_step() or 0

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
            if about.get("values") not in (None, _digest(arrays)):  # Orbax looks at its own tables alone
                raise ValueError("its arrays are not those that were written")
            found = unpack({"state": state, "history": history}, arrays, about["empty"])
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
        was, now = (of.get(WIDE, False) for of in (about, self.about))
        if was != now:
            raise CheckpointError(f"checkpoint {self.folder} is of another run: {WIDE} was {was} and is {now}")
        moved = DEVICES in about and about[DEVICES] != self.about.get(DEVICES)
        passed = (DEVICES, PROGRAM if moved else ON_ONE)  # of several devices a round's program tells how many
        for name, mine in self.about.items():
            theirs = about.get(name)
            if theirs == mine or name in passed:
                continue
            if name in (PROGRAM, ON_ONE, DATA, START):
                what = PROGRAM if name == ON_ONE else name
                raise CheckpointError(f"checkpoint {self.folder} is of another run: {what} is not the same")
            raise CheckpointError(
                f"checkpoint {self.folder} is of another run: {name} was {theirs!r} and is {mine!r}"
            )

    def _last(self) -> str:
        kept = self.manager.latest_step()
        return "none was before" if kept is None else f"the one after round {kept} is whole"


def keeper(folder: str | Path, about: Mapping[str, Any]) -> Keeper:
    """Open a checkpoint folder for the run that ``about`` describes; leftovers of a killed write are removed.

    Raises:
      CheckpointError: the folder cannot be made or written, or holds numbered ones that are no rounds.
    """
    import orbax.checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.CRITICAL)  # a line for every save, and errors that are raised, too
    place = place_of(folder)
    me = jax.process_index()  # of several processes the one that has the folder writes and reads by itself
    alone = ocp.options.MultiprocessingOptions(primary_host=me, active_processes={me})
    options = ocp.CheckpointManagerOptions(
        max_to_keep=KEPT, create=False, enable_async_checkpointing=False, multiprocessing_options=alone
    )
    try:
        place.mkdir(parents=True, exist_ok=True)
        check_numbered(place)
        manager = ocp.CheckpointManager(place, options=options)
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder} cannot be written: {error.strerror or error}") from error
    return Keeper(place, manager, dict(about))


def check_numbered(place: Path) -> None:
    """Refuse a folder with numbered ones that are no rounds of a run, which Orbax would remove as old ones.

    Raises:
      CheckpointError: it has one.
    """
    for folder in place.iterdir():
        if folder.name.isdigit() and folder.is_dir():
            within = {part.name for part in folder.iterdir()}
            if within and within.isdisjoint(STEP):
                raise CheckpointError(
                    f"checkpoint {place} holds the folder {folder.name}, which is no round of a run: "
                    "name a folder that is the run's alone"
                )


def place_of(folder: str | Path) -> Path:
    """The same place for every process that opens it, wherever that was started."""
    return Path(folder).expanduser().absolute()


def describe(sim: Simulation, start: SimState, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a run is told apart by: versions, settings, first state, data, and the program itself."""
    return described(program_of(sim), sim.data, start, settings)


def described(program: str, data: Any, start: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """As :func:`describe`, of a program whose digest is known."""
    versions = {name: metadata.version(name) for name in ("fedjax-fair", "jax", "jaxlib")}
    # In this order: another rule often starts from another state, too.
    digests = {PROGRAM: program, DATA: digest(*_bytes_of_data(data)), START: digest(*bytes_of(start))}
    wide = {WIDE: True} if jax.config.read(WIDE) else {}
    return versions | {"device": device()} | wide | dict(settings) | digests


def device() -> str:
    """What computes: another kind rounds otherwise."""
    return str(jax.devices()[0].device_kind)


def program_of(sim: Simulation) -> str:
    """A digest of the round and the evaluation as traced programs, constants included; what a callback into Python
    computes is not."""
    state = jax.eval_shape(sim.init, jax.random.key(0))
    shapes = jax.eval_shape(lambda: sim.data)
    return digest_of(
        jax.make_jaxpr(sim.init)(jax.random.key(0)),
        jax.make_jaxpr(sim.step)(state, shapes),
        jax.make_jaxpr(lambda s, d: scored(sim.evaluate, sim.deploy, s, d))(state, shapes),
    )


def _bytes_of_data(data: Any) -> list[bytes]:
    return [*bytes_of(data), *([data.x.fingerprint()] if isinstance(data.x, HostStore) else [])]


def _digest(arrays: Mapping[str, Any]) -> str:
    return digest(*(piece for name in sorted(arrays) for piece in (name.encode(), *bytes_of(arrays[name]))))


def pack(tree: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The leaves by their paths, and the forms of those without any element, which Orbax does not store."""
    leaves = {jax.tree_util.keystr(path): plain(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
    empty = {name: [list(leaf.shape), str(leaf.dtype)] for name, leaf in leaves.items() if not leaf.size}
    return {name: leaf for name, leaf in leaves.items() if leaf.size}, empty


def unpack(template: Any, arrays: Mapping[str, Any], empty: Mapping[str, Any]) -> Any:
    """The tree of the template's structure, with what :func:`pack` stored of it."""

    def leaf(path: Any, like: Any) -> Any:
        name = jax.tree_util.keystr(path)
        value = np.zeros(*empty[name]) if name in empty else np.asarray(arrays[name])
        if jax.dtypes.issubdtype(like.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(jax.numpy.asarray(value), impl=jax.random.key_impl(like))
        return value if isinstance(like, np.ndarray) else jax.numpy.asarray(value, like.dtype)

    return jax.tree_util.tree_map_with_path(leaf, template)

"""The trainings of reference rows, on disk: those that were made are not made again."""

import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_fair.engine.checkpoint import CheckpointError, described
from fedjax_fair.engine.digests import digest, digest_of
from fedjax_fair.engine.files import write_atomically
from fedjax_fair.numerics.xla_options import Compiled
from fedjax_fair.types import Evaluation

FOLDER = "references"
"""In a comparison's checkpoint."""

Scores = dict[str, Evaluation]
Traced = dict[tuple[str, int], tuple[str, Any]]
"""Per row and number of evaluations the digest of its program, and the form of what it returns."""


class Kept(NamedTuple):
    """The file of one row on one replicate; it is called by all that decides what is in it."""

    file: Path
    form: Any
    """Of the results of one training, a pytree's."""

    def load(self) -> list[Scores]:
        """The results of the first trainings; none where there is no file yet.

        Raises:
          CheckpointError: it cannot be read.
        """
        try:
            with np.load(io.BytesIO(self.file.read_bytes())) as arrays:
                leaves = [arrays[str(i)] for i in range(self.form.num_leaves)]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise CheckpointError(
                f"checkpoint {self.file} cannot be read ({type(error).__name__}: {error}); remove it to train its "
                "row again"
            ) from error
        return [jax.tree.unflatten(self.form, training) for training in zip(*leaves)]

    def save(self, found: Sequence[Scores]) -> None:
        """Write all results, whole or not at all.

        Raises:
          CheckpointError: they cannot be written; what was kept before stays.
        """
        leaves = zip(*map(jax.tree.leaves, found))
        buffer = io.BytesIO()
        np.savez(buffer, **{str(i): np.stack(leaf) for i, leaf in enumerate(leaves)})  # type: ignore[arg-type]
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.file, buffer.getvalue())
        except OSError as error:
            raise CheckpointError(f"checkpoint {self.file} cannot be written: {error.strerror or error}") from error


def kept_at(folder: Path, row: str, trained: Compiled, call: tuple[Any, ...], traced: Traced) -> Kept:
    """The file of ``row`` in a comparison's checkpoint.

    ``call`` is ``(key, first client, stretches, rounds, data)``, what ``trained`` gets. Where any of it differs, or
    the program, it is another file. ``traced`` remembers programs.
    """
    key, first, lengths, rounds, data = call
    known = row, len(lengths)
    if known not in traced:
        forms = jax.eval_shape(lambda: data)
        program, found = jax.make_jaxpr(trained.plain, return_shape=True)(key, first, lengths, rounds, forms)
        traced[known] = digest_of(program), jax.tree.structure(found)
    settings = {"row": row, "first": first, "stretches": lengths.tolist(), "rounds": rounds}
    about = described(traced[known][0], data, key, settings)
    name = digest(json.dumps(about).encode())[:16]
    return Kept(folder / FOLDER / f"{row}-{name}.npz", traced[known][1])

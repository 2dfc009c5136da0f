"""What coalitions are worth, on disk: those that were trained are not trained again."""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedjax_fair.engine.checkpoint import DATA, PROGRAM, START, CheckpointError
from fedjax_fair.engine.files import write_atomically

FILE = "coalitions.npz"


class Kept(NamedTuple):
    """A folder for the coalitions of one federation, which ``about`` describes."""

    folder: Path
    about: Mapping[str, Any]

    def load(self) -> dict[bytes, np.ndarray]:
        """By its mask what each is worth, f64[M]; nothing where the folder has none yet.

        Raises:
          CheckpointError: they are of another federation, cannot be read, or the folder cannot be made.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with np.load(io.BytesIO((self.folder / FILE).read_bytes())) as arrays:
                names, values, about = arrays["names"], arrays["values"], json.loads(str(arrays["about"]))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {self.folder} cannot be written: {error.strerror or error}"
            ) from error
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise CheckpointError(
                f"checkpoint {self.folder} cannot be read ({type(error).__name__}: {error}); remove {FILE} there"
            ) from error
        for name, mine in self._plain().items():
            if about.get(name) != mine and name in (PROGRAM, DATA, START):
                raise CheckpointError(f"checkpoint {self.folder} has other coalitions: {name} is not the same")
            if about.get(name) != mine:
                theirs = about.get(name)
                raise CheckpointError(
                    f"checkpoint {self.folder} has other coalitions: {name} was {theirs!r} and is {mine!r}"
                )
        return dict(zip([row.tobytes() for row in names], values))

    def save(self, known: Mapping[bytes, np.ndarray]) -> None:
        """Write all that are known, whole or not at all.

        Raises:
          CheckpointError: it cannot be written; what was kept before stays.
        """
        names = np.stack([np.frombuffer(name, np.uint8) for name in known])
        buffer = io.BytesIO()
        np.savez(buffer, names=names, values=np.stack([*known.values()]), about=json.dumps(self._plain()))
        try:
            write_atomically(self.folder / FILE, buffer.getvalue())
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {self.folder} cannot be written: {error.strerror or error}"
            ) from error

    def _plain(self) -> dict[str, Any]:
        return json.loads(json.dumps(dict(self.about)))

"""Arrays that are slow to make, kept in the user's cache directory."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import platformdirs

from fedjax_fair.checks import warn

Arrays = dict[str, np.ndarray]


def directory() -> Path:
    """Return ``$FEDJAX_FAIR_CACHE``, or the user's cache directory of this platform."""
    return Path(os.environ.get("FEDJAX_FAIR_CACHE") or platformdirs.user_cache_dir("fedjax_fair")).expanduser()


def cached(name: str, build: Callable[[], Arrays]) -> Arrays:
    """Return ``build()``, from ``name``.npz in the cache directory if an earlier call left it there.

    The file appears whole or not at all, and its checksums (CRC-32 of every array) are verified. A damaged
    file is reported in a warning and rebuilt; where nothing can be written, that is a warning too.
    """
    path = directory() / f"{name}.npz"
    arrays = _read(path)
    if arrays is None:
        arrays = build()
        _write(path, arrays)
    return arrays


def _read(path: Path) -> Arrays | None:
    try:
        with (
            path.open("rb") as file,
            np.load(file, allow_pickle=False) as stored,
        ):  # reading a member to its end checks its CRC
            return {key: stored[key] for key in stored.files}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:  # a damaged zip raises almost anything
        reason = f"{type(error).__name__}: {error}"
        warn(f"the cache file {path} cannot be read ({reason}) and is built again", RuntimeWarning)
        return None


def _write(path: Path, arrays: Arrays) -> None:
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary = file.name
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        warn(
            f"the decoded data cannot be cached in {path.parent} ({error}); the next call decodes it again",
            RuntimeWarning,
        )
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)

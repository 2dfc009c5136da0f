"""Small files, written whole or not at all; JSON without NaN."""

import json
import math
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HALVES = f".*.{'[0-9a-f]' * 32}.part"
"""What a process that is killed while it writes may leave."""


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace ``path`` in one step: a reader, or a crash, never sees half a file, whoever else writes it."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    except OSError as error:  # a full disk does not say where
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:  # Ctrl-C
        partial.unlink(missing_ok=True)
        raise


def to_json(value: Any, indent: int | None = 2) -> str:
    """``value`` as JSON, which has no number for NaN and infinity: they become null."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(v) for key, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(v) for v in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(value), indent=indent, allow_nan=False) + "\n"

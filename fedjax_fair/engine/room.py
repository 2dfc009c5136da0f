"""How much memory a device has, and how bytes are told."""

import os

import jax


def room() -> int:
    """Bytes of memory of the first device, or of this machine for a CPU; 0 where that is not known."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    if jax.default_backend() != "cpu" or not hasattr(os, "sysconf"):
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def in_words(count: float) -> str:
    """Bytes for a reader: "1.2 GB"."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.4g} TB"

"""Opponents' environments and processes, and the description of the machine. Standard library only."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TIMEOUT = 1800.0
"""Seconds that one process may take; the slowest on record takes three minutes."""


class Opponent(NamedTuple):
    """Who is measured, in which environment."""

    name: str
    title: str
    environment: str | None
    """The opponent whose virtual environment it uses; None for this project's own interpreter."""


OPPONENTS = {
    o.name: o
    for o in (
        Opponent("ours", "fedjax_fair", None),
        Opponent("ours_split", "… a device per core", None),
        Opponent("torch_loop", "PyTorch loop", "torch_loop"),
        Opponent("torch_vmap", "torch.func.vmap", "torch_loop"),
        Opponent("fedjax", "FedJAX", "fedjax"),
        Opponent("pfl", "pfl-research", "pfl"),
        Opponent("flower", "Flower (Ray)", "flower"),
        Opponent("floor", "XLA's products only", None),
    )
}


def interpreter(opponent: Opponent) -> Path:
    """The Python that runs it."""
    if opponent.environment is None:
        return Path(sys.executable)
    return HERE / "opponents" / opponent.environment / ".venv" / "bin" / "python"


def install(opponent: Opponent) -> str | None:
    """Make the opponent's environment unless it is complete; None, or the last line of the error."""
    if opponent.environment is None:
        return None
    folder = HERE / "opponents" / opponent.environment
    done, wanted = folder / ".venv" / "installed.txt", (folder / "requirements.txt").read_text()
    if done.exists() and done.read_text() == wanted:
        return None
    commands = (
        [sys.executable, "-m", "venv", "--clear", str(folder / ".venv")],
        [str(interpreter(opponent)), "-m", "pip", "install", "-q", "-r", str(folder / "requirements.txt")],
    )
    for command in commands:
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode:
            return "cannot be installed: " + last_line(ended.stderr or ended.stdout)
    done.write_text(wanted)
    return None


def measure(opponent: Opponent, arguments: list[str], threads: int, timeout: float = TIMEOUT) -> dict[str, Any]:
    """Run one opponent's process: its JSON line, or ``{"error": reason}``."""
    script = [str(HERE / "opponents" / opponent.name / "run.py")]
    if opponent.environment is None:
        script = ["-m", f"benchmarks.speed.{opponent.name}"]
    command = [str(interpreter(opponent)), *script, *arguments, "--threads", str(threads)]
    return run_json(command, threads, timeout)


def run_json(command: list[str], threads: int | None = None, timeout: float = TIMEOUT) -> dict[str, Any]:
    """The JSON object in the last line that a command prints, or ``{"error": reason}``."""
    load = os.getloadavg()[0]
    try:
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            preexec_fn=None if threads is None else lambda: pin(threads),
        )
    except subprocess.TimeoutExpired:
        return {"error": f"did not end within {timeout:.0f} s"}
    except OSError as error:
        return {"error": f"cannot be started: {error.strerror}"}
    if ended.returncode:
        return {"error": last_line(ended.stderr) or f"exit status {ended.returncode}"}
    try:
        return {**json.loads(last_line(ended.stdout)), "load_before": load}
    except ValueError:
        return {"error": "printed no result"}


def last_line(text: str) -> str:
    """The last line that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pin(threads: int) -> None:
    """Keep a process and all its threads on so many cores; XLA has no switch of its own for that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:threads]))


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    model = platform.processor() or platform.machine()
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "cpu": model,
        "cores": usable_cores(),
        "memory_gb": round(memory / 2**20, 1),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def commit() -> str:
    """The project's git commit, marked where the package or this suite differs from it."""

    def git(*arguments: str) -> str:
        ended = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=ROOT)
        return ended.stdout.strip() if ended.returncode == 0 else ""

    changed = git("status", "--porcelain", "--", "fedjax_fair", "benchmarks/speed/*.py")
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + (" with changes" if changed else "")


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []

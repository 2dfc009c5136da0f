"""What the small scripts share: where results go, what they say of the machine, how rounds are timed."""

import datetime
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fedjax_fair as ff
from benchmarks.speed import contract, runner
from benchmarks.speed.report import table
from fedjax_fair.data import Split
from fedjax_fair.numerics.xla_options import compiled, of_rounds

Program = Callable[[Any], Any]
"""Takes a state, plays its rounds, returns the state after them."""


def folder(out: Path | None, machine: str | None = None, quick: bool = False) -> Path:
    """Where results go: ``out``, or results/MACHINE beside this file."""
    name = machine or f"{runner.machine()['cpu']} {runner.usable_cores()} cores"
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ("-quick" if quick else "")
    path = out or runner.HERE / "results" / slug
    path.mkdir(parents=True, exist_ok=True)
    return path


def provenance() -> dict[str, Any]:
    """Command, date, commit, machine, versions."""
    module = Path(sys.argv[0]).stem
    words = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    return {
        "command": " ".join([f"python -m benchmarks.speed.{module}", *words]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": runner.commit(),
        "machine": runner.machine(),
        "devices": [device.device_kind for device in jax.devices()],
        "versions": contract.versions("fedjax-fair", "jax", "jaxlib", "flax", "optax", "numpy"),
    }


def write(
    path: Path,
    name: str,
    title: str,
    notes: str,
    tables: Sequence[tuple[Sequence[str], list]],
    numbers: Any,
    say: bool = True,
) -> None:
    """``name``.json with every number, ``name``.md with the tables; prints the latter if it is to ``say`` them."""
    about = provenance()
    (path / f"{name}.json").write_text(json.dumps({**about, "results": numbers}, indent=1) + "\n")
    host, versions = about["machine"], ", ".join(f"{k} {v}" for k, v in about["versions"].items())
    where = f"{host['cpu']}, {host['cores']} cores, {host['memory_gb']} GB; JAX on {', '.join(about['devices'])}"
    parts = [f"# {title}", notes, *(table(rows, tuple(columns)) for columns, rows in tables)]
    parts.append(f"`{about['command']}`, {about['date']}, commit {about['commit']}. {where}; {versions}.")
    text = "\n\n".join(parts) + "\n"
    (path / f"{name}.md").write_text(text)
    if say:
        print(text)


def equal_federation(x: np.ndarray, y: np.ndarray) -> ff.FederatedData:
    """Clients' arrays [N, n, ...] as a federation, all of it for training, without a Python object per client."""
    clients, each = y.shape
    nothing = jnp.zeros((0,), jnp.int32)
    empty = Split(nothing, jnp.zeros((clients,), jnp.int32), jnp.zeros((clients,), jnp.int32), nothing)
    rows = jnp.arange(clients * each, dtype=jnp.int32)
    start = jnp.arange(clients, dtype=jnp.int32) * each
    train = Split(rows, start, jnp.full((clients,), each, jnp.int32), rows // each)
    store = jnp.array(x.reshape(clients * each, *x.shape[2:]))
    return ff.FederatedData(store, jnp.array(y.reshape(-1)), train, empty, empty)


def rounds_of(sim: ff.Simulation, count: int) -> Program:
    """``state -> state`` after ``count`` rounds, one compiled call without evaluation; waits for the result.

    It takes the state's memory over and is compiled as ``ff.run`` does it: else every call copies what clients
    remember, and a small model's rounds wander from core to core.
    """

    def play(state: ff.SimState, data: ff.FederatedData) -> ff.SimState:
        return jax.lax.scan(lambda s, _: (sim.step(s, data)[0], None), state, length=count)[0]

    run = compiled(play, of_rounds(), donate_argnums=0)
    return lambda state: jax.block_until_ready(run(state, sim.data))


def interleaved(
    programs: Mapping[Any, Program], states: Mapping[Any, Any], repeats: int, count: int
) -> dict[Any, list[float]]:
    """Seconds per round of each program, ``repeats`` times in turn, after a first call that compiles."""
    own = jax.tree.map(jnp.copy, dict(states))  # what is taken over must be nobody else's
    current = {name: programs[name](own[name]) for name in programs}
    taken: dict[Any, list[float]] = {name: [] for name in programs}
    for _ in range(repeats):
        for name, program in programs.items():
            begin = time.perf_counter()
            current[name] = program(current[name])
            taken[name].append((time.perf_counter() - begin) / count)
    return taken


def spread(times: Sequence[float], unit: float = 1e3) -> str:
    """Median [lowest – highest], in ms."""
    middle, low, high = (value * unit for value in (statistics.median(times), min(times), max(times)))
    return f"{middle:.4g} [{low:.4g} – {high:.4g}]"

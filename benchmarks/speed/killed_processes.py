"""One run of two processes, killed at random moments and resumed: does it end the same, how soon do survivors end?

``python -m benchmarks.speed.killed_processes [--kills 5] [--seed 0]``. Two processes of two CPU devices each play
FedMABA on Synthetic(1, 1). Each kill (SIGKILL) takes process 0, process 1 or both; both are started again. From
the checkpoint of the last kill one process of one device also goes on. How far sums in another order take a run by
themselves: one process of one device, and one of two, both from the first round on.
"""

import argparse
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import optax

import fedjax_fair as ff

ROUNDS, GAP, DEVICES = 400, 5, 2
VICTIMS = {"process 0": (0,), "process 1": (1,), "both": (0, 1)}


def play(out: Path, folder: Path | None) -> None:
    """The run, in one of its processes; the first writes the last state and the history to ``out``."""
    sim = ff.simulation(
        ff.models.mlp((50,)),
        ff.data.synthetic(n_clients=30, alpha=1.0, beta=1.0, seed=0),
        aggregator=ff.fedmaba(),
        selector=ff.uniform(10),
        trainer=ff.local_sgd(optax.sgd(0.05), batch_size=50),
        devices=jax.device_count(),
    )
    state, history = ff.run(sim, 0, ROUNDS, eval_every=GAP, chunk=1, checkpoint=folder)
    if jax.process_index() == 0:
        leaves = jax.tree.leaves((state._replace(key=jax.random.key_data(state.key)), history))
        np.savez(out, *[np.asarray(leaf) for leaf in leaves if not isinstance(leaf, (str, float, bool))])


def start(
    out: Path, folder: Path | None, processes: int, place: Path, devices: int = DEVICES
) -> list[subprocess.Popen]:
    """The processes of a run, whose standard errors go to files in ``place``."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        "JAX_COMPILATION_CACHE_DIR": str(place / "programs"),
    }
    started = []
    for mine in range(processes):
        words = ["--play", str(out), str(folder or ""), address, str(processes), str(mine)]
        with (place / f"{mine}.log").open("w") as log:
            command = [sys.executable, "-m", "benchmarks.speed.killed_processes", *words]
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
    return started


def newest(folder: Path) -> int:
    """Rounds in the last whole checkpoint."""
    return max((int(path.name) for path in folder.glob("*") if path.name.isdigit()), default=0)


def ended(processes: list[subprocess.Popen], place: Path) -> None:
    """Wait for processes that nobody kills."""
    codes = [process.wait() for process in processes]
    if any(codes):
        raise RuntimeError(f"exit statuses {codes}: {(place / '0.log').read_text()[-2000:]}")


def kill(folder: Path, out: Path, place: Path, rng: random.Random) -> str:
    """One life of the run, and its end, in a row of the table."""
    before, victim = newest(folder), rng.choice([*VICTIMS])
    processes = start(out, folder, 2, place)
    while newest(folder) == before and processes[0].poll() is None:
        time.sleep(0.01)
    time.sleep(2 * rng.random())
    if any(process.poll() is not None for process in processes):
        raise RuntimeError(f"the run ended before it was killed: {(place / '0.log').read_text()[-2000:]}")
    for i in VICTIMS[victim]:
        processes[i].kill()
    begun = time.perf_counter()
    codes = [process.wait() for process in processes]
    seconds = time.perf_counter() - begun
    survivors = [i for i in range(2) if i not in VICTIMS[victim]]
    said = ["in our sentence" if codes[i] == 75 else f"in JAX's words, status {codes[i]}" for i in survivors]
    return f"| {victim} | {newest(folder)} | {f'{seconds:.1f} s, {said[0]}' if said else 'nobody left'} |"


def difference(one: Path, other: Path) -> tuple[bool, float]:
    """Whether two runs are the same bit for bit, and by how much they differ at most."""
    with np.load(one) as a, np.load(other) as b:
        pairs = [(a[name], b[name]) for name in a.files]
    same = all(x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in pairs)
    return same, max(float(np.nanmax(np.abs(x * 1.0 - y))) for x, y in pairs if x.size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--play", nargs=5, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.play:
        out, folder, address, processes, mine = asked.play
        if processes != "1":
            jax.distributed.initialize(address, int(processes), int(mine))
        play(Path(out), Path(folder) if folder else None)
        return
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        folder = place / "kept"
        ended(start(place / "whole.npz", None, 2, place), place)
        print("| killed | last checkpoint | the other one ended after |\n| --- | ---: | --- |")
        for _ in range(asked.kills):
            print(kill(folder, place / "cut.npz", place, rng), flush=True)
        at = newest(folder)
        shutil.copytree(folder, place / "copy")
        ended(start(place / "cut.npz", folder, 2, place), place)
        ended(start(place / "alone.npz", place / "copy", 1, place, devices=1), place)
        same, apart = difference(place / "whole.npz", place / "cut.npz")
        print(f"Two processes go on from round {at} of {ROUNDS}: same bits {same}, largest difference {apart:.1g}.")
        apart = difference(place / "whole.npz", place / "alone.npz")[1]
        print(f"One process of one device goes on from round {at}: largest difference {apart:.1g}.")
        for devices in (1, 2):
            ended(start(place / f"of-{devices}.npz", None, 1, place, devices), place)
        apart = difference(place / "of-1.npz", place / "of-2.npz")[1]
        print(f"One process of one device, and one of two, all {ROUNDS} rounds: largest difference {apart:.1g}.")


if __name__ == "__main__":
    main()

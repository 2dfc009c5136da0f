"""Training on examples that do not fit into memory: how fast, in how much of it, and how it grows with the clients.

(1) A mapped file of some 20 GB, of a million clients, against a federation of clients of the same sizes that is in
memory: seconds a round, resident memory. The file is sparse: a disk reads nothing, so this is the cost of the way,
not of a disk. (2) The same with selection by loss. (3) A million clients with small examples in memory, with a rule
that keeps a state, a selector with feedback, absences and faults, against a thousand;
the last with more training, too.

    python -m benchmarks.speed.larger_than_memory            # prints one line of JSON a measurement
    python -m benchmarks.speed.larger_than_memory --quick    # small sizes: to see that it runs

Every measurement is a process of its own.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np
import optax

import fedjax_fair as ff

IMAGE, EACH = (32, 32, 3), 7  # bytes of an example; examples of a client: 5 to train on, 1 and 1 to judge
SPLIT = (0.7, 0.15, 0.15)


def resident() -> dict[str, float]:
    """GB that this process holds now, and the most that it held."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"resident_gb": round(pages * 4096 / 1e9, 3), "most_resident_gb": round(most / 1e6, 3)}


def selectors(name: str) -> ff.Selector:
    """Cohorts of ten."""
    return {"uniform": ff.uniform(10), "pow_d": ff.pow_d(10, 20), "ucb_cs": ff.ucb_cs(10)}[name]


def timed(sim: ff.Simulation, rounds: int, repeats: int) -> dict[str, float]:
    """Milliseconds a round: the median of the calls, and the least; of the CPU's time, which others touch less."""
    state = sim.init(jax.random.key(0))
    ff.run(sim, state=state, rounds=rounds, eval_every=rounds)  # compiles
    found: list[tuple[float, float]] = []
    for _ in range(repeats):
        begun, used = time.perf_counter(), time.process_time()
        ff.run(sim, state=state, rounds=rounds, eval_every=rounds)
        found.append((time.perf_counter() - begun, time.process_time() - used))
    wall, cpu = ([1000 * call / rounds for call in calls] for calls in zip(*found))
    return {
        "ms_a_round": round(statistics.median(wall), 3),
        "best_ms": round(min(wall), 3),
        "cpu_ms_a_round": round(statistics.median(cpu), 3),
    }


def without_evaluation(sim: ff.Simulation) -> ff.Simulation:
    """The rounds alone: the evaluation is of all clients and would be most of the time."""
    return sim._replace(evaluate=lambda params, data: {"test": _nobody(data.n_clients)})


def _nobody(n: int) -> ff.types.Evaluation:
    return ff.types.Evaluation(jax.numpy.zeros(n), jax.numpy.zeros(n))


def images(path: str, clients: int, place: str, selector: str, rounds: int, repeats: int) -> dict[str, object]:
    """Rounds of a softmax regression on images of bytes."""
    begun, used = time.perf_counter(), time.process_time()
    x = np.load(path, mmap_mode="r")
    x = x if place == "host" else np.array(x)
    y = np.random.default_rng(0).integers(0, 10, len(x)).astype(np.int32)
    owner = np.repeat(np.arange(clients), EACH)
    data = ff.FederatedData.from_arrays(x, y, client_id=owner, split=SPLIT, store=place)
    made = time.perf_counter()
    sim = without_evaluation(
        ff.simulation(
            ff.models.logistic_regression(),
            data,
            aggregator=ff.fedavg(),
            selector=selectors(selector),
            trainer=ff.local_sgd(optax.sgd(0.1), epochs=1, batch_size=5),
        )
    )
    put, spent = time.perf_counter(), round(time.process_time() - used, 1)
    found = timed(sim, rounds, repeats)
    setup = {"from_arrays_s": round(made - begun, 1), "simulation_s": round(put - made, 1), "cpu_s": spent}
    return {"clients": clients, "store": place, "gb": round(x.nbytes / 1e9, 2), "selector": selector} | (
        setup | found | resident()
    )


def small(clients: int, selector: str, model: str, rounds: int, repeats: int) -> dict[str, object]:
    """Rounds with everything that goes by the number of clients: state, feedback, absences, faults."""
    network, epochs = {"softmax": (ff.models.logistic_regression(), 1), "mlp": (ff.models.mlp((200, 200)), 20)}[
        model
    ]
    rng = np.random.default_rng(0)
    begun, used = time.perf_counter(), time.process_time()
    x = rng.standard_normal((clients * EACH, 20), np.float32)
    owner = np.repeat(np.arange(clients), EACH)
    data = ff.FederatedData.from_arrays(x, rng.integers(0, 10, len(x)), client_id=owner, split=SPLIT)
    made = time.perf_counter()
    sim = without_evaluation(
        ff.simulation(
            network,
            data,
            aggregator=ff.fedmaba(),
            selector=selectors(selector),
            trainer=ff.local_sgd(optax.sgd(0.1), epochs=epochs, batch_size=5),
            available=ff.availability.bernoulli(0.9),
            faults=[ff.faults.inflate_loss(ff.faults.some(clients, 0.1))],
        )
    )
    jax.block_until_ready(sim.init(jax.random.key(0)))
    put, spent = time.perf_counter(), round(time.process_time() - used, 1)
    setup = {"from_arrays_s": round(made - begun, 1), "simulation_and_init_s": round(put - made, 1), "cpu_s": spent}
    return {"clients": clients, "rule": "fedmaba", "selector": selector, "model": model} | (
        setup | timed(sim, rounds, repeats) | resident()
    )


def alone(*arguments: object) -> None:
    """One measurement in a process of its own, which prints it."""
    command = [sys.executable, "-m", "benchmarks.speed.larger_than_memory", *map(str, arguments)]
    print(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip(), flush=True)


def everything(quick: bool) -> None:
    """All of it, one after another; the file goes to the folder for temporary files and is removed."""
    rounds, repeats = (20, 1) if quick else (200, 5)
    many, few = (2_000, 500) if quick else (1_000_000, 20_000)
    with tempfile.TemporaryDirectory() as folder:
        paths = {clients: f"{folder}/{clients}.npy" for clients in (many, few)}
        for clients, path in paths.items():
            np.lib.format.open_memmap(path, "w+", np.uint8, (clients * EACH, *IMAGE))[::1000, 0, 0, 0] = 255
        for selector in ("uniform", "pow_d", "ucb_cs"):
            alone("--images", paths[few], few, "device", selector, rounds, repeats)
            alone("--images", paths[few], few, "host", selector, rounds, repeats)
            alone("--images", paths[many], many, "host", selector, rounds, repeats)
    for selector, model in (("uniform", "softmax"), ("ucb_cs", "softmax"), ("ucb_cs", "mlp")):
        for clients in (1_000, many):
            alone("--small", clients, selector, model, rounds, repeats)


def main() -> None:
    """The command line: everything, or one measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--images", nargs=6)
    parser.add_argument("--small", nargs=5)
    given = parser.parse_args()
    if given.images:
        path, clients, place, selector, rounds, repeats = given.images
        print(json.dumps(images(path, int(clients), place, selector, int(rounds), int(repeats))))
    elif given.small:
        clients, selector, model, rounds, repeats = given.small
        print(json.dumps(small(int(clients), selector, model, int(rounds), int(repeats))))
    else:
        everything(given.quick)


if __name__ == "__main__":
    main()

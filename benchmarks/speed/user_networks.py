"""CPU seconds of a round of networks as a user writes them in flax, beside the stock one and a PyTorch loop."""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fedjax_fair as ff
from benchmarks.speed import common, runner
from benchmarks.speed.flax_networks import CNN, ResNet

CLIENTS, COHORT, BATCH = 20, 10, 50


def federation(examples: int) -> ff.FederatedData:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((CLIENTS, examples, 32, 32, 3), np.float32)
    return common.equal_federation(x, rng.integers(0, 10, (CLIENTS, examples)))


def ours(net: object, data: ff.FederatedData) -> Callable[[], float]:
    """Plays a round and says what it took."""
    trainer = ff.local_sgd(optax.sgd(0.05), batch_size=BATCH)
    parts = {"aggregator": ff.fedavg(), "selector": ff.uniform(COHORT), "trainer": trainer, "evaluate": ("train",)}
    sim = ff.simulation(net, data, **parts)
    play = common.rounds_of(sim, 1)
    state = play(jax.tree.map(jnp.copy, sim.init(jax.random.key(0))))

    def cpu() -> float:
        nonlocal state
        begin = time.process_time()
        state = play(state)
        return time.process_time() - begin

    return cpu


def torch_loop(network: str, examples: int) -> Callable[[], float]:
    """The same by a process of PyTorch on one thread."""
    opponent = runner.OPPONENTS["torch_loop"]
    if error := runner.install(opponent):
        raise SystemExit(error)
    script = runner.HERE / "opponents" / "torch_user_networks.py"
    command = [str(runner.interpreter(opponent)), str(script), network, str(examples * COHORT // BATCH)]
    return lambda: runner.run_json(command)["cpu_s"]


def main() -> None:
    """All in turn, ``--repeats`` times; medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=400, help="of each client")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    data = federation(args.examples)
    programs = {
        "the stock CNN": ours(ff.models.cnn(), data),
        "its network of nn.Conv": ours(CNN(), data),
        "its network in PyTorch": torch_loop("cnn", args.examples),
        "ResNet-18-GN of nn.Conv": ours(ResNet(), data),
        "ResNet-18-GN in PyTorch": torch_loop("resnet", args.examples),
    }
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(args.repeats):
        for name, program in programs.items():
            taken[name].append(program())
    rows = [[name, common.spread(times, 1)] for name, times in taken.items()]
    middle = {name: statistics.median(times) for name, times in taken.items()}
    print({name: round(value, 3) for name, value in middle.items()})
    notes = (
        f"A round of {COHORT} clients of {args.examples} images of 32 x 32 x 3, batches of {BATCH}. "
        f"Median [lowest – highest] of {args.repeats}, in turn. PyTorch has one thread."
    )
    path = common.folder(args.out)
    tables = [(("", "CPU s"), rows)]
    common.write(path, "user_networks", "Networks of a user's own", notes, tables, taken)


if __name__ == "__main__":
    main()

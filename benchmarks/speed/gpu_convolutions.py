"""Which form of a convolution is fastest on a GPU where every client has its own weights: rounds of whole models.

XLA's convolution becomes a grouped one under ``vmap`` over clients; a product of patches becomes a batched product.
One client at a time neither does.
"""

import dataclasses
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import flax.linen as nn
import jax

import fedjax_fair as ff
from benchmarks.speed import common, ours, workloads
from benchmarks.speed.flax_networks import network
from fedjax_fair.models import max_pool_2x2
from fedjax_fair.models.convolution import by_xla, patches
from fedjax_fair.models.flax_modules import Model
from fedjax_fair.models.rewriting import rewritten


@dataclasses.dataclass
class Options:
    """Rounds of cnn-cifar, pfl-cifar and resnet-user by two convolutions; refuses to start without a GPU."""

    repeats: int = 5
    """Timed calls of each."""
    out: Path | None = None
    """Folder for the results."""
    quick: bool = False
    """Small clients, on a CPU, too: to see that it runs."""


class Net(nn.Module):
    """A workload's network, its convolutions by a given function."""

    operations: tuple[tuple, ...]
    convolve: Callable[[jax.Array, jax.Array], jax.Array]

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for i, (name, *settings) in enumerate(self.operations):
            if name == "conv":
                side, width = settings
                shape = (side, side, x.shape[-1], width)
                kernel = self.param(f"kernel{i}", nn.initializers.lecun_normal(), shape)
                x = self.convolve(x, kernel) + self.param(f"bias{i}", nn.initializers.zeros, (width,))
            elif name == "dense":
                x = nn.Dense(settings[0])(x)
            else:
                plain = {"relu": nn.relu, "pool": max_pool_2x2, "flatten": lambda x: x.reshape(len(x), -1)}
                x = plain[name](x)
        return x


def forms(work: workloads.Workload) -> Iterator[tuple[str, Model]]:
    """The workload's network with XLA's convolutions, and with products of patches."""
    if work.network:
        net = ff.models.as_model(network(work.network, workloads.LETTERS))
        yield "XLA's, as written", net
        yield "rewritten, as on a CPU", net._replace(apply=rewritten(net.apply))
    else:
        yield "XLA's", ff.models.as_model(Net(work.model, by_xla))
        yield "patches", ff.models.as_model(Net(work.model, patches))


def main(options: Options | None = None) -> int:
    """All networks; ``options`` are the command line's unless they are given."""
    if options is None:
        import tyro

        options = tyro.cli(Options)
    device = jax.devices()[0]
    if device.platform != "gpu" and not options.quick:
        print("JAX finds no GPU here; --quick tests the script.", file=sys.stderr)
        return 2
    out, found, rows = common.folder(options.out, device.device_kind, options.quick), [], []
    for name in ("cnn-cifar", "pfl-cifar", "resnet-user"):
        work = workloads.WORKLOADS[name]
        if options.quick:
            work = work._replace(clients=4, examples=2 * work.batch, cohort=2)
        data = ours.federation(*workloads.make_data(work))
        for what, net in forms(work):
            for block in (None, 1):
                sim = ours.simulate(work, data, model=net, client_block=block)
                state, each = sim.init(jax.random.key(0)), 2
                times = common.interleaved({0: common.rounds_of(sim, each)}, {0: state}, options.repeats, each)[0]
                together = "one client" if block else f"{work.cohort} clients"
                rate = workloads.flop(work) / statistics.median(times)
                found.append({"workload": name, "convolution": what, "client_block": block, "round_s": times})
                rows.append([name, what, together, common.spread(times), f"{rate / 1e12:.3g}"])
                print(" | ".join(rows[-1]), flush=True)
                write(out, device.device_kind, rows, found)
    return 0


def write(out: Path, device: str, rows: list[list[str]], found: list[dict]) -> None:
    """The table of all that has been measured so far."""
    title = f"Convolutions with weights of each client's own on one {device}"
    columns = ("workload", "convolution", "at a time", "round, ms", "TFLOP/s")
    notes = "Median [lowest – highest]; full float32."
    common.write(out, "gpu_convolutions", title, notes, [(columns, rows)], found, say=False)


if __name__ == "__main__":
    sys.exit(main())

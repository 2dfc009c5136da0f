"""Which form of a convolution is fastest on a GPU where every client has its own weights: rounds of whole models.

As the user wrote it it is XLA's convolution, which ``vmap`` over clients turns into a grouped one; rewritten it is
a product of patches, as the engine makes of it on a CPU; one client at a time neither is grouped.
"""

import dataclasses
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import flax.linen as nn
import jax

import fedjax_fair as ff
from benchmarks.speed import common, ours, workloads
from benchmarks.speed.flax_networks import network
from fedjax_fair.models.flax_modules import Model
from fedjax_fair.models.rewriting import rewritten


@dataclasses.dataclass
class Options:
    """Rounds of two networks of nn.Conv, in four forms each."""

    repeats: int = 5
    """Timed calls of each."""
    out: Path | None = None
    """Folder for the results."""
    quick: bool = False
    """Small clients: to see that it runs."""


class Plain(nn.Module):
    """The network of cnn-cifar, written with nn.Conv."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for width in (32, 64):
            x = nn.max_pool(nn.relu(nn.Conv(width, (5, 5), padding="VALID")(x)), (2, 2), (2, 2))
        return nn.Dense(10)(nn.relu(nn.Dense(512)(x.reshape(len(x), -1))))


def forms(net: Model, cohort: int) -> Iterator[tuple[str, Model, int | None]]:
    """A name, the model in that form, and how many clients are vmapped."""
    for what, form in (("XLA's convolution", net), ("rewritten", net._replace(apply=rewritten(net.apply)))):
        for block in (None, 1):
            yield f"{what}, {'one client at a time' if block else f'{cohort} clients'}", form, block


def main(options: Options | None = None) -> int:
    """Both networks; ``options`` are the command line's unless they are given."""
    if options is None:
        import tyro

        options = tyro.cli(Options)
    out, found, rows = common.folder(options.out, jax.devices()[0].device_kind, options.quick), [], []
    nets = {"cnn-cifar": Plain(), "resnet-user": network("resnet", workloads.LETTERS)}
    for name, net in nets.items():
        work = workloads.WORKLOADS[name]
        if options.quick:
            work = work._replace(examples=2 * work.batch, cohort=2)
        data = ours.federation(*workloads.make_data(work))
        kinds = list(forms(ff.models.as_model(net), work.cohort))
        if name == "cnn-cifar":
            kinds.insert(0, (f"the stock CNN, {work.cohort} clients", ff.models.cnn(), None))
        for what, form, block in kinds:
            sim = ours.simulate(work, data, model=form, client_block=block)
            state = sim.init(jax.random.key(0))
            times = common.interleaved({0: common.rounds_of(sim, 2)}, {0: state}, options.repeats, 2)[0]
            found.append({"workload": name, "what": what, "round_s": times})
            rate = workloads.flop(work) / statistics.median(times)
            rows.append([name, what, common.spread(times), f"{rate / 1e12:.3g}"])
            print(" | ".join(rows[-1]), flush=True)
            common.write(
                out,
                "gpu_convolutions",
                f"Convolutions with weights of each client's own on one {jax.devices()[0].device_kind}",
                "Median [lowest – highest]; full float32.",
                [(("workload", "convolution", "round, ms", "TFLOP/s"), rows)],
                found,
                say=False,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

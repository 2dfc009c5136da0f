"""Time per seed when seeds train side by side: one compiled program, vmapped over the seeds' states."""

import dataclasses
import statistics
from pathlib import Path

import jax

import fedjax_fair as ff
from benchmarks.speed import common, ours, workloads


@dataclasses.dataclass
class Options:
    """Per-seed time of a round with 1, 4, 16 and 64 seeds in one program."""

    workloads: tuple[str, ...] = ("lr-synthetic", "mlp-fmnist")
    """Which workloads."""
    seeds: tuple[int, ...] = (1, 4, 16, 64)
    """How many seeds at a time."""
    repeats: int = 7
    """Timed calls of each program, in turn."""
    out: Path | None = None
    """Folder for the results."""
    quick: bool = False
    """Few rounds and seeds: to see that it runs."""


def many(sim: ff.Simulation, rounds: int) -> common.Program:
    """``states -> states`` of several seeds; the data is shared, not copied."""

    @jax.jit
    def play(states: ff.SimState, data: ff.FederatedData) -> ff.SimState:
        step = jax.vmap(lambda state: sim.step(state, data)[0])
        return jax.lax.scan(lambda s, _: (step(s), None), states, length=rounds)[0]

    return lambda states: jax.block_until_ready(play(states, sim.data))


def start(sim: ff.Simulation, count: int) -> ff.SimState:
    """The states of seeds 0 ... count - 1, stacked."""
    return jax.vmap(sim.init)(jax.vmap(jax.random.key)(jax.numpy.arange(count)))


def rounds_for(name: str, quick: bool) -> int:
    """Rounds per timed call: some tenths of a second for one seed."""
    return 2 if quick else {"lr-synthetic": 100, "mlp-fmnist": 5}.get(name, 1)


def main() -> None:
    """All numbers of seeds of one workload take turns."""
    import tyro

    options = tyro.cli(Options)
    counts, repeats = ((1, 2), 1) if options.quick else (options.seeds, options.repeats)
    rows, numbers = [], []
    for name in options.workloads:
        work = workloads.WORKLOADS[name]
        sim, rounds = (
            ours.simulate(work, ours.federation(*workloads.make_data(work))),
            rounds_for(name, options.quick),
        )
        programs = {count: many(sim, rounds) for count in counts}
        times = common.interleaved(programs, {n: start(sim, n) for n in counts}, repeats, rounds)
        alone = statistics.median(times[counts[0]]) / counts[0]
        for count in counts:
            each = [t / count for t in times[count]]
            gain = alone / statistics.median(each)
            rows.append([name, str(count), common.spread(times[count]), common.spread(each), f"{gain:.2f}"])
            numbers.append({"workload": name, "seeds": count, "round_s": times[count]})
    columns = ("workload", "seeds", "round of all, ms", "per seed, ms", f"gain over {counts[0]}")
    notes = (
        f"FedAvg; {repeats} calls each, in turn; median [lowest – highest]. "
        "`jax.vmap` of `sim.step` over the seeds' states."
    )
    common.write(
        common.folder(options.out, quick=options.quick),
        "seeds",
        "Many seeds in one program",
        notes,
        [(columns, rows)],
        numbers,
    )


if __name__ == "__main__":
    main()

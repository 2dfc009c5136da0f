"""The engine on a GPU: pfl's published run, many seeds, a full cohort, users' networks, and PyTorch's plain loop.

The precision of float32 products is stated with every figure: "highest", full float32, is what users get, "default"
what ``simulation(precision="default")`` asks for (TF32 on NVIDIA's tensor cores). The peak is that of one large
product at the same precision. The table is written anew with every figure. Without tyro:
``python -c "from benchmarks.speed import gpu; gpu.main(gpu.Options())"``.
"""

import contextlib
import dataclasses
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

import fedjax_fair as ff
from benchmarks.speed import common, ours, prepared, runner, seeds, workloads

USERS = ("skewed-fedmaba", "transformer-text", "gru-shakespeare", "resnet-user")


@dataclasses.dataclass
class Options:
    """Speed on one GPU; refuses to start without one, unless --platform cpu says that this is a test."""

    platform: str = "gpu"
    """gpu, or cpu to test the script."""
    precisions: tuple[str, ...] = ("default", "highest")
    """Precision of float32 products."""
    blocks: tuple[int, ...] = (0, 10, 25)
    """client_block to try on pfl-cifar; 0 stands for all."""
    rounds: int = 1500
    """Rounds of pfl's published run."""
    seeds: tuple[int, ...] = (1, 16, 64, 256, 1024)
    """Seeds side by side on lr-synthetic."""
    repeats: int = 5
    """Timed calls of the shorter measurements."""
    users: tuple[str, ...] = USERS
    """Workloads of users; gru-shakespeare is left out without --data."""
    loops: tuple[str, ...] = ("mlp-fmnist-all", "pfl-cifar", *USERS)
    """Workloads that a PyTorch loop trains on the same GPU, client after client; torch must be installed here."""
    data: Path | None = None
    """An .npz of roles, or LEAF's folder of Shakespeare; see README.md."""
    out: Path | None = None
    """Folder for the results."""
    quick: bool = False
    """Few rounds: to see that it runs."""


def peak(side: int, repeats: int = 10) -> float:
    """Best FLOP/s of one large float32 product at the precision now in force."""
    x = jax.random.normal(jax.random.key(1), (side, side))
    program = jax.jit(lambda a: a @ a)
    jax.block_until_ready(program(x))
    took = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(program(x))
        took.append(time.perf_counter() - begin)
    return 2 * side**3 / min(took)


def published_run(options: Options, precision: str, best: float) -> Iterator[dict]:
    """pfl-cifar for ``options.rounds`` rounds, whole run and steady state, for every client_block."""
    work = workloads.WORKLOADS["pfl-cifar"]
    data = ours.federation(*workloads.make_data(work))
    for block in options.blocks:
        sim = ours.simulate(work, data, client_block=block or None, precision=precision)
        stamps = [time.perf_counter()]
        every = max(1, options.rounds // 10)
        state, _ = ff.run(
            sim,
            0,
            rounds=options.rounds,
            eval_every=every,
            chunk=1,
            progress=False,
            on_chunk=lambda state, history: stamps.append(time.perf_counter()),  # noqa: B023
        )
        jax.block_until_ready(state)
        steady = [(late - early) / every for early, late in itertools.pairwise(stamps[1:])] or [
            stamps[1] - stamps[0]
        ]
        yield entry(f"pfl-cifar, client_block={block or None}", work, steady, best, whole=stamps[-1] - stamps[0])


def entry(
    what: str, work: workloads.Workload, times: list[float], best: float, times_work: int = 1, **more
) -> dict:
    """One line: seconds per round, and the FLOP/s of its products as a fraction of the peak."""
    rate = times_work * workloads.flop(work) / statistics.median(times)
    return {"what": what, "round_s": times, "flops": rate, "of_peak": rate / best, **more}


def side_by_side(options: Options, precision: str, best: float) -> list[dict]:
    """lr-synthetic: one seed, and many in one program; rounds a second summed over the seeds."""
    work = workloads.WORKLOADS["lr-synthetic"]
    sim = ours.simulate(work, ours.federation(*workloads.make_data(work)), precision=precision)
    rounds, found = 5 if options.quick else 200, []
    programs = {count: seeds.many(sim, rounds) for count in options.seeds}
    states = {count: seeds.start(sim, count) for count in options.seeds}
    for count, times in common.interleaved(programs, states, options.repeats, rounds).items():
        total = count / statistics.median(times)
        found.append(entry(f"lr-synthetic, {count} seeds", work, times, best, count, seed_rounds_per_s=total))
    return found


def full_cohort(options: Options, precision: str, best: float) -> list[dict]:
    """mlp-fmnist with all clients in every round."""
    work = workloads.WORKLOADS["mlp-fmnist-all"]
    sim = ours.simulate(work, ours.federation(*workloads.make_data(work)), precision=precision)
    rounds = 1 if options.quick else 50
    state = sim.init(jax.random.key(0))
    programs, states = {0: common.rounds_of(sim, rounds)}, {0: state}
    return [entry(work.name, work, common.interleaved(programs, states, options.repeats, rounds)[0], best)]


def of_users(options: Options, precision: str, best: float) -> Iterator[dict]:
    """Rounds of the workloads of users; with --quick of fewer and smaller clients."""
    for name in options.users:
        with shared_file(name, options) as (work, path):
            if path is None:
                continue
            sim = ours.simulate(work, ours.federation(*workloads.load(work, path)), precision=precision)
            state = sim.init(jax.random.key(0))
            state = state._replace(params=ours.start_from(state.params, work, path))
        rounds = 1 if options.quick else work.call
        times = common.interleaved({0: common.rounds_of(sim, rounds)}, {0: state}, options.repeats, rounds)[0]
        yield entry(name, work, times, best)


@contextlib.contextmanager
def shared_file(name: str, options: Options) -> Iterator[tuple[workloads.Workload, Path | None]]:
    """A workload and the file of its data and first parameters; None, after a line, where its data are missing."""
    work = workloads.WORKLOADS[name]
    work = workloads.quick(work)._replace(cohort=2) if options.quick else work
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.npz"
        try:
            np.savez(path, **prepared.prepare(work, options.data))
        except ValueError as error:
            print(f"{name} was not run: {error}", flush=True)
            yield work, None
        else:
            yield work, path


def torch_loops(options: Options, precision: str, best: float) -> Iterator[dict]:
    """PyTorch's loop in a process of its own, data on the device; its products are as precise as ours. JAX reserves
    three quarters of the GPU's memory; PyTorch has the rest."""
    script = runner.HERE / "opponents" / "torch_loop" / "run.py"
    device = "cuda" if options.platform == "gpu" else options.platform
    for name in options.loops:
        with shared_file(name, options) as (work, path):
            if path is None:
                continue
            each = 1 if work.even else min(work.call, 20)  # rounds that count as one, of their mean
            asked = {"--workload": name, "--data": path, "--device": device, "--warmup": 2, "--call": each}
            words = [str(word) for pair in asked.items() for word in pair]
            words += ["--rounds", str(each * options.repeats)]
            words += ["--tf32"] * (precision == "default") + ["--quick"] * options.quick
            found = runner.run_json([sys.executable, str(script), *words])
        if "error" in found:
            print(f"PyTorch's loop of {name} was not run: {found['error']}", flush=True)
        else:
            whole = workloads.quick(workloads.WORKLOADS[name]) if options.quick else work  # its cohort is never cut
            yield entry(f"PyTorch loop: {name}", whole, found["round_s"], best, torch=found["versions"]["torch"])


def main(options: Options | None = None) -> int:
    """All parts at every precision; ``options`` are the command line's unless they are given."""
    if options is None:
        import tyro

        options = tyro.cli(Options)
    try:
        device = jax.devices(options.platform)[0]
    except RuntimeError:
        print(f"JAX finds no {options.platform} here; --platform cpu --quick tests the script.", file=sys.stderr)
        return 2
    if options.quick:
        options = dataclasses.replace(options, blocks=(10,), rounds=1, seeds=(1, 2), repeats=1)
    out = common.folder(options.out, None if options.platform == "cpu" else device.device_kind, options.quick)
    found: list[dict] = []
    with jax.default_device(device):
        for precision in options.precisions:
            with jax.default_matmul_precision(precision):
                best = peak(512 if options.quick else 8192)
            for part in (side_by_side, full_cohort, published_run, of_users, torch_loops):
                for line in part(options, precision, best):
                    found.append({**line, "precision": precision, "peak_flops": best})
                    print(
                        f"{precision:8} {line['what']:36} {common.spread(line['round_s'])} ms a round", flush=True
                    )
                    write(out, device.device_kind, options.rounds, found)
    return 0


def write(out: Path, device: str, rounds: int, found: list[dict]) -> None:
    """The table of all that has been measured so far."""
    rows = [
        [
            line["what"],
            line["precision"],
            common.spread(line["round_s"]),
            f"{line['flops'] / 1e12:.3g}",
            f"{line['of_peak']:.3f}",
            *(f"{line[k]:,.0f}" if k in line else "" for k in ("whole", "seed_rounds_per_s")),
        ]
        for line in found
    ]
    columns = ("", "precision", "round, ms", "TFLOP/s", "of peak", f"{rounds} rounds, s", "seed rounds per s")
    peaks = {line["precision"]: line["peak_flops"] for line in found}
    loops = {line["torch"] for line in found if "torch" in line}
    notes = (
        "Median [lowest – highest]; a round of several seeds is one round of each. TFLOP/s counts the products of "
        "the workload only, of clients of the mean size where sizes differ; the peak is the best of one large "
        f"product at the same precision: {', '.join(f'{p} {b / 1e12:.3g} TFLOP/s' for p, b in peaks.items())}. "
        "The time of the whole run includes compilation."
        + "".join(f" PyTorch {version}, its products in float32 and in TF32 as ours." for version in loops)
    )
    common.write(out, "gpu", f"On one {device}", notes, [(columns, rows)], found, say=False)


if __name__ == "__main__":
    sys.exit(main())

"""How long an episode of ``ff.train_policy`` takes, beside the same federations played one after another.

Sixty-four federations of softmax regressions, a hundred rounds. One after another is a program with a single
federation in it, compiled once; and ``ff.run`` of ``ff.pg_ffl()``, the agent that learns on what it weighs.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
import tyro

import fedjax_fair as ff
from benchmarks.speed import common
from fedjax_fair.aggregators.pg_ffl import reward_of
from fedjax_fair.aggregators.policy import STATES, Network, Policy
from fedjax_fair.data.alike import Alike, alike
from fedjax_fair.engine.episodes import Lesson, beginner, learn, player
from fedjax_fair.engine.tasks import threads_for
from fedjax_fair.results.policy_arguments import SIDE_BY_SIDE

COLUMNS = (
    "state",
    "episode",
    "per federation",
    "one after another",
    "ff.run of pg_ffl",
    "simulation and ff.run",
    "times less than one after another",
    "times less than simulation and ff.run",
    "processor, per federation",
    "processor, one after another",
    "times less",
)


@dataclasses.dataclass
class Options:
    """Time episodes of ff.train_policy."""

    federations: int = 64
    rounds: int = 100
    separate: int = 8
    """Federations that are also played one after another."""
    repeats: int = 9
    out: Path | None = None
    """Folder for the results."""
    quick: bool = False
    """Small: to see that it runs."""


def federation(seed: int) -> ff.FederatedData:
    """Ten clients of up to 500 examples: 60 features, 10 classes, 610 parameters."""
    return ff.data.synthetic(n_clients=10, alpha=1.0, beta=1.0, seed=seed, max_size=500)


def build(rule: ff.Aggregator, data: ff.FederatedData) -> ff.Simulation:
    """All ten clients, ten local steps of ten examples."""
    return ff.simulation(
        ff.models.logistic_regression(),
        data,
        aggregator=rule,
        trainer=ff.local_sgd(optax.sgd(0.1), steps=10, batch_size=10),
    )


Work = Callable[[], object]


def episode(datas: list[ff.FederatedData], of: Alike, rounds: int, state: str, width: int, threads: int) -> Work:
    """Plays federations of the form ``of`` and learns from them; after a first call nothing is compiled."""
    params = Network().init(jax.random.key(0), jnp.zeros((1, STATES[state][1])))
    policy, lesson, count = Policy(params, state), Lesson(0.9, "round", 1e-2), len(datas)
    rule_to_sim = partial(build, data=of.largest)
    play = player(rule_to_sim, policy, reward_of, datas, cohort=10, rounds=rounds, width=width, threads=threads)
    std, keys = jnp.asarray(0.3), jax.random.split(jax.random.key(0), count)
    learner = beginner(params, count, rounds, lesson)

    def work() -> object:
        explored = play(params, std, keys)
        return jax.block_until_ready(learn(learner, explored, std, lesson=lesson))

    work()
    return work


def by_run(seed: int, rounds: int) -> tuple[float, Work]:
    """Seconds of one federation from ``ff.simulation`` to the end of its first ``ff.run``; and a further run."""
    begun = time.perf_counter()
    sim = build(ff.pg_ffl(), federation(seed))
    work = partial(ff.run, sim, 0, rounds, eval_every=rounds, progress=False)
    work()
    return time.perf_counter() - begun, work


def in_turn(works: dict[str, Work], repeats: int) -> dict[str, tuple[float, float]]:
    """Of each, done in turn: seconds by the clock, and of the processor; medians."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            begun = time.perf_counter(), time.process_time()
            work()
            times[name].append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    return {name: tuple(map(statistics.median, zip(*taken))) for name, taken in times.items()}


def row(
    options: Options, of: Alike, state: str, loop: float, runs: Sequence[Work]
) -> tuple[list[str], dict[str, float]]:
    """Of policies that see this ``state``: a table's row, and its numbers; ``loop`` and ``runs`` of ``by_run``."""
    count, threads = options.federations, threads_for(None)
    width, separate = min(SIDE_BY_SIDE, -(-count // threads)), min(options.separate, count)
    works: dict[str, Work] = {
        "together": episode(of.each, of, options.rounds, state, width, threads),
        "alone": episode(of.each[:separate], of, options.rounds, state, 1, 1),
        "run": lambda: [run() for run in runs],
    }
    found = in_turn(works, options.repeats)
    (each, busy_each), (alone, busy_alone), (run, _) = (
        [seconds / divisor for seconds in found[name]]
        for name, divisor in (("together", count), ("alone", separate), ("run", len(runs)))
    )
    numbers = {"episode": found["together"][0], "per federation": each, "alone": alone}
    numbers |= {"ff.run of pg_ffl": run, "simulation and ff.run": loop}
    numbers |= {"processor, per federation": busy_each, "processor, alone": busy_alone}
    cells = [*(f"{1e3 * s:.0f} ms" for s in (each, alone, run, loop)), f"{alone / each:.1f}"]
    busy_cells = [*(f"{1e3 * s:.0f} ms" for s in (busy_each, busy_alone)), f"{busy_alone / busy_each:.1f}"]
    return [state, f"{found['together'][0]:.1f} s", *cells, f"{loop / each:.0f}", *busy_cells], numbers


def main() -> None:
    """Both states of a policy, side by side and one after another."""
    options = tyro.cli(Options)
    if options.quick:
        options = dataclasses.replace(options, federations=4, rounds=3, separate=2, repeats=1)
    of = alike([federation(seed) for seed in range(options.federations)])
    loops, runs = zip(*(by_run(seed, options.rounds) for seed in range(min(options.separate, 4))))
    rows, numbers = [], {}
    for state in ("signals", "updates"):
        cells, numbers[state] = row(options, of, state, statistics.median(loops), runs)
        rows.append(cells)
        print(cells, flush=True)
    notes = (
        f"{options.federations} federations of ten clients, {options.rounds} rounds, softmax regressions of 610 "
        f"parameters. One after another: {options.separate} of the federations, one at a time in one thread, "
        "compiled once. ff.run: further runs of ff.pg_ffl(), which sees updates, on four federations. All in turn, "
        f"medians of {options.repeats}. Simulation and ff.run: a loop over federations as one would write it, each "
        "compiling its own program, the median of four. The processor's seconds are those of all threads."
    )
    place = common.folder(options.out, quick=options.quick)
    common.write(place, "policies", "Training a policy", notes, [(COLUMNS, rows)], numbers)


if __name__ == "__main__":
    main()

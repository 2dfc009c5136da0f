"""How long an episode of ``ff.train_policy`` takes, beside the same federations played one after another.

Sixty-four federations of softmax regressions, a hundred rounds. One after another is the same program with a single
federation in it, compiled once; and ``ff.run`` of ``ff.pg_ffl()``, the agent that learns on what it weighs.
"""

import dataclasses
import statistics
import time
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
from fedjax_fair.data.alike import alike
from fedjax_fair.engine.episodes import Lesson, beginner, learn, player
from fedjax_fair.engine.tasks import threads_for
from fedjax_fair.results.policy_arguments import SIDE_BY_SIDE


@dataclasses.dataclass
class Options:
    """Time episodes of ff.train_policy."""

    federations: int = 64
    rounds: int = 100
    separate: int = 8
    """Federations that are also played one after another."""
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


def seconds(federations: int, rounds: int, state: str, width: int, threads: int) -> tuple[float, float]:
    """Of an episode, compiled, to play all federations and learn from them: by the clock, and of the processor;
    medians of three."""
    of = alike([federation(seed) for seed in range(federations)])
    params = Network().init(jax.random.key(0), jnp.zeros((1, STATES[state][1])))
    policy, lesson = Policy(params, state), Lesson(0.9, "round", 1e-2)
    rule_to_sim = partial(build, data=of.largest)
    play = player(rule_to_sim, policy, reward_of, of.each, cohort=10, rounds=rounds, width=width, threads=threads)
    learner, std = beginner(params, federations, rounds, lesson), jnp.asarray(0.3)
    times: list[tuple[float, float]] = []
    for episode in range(4):
        begun = time.perf_counter(), time.process_time()
        explored = play(learner.params, std, jax.random.split(jax.random.key(episode), federations))
        learner, _ = jax.block_until_ready(learn(learner, explored, std, lesson=lesson))
        times.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    wall, busy = zip(*times[1:])
    return statistics.median(wall), statistics.median(busy)


def by_run(count: int, rounds: int) -> tuple[float, float]:
    """Seconds of one federation from ``ff.simulation`` to the end of its first ``ff.run``, and of a second run."""
    whole, compiled = [], []
    for seed in range(count):
        begun = time.perf_counter()
        sim = build(ff.pg_ffl(), federation(seed))
        ff.run(sim, 0, rounds, eval_every=rounds, progress=False)
        between = time.perf_counter()
        ff.run(sim, 0, rounds, eval_every=rounds, progress=False)
        whole.append(between - begun)
        compiled.append(time.perf_counter() - between)
    return statistics.median(whole), statistics.median(compiled)


def main() -> None:
    """Both states of a policy, side by side and one after another."""
    options = tyro.cli(Options)
    if options.quick:
        options = dataclasses.replace(options, federations=4, rounds=3, separate=2)
    rows, numbers = [], {}
    loop, run = by_run(min(options.separate, 4), options.rounds)
    for state in ("signals", "updates"):
        threads = threads_for(None)
        width = min(SIDE_BY_SIDE, -(-options.federations // threads))
        together, busy = seconds(options.federations, options.rounds, state, width, threads)
        alone, busy_alone = (s / options.separate for s in seconds(options.separate, options.rounds, state, 1, 1))
        each, busy_each = together / options.federations, busy / options.federations
        numbers[state] = {"episode": together, "per federation": each, "alone": alone, "ff.run of pg_ffl": run}
        numbers[state]["simulation and ff.run"] = loop
        numbers[state] |= {"processor, per federation": busy_each, "processor, alone": busy_alone}
        cells = [
            *(f"{1e3 * s:.0f} ms" for s in (each, alone, run, loop)),
            f"{alone / each:.1f}",
            f"{loop / each:.0f}",
        ]
        busy_cells = [*(f"{1e3 * s:.0f} ms" for s in (busy_each, busy_alone)), f"{busy_alone / busy_each:.1f}"]
        rows.append([state, f"{together:.1f} s", *cells, *busy_cells])
        print(rows[-1], flush=True)
    columns = ("state", "episode", "per federation", "one after another", "ff.run of pg_ffl")
    columns = (
        *columns,
        "simulation and ff.run",
        "times less than one after another",
        "times less than simulation and ff.run",
    )
    columns = (*columns, "processor, per federation", "processor, one after another", "times less")
    notes = (
        f"{options.federations} federations of ten clients, {options.rounds} rounds, softmax regressions of 610 "
        f"parameters. One after another: the mean of {options.separate} federations, one at a time in one thread, "
        "compiled once. ff.run: a second run of ff.pg_ffl(), which sees updates, the median of four federations. "
        "Simulation and ff.run: a loop over federations as one would write it, each compiling its own program. "
        "The processor's seconds are those of all threads."
    )
    place = common.folder(options.out, quick=options.quick)
    common.write(place, "policies", "Training a policy", notes, [(columns, rows)], numbers)


if __name__ == "__main__":
    main()

"""What one pass over a hundred clients' updates costs: the floor of rules that change every entry of every client.

The updates of an MLP's cohort are 64 MB. Every program repeats its pass in one loop, so that memory is claimed
once, as in a run of many rounds; FedAvg's round takes turns with them.
"""

import dataclasses
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import tyro
from jax import Array

import fedjax_fair as ff
from benchmarks.speed import common, ours
from benchmarks.speed.rules import SIZES, federation

WORK = SIZES["mlp"]


@dataclasses.dataclass
class Options:
    """Time passes over the updates of 100 clients."""

    rounds: int = 8
    """Passes, and rounds, per timed call."""
    repeats: int = 7
    out: Path | None = None
    """Folder for the results."""
    quick: bool = False
    """Few: to see that it runs."""


def mean(kept: Array, u: Array, at: Array) -> tuple[Array, Array]:
    """Read once."""
    return kept, (jnp.ones(len(u)) + at) @ u


def lengths(kept: Array, u: Array, at: Array) -> tuple[Array, Array]:
    """Read once, along the rows."""
    return kept, (jnp.where(u > at, u, 0) ** 2).sum(1)


def masked(kept: Array, u: Array, at: Array) -> tuple[Array, Array]:
    """The product needs its factor as an array."""
    return kept, jnp.ones(len(u)) @ jnp.where(u > at, u, 0)


def renewed(kept: Array, u: Array, at: Array) -> tuple[Array, Array]:
    """As memories are: found by the clients' numbers, and written back there."""
    ids = jax.random.permutation(jax.random.key(2), len(u))
    return kept.at[ids].set(0.5 * kept[ids] + 0.5 * u), u[0]


def products(kept: Array, u: Array, at: Array) -> tuple[Array, Array]:
    """A Gram matrix."""
    moves = jnp.where(u > at, u, 0)
    return kept, jnp.matmul(moves, moves.T, precision="highest")[0]


PASSES = {
    "a weighted mean": mean,
    "masked, their lengths": lengths,
    "masked, a weighted mean": masked,
    "a memory of their size, renewed": renewed,
    "masked, inner products of all pairs": products,
}


def repeated(one: Callable[[Array, Array, Array], tuple[Array, Array]], count: int, u: Array) -> common.Program:
    """``state -> state`` after so many passes; each finds what the last one found, so that none is dropped."""

    @partial(jax.jit, donate_argnums=0)
    def play(state: tuple[Array, Array], u: Array) -> tuple[Array, Array]:
        def again(state: tuple[Array, Array], _: Any) -> tuple[tuple[Array, Array], None]:
            kept, found = one(state[0], u, state[1])
            return (kept, 1e-9 * found.sum()), None

        return jax.lax.scan(again, state, length=count)[0]

    return lambda state: jax.block_until_ready(play(state, u))


def main() -> None:
    """Passes and FedAvg's rounds, in turn."""
    options = tyro.cli(Options)
    rounds, repeats = (2, 1) if options.quick else (options.rounds, options.repeats)
    sim = ff.simulation(
        ours.model(WORK),
        federation(WORK),
        aggregator=ff.fedavg("uniform"),
        selector=ff.uniform(WORK.cohort),
        trainer=ff.local_sgd(optax.sgd(WORK.lr), epochs=WORK.epochs, batch_size=WORK.batch),
        evaluate=("train",),
    )
    start = sim.init(jax.random.key(0))
    entries = sum(leaf.size for leaf in jax.tree.leaves(start.params))
    u = jax.random.normal(jax.random.key(1), (WORK.cohort, entries))
    programs: dict[str, common.Program] = {"FedAvg's round": common.rounds_of(sim, rounds)}
    programs |= {name: repeated(one, rounds, u) for name, one in PASSES.items()}
    states: dict[str, Any] = {name: (u + 0, jnp.zeros(())) for name in programs} | {"FedAvg's round": start}
    times = common.interleaved(programs, states, repeats, rounds)
    base = statistics.median(times["FedAvg's round"])
    rows = [[name, common.spread(t), f"{100 * statistics.median(t) / base:.3g}"] for name, t in times.items()]
    notes = (
        f"Updates f32[{WORK.cohort}, {entries}], {u.nbytes / 1e6:.0f} MB; medians of {repeats} calls of {rounds} "
        f"passes. FedAvg's round: {WORK.title}."
    )
    out = common.folder(options.out, quick=options.quick)
    columns = ("pass", "ms", "% of FedAvg's round")
    common.write(out, "passes", "A pass over all clients' updates", notes, [(columns, rows)], times)


if __name__ == "__main__":
    main()

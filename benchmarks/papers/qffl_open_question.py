r"""q-FFL's open question: one step of summed updates over summed bounds, or the sum of every client's own step?

q-FFL moves by :math:`\sum_k \Delta_k / \sum_k h_k` with :math:`\Delta_k = F_k^q v_k` and
:math:`h_k = q F_k^{q-1} \|v_k\|^2 + L F_k^q`. Why not by :math:`\sum_k \Delta_k / h_k`? Both are measured here, and
the mean of the ratios too, since their sum makes a step m times as long:

    fedjax-fair reproduce qffl-open-question [--quick]

Note what the ratio does: :math:`\Delta_k / h_k = v_k / (q \|v_k\|^2 / F_k + L)`. The factor :math:`F_k^q`, which is
what favours the clients that do badly, cancels; what is left of q shortens every client's step.
"""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

import fedjax_fair as ff
from benchmarks.papers.common import Column, Found, keep, table
from benchmarks.papers.runs import Row
from fedjax_fair.numerics.solvers import uniform_over
from fedjax_fair.types import Key, Report, State

LR, COHORT = 0.1, 10
COLUMNS = {"accuracy": Column("acc %"), "variance": Column("var %²"), "worst10": Column("worst 10 %")} | {
    "gini": Column("Gini", 3),
    "loss": Column("loss", 3),
}


def own_steps(q: float, mean: bool) -> ff.Aggregator:
    """Every client's own step, summed or averaged: ``c_k = L F_k^q / h_k``, over m where ``mean``."""

    def init(sizes: Array, key: Key | None = None) -> State:
        return ()

    def weigh(state: State, report: Report, key: Key) -> tuple[Array, State]:
        loss = jnp.where(report.active, report.loss, 1) + 1e-10
        own = 1 / (1 + q * jnp.diagonal(report.gram) / (LR * loss))  # v_k = (w - w_k) / LR and L = 1 / LR
        return jnp.where(report.active, own, 0) * (uniform_over(report.active, own.dtype) if mean else 1), state

    return ff.Aggregator(init, weigh)


def rules(q: float) -> dict[str, ff.Aggregator]:
    """The three forms of a step."""
    return {
        "sum Δ / sum h (q-FFL)": ff.qfedavg(q, lipschitz=1 / LR),
        "mean of Δ / h": own_steps(q, mean=True),
        "sum of Δ / h": own_steps(q, mean=False),
    }


def measure(data: ff.FederatedData, aggregator: ff.Aggregator, seed: int, rounds: int) -> dict[str, float]:
    """Mean over the last ten evaluations, ten rounds apart, of the clients' test accuracies and losses."""
    sim = ff.simulation(
        ff.models.logistic_regression(),
        data,
        aggregator=aggregator,
        selector=ff.size_proportional(COHORT),
        trainer=ff.local_sgd(optax.sgd(LR), steps=5, batch_size=50),
    )
    _, history = ff.run(sim, seed, rounds, eval_every=10)
    rows = ff.metrics.summary(history.accuracy[-10:], loss=history.loss[-10:])
    return {name: float(np.mean(rows[name])) for name in COLUMNS}


def run(quick: bool, out: Path) -> None:
    seeds, rounds, qs = (2, 500, (1.0,)) if quick else (5, 1000, (0.0, 0.1, 1.0))
    data = ff.data.synthetic(n_clients=100, alpha=1.0, beta=1.0, seed=0)
    found: Found = {}
    for q in qs:
        for name, aggregator in rules(q).items():
            found[f"{q:g}, {name}"] = [measure(data, aggregator, seed, rounds) for seed in range(seeds)]
    settings = {"quick": quick, "seeds": seeds, "rounds": rounds, "clients": 100, "cohort": COHORT, "lr": LR}
    rows = [Row(name, lambda seed: None) for name in found]
    keep(out, "qffl-open-question", settings, rows, found, table(rows, found, COLUMNS))

"""q-FFL's Table 1 on Synthetic(1, 1): q = 0 against q = 1, 100 clients, 10 a round, logistic regression.

The paper prints mean, worst and best 10 % and variance of the clients' test accuracies over five partitions
(80/10/10); its code runs 20,000 rounds of q-FedSGD at rate .1. q-FedAvg (20 local steps of 10, where the
paper has an epoch: the largest clients hold tens of thousands of examples) is shown beside it.
"""

from pathlib import Path

import numpy as np
import optax

import fedjax_fair as ff
from benchmarks.papers.common import Column, keep, last_ten, play, table
from benchmarks.papers.runs import Row

COLUMNS = {"accuracy": Column("acc %"), "worst10": Column("worst 10 %"), "best10": Column("best 10 %")} | {
    "variance": Column("var %²", 0),
    "gini": Column("Gini", 3),
}
LR = 0.1
PRINTED = {
    0: {"accuracy": 80.8, "worst10": 18.8, "best10": 100, "variance": 724},
    1: {"accuracy": 79.0, "worst10": 31.1, "best10": 100, "variance": 472},
}


def run(quick: bool, out: Path) -> None:
    seeds, lengths = (
        (2, {"q-FedSGD": 3000, "q-FedAvg": 500}) if quick else (5, {"q-FedSGD": 20_000, "q-FedAvg": 2000})
    )
    data = [ff.data.synthetic(n_clients=100, alpha=1.0, beta=1.0, seed=s) for s in range(seeds)]

    def row(system: str, q: int) -> Row:
        rule = (ff.qfedsgd if system == "q-FedSGD" else ff.qfedavg)(float(q), lipschitz=1 / LR)
        steps = {"steps": 1 if system == "q-FedSGD" else 20}

        def build(seed: int) -> ff.Simulation:
            return ff.simulation(
                ff.models.logistic_regression(),
                data[seed],
                aggregator=rule,
                selector=ff.size_proportional(10),
                trainer=ff.local_sgd(optax.sgd(LR), batch_size=10, **steps),
            )

        return Row(f"{system}, q = {q}", build, PRINTED[q])

    rows, found = [row(system, q) for system in lengths for q in (0, 1)], {}
    for chosen in (rows[:2], rows[2:]):
        rounds = lengths[chosen[0].name.split(",")[0]]
        some, _ = play(chosen, out / "qffl-synthetic.parts", seeds=seeds, rounds=rounds, measure=last_ten)
        found |= some
    settings = {"quick": quick, "seeds": seeds, "rounds": lengths, "sizes": [int(np.sum(d.sizes)) for d in data]}
    keep(out, "qffl-synthetic", settings, rows, found, table(rows, found, COLUMNS))

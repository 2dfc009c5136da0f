"""What do weights by losses reach in Case I, where PG-FFL's policy learns nothing?

    fedjax-fair reproduce pgffl-reweighted [--quick]

The ten held-out federations of ``pgffl-trained``: 100 clients, of whom ten take part in a round, softmax
regression, 50 rounds. A hundred clients have too many constant weights for a grid. In its place stand rules that
give clients with higher losses more weight, from hardly any to all: what the policy is to find is of this kind.
"""

from pathlib import Path

import fedjax_fair as ff
from benchmarks.papers.pgffl_trained import compared, keep

NAME = "pgffl-reweighted"
CASE = "Case I"


def rules(quick: bool) -> dict[str, ff.Aggregator]:
    """FedAvg, and others from the mildest of a kind to the strongest."""
    found = {"FedAvg": ff.fedavg("uniform"), "losses themselves": ff.loss_proportional()}
    if quick:
        return found
    found |= {f"softmax, temperature {t:g}": ff.loss_softmax(t) for t in (4.0, 2.0, 1.0, 0.5, 0.25, 0.1)}
    found |= {f"TERM, t = {t:g}": ff.term(t) for t in (0.5, 2.0, 5.0)}
    found |= {f"FedMABA, alpha = {alpha:g}": ff.fedmaba(alpha) for alpha in (0.2, 0.5, 0.8)}
    return found | {f"AFL, {rate:g}": ff.afl(rate) for rate in (0.01, 0.1)}


def run(quick: bool, out: Path) -> None:
    """Every rule on the same federations; an interrupted study goes on."""
    replicates, rounds = (2, 6) if quick else (10, 50)
    found = compared(CASE, rules(quick), replicates, rounds, out / f"{NAME}.parts")
    print(found.table(), flush=True)
    keep(out, NAME, quick, replicates, rounds, {CASE: found})

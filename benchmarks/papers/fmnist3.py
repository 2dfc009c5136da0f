"""Fashion-MNIST's three clients of one class each, logistic regression: AFL's, q-FFL's, FedFV's and PG-FFL's rows.

FedFV's authors publish their records (200 rounds of one full-batch gradient step, rate .1, official test images).
Their model ends in a softmax and their loss applies another; the same rows with one softmax (500 rounds at rate
.01) are beside them, with what q-FFL's Table 2 and PG-FFL's Table II print (other rates and numbers of rounds:
6,000 in q-FFL's code, not stated by PG-FFL, which trains by Adam).
PG-FFL reads validation accuracies: its row gives a tenth of the training images up for them.
"""

from pathlib import Path

import jax
import optax

import fedjax_fair as ff
from benchmarks.papers.common import Column, Measured, keep, play, table
from benchmarks.papers.runs import Row, fixed
from fedjax_fair.models import Model, as_model

COLUMNS = {"shirt": Column("shirt"), "pullover": Column("pullover"), "tshirt": Column("T-shirt")} | {
    "accuracy": Column("mean %"),
    "std": Column("std %"),
    "gini": Column("Gini", 3),
    "gini_unbiased": Column("Gini · 3/2", 3),
}
SETTINGS = {"two": (0.1, 200), "one": (0.01, 500)}
"""Learning rate and rounds, for two softmaxes and for one: a proper softmax oscillates at the authors' rate."""

Printed = tuple[float | None, ...]


# Shirt, pullover, T-shirt, mean, std. Twice softmax: FedFV's authors' records, mean over their 5 seeds. Once:
# q-FFL's and PG-FFL's tables.
def rules(lr: float) -> dict[str, tuple[ff.Aggregator | ff.Method, Printed, Printed]]:
    """By name: the rule, and what is printed for two softmaxes and for one."""
    return {
        "FedAvg": (ff.fedavg("uniform"), (64.3, 87.0, 90.0, 80.42, 11.50), (66.0, 84.5, 85.9, 78.8)),
        "AFL .01": (ff.afl(lr=0.01), (71.1, 81.9, 84.3, 79.09, 5.76), ()),
        "AFL .1": (ff.afl(lr=0.1), (76.3, 79.0, 79.1, 78.13, 1.27), (71.4, 81.0, 82.1, 77.8)),
        "AFL .5": (ff.afl(lr=0.5), (76.6, 78.8, 79.1, 78.14, 1.12), ()),
        "q-FedAvg 5": (
            ff.qfedavg(5.0, lipschitz=1 / lr),
            (71.3, 81.5, 82.9, 78.53, 5.16),
            (74.2, 78.9, 80.4, 77.8),
        ),
        "q-FedAvg 15": (ff.qfedavg(15.0, lipschitz=1 / lr), (77.1, 75.4, 60.7, 71.06, 7.46), ()),
        "FedMGDA+ .1": (ff.fedmgda_plus(epsilon=0.1), (72.3, 79.7, 86.0, 79.33, 6.45), ()),
        "FedMGDA+ 1": (ff.fedmgda_plus(epsilon=1.0), (72.5, 79.7, 85.7, 79.29, None), ()),
        "FedFV 0": (ff.fedfv(alpha=0.0), (61.1, 89.3, 91.1, 80.48, 13.76), ()),
        "FedFV 1/3": (ff.fedfv(alpha=1 / 3), (77.1, 80.7, 81.1, 79.61, 1.91), ()),
        "FedFV 2/3": (ff.fedfv(alpha=2 / 3), (77.9, 81.5, 81.5, 80.28, 1.77), ()),
        "PGF-FedAvg": (ff.pg_ffl(), (), (74.2, 80.5, 82.6, 79.1)),
        "FedMABA": (ff.fedmaba(), (), ()),
        "AAggFF-S": (ff.aaggff_s(), (), ()),
        "TERM 1": (ff.term(t=1.0, weighting="uniform"), (), ()),
    }


def twice_softmax(model: object) -> Model:
    """The model with a softmax at its end, on which the cross-entropy then works as if on logits."""
    inner = as_model(model)
    return Model(inner.init, lambda params, x, key: jax.nn.softmax(inner.apply(params, x, key)))


def measure(history: ff.History) -> Measured:
    """Of the last round, as published."""
    tshirt, pullover, shirt = (100 * float(a) for a in history.accuracy[-1])
    summary = ff.metrics.summary(history.accuracy[-1])
    more = {name: float(summary[name]) for name in ("accuracy", "std", "gini")}
    more["gini_unbiased"] = float(ff.metrics.gini(history.accuracy[-1], unbiased=True))
    return {"shirt": shirt, "pullover": pullover, "tshirt": tshirt} | more


def rows(softmax: str) -> list[Row]:
    """All rules, on a loss of one softmax or of two."""
    whole, split = (ff.data.load("fashion_mnist_3", split=shares) for shares in (None, (0.9, 0.1, 0.0)))
    model, (lr, _) = ff.models.logistic_regression(3), SETTINGS[softmax]

    def row(name: str, rule: ff.Aggregator | ff.Method, *printed: Printed) -> Row:
        def build() -> ff.Simulation:
            return ff.simulation(
                twice_softmax(model) if softmax == "two" else model,
                split if name.startswith("PGF") else whole,
                aggregator=rule,
                trainer=ff.local_sgd(optax.sgd(lr), epochs=1, batch_size=None),
            )

        figures = zip(("shirt", "pullover", "tshirt", "accuracy", "std"), printed[softmax == "one"])
        shown = {key: value for key, value in figures if value is not None}
        return Row(f"{name}, {softmax} softmax", fixed(build), shown)

    return [row(name, *rule) for name, rule in rules(lr).items()]


def run(quick: bool, out: Path) -> None:
    seeds = 1 if quick else 5
    chosen, found = [], {}
    for kind, (_, rounds) in SETTINGS.items():
        some = [row for row in rows(kind) if not quick or row.name.startswith(("FedAvg", "AFL .1", "q-FedAvg 5"))]
        measured, _ = play(some, out / "fmnist3.parts", seeds=seeds, rounds=rounds, eval_every=50, measure=measure)
        chosen, found = chosen + some, found | measured
    text = "".join(
        f"{heading}\n\n{table([row for row in chosen if row.name.endswith(f'{kind} softmax')], found, COLUMNS)}\n"
        for kind, heading in (
            ("two", "The authors' setup, softmax twice [in brackets the published records]:"),
            ("one", "A proper softmax, 500 rounds at rate .01: what to quote [q-FFL's and PG-FFL's tables]:"),
        )
    )
    settings = {"quick": quick, "seeds": seeds, "rounds": [200, 500], "lr": [0.1, 0.01]}
    keep(out, "fmnist3", settings, chosen, found, text)

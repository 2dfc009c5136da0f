"""What ``compare`` remarks on before it begins."""

import dataclasses

import numpy as np
import pytest

from fedjax_fair.cli.experiment import experiment_class
from fedjax_fair.cli.remarks import on_names, on_own_rules, on_rates, on_weights, rows_of
from fedjax_fair.cli.rule_syntax import parse_rule, row_name
from fedjax_fair.cli.unused import without_effect


def entries(*texts):
    return {row_name(text): parse_rule(text) for text in texts}


def test_rows_with_names_are_told_by_their_rules():
    assert on_names(("fedavg", "mild=qfedavg:q=.1", "qfedavg:q=5")) == ["rows: mild is qfedavg:q=.1"]
    assert on_names(("fedavg", "qfedavg:q=5")) == []


@pytest.mark.parametrize(
    ("rules", "settings", "told"),
    [
        (("fedavg",), {"liars": 0.2}, {"fault": "inflate_loss is about losses, of which fedavg reads none"}),
        (
            ("fedavg",),
            {"defence": "clip_losses"},
            {"defence": "clip_losses is about losses, of which fedavg reads none"},
        ),
        (
            ("fedavg", "fedmgda_plus"),
            {"liars": 0.2, "fault": "inflate_loss:factor=3"},
            {"fault": "inflate_loss is about losses, of which fedavg and fedmgda_plus read none"},
        ),
        (("fedavg", "fedmaba"), {"liars": 0.2, "defence": "clip_losses"}, {}),
        (("fedavg",), {"liars": 0.2, "selector": "pow_d"}, {}),
        (("drfa",), {"liars": 0.2}, {}),
        (("fedavg",), {"liars": 0.2, "fault": "scale_update"}, {}),
    ],
)
def test_lies_about_losses_that_nobody_reads_are_told(rules, settings, told):
    experiment = dataclasses.replace(experiment_class("Compare", [], "")(), **settings)
    assert dict(without_effect(experiment, rules)) == told


def test_a_rate_that_is_the_rules_own_is_told_from_its_clients():
    texts = ("fedavg:lr=.3", "afl:lr=.3", "mild=afl:lr=.2", "afl", "both=afl:afl.lr=.01,lr=.1")
    told = "is the rule's own step, and its clients' rate is --lr 0.1;"
    assert on_rates(texts, 0.1) == [
        f"afl:lr=.3: lr=0.3 {told} afl.lr=0.3,lr=0.1 in its place gives both",
        f"mild: lr=0.2 {told} afl.lr=0.2,lr=0.1 in its place gives both",
    ]
    tuned = "afl:lr=.3: lr=0.3 is the rule's own step, and its clients' rate is tuned around --lr 0.1"
    assert on_rates(("afl:lr=.3",), 0.1, tuned=True) == [tuned]
    command = experiment_class("Compare", [], "")
    assert rows_of(command(), texts) == {"mild": "is afl(afl.lr=0.2)", "both": "is afl(afl.lr=0.01, lr=0.1)"}
    usual = command()
    flagged = dataclasses.replace(usual, afl=dataclasses.replace(usual.afl, lr=0.05))
    assert rows_of(flagged, texts) == {
        "mild": "is afl(afl.lr=0.2)",
        "afl": "has afl.lr=0.05",
        "both": "is afl(afl.lr=0.01, lr=0.1)",
    }


def test_the_legend_tells_what_named_rows_were_given_and_what_flags_gave_the_others():
    texts = ("fedavg", "fair=qfedavg:q=5@pow_d:d=20", "plain=term", "qfedavg", "qfedavg:q=1", "mine=my.py:rule:z=2")
    command = experiment_class("Compare", [], "")
    assert rows_of(command(), texts) == {
        "fair": "is qfedavg(q=5), clients by pow_d(d=20)",
        "plain": "is term",
        "mine": "is my.py:rule(z=2)",
    }
    usual = command()
    flagged = dataclasses.replace(usual, qfedavg=dataclasses.replace(usual.qfedavg, q=7.0))
    assert rows_of(flagged, texts[1:5]) == rows_of(usual, texts[1:5]) | {"qfedavg": "has q=7"}


@pytest.mark.parametrize(
    ("texts", "sizes", "baseline", "told"),
    [
        (("fedavg", "afl"), (10, 40), None, True),
        (("fedavg", "afl"), (38, 40), None, False),
        (("fedavg", "uniform=fedavg:weighting=uniform", "afl"), (10, 40), None, False),
        (("fedavg:weighting=uniform", "afl"), (10, 40), None, False),
        (("fedavg", "afl"), (10, 40), "afl", False),
        (("afl", "fedavg"), (10, 40), "fedavg", True),
        (("fedavg",), (10, 40), None, False),
    ],
)
def test_a_baseline_that_weighs_by_size_is_remarked_on_where_sizes_differ(texts, sizes, baseline, told):
    experiment = experiment_class("Compare", [("baseline", str | None, baseline)], "")()
    said = on_weights(experiment, entries(*texts), np.array(sizes))
    assert len(said) == told
    assert all(line.startswith("clients have 10 to 40 training examples, and the baseline weighs") for line in said)


def test_rules_of_the_users_own_have_learning_rates_alone():
    mine = {"qfedavg:q=5": {"lr": [0.1]}, "mine": {"lr": [0.1]}}
    (said,) = on_own_rules(entries("qfedavg:q=5", "mine=my_rules.py:rule"), mine)
    assert said.startswith("--tune tries learning rates alone of mine: settings of your own rule")
    assert on_own_rules(entries("qfedavg:q=5"), {"qfedavg:q=5": {"lr": [0.1]}}) == []

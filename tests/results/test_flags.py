"""What a reader of a comparison is told below the table: each flag appears where it should, and only there."""

import re

import numpy as np
import pytest

import fedjax_fair as ff
from fedjax_fair.data.names import Names
from fedjax_fair.engine.outcome import nearly_identical
from fedjax_fair.results.comparison import Comparison
from fedjax_fair.results.flags import flags
from fedjax_fair.types import Evaluation

N = 6
RNG = np.random.default_rng(0)


def history(means=(0.5, 0.5, 0.5), coef=1 / 3, active=True, asked=0, first=11):
    """Evaluations with these means over six clients, from round ``first`` on; of three rounds their clients."""
    accuracy = np.array(means)[:, None] + RNG.normal(size=(len(means), N)) * 1e-3
    accuracy += np.array(means)[:, None] - accuracy.mean(1, keepdims=True)
    scores = {"test": Evaluation(accuracy, (1 - accuracy).astype(np.float32))}
    rounds, ids = np.arange(first, first + len(means)), np.tile(np.arange(3), (3, 1))
    flagged = np.full((3, 3), active)
    counts = {"downloads": np.full(3, 3), "evaluations": np.full(3, asked)}
    return ff.History(rounds, scores, ids, np.full((3, 3), coef), flagged, None, **counts)


def comparison(runs, examples=20, **changes):
    sizes = examples if isinstance(examples, list) else [examples] * len(next(iter(runs.values())))
    kept = {
        **{
            "runs": runs,
            "baseline": next(iter(runs)),
            "split": "test",
            "last": 3,
            "fixed": False,
            "same_examples": False,
        },
        **{"examples": [np.full(N, each) for each in sizes], "choose": "accuracy"},
        **{"settings": {}, "grids": {}, "tried": {}, "tried_runs": {}, "references": {}, "clients": None},
    }
    return Comparison(**(kept | changes))


def plain():
    return [history(), history()]


def test_nothing_is_said_where_there_is_nothing_to_say():
    assert flags(comparison({"a": plain(), "b": plain()})) == []


def scaled(histories, factor):
    """Of every loss as much."""
    of = [h.scores["test"] for h in histories]
    return [h._replace(scores={"test": s._replace(loss=s.loss * factor)}) for h, s in zip(histories, of)]


same = plain()


HIGH = np.array([3e5, 1.0, 1.0, 1.0, 1.0, 1.0], np.float32)
"""Losses of six clients, one of whom is served badly by all."""


def with_losses(*losses):
    """A replicate for each, evaluated once."""
    return [h._replace(rounds=h.rounds[:1], scores={"test": s}) for h, s in zip(plain(), map(judged, losses))]


def judged(loss):
    return Evaluation(np.full((1, N), 0.5), np.asarray(loss)[None])


@pytest.mark.parametrize(
    "others",
    [
        scaled(same, np.float32(1 + 2e-5)),
        same[:1],
        [h._replace(rounds=h.rounds + 1) for h in same],
        [
            h._replace(scores={"test": s._replace(loss=s.loss.astype(float))})
            for h in same
            for s in [h.scores["test"]]
        ],
    ],
    ids=["further apart", "fewer replicates", "other rounds", "another type"],
)
def test_no_more_than_rounding_is_taken_for_it(others):
    assert not any("identical" in flag for flag in flags(comparison({"a": same, "b": others})))


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        ((HIGH, HIGH), (HIGH, HIGH * np.float32(1 + 1e-6)), True),
        ((HIGH, HIGH), (HIGH, HIGH + np.float32(0.1)), False),
        ((HIGH, HIGH * np.nan), (HIGH * np.float32(1 + 1e-6), HIGH * np.nan), True),
        ((HIGH, HIGH), (HIGH, np.where(np.arange(N) == 2, np.nan, HIGH)), False),
        (
            (HIGH, np.where(HIGH > 1, np.inf, HIGH)),
            (HIGH, np.where(HIGH > 1, np.inf, HIGH * np.float32(1 + 1e-6))),
            True,
        ),
        ((HIGH, HIGH * np.float32(1e33)), (HIGH, -HIGH * np.float32(1e33)), False),
        ((HIGH * np.nan,) * 2, (HIGH * -np.nan,) * 2, False),
    ],
    ids=[
        "rounded",
        "one client high",
        "one lost",
        "a client's value",
        "infinite",
        "as large as there are",
        "all lost",
    ],
)
def test_rounding_is_of_each_clients_own_loss(one, other, near):
    one, other = (with_losses(*(loss.astype(np.float32) for loss in losses)) for losses in (one, other))
    assert nearly_identical({"a": one, "b": other}) == ([["a", "b"]] if near else [])
    assert nearly_identical({"b": other, "a": one}) == ([["b", "a"]] if near else [])


TUNED = {
    "settings": {"a": {"q": 1.0}},
    "grids": {"a": {"q": [0.1, 0.5, 1.0]}},
    "tried": {"a": dict.fromkeys("xyz")},
}
CASES = {
    "early": (
        {"a": [history(first=1)] * 2},
        {},
        "the mean of the last 3 evaluations begins at round 1 of 3; a smaller last takes",
    ),
    "identical": ({"a": same, "b": same}, {}, "identical, bit for bit: a, b"),
    "rounded otherwise": (
        {"a": same, "b": scaled(same, np.float32(1 + 8e-6))},
        {},
        "^identical but for rounding: a, b$",
    ),
    "rounded otherwise than two": (
        {"a": same, "b": same, "c": scaled(same, np.float32(1 - 8e-6))},
        {},
        "^identical but for rounding: a, b, c$",
    ),
    "climbing": (
        {"a": plain(), "b": [history((0.1, 0.2, 0.3))] * 2},
        {},
        r"still improving in mean accuracy over the last 3.*: b \(\+20 points\). Train",
    ),
    "slow": (
        {"a": [history((0.1, 0.2, 0.3))] * 2},
        {**TUNED, "settings": {"a": {"lr": 0.1}}, "grids": {"a": {"lr": [0.1, 0.5, 1.0]}}, "choose": "worst10"},
        "still improving at the lowest rate of its grid: a. A model .*, and worst10 may choose it for that. Do not",
    ),
    "few examples": ({"a": plain()}, {"examples": 9}, "6 of 6 clients have fewer than 10 test examples: chance"),
    "no examples": (
        {"a": plain()},
        {"examples": [np.array([0, 20, 20, 20, 0, 20]), np.array([20, 20, 20, 20, 0, 20])]},
        "^1.5 of 6 clients have no test examples, and count in no measure$",
    ),
    "no examples, by name": (
        {"a": [history()._replace(names=Names(clients=tuple("abcdef")))] * 2},
        {"examples": [np.array([20, 20, 20, 20, 0, 20])] * 2},
        "^1 of 6 clients has no test examples, and counts in no measure: e$",
    ),
    "judged by the same": (
        {"a": plain()},
        {"same_examples": True},
        "all replicates are judged by the same 120 test examples: intervals and stars leave out",
    ),
    "left out": ({"a": plain(), "b": [history(active=False)] * 2}, {}, "updates left out, .*: b 18 of 18"),
    "absent": (
        {"a": [history(active=(True, False, False))] * 2},
        {"references": {"local": plain(), "pooled": plain()}},
        r"\(local\) and \(pooled\) train as if nobody was absent .* of a's only 33 % counted",
    ),
    "longer": (
        {"a": plain(), "b": [history(coef=0.5)] * 2},
        {},
        "^b's coefficients add up to 1.5 on average: its server steps are longer than FedAvg's; "
        r"compare at a learning rate of its own \(--tune, or tune= over lr\)$",
    ),
    "shorter": (
        {"a": [history(coef=0.25)], "b": [history(coef=0.1)]},
        {},
        "^a's coefficients add up to 0.75, b's to 0.3 on average: their server steps are shorter than FedAvg's; "
        "compare at a learning rate of their own",
    ),
    "cost": ({"a": plain(), "b": [history(asked=40)] * 2}, {}, "cost a round: b 3 models sent, 40 examples"),
    "edge": ({"a": plain()}, TUNED, r"edge of its grid: a q=1\. Better .* run again with a value given \(RULE:SET"),
    "edge of the rates": (
        {"a": plain()},
        {**TUNED, "settings": {"a": {"lr": 1.0}}, "grids": {"a": {"lr": [0.1, 0.5, 1.0]}}},
        r"edge of its grid: a lr=1\. Better .* run again around another rate \(--lr X\); in Python",
    ),
    "longer, tuned": (
        {"a": [history(coef=0.5)]},
        {**TUNED, "settings": {"a": {"lr": 0.5}}, "grids": {"a": {"lr": [0.1, 0.5, 1.0]}}},
        "longer than FedAvg's; the learning rate tuned for it makes up for that$",
    ),
    "budgets": ({"a": plain(), "b": plain()}, TUNED, "tuning budgets differ: a 3, b 1 points"),
}


def lacking(*clients, names=tuple("abcdef")):
    """A run whose AUROC has no value for these clients."""
    made = history()
    score = made.scores["test"]
    accuracy = np.where(np.isin(np.arange(N), clients), np.nan, score.accuracy)
    kind = ff.Metric(None, name="auroc", for_everybody=False)
    scores = {"test": score._replace(accuracy=accuracy)}
    return made._replace(scores=scores, metric=kind, names=Names(clients=names))


@pytest.mark.parametrize(
    ("runs", "changes", "sentence"),
    [
        ([lacking(1, 2), lacking(1)], {}, ["auroc has no value for b (2 of 2 replicates), c (1 of 2)"]),
        ([lacking(1)], {"clients": np.arange(N) != 1}, []),
        ([lacking(1), lacking()], {"clients": np.arange(N) != 2}, ["auroc has no value for b (1 of 2 replicates)"]),
        ([lacking(1, names=None)], {"fixed": True}, ["auroc has no value for client 1 (1 of 1 replicate)"]),
        (
            [lacking(1, names=None), lacking(2, 4, names=None)],
            {},
            ["auroc has no value for 1.5 of 6 clients, mean over the replicates"],
        ),
    ],
)
def test_clients_without_a_value_are_named(runs, changes, sentence):
    assert [flag for flag in flags(comparison({"a": runs}, **changes)) if "no value" in flag] == sentence


def test_clients_without_a_value_are_counted_by_rule_where_the_rules_differ():
    runs = {"a": [lacking(1, 2), lacking(1)], "b": [lacking(3), lacking(1)], "c": [lacking(), lacking()]}
    told = [flag for flag in flags(comparison(runs)) if "no value" in flag]
    assert told == [
        "auroc has no value for some of 6 clients, others under each rule, who count in no measure: a 1.5, b 1, c 0"
    ]
    assert "Worst 10 %: the mean of 1 of 4-6 clients." in comparison(runs).legend()
    scores = {"test": Evaluation(np.full((3, N), np.nan), np.full((3, N), np.nan))}
    dead = {"a": [lacking(1), lacking(1)], "b": [lacking(1), lacking(1)._replace(scores=scores)]}
    told = [flag for flag in flags(comparison(dead)) if "no value" in flag]
    assert told == ["auroc has no value for b (2 of 2 replicates)"]


@pytest.mark.parametrize(("runs", "changes", "sentence"), CASES.values(), ids=CASES)
def test_each_flag_names_its_rules(runs, changes, sentence):
    found = flags(comparison(runs, **changes))
    assert any(re.search(sentence, flag) for flag in found), found


def test_references_are_excused_only_where_there_are_some_and_the_baselines_clients_were_absent():
    rows, gone = {"local": plain(), "pooled": plain()}, [history(active=(True, False, False))] * 2
    for runs, references in (({"a": gone}, {}), ({"a": plain(), "b": gone}, rows)):
        assert not any("as if nobody" in flag for flag in flags(comparison(runs, references=references)))


def test_a_choice_inside_its_grid_and_a_grid_of_words_are_no_edges():
    inside = {**TUNED, "settings": {"a": {"q": 0.5}}}
    words = {**TUNED, "settings": {"a": {"q": "x"}}, "grids": {"a": {"q": ["x", "y", "z"]}}}
    for changes in (inside, words):
        assert not any("edge" in flag for flag in flags(comparison({"a": plain()}, **changes)))


def test_the_legend_counts_the_clients_of_a_small_worst_tenth_and_an_equal_budget():
    legend = comparison({"a": plain(), "b": plain()}).legend()
    assert "Worst 10 %: the mean of 1 of 6 clients." in legend
    assert not [line for line in legend if "Tuning" in line]
    assert "Tuning: 3 points for every rule." in comparison({"a": plain()}, **TUNED).legend()
    assert (
        "Worst 10 %: the mean of 1 of 5 clients." in comparison({"a": plain()}, clients=np.arange(N) != 2).legend()
    )


def test_the_legend_says_what_a_replicate_draws():
    assert "2 replicates (federation and training seed)" in comparison({"a": plain()}).legend()[0]
    split = comparison({"a": plain()}, same_clients=True)
    assert "2 replicates (split and training seed)" in split.legend()[0]
    assert "2 training seeds on one federation" in split._replace(fixed=True).legend()[0]


@pytest.mark.parametrize(
    ("tuned", "words"), [({}, "as a's clients do:"), (TUNED, "as a's clients do, with the settings chosen for it:")]
)
def test_the_legend_says_whose_settings_the_references_have(tuned, words):
    legend = comparison({"a": plain()}, references={"local": plain()}, **tuned).legend()
    assert any(words in line for line in legend if line.startswith("Better off"))


def test_a_difference_that_cannot_be_is_not_said_to_be_found():
    runs = {"a": [history((m,) * 3) for m in (0.2, 0.5)], "b": [history((m,) * 3) for m in (0.1, 0.9)]}
    text = " ".join(repr(comparison(runs).differences()).split())
    assert "no difference that is possible in accuracy, worst 10 %" in text
    runs["c"] = [history((m,) * 3) for m in (0.22, 0.53)]
    text = " ".join(repr(comparison(runs).differences()).split())
    assert re.search(
        r"true differences of [\d.]+ in accuracy, .* no difference that is possible in accuracy of b,", text
    )


def test_the_power_is_given_for_every_measure():
    runs = {"a": [history((m,) * 3) for m in (0.2, 0.5)], "b": [history((m,) * 3) for m in (0.22, 0.53)]}
    text = " ".join(repr(comparison(runs).differences()).split())
    true = r"true differences of [\d.]+ in accuracy, [\d.]+ in worst 10 %, [\d.]+ in variance, [\d.]+ in Gini would"
    assert re.search(true, text)


@pytest.mark.parametrize(("gain", "rises"), [(0.002, False), (0.2, True)])
def test_a_metrics_bound_says_what_is_a_trifle_where_its_mean_is_near_0(gain, rises):
    kind = ff.Metric(None, name="R²", unit="", range=(-np.inf, 1.0))
    of = [history((-gain / 2, 0.0, gain / 2))._replace(metric=kind) for _ in range(2)]
    assert any("still improving" in flag for flag in flags(comparison({"b": of}))) == rises

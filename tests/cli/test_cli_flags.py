"""Every flag that can change what is trained on synthetic data does: another traced program, or other data."""

import dataclasses

import chex
import pytest
from test_cli import SMALL

from fedjax_fair import registry
from fedjax_fair.cli.arguments import read_command
from fedjax_fair.cli.comparing import prepare_comparison
from fedjax_fair.cli.experiment import Experiment
from fedjax_fair.cli.plan import prepare
from fedjax_fair.engine.checkpoint import DATA, PROGRAM, describe

FLAGS = [
    "--clients 7",
    "--data-seed 1",
    "--split .6 .2 .2",
    "--precision default",
    "--synthetic.beta 0",
    "--cohort 2",
    "--model mlp",
    "--loss squared_error",
    "--regression",
    "--metric f1_macro",
    "--lr .02",
    "--lr-decay .5",
    "--server-lr .5",
    "--epochs 2",
    "--steps 3",
    "--batch-size 5",
    "--objective proximal --proximal.mu 5",
    "--selector size_proportional",
    "--available .5",
    "--liars .4 --fault scale_update:factor=-5",
    "--liars .4 --fault flip_labels",
    "--defence median",
    "--defence clip_updates:max_norm=.01",
    "--defence clip_losses:factor=2",
    "--evaluate validation",
]
SELECTORS = [f"--selector {name}" for name in registry.SELECTORS if name != "uniform"]
ELSEWHERE = {
    *("dataset", "partition", "test"),  # of images
    *(
        "data",
        "client",
        "label",
        "group",
        "features",
        "missing",
        "test_data",
        "image_size",
        "min_examples",
    ),  # of test_own_data
}
NOT_TRAINED = {
    *("rounds", "eval_every", "devices", "checkpoint", "checkpoint_every"),
    *("data_dir", "out", "overwrite", "dry_run", "quiet", "json"),
}


def trained(words):
    """What a command would train; nothing is compiled for it."""
    plan = prepare(*read_command(["run", "--aggregator", "fedmaba", *SMALL, *words.split()]))
    (sim,) = plan.simulations.values()
    told = describe(sim, None, {})
    return told[DATA], told[PROGRAM]


@pytest.fixture(scope="module")
def usual():
    return trained("")


def test_no_setting_is_forgotten():
    flags = " ".join([*FLAGS, *SELECTORS]).split()
    tried = {word[2:].split(".")[0].replace("-", "_") for word in flags if word.startswith("--")}
    settings = {field.name for field in dataclasses.fields(Experiment)}
    assert settings - tried == ELSEWHERE | NOT_TRAINED


def test_the_length_of_a_run_is_no_part_of_it(usual):
    assert trained("--rounds 9") == usual


@pytest.mark.parametrize("words", [*FLAGS, *SELECTORS])
def test_a_flag_changes_what_is_trained(words, usual):
    assert trained(words) != usual


def contest(*words):
    return prepare_comparison(*read_command(["compare", *words]))


def test_a_row_may_have_a_learning_rate_of_its_own():
    """Beside AFL's own step, which is called as its flag is; alone, lr is AFL's."""
    rows = ["fedavg", "term:t=2,lr=.03", "afl:afl.lr=.02,lr=.3", "afl:lr=.5"]
    asked = contest("--algorithms", *rows)
    assert asked.tune == {rows[1]: {"lr": [0.03]}, rows[2]: {"lr": [0.3]}}
    tuned = contest("--algorithms", *rows, "--tune").tune
    assert [len(tuned[row]["lr"]) for row in rows] == [12, 1, 1, 12]
    with pytest.raises(ValueError, match="lr must be above 0, got -1"):
        contest("--algorithms", "term:lr=-1")


def test_a_comparison_from_another_first_seed_has_the_federations_of_its_seeds():
    usual, fresh = (contest("--algorithms", "fedavg", *words) for words in ((), ("--first-seed", "1")))
    chex.assert_trees_all_equal(fresh.ground.data, usual.federation(1))
    chex.assert_trees_all_equal(fresh.federation(1), usual.federation(1))
    with pytest.raises(ValueError, match="first_seed must be at least 0, got -1"):
        contest("--algorithms", "fedavg", "--first-seed", "-1")
    with pytest.raises(ValueError, match="first_seed must be at least 0, got -1"):
        trained("--first-seed -1")

"""Every flag of an experiment reaches what is trained: another traced program, or other data."""

import pytest
from test_cli import SMALL

from fedjax_fair import registry
from fedjax_fair.checkpoint import DATA, PROGRAM, describe
from fedjax_fair.command import read_command
from fedjax_fair.experiment import prepare

FLAGS = [
    "--data-seed 1",
    "--synthetic.beta 0",
    "--cohort 2",
    "--model mlp",
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


def trained(words):
    """What a command would train; nothing is compiled for it."""
    plan = prepare(*read_command(["run", "--aggregator", "qfedavg", *SMALL, *words.split()]))
    (sim,) = plan.simulations.values()
    told = describe(sim, None, {})
    return told[DATA], told[PROGRAM]


@pytest.fixture(scope="module")
def usual():
    return trained("")


def test_the_length_of_a_run_is_no_part_of_it(usual):
    assert trained("--rounds 9") == usual


@pytest.mark.parametrize("words", [*FLAGS, *SELECTORS])
def test_a_flag_changes_what_is_trained(words, usual):
    assert trained(words) != usual

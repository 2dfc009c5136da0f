"""Every client over several runs: the mean and standard deviation of what each run's table has."""

import numpy as np
import pandas as pd
import pytest

import fedjax_fair as ff
from fedjax_fair.data.names import Names
from fedjax_fair.types import Evaluation

NAMES = Names(clients=("Basel", "Bern", "Chur"), groups=("west", "west", "east"))


def ran(*accuracy, loss=(1.0, 1.0, 1.0), names=NAMES, examples=(4, 5, 6), split="test", ids=(0, 1)):
    """The history of two rounds of which all is known, evaluated after the second."""
    scores = {split: Evaluation(np.array([accuracy]), np.array([loss]), {})}
    ids = np.array([ids] * 2)
    nothing = np.zeros(2, int)
    return ff.History(
        np.array([2]),
        scores,
        ids,
        np.full(ids.shape, 0.5),
        np.ones(ids.shape, bool),
        None,
        nothing,
        nothing,
        names=names,
        examples={split: np.array([examples])},
    )


def test_a_client_has_its_mean_and_its_sample_standard_deviation():
    made = ff.client_table([ran(0.9, 0.4, 0.6, loss=(0, 1, 2)), ran(0.5, 0.2, 0.6, loss=(2, 1, 2), ids=(0, 2))])
    assert isinstance(made, pd.DataFrame)
    assert made.client.tolist() == ["Bern", "Chur", "Basel"]  # from the worst served on average
    assert made.group.tolist() == ["west", "east", "west"]
    assert made.rounds.tolist() == [1, 1, 2]
    assert made.examples.tolist() == [5, 6, 4]
    assert made.accuracy.tolist() == pytest.approx([0.3, 0.6, 0.7])
    assert made["accuracy std"].tolist() == pytest.approx([0.2 / 2**0.5, 0, 0.4 / 2**0.5])
    assert made.loss.tolist() == [1, 2, 1]
    assert made["loss std"].tolist() == pytest.approx([0, 0, 2**0.5])
    assert made.failed.tolist() == [0, 0, 0]


def test_one_run_has_its_own_table_and_no_spread():
    history = ran(0.9, 0.4, 0.6)
    made = ff.client_table(history)
    assert made["accuracy std"].isna().all()
    alone = history.client_table()
    pd.testing.assert_frame_equal(made[alone.columns], alone, check_dtype=False)


def test_a_run_that_failed_is_counted_and_not_averaged():
    made = ff.client_table([ran(0.9, 0.4, 0.6), ran(0.1, 0.2, 0.6, loss=(np.nan, 1, 1))])
    basel = made.set_index("client").loc["Basel"]
    assert (basel.accuracy, basel.loss, basel.failed) == (0.9, 1.0, 1)
    assert np.isnan(basel["accuracy std"])


def test_a_client_without_examples_comes_last():
    runs = [ran(np.nan, 0.4, 0.6, loss=(np.nan, 1, 1), examples=(0, 5, 6)) for _ in range(2)]
    made = ff.client_table(runs)
    assert made.client.tolist() == ["Bern", "Chur", "Basel"]
    assert made.failed.tolist() == [0, 0, 0]


def test_several_splits_and_metrics_have_columns_of_their_own():
    kinds = {"auroc": ff.Metric(None, True, "", (0, 1), "auroc")}
    score = Evaluation(np.array([[0.9, 0.4, 0.6]]), np.ones((1, 3)), {"auroc": np.array([[0.7, 0.8, 0.9]])})
    run = ran(0.9, 0.4, 0.6)._replace(scores={"test": score, "validation": score}, further=kinds, examples=None)
    made = ff.client_table([run, run])
    of = ["examples", "accuracy", "accuracy std", "auroc", "auroc std", "loss", "loss std", "failed"]
    splits = [f"{split} {name}" for split in ("test", "validation") for name in of]
    assert made.columns.tolist() == ["client", "group", "rounds", *splits]
    assert made["validation auroc"].tolist() == [0.8, 0.9, 0.7]


BERN = Names(clients=("Bern", "Basel", "Chur"), groups=NAMES.groups)
REFUSED = {
    "histories must be those of one or more runs of a rule, got none": [],
    "histories must be those of one or more runs of a rule, got str": {"fedavg": []},
    "histories must have the same splits, got ['test'] and ['train']": [ran(1, 1, 1), ran(1, 1, 1, split="train")],
    "histories must be of the same clients, in one order, got others by name or group": [
        ran(1, 1, 1),
        ran(1, 1, 1, names=BERN),
    ],
    "histories must be of the same clients, got 3 and 2 of them": [
        ran(1, 1, 1, names=None),
        ran(1, 1, loss=(1, 1), names=None, examples=(4, 5)),
    ],
    "got client 1 with 5 and with 7 test examples: those of a federation that is drawn anew for every replicate": [
        ran(1, 1, 1, names=None),
        ran(1, 1, 1, names=None, examples=(4, 7, 6)),
    ],
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_runs_that_do_not_fit_together_are_one_sentence(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        ff.client_table(REFUSED[sentence])
    assert sentence in str(error.value)

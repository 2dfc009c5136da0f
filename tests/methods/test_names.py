"""The methods of clients that remember by their names, as the command line calls them."""

import numpy as np
import pytest

import fedjax_fair as ff
from fedjax_fair.registry import make_rule


def test_a_rule_inside_goes_by_its_name():
    made = make_rule("ditto", {"lam": 0.5, "aggregator": "fedmaba"}, learning_rate=0.1)
    assert ff.reads(made) == ("loss",)
    assert ff.reads(make_rule("scaffold", {"aggregator": "qfedavg"}, learning_rate=0.1)) == (
        "loss",
        "gram",
        "message",
    )
    with pytest.raises(ValueError, match="got 'fedmba'; did you mean 'fedmaba'"):
        make_rule("ditto", {"aggregator": "fedmba"}, learning_rate=0.1)


@pytest.mark.parametrize(
    ("personal", "stay"),
    [
        ("last", ["Dense_10/bias", "Dense_10/kernel"]),
        ("Dense_1/", ["Dense_1/bias", "Dense_1/kernel"]),
        ("bias$", ["Dense_1/bias", "Dense_10/bias", "Dense_9/bias"]),
        (lambda path: "9/k" in path, ["Dense_9/kernel"]),
    ],
)
def test_which_layers_stay(personal, stay):
    model = {f"Dense_{i}": {name: f"Dense_{i}/{name}" for name in ("bias", "kernel")} for i in (1, 9, 10)}
    assert ff.fedper(personal).memory.init(model) == stay


def test_of_one_layer_the_biases_stay():
    one = {"Dense_0": {"kernel": np.ones((3, 2)), "bias": np.ones(2)}}
    assert [leaf.shape for leaf in ff.fedper().memory.init(one)] == [(2,)]
    assert [leaf.shape for leaf in ff.fedper().memory.init({"kernel": np.ones((3, 2))})] == [(3, 2)]

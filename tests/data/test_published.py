"""FEMNIST and Shakespeare by name, from small files in LEAF's form."""

import json
import re
import warnings

import numpy as np
import pytest

import fedjax_fair as ff
from fedjax_fair.cli.arguments import read_command
from fedjax_fair.cli.plan import prepare
from fedjax_fair.data.sources.published import ALPHABET, CHARACTERS

TEXT = "Now is the winter of our discontent\nMade glorious summer by this sun of York;\nAnd all the clouds" * 20


def write(place, users):
    place.mkdir(parents=True)
    held = {"users": [*users], "num_samples": [len(of["y"]) for of in users.values()], "user_data": users}
    (place / "all_data.json").write_text(json.dumps(held))


def spoken(starts):
    return {"x": [TEXT[i : i + 80] for i in starts], "y": [TEXT[i + 80] for i in starts]}


@pytest.fixture
def leaf(tmp_path):
    """Both federations, Shakespeare's test examples apart."""
    for part, count in (("train", 12), ("test", 3)):
        roles = {name: spoken(range(i, i + count)) for i, name in enumerate(("HAMLET", "OPHELIA"))}
        write(tmp_path / "shakespeare" / "data" / part, roles)
    rng = np.random.default_rng(0)
    writers = {w: {"x": rng.random((10, 784)).tolist(), "y": [61, *range(1, 10)]} for w in ("f0001", "f0002")}
    write(tmp_path / "femnist", writers)
    return tmp_path


def test_shakespeare_is_tokens_of_leafs_alphabet(leaf):
    data = ff.data.load("shakespeare", data_dir=leaf)
    assert len(ALPHABET) == len(set(ALPHABET)) == 80
    assert data.clients == ("HAMLET", "OPHELIA")
    assert data.x.shape == (30, 80)
    assert np.asarray(data.test.size).tolist() == [3, 3]
    row = int(data.train.rows[0])
    text = "".join(ALPHABET[c] for c in np.asarray(data.x[row]))
    assert text in TEXT
    assert TEXT[TEXT.index(text) + 80] == ALPHABET[int(data.y[row])]
    assert data.names.labels == tuple(ALPHABET)


def test_a_letter_that_leaf_does_not_know_is_its_last_and_said(tmp_path):
    strange = {"x": ["$" + "a" * 79] * 9, "y": ["a"] * 9}
    write(tmp_path / "shakespeare", {"LEAR": strange, "FOOL": spoken(range(9))})
    with pytest.warns(UserWarning, match=re.escape("9 letters are not of the alphabet, such as '$'")):
        data = ff.data.load("shakespeare", data_dir=tmp_path)
    assert ALPHABET[int(data.x[np.asarray(data.train.rows)[-1], 0])] == ALPHABET[-1]


def test_femnist_is_images_of_62_classes(leaf, monkeypatch):
    monkeypatch.setenv("LEAF_DATA_DIR", str(leaf))
    data = ff.data.load("femnist", min_examples=5)
    assert data.x.shape == (20, 28, 28, 1)
    assert int(data.y.max()) == 61  # not renumbered
    assert data.names.labels == CHARACTERS
    assert len(CHARACTERS) == 62
    assert data.clients == ("f0001", "f0002")


def test_one_command_line_names_them(leaf):
    words = ["run", "--dataset", "femnist", "--data", str(leaf), "--model", "logistic_regression"]
    experiment, rules = read_command(words)
    assert prepare(experiment, rules).ground.data.clients == ("f0001", "f0002")
    assert experiment.dataset == "femnist"


REFUSED = {
    "femnist is not prepared (no folder is named by data_dir or $LEAF_DATA_DIR): LEAF makes its files once, git": (
        lambda leaf: ff.data.load("femnist")
    ),
    "shakespeare is not prepared (looked in nowhere): LEAF makes": (
        lambda leaf: ff.data.load("shakespeare", data_dir="nowhere")
    ),
    "femnist has its own clients and tests: it takes no partition": (
        lambda leaf: ff.data.load("femnist", partition=ff.partition.iid(2), data_dir=leaf)
    ),
    "shakespeare has its own clients and tests: it takes no test, got official": (
        lambda leaf: ff.data.load("shakespeare", test="official", data_dir=leaf)
    ),
    "min_examples is for femnist and shakespeare, got mnist": (
        lambda leaf: ff.data.load("mnist", partition=ff.partition.iid(2), min_examples=3)
    ),
    "min_examples must be at most 12, what the largest of the 2 clients has, got 99": (
        lambda leaf: ff.data.load("shakespeare", data_dir=leaf, min_examples=99)
    ),
    "shakespeare must have texts of 80 characters and the one that follows, got x float32[20, 784] and y int32": (
        lambda leaf: ff.data.load("shakespeare", data_dir=leaf / "femnist")
    ),
    "femnist must have images of 784 numbers and classes from 0 to 61, got x <U80[24] and y <U1[24]": (
        lambda leaf: ff.data.load("femnist", data_dir=leaf / "shakespeare")
    ),
    "name must be one of mnist,": lambda leaf: ff.data.load("shakespear", data_dir=leaf),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_wrong_call_is_one_sentence(sentence, leaf, monkeypatch):
    monkeypatch.delenv("LEAF_DATA_DIR", raising=False)
    with pytest.raises(ValueError) as error, warnings.catch_warnings():  # noqa: PT011
        REFUSED[sentence](leaf)
    assert sentence.replace("name must be one of mnist,", "name must be one of") in str(error.value)

"""Hugging Face's data sets: by the real package where it is installed, else by what of its protocol is used."""

import importlib.util

import numpy as np
import pytest

import fedjax_fair as ff

INSTALLED = importlib.util.find_spec("datasets") is not None
RNG = np.random.default_rng(0)
ROWS = {
    "speaker": ["ann", "bob"] * 15,
    "town": ["Basel", "Bern"] * 15,
    "tokens": RNG.integers(0, 9, (30, 4)).tolist(),
    "mood": ["sad", "glad", "sad"] * 10,
    "a": RNG.normal(size=30).tolist(),
    "b": list(range(30)),
    "ragged": [[1] * (1 + i % 2) for i in range(30)],
}


class Standing:
    """What ``datasets.Dataset`` offers, as far as the reader asks: columns by name, and their features."""

    def __init__(self, columns, features=None):
        self.columns, self.features = columns, features or {}
        self.column_names = [*columns]

    def __getitem__(self, name):
        return self.columns[name]


def made(rows):
    if INSTALLED:
        import datasets

        return datasets.Dataset.from_dict(rows)
    return Standing(rows)


def read(source=None, **settings):
    columns = {"client": "speaker", "label": "mood", "features": "tokens"} | settings
    return ff.data.huggingface(made(ROWS) if source is None else source, **columns)


def test_columns_become_a_federation():
    data = read(group="town")
    assert data.clients == ("ann", "bob")
    assert data.groups == ("Basel", "Bern")
    assert data.names.labels == ("glad", "sad")
    assert data.x.shape == (30, 4)
    np.testing.assert_array_equal(data.x, ROWS["tokens"])


def test_several_columns_of_numbers_are_vectors():
    data = read(features=["a", "b"])
    np.testing.assert_allclose(data.x, np.stack([ROWS["a"], ROWS["b"]], 1), rtol=1e-6)


def test_whole_numbers_are_targets_of_a_regression_where_that_is_asked_for():
    data = read(label="b", regression=True)
    assert data.names.labels is None
    np.testing.assert_array_equal(data.y, np.arange(30, dtype=np.float32))
    with pytest.raises(
        ValueError, match="label must be numbers for a regression, got words or classes in column 'mood'"
    ):
        read(regression=True)


def test_a_dictionarys_test_examples_stay_their_clients_own():
    some = {name: values[:6] for name, values in ROWS.items()}
    with pytest.warns(UserWarning, match="6 of 6 examples of test are training examples, too"):
        data = read({"train": made(ROWS), "test": made(some)})
    assert np.asarray(data.test.size).tolist() == [3, 3]


def test_a_class_label_keeps_its_numbers_and_names():
    rows = {"speaker": ROWS["speaker"], "tokens": ROWS["tokens"], "mood": [1, 2, 1] * 10}
    names = ["angry", "glad", "sad"]
    if INSTALLED:
        import datasets

        source = datasets.Dataset.from_dict(rows).cast_column("mood", datasets.ClassLabel(names=names))
    else:
        source = Standing(rows, {"mood": type("ClassLabel", (), {"names": names})})
    data = read(source)
    assert data.names.labels == tuple(names)
    np.testing.assert_array_equal(data.y, rows["mood"])


def test_images_are_scaled_bytes():
    from PIL import Image

    images = [Image.fromarray(np.full((3, 3), 8 * i, np.uint8)) for i in range(30)]
    data = read(Standing(ROWS | {"image": images}), features="image")
    assert data.x.shape == (30, 3, 3)
    assert float(data.take(data.train.rows)[0].max()) <= 1


REFUSED = {
    "source must be a datasets.Dataset, a DatasetDict or a name, got int": lambda: read(3),
    "test must be a datasets.Dataset, got list": lambda: read(test=[1]),
    "client must be a column of source, one of speaker, town, tokens, mood, a, b, ragged, got 'who'": (
        lambda: read(client="who")
    ),
    "features must be a column of source": lambda: read(features="image"),
    "features must be a column, or a list of them, got an empty list": lambda: read(features=[]),
    "features must be of one shape, got column 'ragged' with several: pad or resize it": (
        lambda: read(features="ragged")
    ),
    "features must hold numbers or images, got <U4 in column 'mood'": lambda: read(features="mood"),
    "features must name one column of arrays, or several of numbers, got 'tokens' of arrays": (
        lambda: read(features=["a", "tokens"])
    ),
    "split of source must be one of test, got 'train'": lambda: read({"test": made(ROWS)}),
    "regression must be True or False, got 'no'": lambda: read(regression="no"),
    "features must be there in every row, got none in row 29 of column 'b'": (
        lambda: read(Standing(ROWS | {"b": [*range(29), None]}), features=["a", "b"])
    ),
    "features must be there in every row, got none in row 29 of column 'tokens'": (
        lambda: read(Standing(ROWS | {"tokens": [*ROWS["tokens"][:29], None]}))
    ),
    "client must hold words or numbers, got '1' and 1 in column 'speaker'": (
        lambda: read(Standing(ROWS | {"speaker": [1, "1"] * 15}))
    ),
    "label must be an array, or lists of one length, got list": lambda: read(label="ragged"),
    "min_examples must be at most 15": lambda: read(min_examples=99),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_wrong_call_is_one_sentence(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        REFUSED[sentence]()
    assert sentence in str(error.value)


@pytest.mark.skipif(INSTALLED, reason="datasets is installed")
def test_a_name_needs_the_package():
    with pytest.raises(ValueError, match="takes a name only with pip install 'fedjax-fair"):
        read("a/name")

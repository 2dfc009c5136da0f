"""Data sets of tensorflow-datasets with a column of clients: prepared images, and records that stand in."""

from types import SimpleNamespace

import numpy as np
import pytest
from toy import need_data

import fedjax_fair as ff
from fedjax_fair.data.sources import tfds_clients

RECORDS = [{"speaker": b"ann" if i % 2 else b"bob", "age": i, "height": 2.0 * i, "word": b"yes"} for i in range(20)]


@pytest.fixture
def standing(monkeypatch):
    """A builder that is asked what the reader asks."""
    features = {"speaker": None, "age": None, "height": None, "word": None}
    info = SimpleNamespace(features=features, splits={"train": None, "test": None})
    builder = SimpleNamespace(info=info, as_data_source=lambda split: RECORDS if split == "train" else RECORDS[:4])
    monkeypatch.setattr(tfds_clients, "prepared", lambda name, data_dir: builder)


def read(**settings):
    columns = {"client": "speaker", "label": "word", "features": ["age", "height"]} | settings
    return ff.data.tfds("corpus", **columns)


@pytest.mark.usefixtures("standing")
def test_records_become_a_federation():
    with pytest.warns(UserWarning, match="4 of 4 examples of test are training examples, too"):
        data = read(test="test")
    assert data.clients == ("ann", "bob")
    assert data.names.labels == ("yes",)
    assert data.x.shape == (24, 2)
    assert np.asarray(data.test.size).tolist() == [2, 2]


@pytest.mark.usefixtures("standing")
def test_whole_numbers_are_targets_of_a_regression_where_that_is_asked_for():
    data = read(label="age", regression=True)
    np.testing.assert_array_equal(data.y, np.arange(20, dtype=np.float32))


def test_prepared_images_keep_the_names_of_their_classes():
    need_data("fashion_mnist")
    settings = {"label": "label", "features": "image", "train": "train[:200]", "test": "test[:20]"}
    data = ff.data.tfds("fashion_mnist", client="label", **settings)
    assert data.n_clients == 10
    assert data.x.shape == (220, 28, 28, 1)
    assert data.names.labels[0] == "T-shirt/top"


REFUSED = {
    "client must be a column of source, one of speaker, age, height, word, got 'who'": {"client": "who"},
    "train must be a split of corpus, one of train, test, got 'trian[:3]'": {"train": "trian[:3]"},
    "test must be a split of corpus, one of train, test, got 'dev'": {"test": "dev"},
    "features must hold numbers or images, got <U3 in column 'word'": {"features": "word"},
}


@pytest.mark.usefixtures("standing")
@pytest.mark.parametrize("sentence", REFUSED)
def test_a_wrong_call_is_one_sentence(sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        read(**REFUSED[sentence])
    assert sentence in str(error.value)


def test_a_name_that_nobody_has_is_one_sentence():
    with pytest.raises(ValueError, match="name must be a data set of tensorflow-datasets, got 'no_such_corpus'"):
        ff.data.tfds("no_such_corpus", client="a", label="b", features="c")

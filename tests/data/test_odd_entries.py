"""Odd names, gaps, images and files: nothing is merged, dropped or taken for something else without a word."""

import json
import re
import shutil
from decimal import Decimal

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from test_huggingface import Standing

import fedjax_fair as ff

TABLE = {"client": "who", "label": "y"}
BIG = 2**53
COUNT = 80


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(**columns):
    made = {"who": ["a", "b"] * 40, "x": np.linspace(-1, 1, COUNT), "y": [0, 1, 1, 0] * 20}
    return pd.DataFrame(made | columns)


def test_whole_numbers_kept_as_decimals_are_whole_numbers(place):
    made = rows(who=[Decimal(BIG + i % 2) for i in range(COUNT)], y=[Decimal(i % 2) for i in range(COUNT)])
    made.to_parquet("t.parquet")
    for source in (made, "t.parquet"):
        data = ff.data.table(source, **TABLE)
        assert data.clients == (str(BIG), str(BIG + 1))
        assert data.y.dtype == np.int32


@pytest.mark.parametrize(
    "names", [("01", "1"), ("1.0", "1"), ("NA", "CH"), ("true", "1"), ("9" * 20, "9" * 19 + "8")]
)
def test_groups_of_a_file_are_told_apart_as_clients_are(place, names):
    rows(land=[*names] * 40).to_csv("t.csv", index=False)
    assert ff.data.table("t.csv", group="land", **TABLE).groups == names


def test_groups_may_be_any_list_of_names(place):
    x, y, who = np.zeros((COUNT, 2)), np.zeros(COUNT, int), ["a", "b"] * 40
    read = lambda group: ff.FederatedData.from_arrays(x, y, client_id=who, group=group).groups  # noqa: E731
    assert read(list(jnp.arange(COUNT) % 2)) == ("0", "1")
    assert read([1.0, 2] * 40) == ("1.0", "2.0")
    assert read(["é".encode(), b"a"] * 40) == ("é", "a")
    with pytest.raises(ValueError, match=r"group must have one entry per example, 80, got \[80, 1\]"):
        read([["a"], ["b"]] * 40)
    with pytest.raises(ValueError, match="group must hold words of UTF-8"):
        read(["é".encode("latin-1"), b"a"] * 40)
    with pytest.raises(ValueError, match="group must be there for every example, got none for example 1"):
        read(np.ma.masked_equal([0, 1] * 40, 1))


def test_infinity_is_no_gap_to_be_filled(place):
    x = np.linspace(0, 1, 3 * COUNT, dtype=np.float32).reshape(COUNT, 3)
    x[3, 1], x[5, 1] = np.inf, np.nan
    np.savez("t.npz", x=x, y=np.arange(COUNT) % 2, client=["a", "b"] * 40)
    with pytest.raises(ValueError, match="x holds NaN or infinity in 1 examples, first in example 3"):
        ff.data.npz("t.npz", missing="mean")


def test_numbers_beyond_64_bits_stay_apart():
    data = ff.data.table(rows(who=[Decimal(10**20 + i % 2) for i in range(COUNT)]), **TABLE)
    assert data.clients == (str(10**20), str(10**20 + 1))


def test_targets_that_32_bits_merge_are_warned_of():
    with pytest.warns(UserWarning, match="label 'y' holds numbers up to 1700000079 .*they lie 128 apart"):
        ff.data.table(rows(y=1_700_000_000 + np.arange(COUNT)), regression=True, **TABLE)


@pytest.mark.parametrize("base", [2**40, 2**62, 2**63])
def test_whole_numbers_that_32_bits_merge_are_warned_of_however_large(base):
    big = [base + i % 2 * 100 for i in range(COUNT)]
    with pytest.warns(UserWarning, match="column 'big' holds numbers up to .* standard deviation of 50, and"):
        ff.data.table(rows(big=big), **TABLE)


def test_a_gap_in_a_list_is_no_name():
    x, y, who = np.zeros((COUNT, 2)), np.zeros(COUNT, int), ["a", "b"] * 40
    with pytest.raises(ValueError, match="group must be there for every example, got none for example 1"):
        ff.FederatedData.from_arrays(x, y, client_id=who, group=["CH", float("nan")] * 40)
    for column in ("who", "y", "land"):
        held = Standing({"who": who, "y": ["u", "v"] * 40, "land": who, "x": x.tolist()})
        held.columns[column] = ["a", float("nan")] * 40
        with pytest.raises(ValueError, match=f"must be there in every row, got none in row 1 of column {column!r}"):
            ff.data.huggingface(held, client="who", label="y", features="x", group="land")


def test_values_below_a_mask_are_no_numbers():
    x = np.ma.masked_equal(np.tile([1.0, -999.0], (COUNT, 1)), -999)
    for given in ((x, np.zeros(COUNT, int)), (x.data, np.ma.masked_equal(np.arange(COUNT) % 2, 1))):
        with pytest.raises(ValueError, match="must be complete, got a masked array"):
            ff.FederatedData.from_arrays(*given, client_id=["a", "b"] * 40)


@pytest.mark.parametrize(
    ("argument", "settings"),
    [
        ("x", {"x": [np.ma.array([1.0, -999.0], mask=[False, True])] * COUNT}),
        ("normalizer.shift", {"normalizer": ff.data.Normalizer(np.ma.array([7.0], mask=[True]), 1.0)}),
        ("test_client_id", {"test_client_id": np.ma.masked_equal([0, 1] * 40, 1)}),
    ],
)
def test_a_mask_in_a_list_a_normalizer_or_test_clients_is_seen(argument, settings):
    x, y = np.random.default_rng(0).normal(size=(2, COUNT, 2)), np.arange(COUNT) % 2
    given = {"x": x[0], "test": (x[1], y), "test_client_id": [0, 1] * 40} | settings
    with pytest.raises(ValueError, match=f"^{argument} must be complete, got a masked array"):
        ff.FederatedData.from_arrays(given.pop("x"), y, client_id=[0, 1] * 40, **given)


@pytest.mark.parametrize("kind", [">f4", ">f8"])
def test_targets_may_lie_the_other_way_round(kind):
    y = np.linspace(0, 1, COUNT).astype(np.float32)
    held = ff.FederatedData.from_arrays(np.zeros((COUNT, 2)), y.astype(kind), client_id=["a", "b"] * 40).y
    np.testing.assert_array_equal(held, y)


@pytest.mark.parametrize("store", ["device", "host"])
@pytest.mark.parametrize("kind", [">f4", ">f8", ">i2"])
def test_numbers_may_lie_the_other_way_round(kind, store):
    x = np.arange(2 * COUNT).reshape(COUNT, 2)
    data = ff.FederatedData.from_arrays(
        x.astype(kind), np.arange(COUNT) % 2, client_id=["a", "b"] * 40, store=store
    )
    np.testing.assert_array_equal(data.take(np.arange(COUNT))[0], x)


def pictures(image):
    held = {"who": ["a", "b"] * 12, "y": [0, 0, 1, 1] * 6, "x": [image] * 24}
    return ff.data.huggingface(Standing(held), client="who", label="y", features="x")


def test_a_palettes_numbers_are_no_pixels():
    image = Image.fromarray(np.full((6, 6, 3), [200, 40, 7], np.uint8))
    held = np.asarray(pictures(image.quantize(8)).x)
    assert held.shape == (24, 6, 6, 3)
    assert abs(held.astype(int) - [200, 40, 7]).max() <= 4
    with pytest.raises(ValueError, match="features must be images of 8 bits a channel"):
        pictures(Image.fromarray(np.full((6, 6), 40_000, np.uint16)))


class Classes:
    """A ``ClassLabel``."""

    def __init__(self, *names):
        self.names = names


def test_classes_of_test_examples_are_those_of_training():
    def read(test_labels, *names):
        held = {"who": ["a", "b"] * 20, "x": np.arange(40.0).tolist(), "y": [0, 1] * 20}
        train = Standing(held, {"y": Classes("cat", "dog")})
        test = Standing(held | {"y": test_labels * 20}, {"y": Classes(*names)})
        columns = {"client": "who", "label": "y", "features": ["x"]}
        return ff.data.huggingface({"train": train, "test": test}, **columns)

    with pytest.raises(
        ValueError, match="test must have the classes of source in 'y', in their order, got dog, cat"
    ):
        read([0, 1], "dog", "cat")
    with pytest.raises(ValueError, match="label must be one of the 2 classes of 'y', got 3"):
        read([0, 3], "cat", "dog")


def test_a_dictionarys_validation_examples_are_not_dropped_in_silence():
    part = Standing({"who": ["a", "b"] * 20, "x": np.arange(40.0).tolist(), "y": [0, 1] * 20})
    with pytest.warns(UserWarning, match="the validation split of source is not read"):
        ff.data.huggingface({"train": part, "validation": part}, client="who", label="y", features=["x"])


def leaf(name, ys, users=("ann",), text=True):
    x = ["word"] * len(ys) if text else np.arange(float(len(ys))).tolist()
    held = {"users": [*users], "user_data": {"ann": {"x": x, "y": ys}, "bob": {"x": x, "y": ys}}}
    (name.parent).mkdir(exist_ok=True)
    name.write_text(json.dumps(held))


def test_decimal_labels_of_texts_are_targets(place):
    leaf(place / "in" / "a.json", [0.5, 1.25, -3.0, 2.0] * 5, ("ann", "bob"))
    data = ff.data.leaf("in")
    assert data.names.labels is None
    np.testing.assert_array_equal(np.unique(data.y), np.float32([-3, 0.5, 1.25, 2]))


def test_a_file_that_is_there_twice_is_read_once_or_refused(place):
    leaf(place / "in" / "a.json", [0, 1] * 10, ("ann", "bob"), text=False)
    shutil.copy(place / "in" / "a.json", place / "in" / "a.json.gz")
    with pytest.raises(ValueError, match=r"must hold each file once, got a\.json and a\.json\.gz"):
        ff.data.leaf("in")


def test_users_who_are_not_named_are_not_dropped_in_silence(place):
    leaf(place / "in" / "a.json", [0, 1] * 10, text=False)
    with pytest.warns(UserWarning, match="has user_data of 1 who are not among its users, such as 'bob'"):
        assert ff.data.leaf("in").clients == ("ann",)


def test_images_at_another_depth_are_not_dropped_in_silence(place):
    def draw(*files):
        for file in files:
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (4, 4)).save(place / file)

    draw(*(f"a/ann/cat/{i}.png" for i in range(4)), "a/bob/cat/more/0.png", "a/cid/0.png")
    with pytest.warns(UserWarning, match="2 images in a are passed over, first bob/cat/more/0.png"):
        assert ff.data.images("a").clients == ("ann",)
    (place / "linked").mkdir()
    (place / "linked" / "eve").symlink_to(place / "a" / "ann")
    assert ff.data.images("linked").clients == ("eve",)
    draw(*(f"b/train/ann/cat/{i}.png" for i in range(4)), "b/test/cat/0.png")
    with pytest.raises(ValueError, match="folder b/test must hold images as CLIENT/LABEL/FILE, got none"):
        ff.data.images("b")
    draw(*(f"c/train/ann/cat/{i}.png" for i in range(4)), "c/test/ann/cow/0.png")
    with pytest.raises(ValueError, match="c/test must have labels that are trained on, got 'cow'"):
        ff.data.images("c")


def test_test_examples_by_another_name_and_another_type_are_told(place):
    x, y, who = np.random.default_rng(0).normal(size=(COUNT, 2)), np.arange(COUNT) % 2, ["a", "b"] * 40
    np.savez("odd.npz", x=x, y=y, client=who, x_test=x, y_test=y)
    with pytest.warns(UserWarning, match="holds x_test, which is not read: test examples are test_x, test_y and"):
        ff.data.npz("odd.npz")
    np.savez("same.npz", x=x, y=y, client=who, test_x=x, test_y=y.astype(np.int32), test_client=who)
    with pytest.warns(UserWarning, match="80 of 80 examples of test_client are training examples, too"):
        ff.data.npz("same.npz")


def test_labels_that_are_bytes_are_words(place):
    np.savez("t.npz", x=np.zeros((COUNT, 2)), y=np.array([b"dog", b"cat"] * 40), client=np.arange(COUNT) % 2)
    assert ff.data.npz("t.npz").names.labels == ("cat", "dog")


MIXED = {
    "got None of user 'ann'": {"ann": [0, 1, None]},
    "got [None] of user 'ann'": {"ann": [[0], [None]]},
    "got 1 beside '0' of user 'ann'": {"ann": ["0", 1]},
    "must have y of one kind, got texts of user 'ann' and numbers of user 'bob'": {
        "ann": ["u", "v"],
        "bob": [0, 1],
    },
}


@pytest.mark.parametrize("sentence", MIXED)
def test_labels_of_leaf_that_are_of_no_kind_or_two_are_named(place, sentence):
    held = {user: {"x": [[0.0], [1.0], [2.0]][: len(y)], "y": y} for user, y in MIXED[sentence].items()}
    (place / "a.json").write_text(json.dumps({"users": [*held], "user_data": held}))
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ff.data.leaf(place)


WRONG = {
    "counts that are no list": (
        {"users": ["a"], "num_samples": 3, "user_data": {}},
        "users and num_samples must be",
    ),
    "users that are no names": ({"users": [["a"]], "user_data": {}}, "users and num_samples must be lists"),
    "examples that are no list": (
        {"users": ["a"], "user_data": {"a": {"x": 1, "y": 2}}},
        "must have lists in x and y of user 'a', got int",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_damaged_file_of_leaf_is_one_sentence(place, case):
    held, sentence = WRONG[case]
    (place / "a.json").write_text(json.dumps(held))
    with pytest.raises(ValueError, match=sentence):
        ff.data.leaf(place)


def test_other_wrong_input_is_one_sentence(place):
    x, y = np.zeros((COUNT, 2)), np.zeros(COUNT, int)
    with pytest.raises(ValueError, match="partition must return the rows of every client, got NoneType"):
        ff.FederatedData.from_arrays(x, y, partition=lambda labels, seed: None)
    with pytest.raises(ValueError, match="partition must return rows for every client, got lists in a list"):
        ff.FederatedData.from_arrays(x, y, partition=lambda labels, seed: [[[0, 1], [2]]])
    if np.dtype(np.longdouble).itemsize > 8:  # not on every machine
        with pytest.raises(ValueError, match="x must hold numbers of 64 bits at most, got float"):
            ff.FederatedData.from_arrays(x.astype(np.longdouble), y, partition=ff.partition.iid(4))
        with pytest.raises(ValueError, match="y must hold numbers of 64 bits at most, got float"):
            ff.FederatedData.from_arrays(x, y.astype(np.longdouble), partition=ff.partition.iid(4))
    (place / "t.csv").write_bytes("who,y,größe\na,1,2\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"source t\.csv cannot be read: 'utf-8'"):
        ff.data.table("t.csv", **TABLE)

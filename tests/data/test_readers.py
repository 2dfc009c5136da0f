"""Files of a user's own become federations: LEAF, tables, NumPy's files, folders of images."""

import gzip
import json
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import fedjax_fair as ff

RNG = np.random.default_rng(0)


def rows_of(split, k):
    start, size = int(split.start[k]), int(split.size[k])
    return np.asarray(split.rows)[start : start + size]


def leaf_file(path, users, gap=0):
    """A file of LEAF's, x and y of every user; ``gap`` is added to num_samples."""
    path.parent.mkdir(parents=True, exist_ok=True)
    held = {
        "users": [*users],
        "num_samples": [len(y) + gap for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    text = json.dumps(held).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def digits(n, of=0.0):
    return [[of + i, 0.5] for i in range(n)], [i % 2 for i in range(n)]


def frame():
    """Forty patients of two hospitals, one without an age."""
    made = pd.DataFrame(
        {"hospital": ["west", "east"] * 20, "age": np.arange(40.0), "sex": ["f", "f", "m", "m"] * 10}
    )
    return made.assign(ill=np.where(made.age % 3 == 0, "yes", "no"))


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


# LEAF


def test_leaf_keeps_users_their_examples_and_their_tests(place):
    leaf_file(place / "train" / "a.json", {"zoe": digits(6), "ann": digits(4, of=100)})
    leaf_file(place / "train" / "b.json.gz", {"zoe": digits(2, of=50)})
    leaf_file(place / "test" / "a.json", {"ann": digits(3, of=200), "zoe": digits(1, of=300)})
    data = ff.data.leaf(place)
    assert data.clients == ("ann", "zoe")
    x = np.asarray(data.x)[:, 0]
    train = [np.concatenate([rows_of(data.train, k), rows_of(data.validation, k)]) for k in (0, 1)]
    assert sorted(x[train[0]]) == [100, 101, 102, 103]
    assert sorted(x[train[1]]) == [0, 1, 2, 3, 4, 5, 50, 51]
    assert [sorted(x[rows_of(data.test, k)]) for k in (0, 1)] == [[200, 201, 202], [300]]


def test_leaf_without_a_test_folder_splits_every_users_examples(place):
    leaf_file(place / "data.json", {"ann": digits(10), "zoe": digits(10)})
    data = ff.data.leaf(place)
    assert [np.asarray(split.size).tolist() for split in (data.train, data.validation, data.test)] == [
        [8, 8],
        [1, 1],
        [1, 1],
    ]


def test_leafs_texts_become_tokens_of_one_alphabet(place):
    leaf_file(place / "train" / "a.json", {"ann": (["abc", "bca", "cab"], ["a", "b", "z"])})
    leaf_file(place / "test" / "a.json", {"ann": (["zzz"], ["é"])})
    data = ff.data.leaf(place)
    ((column, letters),) = data.names.categories
    assert (column, letters) == ("x", ("a", "b", "c", "z", "é"))
    assert data.names.labels == letters
    texts = ["".join(letters[i] for i in row) for row in np.asarray(data.x)]
    assert texts == ["abc", "bca", "cab", "zzz"]
    assert [letters[i] for i in np.asarray(data.y)] == ["a", "b", "z", "é"]


# Tables


@pytest.mark.parametrize("form", ["t.csv", "t.csv.gz", "t.tsv", "t.parquet", "frame"])
def test_a_table_of_any_form_is_one_federation(place, form):
    made = frame()
    if form == "t.parquet":
        made.to_parquet(form)
    elif form != "frame":
        made.to_csv(form, index=False, sep="\t" if ".tsv" in form else ",")
    data = ff.data.table(made if form == "frame" else form, client="hospital", label="ill", standardize=False)
    assert data.clients == ("east", "west")
    assert data.names.labels == ("no", "yes")
    assert data.names.features == ("age", "sex=f", "sex=m")
    assert data.names.categories == (("sex", ("f", "m")),)
    np.testing.assert_array_equal(np.asarray(data.x)[:, 0], made.age)
    np.testing.assert_array_equal(np.asarray(data.x)[:, 2], made.sex == "m")
    np.testing.assert_array_equal(np.asarray(data.y), made.ill == "yes")
    for k, name in enumerate(data.clients):
        for split in (data.train, data.validation, data.test):
            assert (made.hospital.to_numpy()[rows_of(split, k)] == name).all()


@pytest.mark.parametrize(("missing", "statistic"), [("mean", np.mean), ("median", np.median)])
def test_gaps_are_filled_by_what_clients_train_on(missing, statistic):
    made = frame()
    made.loc[5, "age"] = np.nan
    for seed in range(3):
        data = ff.data.table(
            made, client="hospital", label="ill", features=["age"], missing=missing, standardize=False, seed=seed
        )
        trained = made.age.to_numpy()[np.asarray(data.train.rows)]
        assert float(data.x[5, 0]) == pytest.approx(statistic(trained[~np.isnan(trained)]), rel=1e-6)


def test_numbers_are_standardised_by_what_clients_train_on_and_kept_as_they_are():
    data = ff.data.table(frame(), client="hospital", label="ill")
    x, _ = data.take(data.train.rows)
    np.testing.assert_allclose(x[:, 0].mean(), 0, atol=1e-6)
    np.testing.assert_allclose(x[:, 0].std(), 1, atol=1e-6)
    assert set(np.unique(x[:, 1:])) == {0, 1}
    np.testing.assert_array_equal(np.asarray(data.x)[:, 0], np.arange(40))


def test_words_may_be_numbered_and_missing_ones_are_none_of_the_words():
    made = frame()
    coded = ff.data.table(made, client="hospital", label="ill", words="codes")
    assert coded.names.features == ("age", "sex")
    np.testing.assert_array_equal(np.asarray(coded.x)[:, 1], made.sex == "m")
    made.loc[0, "sex"] = None
    hot = ff.data.table(made, client="hospital", label="ill", missing="mean")
    assert np.asarray(hot.x)[0, 1:].tolist() == [0, 0]


@pytest.mark.parametrize("gap", ["unknown", "?", "-", "na"])
def test_a_word_among_numbers_is_no_reason_to_read_words(place, gap):
    made = frame().assign(age=[*range(7), gap, *range(8, 40)])
    made.to_csv("t.csv", index=False)
    sentence = f"column 'age' is numeric in 39 of 40 rows, but row 7 holds {gap!r}: correct it, empty it"
    for settings in ({}, {"source": frame(), "test": "t.csv"}):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            ff.data.table(**{"source": "t.csv", "client": "hospital", "label": "ill"} | settings)
    coded = ff.data.table("t.csv", client="hospital", label="ill", words="codes")
    assert coded.names.categories[0][0] == "age"
    few = made.assign(age=["1", "2", "many", "none"] * 10)  # half of them are words: they are words
    assert "age=many" in ff.data.table(few, client="hospital", label="ill").names.features


def test_a_table_of_test_rows_goes_to_its_clients():
    made, test = frame(), frame().assign(age=100.0).iloc[:3]
    data = ff.data.table(made, client="hospital", label="ill", test=test)
    assert np.asarray(data.test.size).tolist() == [1, 2]
    assert (np.asarray(data.x)[np.asarray(data.test.rows), 0] == 100).all()


def test_test_rows_that_are_training_rows_are_warned_of():
    made, given = frame(), {"client": "hospital", "label": "ill"}
    with pytest.warns(
        UserWarning, match="3 of 3 examples of test are training examples, too: results on them tell"
    ):
        ff.data.table(made, **given, test=made.iloc[:3])
    ff.data.table(made, **given, test=pd.concat([made.iloc[:3], made.iloc[:3].assign(age=100.0)]))  # half of them
    answers = made.assign(age=np.arange(len(made)) % 2.0)  # two columns of two values: rows are often alike
    ff.data.table(answers, **given, test=answers.iloc[:3])


@pytest.mark.parametrize(
    ("given", "y", "labels"),
    [
        ([0, 1, 2, 1], [0, 1, 2, 1], None),
        ([10, 30, 20, 10], [0, 2, 1, 0], ("10", "20", "30")),
        ([True, False, True, True], [1, 0, 1, 1], None),
        ([0.5, 1.0, 2.0, 3.0], [0.5, 1, 2, 3], None),
    ],
)
def test_labels_are_classes_unless_they_have_decimals(given, y, labels):
    made = pd.DataFrame({"who": ["a"] * 4, "x": range(4), "y": given})
    data = ff.data.table(made, client="who", label="y")
    assert np.asarray(data.y).tolist() == y
    assert data.names.labels == labels


@pytest.mark.parametrize(
    ("written", "clients"),
    [
        (["10", "9", "10", "9"], ("9", "10")),
        (["007", "8", "007", "8"], ("007", "8")),
        (["NA", "b"] * 2, ("NA", "b")),
    ],
)
def test_clients_keep_the_words_of_the_file(place, written, clients):
    lines = ["who,x,y", *(f"{name},{i}.5,{i % 2}" for i, name in enumerate(3 * written))]
    (place / "t.csv").write_text("\n".join(lines))
    assert ff.data.table("t.csv", client="who", label="y").clients == clients


def test_the_index_of_a_data_frame_is_no_feature(place):
    made = frame().set_index(np.arange(40) * 7)
    made.to_parquet("t.parquet")
    for source in (made, "t.parquet"):
        data = ff.data.table(source, client="hospital", label="ill")
        assert data.names.features == ("age", "sex=f", "sex=m")


def test_a_number_of_the_row_among_the_features_is_remarked_on():
    rows = pd.concat([frame()] * 3, ignore_index=True).assign(patient=np.arange(120) + 700, age=50)
    table = {"source": rows, "client": "hospital", "label": "ill"}
    with pytest.warns(UserWarning, match="feature 'patient' has another whole number in each of the 120 rows"):
        ff.data.table(**table)
    chosen = ff.data.table(**table, features=["patient", "sex"])  # who names it wants it
    assert chosen.names.features == ("patient", "sex=f", "sex=m")


def test_semicolons_and_byte_order_marks_of_spreadsheets(place):
    text = frame().to_csv(index=False, sep=";")
    (place / "t.csv").write_text(text, encoding="utf-8-sig")
    assert ff.data.table("t.csv", client="hospital", label="ill").names.features == ("age", "sex=f", "sex=m")


def test_columns_may_be_numbers():
    made = frame().set_axis([*range(4)], axis=1)
    assert ff.data.table(made, client=0, label=3, features=[1]).names.features == ("1",)


def test_a_late_decimal_is_a_number_among_whole_ones(place):
    """What a column holds is decided by all of it, not by its first megabyte."""
    lines = ["who,x,y", *(f"{i % 2},{i},{i % 2}" for i in range(200_000)), "0,0.5,1"]
    (place / "t.csv").write_text("\n".join(lines))
    assert float(ff.data.table("t.csv", client="who", label="y").x[-1, 0]) == 0.5


# NumPy's files and images


@pytest.mark.parametrize("form", ["npz", "npy"])
def test_arrays_with_clients_and_their_test(place, form):
    arrays = {"x": RNG.normal(size=(20, 3)), "y": np.arange(20) % 2, "client": np.array(["u", "v"] * 10)}
    arrays |= {"test_x": np.ones((2, 3)), "test_y": np.array([1, 1]), "test_client": np.array(["v", "v"])}
    if form == "npz":
        np.savez("a.npz", **arrays)
    else:
        (place / "a").mkdir()
        for name, array in arrays.items():
            np.save(f"a/{name}.npy", array)
    data = ff.data.npz("a.npz" if form == "npz" else "a")
    assert data.clients == ("u", "v")
    assert np.asarray(data.test.size).tolist() == [0, 2]
    np.testing.assert_array_equal(np.asarray(data.x)[:20], arrays["x"].astype(np.float32))


def test_arrays_of_other_names_with_names_for_the_numbers_of_clients(place):
    arrays = {"pixels": np.zeros((12, 2, 2), np.uint8), "kind": np.array(["cat", "dog"] * 6), "who": [0, 1, 1] * 4}
    np.savez("a.npz", **arrays, client_names=["north", "south"])
    data = ff.data.npz("a.npz", x="pixels", y="kind", client="who")
    assert (data.clients, data.names.labels) == (("north", "south"), ("cat", "dog"))
    assert data.x.dtype == np.uint8
    tokens = np.full((12, 3), 200, np.uint8)
    np.savez("b.npz", x=tokens, y=np.arange(12) % 2, client=[0, 1] * 6)
    assert ff.data.npz("b.npz", normalizer=None).normalizer is None


def draw(path, shape=(4, 5, 3), value=7):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full(shape, value, np.uint8)).save(path)


def test_images_in_folders_of_clients_and_labels(place):
    for i in range(3):
        for label in ("cat", "dog"):
            for client in ("ann", "zoe"):
                draw(place / "train" / client / label / f"{i}.png", value=i)
    draw(place / "test" / "zoe" / "dog" / "0.png", value=200)
    (place / "train" / "ann" / "cat" / "notes.txt").write_text("no image")
    data = ff.data.images(place)
    assert data.clients == ("ann", "zoe")
    assert data.names.labels == ("cat", "dog")
    assert data.x.shape == (13, 4, 5, 3)
    assert np.asarray(data.test.size).tolist() == [0, 1]
    assert float(data.take(data.test.rows)[0].max()) == pytest.approx(200 / 255)


def test_images_are_scaled_and_grey_where_none_has_colour(place):
    for i, shape in enumerate([(4, 4), (8, 8), (6, 6)]):
        draw(place / "ann" / "cat" / f"{i}.png", shape)
    assert ff.data.images(place, size=(5, 6)).x.shape == (3, 5, 6, 1)
    assert ff.data.images(place, size=(5, 6), colour=True).x.shape == (3, 5, 6, 3)


# All of them


def test_clients_too_small_are_left_out_and_counted():
    made = pd.concat([frame(), frame().iloc[:2].assign(hospital="north")])
    test = frame().iloc[:2].assign(hospital=["north", "east"], age=100.0)
    with pytest.warns(UserWarning, match="min_examples=3 leaves out 1 of 3 clients, with 2 of 42 examples"):
        data = ff.data.table(made, client="hospital", label="ill", test=test, min_examples=3)
    assert data.clients == ("east", "west")
    assert np.asarray(data.test.size).tolist() == [1, 0]


def test_the_seed_decides_the_split_alone():
    one, other = (ff.data.table(frame(), client="hospital", label="ill", seed=seed) for seed in (0, 1))
    np.testing.assert_array_equal(one.x, other.x)
    assert not np.array_equal(one.train.rows, other.train.rows)


def readable(place):
    """A file or folder of each kind, some with what is wrong."""
    np.savez("a.npz", x=np.ones((6, 2)), y=np.arange(6) % 2, client=np.array(["u", "v"] * 3))
    np.savez("half.npz", x=np.ones((6, 2)), y=np.ones(6, int), client=np.zeros(6, int), test_x=np.ones((1, 2)))
    np.savez("gap.npz", x=np.full((6, 2), np.nan), y=np.ones(6, int), client=np.zeros(6, int))
    np.savez("short.npz", x=np.ones((6, 2)), y=np.ones(5, int), client=np.zeros(6, int))
    np.savez("few.npz", x=np.ones((6, 2)), y=np.ones(6, int), client=[2] * 6, client_names=["a", "b"])
    (place / "broken.npz").write_text("no archive")
    (place / "t.txt").write_text("a,b")
    (place / "empty.csv").write_text("hospital,ill\n")
    (place / "ragged.csv").write_text("hospital,ill,x\na,1,2\nb,1\n")
    (place / "broken.parquet").write_text("no table")
    (place / "empty").mkdir()
    leaf_file(place / "other" / "train" / "a.json", {"ann": digits(4)})
    leaf_file(place / "other" / "test" / "a.json", {"zoe": digits(4)})
    leaf_file(place / "count" / "a.json", {"ann": digits(4)}, gap=1)
    leaf_file(place / "wide" / "a.json", {"ann": ([[1.0], [1.0, 2.0]], [0, 1])})
    leaf_file(place / "tweet" / "a.json", {"ann": ([["1", "Mon"], ["2", "Tue"]], [0, 1])})
    leaf_file(place / "text" / "a.json", {"ann": (["abc", "ab"], ["a", "b"])})
    leaf_file(place / "faces" / "a.json", {"ann": (["000001.jpg", "000002.jpg"], [0, 1])})
    (place / "form").mkdir()
    (place / "form" / "a.json").write_text('{"users": ["ann"]}')
    (place / "lost").mkdir()
    (place / "lost" / "a.json").write_text('{"users": ["ann"], "user_data": {}}')
    (place / "cut").mkdir()
    (place / "cut" / "a.json").write_text('{"users": ["an')
    draw(place / "sizes" / "ann" / "cat" / "0.png")
    draw(place / "sizes" / "ann" / "cat" / "1.png", (9, 9, 3))
    draw(place / "bad" / "ann" / "cat" / "0.png")
    (place / "bad" / "ann" / "cat" / "1.png").write_text("no image")


def on(**settings):
    return lambda: ff.data.table(**{"source": frame(), "client": "hospital", "label": "ill"} | settings)


def holes(**settings):
    return on(source=frame().assign(**settings))


NONE = [None] * 40
WRONG = {
    "no folder": (lambda: ff.data.leaf("gone"), "folder gone cannot be read: there is no such file or folder"),
    "a file for a folder": (lambda: ff.data.leaf("t.txt"), "folder must be a folder of LEAF's JSON files, got the"),
    "no JSON": (lambda: ff.data.leaf("empty"), r"folder empty holds no JSON files: neither \*.json\[.gz\], nor"),
    "users who do not train": (
        lambda: ff.data.leaf("other"),
        "other/test must be of clients that train, got 1 others, such as 'zoe'",
    ),
    "counts": (lambda: ff.data.leaf("count"), "has 4 x and 4 y of user 'ann', num_samples 5: they must agree"),
    "x of two lengths": (lambda: ff.data.leaf("wide"), "must have x of one length for user 'ann', got several"),
    "words in lists": (
        lambda: ff.data.leaf("tweet"),
        "must have numbers or texts in x, got .*'Mon'.* of user 'ann'",
    ),
    "texts of two lengths": (
        lambda: ff.data.leaf("text"),
        "x must be texts of one length, 3 letters, got 'ab' of 2",
    ),
    "names of images": (
        lambda: ff.data.leaf("faces"),
        "must hold examples in x, got names of images, such as '000001",
    ),
    "another form": (
        lambda: ff.data.leaf("form"),
        "is not in LEAF's form: it must have user_data, a table by user",
    ),
    "a user without data": (lambda: ff.data.leaf("lost"), "must have x and y of user 'ann' in user_data"),
    "cut off": (lambda: ff.data.leaf("cut"), "cut/a.json cannot be read as JSON: JSONDecodeError: Unterminated"),
    "no path": (lambda: ff.data.leaf(3), "folder must be a path, got int"),
    "no table": (on(source=3), "source must be a path to a CSV or Parquet file, or a data frame, got int"),
    "a column for a table": (on(source=frame().age), "source must be a path .*, or a data frame, got Series"),
    "infinity": (holes(age=[np.inf] * 40), "column 'age' must hold numbers of 32 bits, got inf in row 0"),
    "too large": (
        holes(age=[1.0] * 39 + [1e300]),
        "column 'age' must hold numbers of 32 bits, got 1e.300 in row 39",
    ),
    "no such table": (on(source="gone.csv"), "source gone.csv cannot be read: there is no such file or folder"),
    "a table of another kind": (on(source="t.txt"), r"source must be a file that ends in .csv, .*, got t.txt"),
    "no rows": (on(source="empty.csv"), "source must have rows, got a table without any"),
    "rows of two lengths": (
        on(source="ragged.csv"),
        "source ragged.csv cannot be read: CSV parse error: Row #3: Expected 3",
    ),
    "no Parquet": (on(source="broken.parquet"), "source broken.parquet cannot be read: .*Parquet magic bytes"),
    "no such client column": (
        on(client="hospitl"),
        "client must be one of .*, got 'hospitl'; did you mean 'hospital'",
    ),
    "no such label column": (on(label="il"), "label must be one of hospital, age, sex, ill, got 'il'"),
    "client and label": (on(label="hospital"), "client and label must be two columns, got 'hospital' for both"),
    "a word for a list": (on(features="age"), "features must be a list of columns, got the word 'age'"),
    "no such feature": (on(features=["agee"]), "features must be one of .*, got 'agee'; did you mean 'age'"),
    "no features": (on(features=[]), "features must be at least one column beside 'hospital' and 'ill', got none"),
    "the label a feature": (
        on(features=["ill"]),
        "features must leave out the client and label columns, got 'ill'",
    ),
    "the group a feature": (
        on(features=["age", "sex"], group="sex"),
        "features must leave out the group column, got 'sex': to train on it, too, copy it",
    ),
    "a feature twice": (on(features=["age", "age"]), "features must name a column once, got 'age' twice"),
    "gaps": (
        holes(age=[None, 1.0] * 20, sex=["f"] * 39 + [None]),
        "features must be complete in all 40 rows, got columns with missing values, age 20, sex 1: fill them",
    ),
    "nothing but gaps": (
        lambda: on(source=frame().assign(age=np.nan), missing="mean")(),
        "column 'age' has no value in the rows that clients train on: leave it out of features",
    ),
    "no client": (
        holes(hospital=["a"] * 39 + [None]),
        "client column 'hospital' must be there in every row, got 1 of 40",
    ),
    "no label": (
        holes(ill=["a"] * 38 + NONE[:2]),
        "label column 'ill' must be there in every row, got 2 of 40 without",
    ),
    "missing": (on(missing="zero"), "missing must be one of mean, median, got 'zero'"),
    "words": (on(words="hot"), "words must be one of one-hot, codes, got 'hot'"),
    "codes for gaps": (
        on(source=frame().assign(sex=["f"] * 39 + [None]), missing="mean", words="codes"),
        "column 'sex' misses 1 words, which have no mean: words must be 'one-hot', got 'codes'",
    ),
    "too many words": (
        on(source=pd.concat([frame()] * 3).assign(sex=[f"w{i}" for i in range(120)])),
        "column 'sex' holds 120 different words, and at most 100 become columns: leave it out of features, or",
    ),
    "days": (
        holes(day=pd.date_range("2020", periods=40)),
        "column 'day' must hold numbers or words, got timestamp.*: leave it out of features",
    ),
    "mixed": (holes(age=["a", 1] * 20), "source must hold numbers or words in every column"),
    "a test without a column": (
        on(test=frame().drop(columns="age")),
        "test must have a column 'age', got hospital",
    ),
    "a test of strangers": (on(test=frame().assign(hospital="far")), "test must be of clients that train.*'far'"),
    "a test of other words": (
        on(test=frame().assign(sex="x")),
        "column 'sex' of test must hold words of the training",
    ),
    "a test of other labels": (
        on(test=frame().assign(ill="so")),
        "label of the test examples must be among.*got so",
    ),
    "min_examples": (on(min_examples=0), "min_examples must be at least 1, got 0"),
    "too large a min": (
        on(min_examples=99),
        "min_examples must be at most 20, what the largest of the 2 clients has",
    ),
    "a client too small": (
        on(source=frame().assign(hospital=["one"] + ["two"] * 39)),
        r"client 0 \('one'\) has 1 example, but a split into 3 parts needs at least 3",
    ),
    "no archive": (lambda: ff.data.npz("t.txt"), "path must be a file .npz, or a folder of files .npy, got t.txt"),
    "a broken archive": (lambda: ff.data.npz("broken.npz"), "broken.npz cannot be read"),
    "no such array": (
        lambda: ff.data.npz("a.npz", y="label"),
        "a.npz must hold x, label, client, got x, y, client",
    ),
    "half a test": (lambda: ff.data.npz("half.npz"), "half.npz must hold all of test_x, .*or none, got test_x"),
    "NaN": (lambda: ff.data.npz("gap.npz"), "x must hold numbers throughout, got 12 NaN: fill them by missing="),
    "lengths": (lambda: ff.data.npz("short.npz"), r"x, y, client must have one entry per example, got \[6, 5, 6\]"),
    "too few names": (lambda: ff.data.npz("few.npz"), "client_names must name every client up to 2, got 2 names"),
    "no images": (
        lambda: ff.data.images("empty"),
        "folder empty must hold images as CLIENT/LABEL/FILE, got none at",
    ),
    "images of two sizes": (lambda: ff.data.images("sizes"), "images must have one size, got 4x5 and 9x9, first"),
    "a broken image": (lambda: ff.data.images("bad"), "1.png cannot be read as an image"),
    "colour": (lambda: ff.data.images("sizes", colour="no"), "colour must be True or False, got 'no'"),
    "regression": (
        lambda: ff.data.table("t.csv", client="a", label="b", regression="no"),
        "regression must be True or False, got 'no'",
    ),
    "standardize": (
        lambda: ff.data.table("t.csv", client="a", label="b", standardize="no"),
        "standardize must be True or False, got 'no'",
    ),
    "size": (lambda: ff.data.images("sizes", size=3), r"size must be \(height, width\), got 3"),
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("files")
        patch.chdir(place)
        readable(place)
    return place


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_calls_say_so_in_one_sentence(wrong, everything, monkeypatch):
    monkeypatch.chdir(everything)
    call, sentence = WRONG[wrong]
    with pytest.raises(ValueError, match=sentence) as raised:
        call()
    assert "\n" not in str(raised.value)

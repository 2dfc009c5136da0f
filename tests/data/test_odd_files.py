"""Files with odd cells: what they hold is read as it is, or refused by its row."""

import json
import re
import struct
import zlib

import numpy as np
import pandas as pd
import pytest

import fedjax_fair as ff

TABLE = {"client": "who", "label": "y"}
BIG = 2**60


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(count=200, **columns):
    made = {"who": ["a", "b"] * (count // 2), "x": np.linspace(-1, 1, count), "y": [0, 1, 1, 0] * (count // 4)}
    return pd.DataFrame(made | columns)


@pytest.mark.parametrize("form", ["frame", "t.csv", "t.parquet"])
def test_whole_numbers_beyond_53_bits_stay_apart(place, form):
    made = rows(who=[BIG + i % 4 for i in range(200)], y=[BIG + i % 3 for i in range(200)])
    made.to_csv("t.csv", index=False)
    made.to_parquet("t.parquet")
    data = ff.data.table(made if form == "frame" else form, **TABLE)
    assert data.clients == tuple(str(BIG + k) for k in range(4))
    assert data.names.labels == tuple(str(BIG + k) for k in range(3))


def test_spreadsheets_with_decimal_commas_are_read_as_they_are_meant(place):
    made = rows(y=np.linspace(0.5, 9.5, 200).round(3))
    made.to_csv("commas.csv", index=False, sep=";", decimal=",")
    made.to_csv("points.csv", index=False, sep=";")
    commas, points = (ff.data.table(f"{name}.csv", **TABLE) for name in ("commas", "points"))
    np.testing.assert_array_equal(np.asarray(commas.y), np.asarray(points.y))
    np.testing.assert_array_equal(np.asarray(commas.x), np.asarray(points.x))


def test_a_decimal_comma_is_one_of_its_column(place):
    """Beside columns with points, exponents and words with commas; never where it may divide thousands."""
    made = rows(y=[f"{k % 3}{',5' * (k % 2)}" for k in range(200)])
    made["e"], made["word"] = [f"{v:.3e}" for v in made.x], ["1,2", "none", "b", "c"] * 50
    made.to_csv("t.csv", index=False, sep=";")
    data = ff.data.table("t.csv", **TABLE)
    assert np.asarray(data.y)[:4].tolist() == [0, 1.5, 2, 0.5]
    assert data.names.features[:2] == ("x", "e")
    assert "word=1,2" in data.names.features
    rows(x=["1,234", "950"] * 100).to_csv("t.csv", index=False, sep=";")
    with pytest.raises(ValueError, match="column 'x' holds numbers with a comma, such as '1,234' in row 0"):
        ff.data.table("t.csv", **TABLE)


@pytest.mark.parametrize("form", ["{},5", "{},234,567", "{}.000,5"])
@pytest.mark.parametrize("column", ["x", "y"])
def test_numbers_with_commas_are_no_words(place, column, form):
    rows(**{column: [form.format(1 + k) for k in range(200)]}).to_csv("t.csv", index=False)
    kind, remedy = ("label", "") if column == "y" else ("column", ", or leave the column out of features, or")
    first = form.format(1)
    sentence = (
        f"{kind} '{column}' holds numbers with a comma, such as {first!r} in row 0: write them with a decimal "
    )
    sentence += f"point, and nothing between thousands{remedy}"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ff.data.table("t.csv", **TABLE)


CLASSES = {
    "chromosomes": [*map(str, range(1, 23)), "X", "Y"],
    "ages": [*map(str, range(18)), "18+"],
    "signs": ["+", "-", "0"],
    "sets": ["1", "2", "1,2"],
    "symbols": [*map(str, range(10)), *"+-*/="],
}


@pytest.mark.parametrize("name", CLASSES)
def test_whole_numbers_and_words_are_classes_together(place, name):
    rows(y=(CLASSES[name] * 200)[:200]).to_csv("t.csv", index=False)
    assert ff.data.table("t.csv", **TABLE).names.labels == tuple(sorted(CLASSES[name]))


def test_categories_of_a_data_frame_are_words_whatever_they_look_like():
    made = rows(x=(CLASSES["chromosomes"] * 200)[:200], y=["0.5", "1.5", "2.5", "?"] * 50)
    data = ff.data.table(made.astype({"x": "category", "y": "category"}), **TABLE)
    assert data.names.labels == ("0.5", "1.5", "2.5", "?")
    assert "x=X" in data.names.features


@pytest.mark.parametrize("mark", ["?", "-", "unknown"])
def test_a_strange_cell_makes_no_classes_of_decimal_labels(place, mark):
    rows(y=[f"{k}.25" for k in range(199)] + [mark]).to_csv("t.csv", index=False)
    sentence = f"label 'y' is numeric in 199 of 200 rows, but row 199 holds {mark!r}: correct it, or leave its row"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        ff.data.table("t.csv", **TABLE)


def test_a_mark_among_few_numbers_is_a_gap_and_a_word_is_a_word(place):
    rows(x=["0", "1", "2", "?"] * 50).to_csv("t.csv", index=False)
    with pytest.raises(ValueError, match=r"column 'x' is numeric in 150 of 200 rows, but row 3 holds '\?'"):
        ff.data.table("t.csv", **TABLE)
    rows(x=["0", "1", "2", "3+"] * 50, y=["0", "1", "1", "2+"] * 50).to_csv("t.csv", index=False)
    data = ff.data.table("t.csv", **TABLE)
    assert data.names.features == ("x=0", "x=1", "x=2", "x=3+")
    assert data.names.labels == ("0", "1", "2+")


def test_words_of_the_training_rows_are_words_of_test_rows_that_look_like_numbers(place):
    made = rows(x=["0", "1", "2", "3+"] * 50, y=["0", "1", "1", "2+"] * 50)
    made.to_csv("train.csv", index=False)
    made.assign(x="2", y="1", who=made.who).head(20).to_csv("test.csv", index=False)
    data = ff.data.table("train.csv", test="test.csv", **TABLE)
    assert np.asarray(data.x)[np.asarray(data.test.rows)].tolist() == [[0, 0, 1, 0]] * 20
    assert (np.asarray(data.y)[np.asarray(data.test.rows)] == 1).all()


def test_a_label_that_is_1_everywhere_stays_1_beside_others():
    data = ff.data.table(rows(z=1), client="who", label=["y", "z"])
    assert np.asarray(data.y)[:4].tolist() == [[0, 1], [1, 1], [1, 1], [0, 1]]
    with pytest.raises(ValueError, match=r"label 'z' must have two classes beside other labels, got \('so',\)"):
        ff.data.table(rows(z="so"), client="who", label=["y", "z"])


def test_numbers_that_32_bits_round_to_their_neighbours_are_warned_of():
    times = 1_700_000_000 + np.arange(200) * 18
    with pytest.warns(UserWarning, match="column 'x' holds numbers up to 1700003582 with a standard deviation of"):
        data = ff.data.table(rows(x=times), **TABLE, features=["x"])
    seen = np.asarray(data.take(np.arange(200))[0])
    assert 0.8 < seen.std() < 1.2  # standardised all the same


def test_whole_numbers_of_leaf_do_not_wrap_around(place):
    def write(x, y):
        held = {"users": ["ann"], "num_samples": [20], "user_data": {"ann": {"x": x, "y": y}}}
        (place / "all.json").write_text(json.dumps(held))
        return ff.data.leaf(place)

    data = write([[k] for k in range(20)], [2**32 + k % 2 for k in range(20)])
    assert data.names.labels == (str(2**32), str(2**32 + 1))
    with pytest.raises(ValueError, match="integers in x must fit 32 bits, got 0 to 5000000000"):
        write([[0], [5_000_000_000]] * 10, [0, 1] * 10)


def png_of_16_bits(colours):
    """One pixel, by the book: Pillow writes no such colours."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 16, 2 if colours == 3 else 0, 0, 0, 0)
    pixels = zlib.compress(b"\0" + struct.pack(">H", 1000) * colours)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize("colours", [1, 3])
def test_images_of_16_bits_are_refused_rather_than_white_or_black(place, colours):
    for i in range(3):
        path = place / "ann" / "cat" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png_of_16_bits(colours))
    with pytest.raises(ValueError, match=r"images must have 8 bits a channel, got more, first .*0\.png"):
        ff.data.images(place)


def test_names_are_told_apart_and_are_there(place):
    x, y, who = np.ones((6, 2)), np.array([0, 1] * 3), np.arange(6) % 3
    np.savez("twice.npz", x=x, y=y, client=who, client_names=["S", "S", "T"])
    with pytest.raises(ValueError, match="client_names must be different names, got 'S' twice in"):
        ff.data.npz("twice.npz")
    data = ff.FederatedData.from_arrays(x, y, client_id=np.array([b"ann", b"bob"] * 3), split=(1, 0, 0))
    assert data.clients == ("ann", "bob")
    for group in ([1.0, np.nan] * 3, ["g", None] * 3):
        with pytest.raises(ValueError, match="group must be there for every example, got none for example 1"):
            ff.FederatedData.from_arrays(x, y, client_id=["ann", "bob"] * 3, group=group)

"""--data and --model: files by what they are, functions by the file that they stand in."""

import json
import re
import tomllib
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image
from test_cli_errors import refusal

from fedjax_fair.cli.arguments import read_command
from fedjax_fair.cli.commands import main
from fedjax_fair.cli.comparing import prepare_comparison
from fedjax_fair.cli.judging import reading_of

pytestmark = pytest.mark.usefixtures("quick_to_compile")
SHORT = ["--rounds", "2", "--eval-every", "2", "--quiet", "--out", "out"]
OWN = """
import flax.linen as nn
import jax.numpy as jnp
import numpy as np
from flax import nnx

import fedjax_fair as ff


def federation(seed, n=20):
    rng = np.random.default_rng(seed)
    names = np.repeat(["ann", "bob", "zoe"], n)
    x, y = rng.normal(size=(3 * n, 2)), np.arange(3 * n) % 2
    return ff.FederatedData.from_arrays(x, y, client_id=names, seed=seed)


def fixed():
    return federation(0)


def raising(seed):
    return seed.missing


def nothing():
    return {}


class Linen(nn.Module):
    classes: int
    width: int = 3

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.classes)(nn.relu(nn.Dense(self.width)(x)))


class Wrong(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(y)


class Nnx(nnx.Module):
    def __init__(self, classes, rngs):
        self.layer = nnx.Linear(2, classes, rngs=rngs)

    def __call__(self, x):
        return self.layer(x)


def pair(classes):
    return (lambda key, x: {"w": np.ones((2, classes), np.float32)}), (lambda p, x: x @ p["w"])


ready = Linen(classes=2)


def pinball(outputs, y, q=0.5):
    error = y - outputs[:, 0]
    return jnp.maximum(q * error, (q - 1) * error)


def broken(outputs, y):
    return nobody


off = ff.Metric(lambda o, y: abs(o[:, 0] - y), False, "kg", (0, float("inf")), name="off")


def sensitivity(outputs, y, mask):
    return jnp.mean(outputs.argmax(-1) == 1, where=mask & (y == 1))


def right(outputs, y):
    return (outputs.argmax(-1) == y).astype(float)


mine = ff.losses.whole(sensitivity)
other = ff.Metric(right, name="hits")


def divided(seed, split=None):
    x, y = np.arange(60.0)[:, None], np.arange(60) % 2
    return ff.FederatedData.from_arrays(x, y, client_id=np.arange(60) // 20, seed=seed, split=split)
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file or folder of every form; in all of them the clients ann and zoe, some with test examples."""
    place = tmp_path_factory.mktemp("files")
    x = np.arange(40.0).reshape(20, 2)
    y, who = np.arange(20) % 2, np.repeat(["ann", "zoe"], 10)
    for part, rows in (("train", slice(0, 8)), ("test", slice(8, 10))):
        (place / "leaf" / part).mkdir(parents=True)
        mine = {name: {"x": x[who == name][rows].tolist(), "y": y[rows].tolist()} for name in ("ann", "zoe")}
        held = {"users": ["ann", "zoe"], "num_samples": [len(y[rows])] * 2, "user_data": mine}
        (place / "leaf" / part / "a.json").write_text(json.dumps(held))
    lines = ["who,a,b,ill", *(f"{w},{a},{b},{'yes' if i else 'no'}" for w, (a, b), i in zip(who, x, y))]
    (place / "t.csv").write_text("\n".join(lines))
    (place / "gap.csv").write_text("\n".join([*lines, "zoe,,1,no"]))
    (place / "number.csv").write_text("\n".join(["who,a,b", *(f"{w},{a},{b}" for w, (a, b) in zip(who, x))]))
    grades = [f"{w},{a},{int(a) % 3},{int(a) % 2}" for w, (a, _) in zip(who, x)]
    (place / "grades.csv").write_text("\n".join(["who,a,grade,ill", *grades]))
    np.savez(place / "a.npz", x=x, y=y, client=who)
    for i, (name, label) in enumerate(zip(who, y)):
        folder = place / "images" / name / f"label{label}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((3, 3), i, np.uint8)).save(folder / f"{i}.png")
    (place / "text").mkdir()
    text = {"users": ["ann"], "num_samples": [9], "user_data": {"ann": {"x": ["abc"] * 9, "y": ["a"] * 9}}}
    (place / "text" / "a.json").write_text(json.dumps(text))
    (place / "own.py").write_text(OWN)
    (place / "notes.txt").write_text("nothing")
    return place


@pytest.fixture
def here(files, monkeypatch, tmp_path):
    """A folder from which the files can be named as they are."""
    for path in files.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


TABLE = ["--data", "t.csv", "--client", "who", "--label", "ill"]


@pytest.mark.parametrize("words", [["--data", "leaf"], TABLE, ["--data", "a.npz"]], ids=["LEAF", "CSV", "npz"])
def test_one_command_line_compares_rules_on_a_file(words, here, capsys):
    rules = ["fedavg", "fedavg:weighting=uniform"]
    main(["compare", *words, "--algorithms", *rules, "--replicates", "2", "--no-references", *SHORT])
    assert "minus fedavg" in capsys.readouterr().out
    assert np.load("out/history.npz")["fedavg/accuracy"].shape == (2, 1, 2)
    assert tomllib.loads(Path("out/config.toml").read_text())["data"] == words[1]


def contest(*words):
    return prepare_comparison(*read_command(["compare", "--algorithms", "fedavg", *words]))


@pytest.mark.parametrize(
    ("words", "clients"),
    [
        (["--data", "leaf"], ("ann", "zoe")),
        (TABLE, ("ann", "zoe")),
        ([*TABLE, "--features", "b"], ("ann", "zoe")),
        (["--data", "gap.csv", "--client", "who", "--label", "ill", "--missing", "median"], ("ann", "zoe")),
        ([*TABLE, "--test-data", "t.csv"], ("ann", "zoe")),
        (["--data", "a.npz"], ("ann", "zoe")),
        (["--data", "a.npz", "--client", "y", "--label", "y"], None),
        (["--data", "images"], ("ann", "zoe")),
        (["--data", "images", "--image-size", "2", "4"], ("ann", "zoe")),
        (["--data", "own.py:federation"], ("ann", "bob", "zoe")),
        (["--data", "own.py:federation:n=9"], ("ann", "bob", "zoe")),
        (["--data", "own.py:fixed"], ("ann", "bob", "zoe")),
    ],
)
def test_the_form_is_told_by_what_is_there(words, clients, here):
    assert contest(*words).ground.data.clients == clients


SPLIT = ("--split", "0.6", "0.2", "0.2")


def test_a_function_that_takes_a_split_gets_it(here):
    sizes = [contest("--data", "own.py:divided", *words).ground.data.train.size for words in ((), SPLIT)]
    assert [np.asarray(each).tolist() for each in sizes] == [[16] * 3, [12] * 3]


def test_natural_clients_are_split_anew_in_every_replicate(here):
    made = contest(*TABLE)
    first, second = made.federation(0), made.federation(1)
    assert first.clients == second.clients
    assert first.x is second.x  # held once
    assert not np.array_equal(first.train.rows, second.train.rows)


def test_the_data_seed_keeps_to_one_split(here):
    made, other = contest(*TABLE, "--data-seed", "3"), contest(*TABLE)
    np.testing.assert_array_equal(made.federation.train.rows, other.federation(3).train.rows)


def test_clients_too_small_are_left_out_in_a_remark(here, capsys):
    with Path("t.csv").open() as file:
        Path("more.csv").write_text(file.read() + "\neve,1,1,no\n")
    words = ["--data", "more.csv", *TABLE[2:], "--min-examples", "2"]
    assert contest(*words).ground.data.clients == ("ann", "zoe")
    said = capsys.readouterr().err
    assert said == "fedjax-fair: min_examples=2 leaves out 1 of 3 clients, with 1 of 21 examples\n"


@pytest.mark.parametrize(
    "model", ["own.py:Linen", "own.py:Linen:width=2", "own.py:Nnx", "own.py:pair", "own.py:ready"]
)
def test_a_model_of_the_users_own_is_named_by_its_file(model, here):
    ground = contest("--data", "own.py:federation", "--model", model).ground
    x = np.ones((4, 2), np.float32)
    assert model.startswith(ground.model_name)  # the settings are in config.toml
    assert ground.model.apply(ground.model.init(jax.random.key(0), x), x, None).shape == (4, 2)


GRADES = ["--data", "grades.csv", "--client", "who", "--label"]
DECIMAL = ["--data", "number.csv", "--client", "who", "--label", "b"]


@pytest.mark.parametrize(
    ("words", "loss", "metrics", "outputs"),
    [
        (TABLE, "softmax_cross_entropy", ["accuracy"], 2),
        ([*TABLE, "--loss", "sigmoid_cross_entropy", "--metric", "auroc", "f1"], "sigmoid_cross_entropy", 0, 1),
        (DECIMAL, "squared_error", ["RMSE"], 1),
        ([*DECIMAL, "--loss", "absolute_error", "--metric", "r2"], "absolute_error", ["R2"], 1),
        ([*DECIMAL, "--loss", "own.py:pinball:q=.9", "--metric", "own.py:off"], "pinball", ["off"], 1),
        ([*DECIMAL, "--metric", "rmse", "own.py:off"], "squared_error", ["rmse", "off"], 1),
        ([*TABLE, "--metric", "own.py:mine"], "softmax_cross_entropy", ["sensitivity"], 2),
        ([*TABLE, "--metric", "own.py:mine", "accuracy"], "softmax_cross_entropy", ["sensitivity", "accuracy"], 2),
        ([*TABLE, "--metric", "own.py:right", "own.py:other"], "softmax_cross_entropy", ["right", "hits"], 2),
        ([*TABLE, "--metric", "own.py:right"], "softmax_cross_entropy", ["right"], 2),
        ([*GRADES, "grade", "--regression"], "squared_error", ["RMSE"], 1),
        ([*GRADES, "grade"], "softmax_cross_entropy", ["accuracy"], 3),
        ([*GRADES, "grade", "a", "--loss", "squared_error"], "squared_error", ["RMSE"], 2),
        (["--data", "several.csv", *TABLE[2:], "b"], "sigmoid_cross_entropy", ["accuracy"], 2),
    ],
)
def test_the_loss_the_metrics_and_the_outputs_fit_the_labels(words, loss, metrics, outputs, here):
    rows = [f"{'ann' if i < 10 else 'zoe'},{i},{'yes' if i % 3 else 'no'},{i % 2}" for i in range(20)]
    Path("several.csv").write_text("\n".join(["who,a,ill,b", *rows]))
    made = contest(*words)
    sim = made.build(made.rules["fedavg"](), made.ground.data)
    assert getattr(made.ground.loss, "func", made.ground.loss).__name__ == loss
    assert [sim.metric.name, *(sim.further or ())] == (metrics or ["auroc", "f1"])
    assert jax.eval_shape(sim.init, jax.random.key(0)).params["Dense_0"]["bias"].shape == (outputs,)


@pytest.mark.parametrize(
    ("labels", "words", "said"),
    [
        (
            [0.0, 1.0],
            (),
            "labels 0, 1 are decimal numbers, so this is a regression; for classes write whole numbers",
        ),
        ([0, 1], (), ""),
        ([0.5, 1.0], (), ""),
        (range(150), (), "labels have 150 values, so this is a classification; for a regression pass --regression"),
        (range(150), ("--regression",), ""),
        ([0.0, 1.0], ("--loss", "squared_error"), ""),
    ],
)
def test_how_labels_are_read_is_said_where_they_may_mean_something_else(labels, words, said):
    experiment = read_command(["compare", *words])[0]
    data = types.SimpleNamespace(y=np.resize(np.array([*labels]), 300), names=None)
    found = reading_of(experiment, data)
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_several_metrics_of_a_regression_are_one_command_line(here, capsys):
    words = [*DECIMAL, "--metric", "rmse", "r2", "--algorithms", "fedavg", "qfedavg", "--replicates", "2"]
    main(["compare", *words, "--no-references", *SHORT])
    assert "rmse" in capsys.readouterr().out
    assert np.load("out/history.npz")["qfedavg/measures/r2"].shape == (2, 1, 2)
    assert tomllib.loads(Path("out/config.toml").read_text())["metric"] == ["rmse", "r2"]
    main(["report", "out"])
    assert "<th>r2, qfedavg</th>" in Path("out/report.html").read_text()


def test_what_has_no_effect_is_said_and_the_settings_repeat_the_run(here, capsys):
    words = ["--data", "own.py:federation", "--clients", "7", "--partition", "iid", "--synthetic.beta", "0"]
    main(["run", *words, "--seeds", "1", "--rounds", "1", "--out", "out"])
    said = capsys.readouterr().err
    for name in ("clients", "partition"):
        assert f"{name} has no effect: own.py:federation has clients of its own" in said
    assert "synthetic.beta has no effect" in said
    assert tomllib.loads(Path("out/config.toml").read_text())["data"] == "own.py:federation"
    main(["run", "out/config.toml", "--quiet", "--out", "again"])
    one, other = (np.load(f"{folder}/history.npz") for folder in ("out", "again"))
    np.testing.assert_array_equal(one["fedavg/accuracy"], other["fedavg/accuracy"])


WRONG = {
    "no such file": ("--data gone.csv", "data gone.csv cannot be read: there is no such file or folder"),
    "no form": ("--data notes.txt", "data must be a folder of LEAF's JSON files, of images .*, got notes.txt"),
    "no client": ("--data t.csv --label ill", "client must name a column of the table t.csv, got nothing"),
    "no label": ("--data t.csv --client who", "label must name a column of the table t.csv, got nothing"),
    "no such column": ("--data t.csv --client whoo --label ill", "client must be one of .*; did you mean 'who'"),
    "gaps": (
        "--data gap.csv --client who --label ill",
        "features must be complete in all 21 rows, got .*, a 1: fill them by --missing mean or median .of",
    ),
    "how": ("--data gap.csv --client who --label ill --missing zero", "missing must be one of mean, median"),
    "features of a folder": ("--data leaf --features a", "features is for a table, got LEAF's files in leaf"),
    "missing of images": ("--data images --missing mean", "missing is for a table or arrays, got images in images"),
    "size of a table": ("--data t.csv --image-size 2 2", "image_size is for images, got a table in t.csv"),
    "no size": ("--data images --image-size 0 2", "size must be at least 1, got 0"),
    "nothing to read": ("--client who", "client says how data are read and needs data, a path, got none"),
    "two sources": ("--data t.csv --dataset mnist", "dataset and data are one too many, got mnist and t.csv"),
    "official": (
        "--data leaf --test official",
        "--test official needs a public test set, got data, whose files say",
    ),
    "a function's column": (
        "--data own.py:fixed --label y",
        "label says how a file is read, got the function own.py",
    ),
    "min_examples": ("--data leaf --min-examples 0", "min_examples must be at least 1, got 0"),
    "all too small": ("--data leaf --min-examples 9", "min_examples must be at most 8, what the largest of the 2"),
    "targets": (
        "--data number.csv --client who --label b --loss softmax_cross_entropy",
        r"labels must be classes for softmax_cross_entropy, got targets float32\[20\]: name a loss such as",
    ),
    "no such loss": ("--loss squared_eror", "loss must be one of auto, .*; did you mean 'squared_error'"),
    "no such metric": ("--metric acuracy", "metric must be one of accuracy, .*; did you mean 'accuracy'"),
    "a metric twice": ("--metric f1 f1", "metric names f1 twice"),
    "no metric": ("--metric", "metric needs at least one metric, such as accuracy, got none"),
    "a loss's file alone": ("--loss own.py", "loss own.py needs the name of a function in it, as own.py:name"),
    "no such loss of one's own": ("--loss own.py:pinbal", "loss in own.py must be one of .*mean 'pinball'"),
    "no such metric of one's own": ("--metric own.py:of", "metric in own.py must be one of .*; did you mean 'off'"),
    "a loss's setting": ("--loss own.py:pinball:tau=1", "setting of own.py:pinball must be one of q, got 'tau'"),
    "a loss's mistake": (
        "--data own.py:fixed --loss own.py:broken",
        "loss must take two examples' outputs .*, got NameError: name 'nobody' is not defined",
    ),
    "a metric that does not fit": (
        "--data own.py:fixed --metric rmse",
        r"metric must fit the model and the labels: rmse needs an output for every target, got \[2, 2\] and \[2\]",
    ),
    "names as numbers": ("--data images --regression", "labels must be numbers for a regression, got 2 classes, "),
    "words as numbers": ("--data t.csv --client who --label ill --regression", "label must be numbers for a regr"),
    "a label twice": ("--data t.csv --client who --label ill ill", "label must name a column once, got 'ill'"),
    "numbers and classes": (
        "--data t.csv --client who --label ill a",
        r"label must name columns of numbers, or of two classes each, got both in \['ill', 'a'\]",
    ),
    "many classes": (
        "--data grades.csv --client who --label ill grade",
        "label 'grade' must have two classes beside other labels, got 3",
    ),
    "two arrays": ("--data a.npz --label y x", "label must be one array of a.npz, got y x"),
    "texts": ("--data text", "model auto is for vectors and images, got texts or several arrays: name a model"),
    "m > N": ("--data leaf --cohort 3", "cohort must be from 1 to the 2 clients, got 3"),
    "no such function": ("--data own.py:federatoin", "data in own.py must be one of .*did you mean 'federation'"),
    "a file alone": (
        "--data own.py",
        "data own.py needs the name of a function in it, as own.py:name, got nothing",
    ),
    "no such file of data": ("--data my.py:one", "data my.py cannot be read: there is no such file"),
    "a split": (
        "--data own.py:federation --split 0.6 0.2 0.2",
        "--split is for data that are split here: own.py:federation must take split to get it, and does not",
    ),
    "a setting": ("--data own.py:federation:m=3", "setting of own.py:federation must be one of seed, n, got 'm'"),
    "a word": ("--data own.py:federation:n=abc", "n of own.py:federation must be a number, got 'abc'"),
    "no federation": ("--data own.py:nothing", "data own.py:nothing must return a FederatedData, got dict"),
    "a mistake": ("--data own.py:raising", "data own.py:raising fails in line 22: AttributeError: 'int' object"),
    "no such model": ("--model own.py:Linnen", "model in own.py must be one of .*; did you mean 'Linen'"),
    "a model's file alone": ("--model own.py", "model own.py needs the name of a function in it, as own.py:name"),
    "no model": ("--model own.py:nothing", "model must be a flax module .*, got dict"),
    "a model's setting": ("--model own.py:Linen:depth=3", "setting of own.py:Linen must be one of classes, width"),
    "a model's mistake": (
        "--data own.py:fixed --model own.py:Wrong",
        "model own.py:Wrong fails in line 41: NameError: name 'y' is not defined",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_call_is_one_sentence_and_status_2(wrong, here, capsys):
    flags, message = WRONG[wrong]
    assert re.search(message, refusal(capsys, "run", *flags.split()))
    assert not Path("runs").exists()

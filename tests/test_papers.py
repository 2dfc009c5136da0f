"""The studies of papers: each can be found, resumes, and writes what was printed beside what was measured."""

import json
import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import cloudpickle
import jax
import numpy as np
import optax
import pytest
import toy
from contract import coefficients, random_report
from toy import rounds_played

import fedjax_fair as ff
from benchmarks.papers import (
    aaggff_heart,
    common,
    fmnist3,
    frontier,
    runs,
    shakespeare,
    sharing,
    studies,
    ucbcs_synthetic,
)
from benchmarks.papers.leaf_shakespeare import convert
from fedjax_fair import registry
from fedjax_fair.cli.commands import main
from fedjax_fair.engine.cluster import Cluster

DATA = toy.federation()


@pytest.mark.parametrize("name", studies.STUDIES)
def test_every_study_has_its_function_and_says_what_it_costs(name):
    module, function = studies.STUDIES[name].function.split(".")
    assert callable(getattr(import_module(f"benchmarks.papers.{module}"), function))
    assert all(studies.STUDIES[name][:4])


def test_the_list_has_a_line_per_study(capsys):
    main(["reproduce", "--list"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [*studies.STUDIES]
    for line, name in zip(lines[1:], studies.STUDIES):
        committed = (studies.RESULTS / f"{name}.json").exists()
        assert ("no full results yet" in line) == (not committed)


@pytest.mark.parametrize("name", [path.stem for path in sorted(studies.RESULTS.glob("*.json"))])
def test_committed_results_are_of_full_forms(name):
    kept = json.loads((studies.RESULTS / f"{name}.json").read_text())
    assert not kept["quick"]
    assert (studies.RESULTS / f"{name}.md").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "reproduce takes a study, such as fmnist3, got nothing; --list names them all"),
        (["fmnist"], "study must be one of .*, got 'fmnist'; did you mean 'fmnist3'"),
        (["fmnist3", "frontier"], "reproduce takes one study, got fmnist3 frontier"),
        (["pgffl-fig3", "--workers", "2"], "pgffl-fig3 has no separate runs to share out: leave out --workers .*"),
        (["--quik"], "reproduce has no flag --quik; did you mean --quick?"),
    ],
)
def test_a_wrong_study_is_one_sentence(words, sentence, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *words])
    assert stop.value.code == 2
    assert re.fullmatch(f"fedjax-fair: {sentence}\\??\n", capsys.readouterr().err)


def test_data_that_is_not_there_is_one_sentence(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(SystemExit):
        main(["reproduce", "fedmaba-table3-cifar100", "--quick", "--out", str(tmp_path)])
    assert capsys.readouterr().err.startswith("fedjax-fair: cifar100 is not prepared")


def simulate():
    trainer = ff.local_sgd(optax.sgd(0.1), steps=2, batch_size=4)
    return ff.simulation(toy.linear, DATA, aggregator=ff.fedavg(), trainer=trainer)


SHARED = runs.fixed(simulate)
"""The same simulation in all tests but those that send it to another process, and so one program."""


def rows(build=SHARED):
    return [runs.Row("one, a", build, {"accuracy": 61.23}), runs.Row("two", build)]


class Trained(NamedTuple):
    place: Path
    found: common.Found
    histories: dict


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two rows from two seeds."""
    place = tmp_path_factory.mktemp("parts")
    return Trained(place, *common.play(rows(), place, seeds=2, rounds=4, eval_every=2))


def test_what_was_trained_is_not_trained_again(trained):
    with rounds_played() as played:
        again, histories = common.play(rows(), trained.place, seeds=2, rounds=4, eval_every=2)
    assert played == []
    assert again == trained.found
    assert len(histories["two"]) == 2


def test_another_process_trains_what_is_missing_and_writes_it_to_the_same_place(trained, tmp_path, capsys):
    """A row whose simulation is the same for every seed is built there once."""
    there, built = tmp_path / "there", tmp_path / "built"
    shutil.copytree(trained.place / "two", there / "two")

    def noted():
        with built.open("a") as file:
            file.write("built ")
        return simulate()

    left = [row._replace(build=runs.fixed(make)) for row, make in zip(rows(), (noted, simulate))]
    capsys.readouterr()
    before = sharing.CLUSTER.set(Cluster(1, None))
    try:
        shared, _ = common.play(left, there, seeds=2, rounds=4, eval_every=2)
    finally:
        sharing.CLUSTER.reset(before)
    assert shared == trained.found
    assert built.read_text() == "built "
    told = r"2 runs on 1 worker\n1 of 2 pieces(, about \d+ \w+ left)?\n2 of 2 pieces\n"
    assert re.search(told, capsys.readouterr().err)


def test_what_others_have_trained_must_be_here(tmp_path, monkeypatch):
    monkeypatch.setattr(sharing, "on_cluster", lambda *given: [])
    before = sharing.CLUSTER.set(Cluster(1, None))
    try:
        with pytest.raises(ValueError, match=r"workers must write to the folder of .*, got no one, a, seed 0"):
            common.play(rows(), tmp_path, seeds=1, rounds=4, eval_every=2)
    finally:
        sharing.CLUSTER.reset(before)


def test_the_table_is_written_whenever_another_process_has_ended_a_run(trained, tmp_path, monkeypatch):
    said = []

    def one_after_another(cluster, work, shared, pieces, advance, remark):
        sent = cloudpickle.dumps((shared, {}))
        for i, piece in enumerate(pieces):
            said.append(studies.status("study"))
            work(sent, i)
            advance(piece.rounds)

    def has_ended(row, seed, place, asked, progress):
        path = runs.path_of(place, row, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(runs.path_of(trained.place, row, seed), path)

    monkeypatch.setattr(sharing, "on_cluster", one_after_another)
    monkeypatch.setattr(sharing, "train", has_ended)
    monkeypatch.setattr(studies, "RESULTS", tmp_path)
    settings, columns = {"quick": False, "seeds": 2, "rounds": 4}, {"accuracy": common.Column("acc %")}
    before = sharing.CLUSTER.set(Cluster(1, None))
    try:
        told = {"eval_every": 2, "measure": lambda history: {"accuracy": 7.0}}
        common.tabulate(rows(runs.fixed(simulate)), tmp_path, "study", columns, settings, **told)
    finally:
        sharing.CLUSTER.reset(before)
    assert said == ["no full results yet", *(f"under way: {done} of 4 runs" for done in (1, 2, 3))]
    assert studies.status("study") == "2 seeds x 4 rounds"


def test_another_machine_goes_on_from_the_evaluations_alone(trained, tmp_path):
    """What ended is read from its ``.npz``: accuracy and loss, bit for bit, without the checkpoint."""
    place = shutil.copytree(trained.place, tmp_path / "parts")
    assert sorted(path.name for path in place.glob("*/*")) == 2 * ["seed-0.npz"] + 2 * ["seed-1.npz"]
    (place / "two" / "seed-1.npz").unlink()
    with rounds_played() as played:
        again, read = common.play(rows(), place, seeds=2, rounds=4, eval_every=2)
    assert sum(played) == 4  # the run that is missing, no other
    assert again == trained.found
    for name, of_seeds in trained.histories.items():
        for one, other in zip(of_seeds, read[name], strict=True):
            jax.tree.map(np.testing.assert_array_equal, one.scores, other.scores)
            np.testing.assert_array_equal(one.rounds, [2, 4])
            np.testing.assert_array_equal(other.rounds, [2, 4])


def test_what_workers_wrote_is_read_though_it_comes_late(trained, tmp_path, monkeypatch):
    """As over a network: the last evaluations are there once all pieces have been told of."""
    monkeypatch.setattr(common, "share_out", lambda left, place, *of: shutil.copytree(trained.place, place))
    with rounds_played() as played:
        found, _ = common.play(rows(), tmp_path / "parts", seeds=2, rounds=4, eval_every=2)
    assert sum(played) == 0
    assert found == trained.found


def test_evaluations_of_another_length_are_not_taken(trained):
    with pytest.raises(
        ValueError, match=r"seed-0.npz is of a run with .*'rounds': 4.*, this study has .*'rounds': 6"
    ):
        common.play(rows(), trained.place, seeds=1, rounds=6, eval_every=2)


def test_a_table_is_there_while_its_study_is_under_way(tmp_path, monkeypatch):
    """Cut off before the third of four runs: two are in the table; a finished table stays until the next is."""
    settings = {"quick": False, "seeds": 2, "rounds": 2}
    columns = {"accuracy": common.Column("acc %")}
    run, calls = ff.run, iter(range(2))

    def cut_off(*args, **how):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return run(*args, **how)

    monkeypatch.setattr(ff, "run", cut_off)
    with pytest.raises(KeyboardInterrupt):
        common.tabulate(rows(), tmp_path, "study", columns, settings)
    monkeypatch.setattr(studies, "RESULTS", tmp_path)
    assert studies.status("study") == "under way: 2 of 4 runs"
    lines = (tmp_path / "study.md").read_text().splitlines()
    assert re.fullmatch(r"\| one, a \| [\d.]+ ± [\d.]+ \[61.2\] \|", lines[2])
    assert lines[3] == "| two | |"
    assert lines[-1] == "2 of 4 runs."

    monkeypatch.setattr(ff, "run", run)
    common.tabulate(rows(), tmp_path, "study", columns, settings, note="\nOf 2,000.\n")
    assert studies.status("study") == "2 seeds x 2 rounds"
    assert (tmp_path / "study.md").read_text().endswith(f"{common.NOTE}\nOf 2,000.\n")
    finished = (tmp_path / "study.json").read_text()
    (tmp_path / "study.parts" / "two" / "seed-0.npz").unlink()
    monkeypatch.setattr(ff, "run", cut_off)
    with pytest.raises(KeyboardInterrupt):
        common.tabulate(rows(), tmp_path, "study", columns, settings)
    assert (tmp_path / "study.json").read_text() == finished


def test_the_statistic_is_the_mean_over_the_last_ten_evaluations_and_the_best_one(trained):
    accuracy = np.full((12, 4), 0.5)
    accuracy[0] = 1.0  # too early for the mean, yet the best
    accuracy[11] = [0.0, 0.5, 0.5, 1.0]
    history = trained.histories["one, a"][0]
    scores = {"test": history.scores["test"]._replace(accuracy=accuracy, loss=accuracy)}
    found = common.last_ten(history._replace(scores=scores))
    assert found["accuracy"] == pytest.approx(50)
    assert found["variance"] == pytest.approx(1250 / 10)
    assert found["best_accuracy"] == pytest.approx(100)
    assert found["best_variance"] == pytest.approx(0)


def test_a_run_under_way_has_a_checkpoint(tmp_path, monkeypatch):
    run, places = ff.run, []

    def watched(*args, checkpoint, **how):
        done = run(*args, checkpoint=checkpoint, **how)
        places.append((checkpoint, checkpoint.is_dir()))
        return done

    monkeypatch.setattr(ff, "run", watched)
    common.play(rows(), tmp_path, seeds=1, rounds=2, eval_every=2)
    assert places == [(tmp_path / "one,_a" / "seed-0", True), (tmp_path / "two" / "seed-0", True)]
    assert not any(place.exists() for place, _ in places)  # it has ended


def test_a_row_that_lacks_seeds_says_so():
    found = {"one, a": [{"accuracy": 60.0}, {"accuracy": 62.0}], "two": [{"accuracy": 7.0}]}
    lines = common.table(rows(), found, {"accuracy": common.Column("acc %")}, seeds=2).splitlines()
    assert lines[2].startswith("| one, a | ")
    assert lines[3] == "| two (1 of 2 seeds) | 7.0 |"


def test_the_table_has_the_printed_figure_in_brackets():
    found = {"one, a": [{"accuracy": 60.0}, {"accuracy": 62.0}], "two": [{"accuracy": 7.0}]}
    lines = common.table(rows(), found, {"accuracy": common.Column("acc %")}).splitlines()
    assert lines[:4] == ["| | acc % |", "|---|---|", "| one, a | 61.0 ± 1.4 [61.2] |", "| two | 7.0 |"]
    assert "in brackets what the paper prints" in lines[5]


def test_results_are_written_with_every_seed(tmp_path, capsys):
    found = {"one, a": [{"accuracy": 60.0}, {"accuracy": 62.0}], "two": [{"accuracy": 7.0}]}
    common.keep(tmp_path, "study", {"quick": True, "seeds": 2, "rounds": 3}, rows(), found, "text\n")
    kept = json.loads((tmp_path / "study.json").read_text())
    assert kept["command"] == "fedjax-fair reproduce study --quick"
    assert kept["rows"]["one, a"] == {"printed": {"accuracy": 61.23}, "seeds": found["one, a"]}
    assert (tmp_path / "study.md").read_text() == "text\n" == capsys.readouterr().out[:5]


def test_hospitals_are_filled_and_scaled_by_their_training_rows_alone():
    data = aaggff_heart.hospitals(3)
    training = np.asarray(data.x)[np.asarray(data.train.rows)]
    np.testing.assert_allclose(training.mean(0), 0, atol=1e-5)
    assert training.std(0).max() <= 1 + 1e-5
    assert data.n_clients == 4
    everybody = [np.asarray(split.size) for split in (data.train, data.validation, data.test)]
    assert sum(everybody).tolist() == [303, 294, 123, 200]
    assert np.isfinite(np.asarray(data.x)).all()


def test_the_best_point_is_that_of_the_validation_split(monkeypatch):
    """Test accuracies are never looked at: the best point on validation data is not the best on test data."""
    sweep, made = ff.sweep, []

    def noted(*given, **settings):
        assert settings == {"seeds": [0], "rounds": 20}
        made.append(sweep(*given, **settings))
        return made[-1]

    monkeypatch.setattr(ff, "sweep", noted)
    grid = {"lr": (0.0, 1.0, 100.0)}
    best, every = aaggff_heart.chosen(aaggff_heart.in_hospitals(0), lambda lr: ff.afl(lr=lr), grid, 0, 20, None)
    (swept,) = made
    assert [point["lr"] for point in swept.points] == [*grid["lr"]]
    validation = [runs[0].scores["validation"].accuracy[-10:].mean() for runs in swept.histories]
    assert best == every[int(np.argmax(validation))]


def test_two_softmaxes_are_a_softmax_of_a_softmax():
    model = fmnist3.twice_softmax(ff.models.logistic_regression(3))
    x = np.ones((2, 4), np.float32)
    outputs = np.asarray(model.apply(model.init(jax.random.key(0), x), x, None))
    np.testing.assert_allclose(outputs.sum(1), 1, rtol=1e-6)


def test_ucbcs_rate_is_halved_twice():
    rate = [float(ucbcs_synthetic.halved(np.asarray(t))) for t in (0, 299, 300, 599, 600)]
    assert rate == [1, 1, 0.5, 0.5, 0.25]


@pytest.mark.parametrize(("name", "same"), frontier.ALIKE.items())
def test_the_frontier_draws_one_point_for_rules_that_are_alike(name, same):
    ours, theirs = (
        registry.make_rule(rule, {"weighting": "uniform"} if rule == "fedavg" else {}, learning_rate=frontier.LR)
        for rule in (name, same)
    )
    report = random_report(3, 5, active=[1, 0, 1, 1, 1])
    report = report._replace(n=np.full_like(report.n, 400))
    np.testing.assert_allclose(coefficients(ours, report), coefficients(theirs, report), rtol=1e-6)


@pytest.mark.usefixtures("quick_to_compile")
def test_shakespeares_roles_from_an_archive_to_a_table(tmp_path, monkeypatch, capsys):
    """The converter's windows do not overlap, and the quick form has a row for every rule and every role."""
    text = np.frombuffer(("the quick brown fox jumps over the lazy dog " * 60).encode(), np.uint8)
    names, ends = ["HAMLET", "OPHELIA", "GHOST"], [0, 1600, 2590, len(text)]
    np.savez(tmp_path / "roles.npz", text=text, offsets=ends, client_names=names)
    users = json.loads(convert(tmp_path / "roles.npz", tmp_path / "leaf").read_text())
    assert users["users"] == ["HAMLET", "OPHELIA"]  # 50 characters are no window
    first, second = users["user_data"]["HAMLET"]["x"][:2]
    whole = text[:1600].tobytes().decode()
    assert whole.startswith(first + users["user_data"]["HAMLET"]["y"][0] + second)
    monkeypatch.setenv("LEAF_DATA_DIR", str(tmp_path / "leaf"))
    monkeypatch.setattr(shakespeare, "LEAST", 3)
    monkeypatch.setattr(shakespeare, "HIDDEN", 4)
    monkeypatch.setattr(shakespeare, "RULES", {"FedAvg": shakespeare.RULES["FedAvg"]})
    shakespeare.run(True, tmp_path / "out")
    page = (tmp_path / "out" / "shakespeare.md").read_text()
    assert "| FedAvg |" in page
    assert all(f"\n| {role} | " in page for role in ("HAMLET", "OPHELIA"))
    assert capsys.readouterr().out.count("kept, trained by") == 0
    shakespeare.run(True, tmp_path / "out")
    assert capsys.readouterr().out.count("kept, trained by") == 2

"""``--dry-run``: everything is checked and counted, nothing is trained or written."""

import json

import pytest

from fedjax_fair.cli.commands import main
from fedjax_fair.engine import ahead, run, sweep_programs
from fedjax_fair.results import compare_runs

SMALL = ["--clients", "6", "--cohort", "3", "--rounds", "4", "--eval-every", "2", "--synthetic.max-size", "80"]
RULES = ["--algorithms", "fedavg", "fedavg:weighting=uniform", "propfair"]  # the first two share a program


@pytest.fixture(autouse=True)
def untouched(tmp_path, monkeypatch):
    """A folder that must stay empty, where nothing can be trained."""

    def trained(*args, **named):
        raise AssertionError("a round was played")

    for place, plays in ((run, "_play"), (ahead, "play"), (sweep_programs, "train"), (compare_runs, "in_threads")):
        monkeypatch.setattr(place, plays, trained)
    monkeypatch.chdir(tmp_path)
    yield
    assert [*tmp_path.iterdir()] == []


def counted(capsys, *words):
    main([words[0], *SMALL, *words[1:], "--dry-run", "--json"])
    return json.loads(capsys.readouterr().out)


def test_a_comparison_s_pieces_are_its_programs_times_replicates_and_two_of_the_references_for_each(capsys):
    found = counted(capsys, "compare", *RULES, "--replicates", "4")
    assert found == {"runs": 12, "rounds": 4, "programs": 2, "pieces": 8, "reference_pieces": 8, "at_once": 16}


def test_tuned_rules_have_twelve_runs_a_replicate_and_no_references_no_pieces_of_them(capsys):
    tuned = ["--tune", "--split", ".6", ".2", ".2", "--no-references", "--workers", "2"]
    tuned += ["--checkpoint", "kept", "--checkpoint-every", "2"]
    found = counted(capsys, "compare", *RULES, "--replicates", "2", *tuned)
    assert found == {"runs": 72, "rounds": 4, "programs": 2, "pieces": 4, "reference_pieces": 0, "at_once": 4}


def test_a_sweep_has_a_program_for_each_whole_number_and_a_piece_for_each_of_its_seeds(capsys):
    grid = ["--aggregator", "qfedavg", "--grid", "q=.1,1.,5.", "epochs=1,2", "--seeds", "3"]
    assert counted(capsys, "sweep", *grid) == {"runs": 18, "rounds": 4, "programs": 2, "pieces": 6}


def test_a_run_has_a_program_that_plays_its_seeds(capsys):
    assert counted(capsys, "run", "--seeds", "3") == {"runs": 3, "rounds": 4, "programs": 1}


def test_in_words_it_names_the_rules_that_share_a_program_and_what_was_given_in_vain(capsys):
    vain = ["--partition", "iid", "--mlp.features", "7"]
    main(["compare", *SMALL, *RULES, "--replicates", "2", "--dry-run", *vain])
    out, err = capsys.readouterr()
    assert out == (
        "6 runs of 4 rounds, in 2 programs: fedavg, fedavg:weighting=uniform | propfair\n"
        "4 pieces for --workers or --scheduler, and 4 of the rows (local) and (pooled)\n"
    )
    assert "partition has no effect" in err
    assert "mlp.features has no effect: this run has no mlp" in err  # auto is a logistic regression here
    assert err.endswith("Nothing was trained: leave out --dry-run to begin\n")


def test_what_is_wrong_is_said_as_it_would_be_without_it(capsys, tmp_path_factory):
    held = tmp_path_factory.mktemp("held")
    (held / "summary.json").write_text("{}")
    (held / "resume.json").write_text("{}")
    wrong = {
        ("--cohort", "7"): "cohort",
        ("--out", str(held)): f"out {held} already holds results",
        ("--checkpoint", str(held)): f"checkpoint {held} already holds a run",
        ("--out", str(held / "summary.json")): "cannot be written: File exists",
        ("--checkpoint", str(held / "summary.json")): "cannot be written: File exists",
    }
    for words, sentence in wrong.items():
        with pytest.raises(SystemExit):
            main(["run", *SMALL, *words, "--dry-run"])
        assert sentence in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["compare", *SMALL, "--dry-run", "--workers", "0"])
    assert "workers must be at least 1, got 0" in capsys.readouterr().err


def test_the_reference_pieces_of_a_tuned_baseline_come_after_the_others(capsys):
    found = counted(capsys, "compare", *RULES, "--replicates", "2", "--tune", "--split", ".6", ".2", ".2")
    assert (found["pieces"], found["reference_pieces"], found["at_once"]) == (4, 4, 4)

"""What a table says of runs that failed, are identical, or are judged by another metric; whom it judges by."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import fedjax_fair as ff
from fedjax_fair.data.names import Names
from fedjax_fair.engine.outcome import of_clients
from fedjax_fair.results.comparison import Comparison
from fedjax_fair.results.folder import files_of, write, write_plots
from fedjax_fair.results.report import report

NAN = float("nan")
ERROR = ff.Metric(None, higher_is_better=False, unit="m", range=(0.0, np.inf), name="error")
RNG = np.random.default_rng(0)


def scored(accuracy, loss=None, **more):
    """A history of these evaluations, [T, N]."""
    accuracy = np.array(accuracy, np.float32)
    loss = np.ones_like(accuracy) if loss is None else np.array(loss, np.float32)
    none = np.zeros((len(accuracy), 2), int)
    scores = {"test": ff.Evaluation(accuracy, loss)}
    return ff.History(
        np.arange(len(accuracy)), scores, none, none, none == 0, None, np.ones(1), np.zeros(1), **more
    )


def row(table, rule):
    (found,) = [line.split() for line in table.splitlines() if line.split()[:1] == [rule]]
    return found[1:]


FINE = scored([[0.5, 0.7]])
DEAD = scored([[0.5, 0.9], [0.0, 0.0]], [[1, 1], [NAN, NAN]])
BROKEN = scored([[0.5, NAN]])  # a metric that is NaN, with a loss


@pytest.mark.parametrize(
    ("dead", "clients"),
    [(DEAD, 2), (scored([[NAN, NAN]], [[1, 1]]), 2), (BROKEN, 1), (scored([[0.9, NAN]], [[1, np.inf]]), 1)],
)
def test_row_16_a_dead_models_row_has_no_figures(dead, clients):
    table = ff.table({"a": dead, "b": FINE})
    assert row(table, "a")[:5] == ["(failed:", f"{clients}", "of", "2", "clients)"]
    assert row(table, "a")[5:] == ["failed", "–", "–", "–", "–", "–", "–"]
    assert row(table, "b")[0] == "60.0"
    assert "Failed: the model, or a client's loss or metric, is not finite." in table
    assert "1.000" not in table


def test_row_16_of_some_seeds_the_row_is_the_others_and_says_so():
    table = ff.table({"a": [FINE, DEAD, scored([[0.7, 0.9]])]})
    assert row(table, "a")[:5] == ["(1", "of", "3", "seeds", "failed)"]
    assert row(table, "a")[5] == "70.0±14.1"


def test_row_17_a_client_whose_loss_alone_is_not_finite_is_named_and_counted():
    table = ff.table({"a": scored([[0.5, 0.0]], [[1, NAN]])})
    assert row(table, "a")[:6] == ["(1", "of", "2", "clients", "failed)", "25.0"]


def test_row_17_a_client_without_examples_is_no_failure():
    seen = scored([[0.5, NAN]], [[1, NAN]])
    assert row(ff.table({"a": seen}), "a")[0] == "50.0"
    told = seen._replace(examples={"test": np.array([[3, 3]])})
    assert "a (failed: 1 of 2 clients)" in ff.table({"a": told})


def test_nobody_with_examples_is_a_row_without_figures_and_a_line():
    table = ff.table({"a": scored([[NAN, NAN]], [[NAN, NAN]]), "b": FINE})
    assert row(table, "a") == ["–"] * 7
    assert "No client has examples in the test split: a." in table


def test_who_is_not_judged_by_may_fail():
    table = ff.table({"a": BROKEN}, clients=np.array([True, False]))
    assert row(table, "a")[0] == "50.0"
    assert "Failed" not in table


def test_who_is_judged_by_keeps_the_number_and_the_rounds_that_are_theirs():
    whole = scored([[0.1, 0.2, 0.3, 0.4]], [[1, 1, 1, 1]])
    whole = whole._replace(ids=np.array([[3, 1], [3, 0], [2, 3]]), active=np.ones((3, 2), bool))
    mine = of_clients(whole, np.array([False, True, False, True])).client_table()
    assert [*mine["client"]] == ["1", "3"]
    assert [*mine["rounds"]] == [1, 3]
    again = of_clients(of_clients(whole, np.array([False, True, True, True])), np.array([True, False, True]))
    assert [*again.client_table()["client"]] == ["1", "3"]


def test_row_19_identical_runs_are_named():
    accuracy = RNG.random((3, 5))
    runs = {name: scored(accuracy) for name in ("fedprox:mu=1", "b", "fedprox:mu=5")}
    runs["b"] = scored(accuracy + 1e-6)
    assert "Identical, bit for bit: fedprox:mu=1, fedprox:mu=5." in ff.table(runs)
    other = {"a": [runs["b"], FINE], "b": [runs["b"], runs["b"]], "d": FINE}
    other["c"] = scored(accuracy, 2 * np.ones((3, 5)))
    assert "Identical" not in ff.table(other)
    assert "Identical" not in ff.table({"a": DEAD, "b": scored([[NAN, NAN]], [[NAN, NAN]])})
    many = ff.table({f"rule-{i}": FINE for i in range(30)})
    assert max(map(len, many.split("Identical")[1].splitlines())) < 80


def test_row_14_errors_are_in_their_unit_and_the_worst_are_the_highest():
    table = ff.table({"a": [scored([[9.0, 9.0], [1.0, 4.0], [2.0, 6.0]], metric=ERROR)]})
    heads = next(line for line in table.splitlines() if "Gini" in line)
    assert heads.split()[:5] == ["rule", "error", "m", "var", "m²"]
    assert row(table, "a") == ["4", "4", "6", "6", "2", ".250", ".800"]
    assert "test error (m) after" in table
    assert "%" not in heads.replace("10%", "").replace("5%", "")
    assert "lower is better" in table


def test_row_14_a_share_by_another_name_stays_in_per_cent():
    table = ff.table({"a": scored([[0.5, 0.7]], metric=ff.Metric(None, name="F1"))})
    assert "F1 %" in table
    assert row(table, "a")[0] == "60.0"


def test_a_metric_that_can_be_negative_has_no_gini():
    kind = ff.Metric(None, unit="", range=(-np.inf, 1), name="R2")
    assert row(ff.table({"a": scored([[-1.0, 0.5]], metric=kind)}), "a")[5:7] == ["–", "–"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ff.table({"a": FINE}, clients=np.array([0, 1])), r"clients must be bool\[2\], .* got int64\[2\]"),
        (lambda: ff.table({"a": FINE}, clients=[0.0, 1.0]), r"clients must be bool\[2\], .* got float64\[2\]"),
        (lambda: ff.table({"a": FINE}, clients=[1]), r"clients must be bool\[2\], .* got int64\[1\]"),
        (lambda: ff.table({"a": FINE}, clients=[True]), r"one for each client of a .*, got shape \[1\]"),
        (lambda: ff.table({"a": FINE}, clients=[False, False]), "True for at least one client, got none"),
        (lambda: ff.table({"a": scored([[74.0, 90.0]])}), r"'a' must hold accuracy in .*got 74 to 90.*ff.Metric"),
        (lambda: ff.table({"a": scored([[0.5, -0.1]])}), r"'a' must hold accuracy in \[0, 1\]"),
        (
            lambda: ff.table({"a": FINE, "b": scored([[1.0, 2.0]], metric=ERROR)}),
            r"judged by one metric, got accuracy \(%\) in \[0, 1\] and error \(m\) in \[0, inf\]",
        ),
        (lambda: ff.faults.inflate_loss([0, 1, 1]), r"who must be bool\[N\]"),
    ],
)
def test_row_8_and_others_a_wrong_call_is_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_fault_made_by_hand_needs_a_mask_too():
    fault = ff.faults.Fault(np.array([0, 1, 1]), lambda report, key: report)
    with pytest.raises(ValueError, match=r"who must be bool\[N\], .*, got int64\[3\]"):
        ff.faults.check_faults([fault], 3)


def test_a_folder_and_its_page_name_failures_metric_and_doubles(tmp_path):
    errors = {
        "a": scored([[1.0, 4.0], [2.0, 6.0]], metric=ERROR),
        "c": scored([[1.0, 4.0], [NAN, NAN]], metric=ERROR),
    }
    runs = {rule: [errors[rule], errors[rule]] for rule in "ac"} | {"b": [errors["a"], errors["a"]]}
    runs["d"] = [errors["a"], errors["c"]]
    write(tmp_path, files_of(runs, {"model": "m", "cohort": 2, "versions": {}, "command": "x"}))
    write_plots(tmp_path, runs)
    kept = json.loads((tmp_path / "summary.json").read_text())
    assert kept["identical"] == [["a", "b"]]
    assert kept["metric"] == ERROR._asdict() | {"range": [0.0, None]}
    assert kept["rules"]["c"]["accuracy"] == {"mean": None, "std": None, "per_seed": [None, None]}
    assert kept["rules"]["c"]["failed"]["mean"] == 2
    (tmp_path / "config.toml").write_text('dataset = "synthetic"\n')
    page = report(tmp_path).read_text()
    said = ["error m", "the model, or a client", "Identical, bit for bit: a, b.", "test error (m),"]
    said += ["c (2 of 2 seeds failed)</td><td>failed</td><td>–", "d (1 of 2 seeds failed)</td><td>4</td>"]
    for words in said:
        assert words in page, words
    assert "acc %" not in page


def compared(runs, **more):
    """A comparison of these runs."""
    settled = {"baseline": next(iter(runs)), "split": "test", "last": 1, "fixed": False, "same_examples": False}
    sizes = {"examples": [np.full(runs[settled["baseline"]][0].accuracy.shape[1], 20)] * 3, "choose": "accuracy"}
    kept = {"settings": {}, "grids": {}, "tried": {}, "tried_runs": {}, "references": {}, "clients": None}
    return Comparison(**(settled | sizes | kept | {"runs": runs} | more))


def test_wherever_a_comparison_is_printed_its_failed_replicates_are_named(tmp_path):
    """Of the others alone, a rule that fails where it is hard would look the best."""
    low, high = (scored([[0.5, 0.6], ends]) for ends in ([0.5, 0.7], [0.7, 0.9]))
    found = compared({"a": [low, low, low], "hot": [low, DEAD, high]})
    marked = "hot (1 of 3 seeds failed)"
    assert marked in found.table()
    assert rf"{marked} & $70.0 \pm 14.1$" in found.to_latex()
    page = report(ff.save(tmp_path / "out", found)).read_text().partition("Comparison over")[2]
    assert f"<td>{marked}</td><td>70.0" in page.partition("After the last round")[0]
    assert "failed" not in compared({"a": [low, low, low], "b": [low, high, low]}).to_latex()


def better_off(runs, alone, **more):
    return compared({"a": runs}, references={"local": alone, "pooled": alone}, **more).measures()["a"]["better_off"]


def test_a_run_that_failed_counts_in_no_measure_of_its_row_better_off_included():
    alone = scored([[0.6, 0.6]])
    np.testing.assert_array_equal(better_off([FINE, DEAD, FINE], [alone] * 3), [50, NAN, 50])


def test_a_run_that_failed_at_an_earlier_one_of_the_last_evaluations_is_named():
    late = scored([[0.5, 0.7], [NAN, NAN], [0.5, 0.7]], [[1, 1], [NAN, NAN], [1, 1]])
    fine = scored([[0.5, 0.7]] * 3)
    found = compared({"a": [fine, late, fine]}, last=2)
    assert np.isnan(found.measures()["a"]["accuracy"]).tolist() == [False, True, False]
    assert found.failures() == {"a": " (1 of 3 seeds failed)"}
    assert "(1 of 3 seeds failed)" in found.table()
    assert compared({"a": [fine, late, fine]}, last=1).failures() == {}


def test_judged_clients_keep_the_number_of_their_examples():
    told = scored([[0.5, 0.6, 0.7]], examples={"test": np.array([[3, 0, 5]])})
    table = of_clients(told, np.array([True, False, True])).client_table()
    assert table["examples"].tolist() == [3, 5]


@pytest.mark.parametrize("name", ["fedavg[size]", "x[/y]", "[red]"])
def test_a_names_brackets_are_no_markup(name):
    assert row(ff.table({name: FINE, "b": FINE}), name)[0] == "60.0"


def test_there_are_no_lorenz_curves_of_what_may_be_negative(tmp_path):
    kind = ff.Metric(None, name="R²", range=(-np.inf, 1.0))
    write_plots(tmp_path, {"a": [scored([[-0.5, 0.7]], metric=kind)]})
    assert {path.name for path in tmp_path.iterdir()} == {"histogram.png", "over_rounds.png"}


def test_the_page_has_every_rules_rounds(tmp_path):
    page = report(ff.save(tmp_path / "out", {"a": FINE, "b": scored([[0.5, 0.7]] * 3)})).read_text()
    assert "1, 3 rounds" in page


def test_who_has_no_value_under_either_model_is_not_better_or_worse_off():
    """An F1 of nobody told the class: NaN is no failure of the model that tells nobody."""
    kind = ff.Metric(None, name="f1", for_everybody=False)
    mine, alone = (
        scored([values], [[1] * 4], metric=kind) for values in ([0.9, 0.2, NAN, 0.5], [0.5, 0.5, 0.0, NAN])
    )
    assert better_off([mine], [alone]).tolist() == [50]
    longer = scored([[0.9, 0.2, 0.1, 0.5]] * 3, [[1] * 4] * 3, metric=kind)
    assert better_off([longer], [alone], last=3).tolist() == pytest.approx([200 / 3])


def test_headings_of_a_table_in_latex_are_its_letters():
    kind = ff.Metric(None, unit="m_s", name="f1_{macro}~^\\ & $#")
    runs = {"b_c": [scored([[0.5, 0.7]], metric=kind)]}
    head = compared(runs).to_latex().splitlines()[2]
    assert r"f1\_\{macro\}\textasciitilde{}\textasciicircum{}\textbackslash{} \& \$\#" in head
    assert r"b\_c &" in compared(runs).to_latex()


def personal(*lost, clients=14):
    """Models of everybody's own, of which some diverged; one client has no examples."""
    accuracy = np.linspace(0.3, 0.95, clients)
    accuracy[[*lost, clients - 1]] = NAN
    names = Names(clients=tuple(f"h{k:02}" for k in range(clients)))
    examples = {"test": np.array([[30] * (clients - 1) + [0]])}
    return scored([accuracy], [1 - accuracy], names=names, examples=examples)


def test_who_failed_is_served_worst_and_who_has_no_examples_comes_last():
    for table in (personal(5).client_table(), ff.client_table([personal(5), personal(5)])):
        assert table.client.tolist()[:3] == ["h05", "h00", "h01"]
        assert table.client.tolist()[-1] == "h13"
    # of two runs one has a value, which counts
    assert ff.client_table([personal(5), personal()]).client.tolist()[:2] == ["h00", "h01"]


def test_the_page_lists_the_worst_served_of_those_who_count(tmp_path):
    honest = np.arange(14) > 1
    page = report(ff.save(tmp_path / "out", {"a": personal(5)}, clients=honest)).read_text()
    worst = page.partition("The worst served clients")[2]
    assert worst.index("h05</td><td>–") < worst.index("h02</td>")
    assert "h00" not in worst.partition("<h2>")[0]
    assert "the 10 of 12 clients" in worst


def test_a_failure_of_the_loss_alone_counts_on_the_page_and_in_the_stream(tmp_path):
    names = Names(clients=("p", "q", "r"))
    run = scored([[0.3, 0.5, 0.9]], [[1, 1, np.inf]], names=names)
    page = report(ff.save(tmp_path / "out", {"a": run})).read_text().partition("The worst served clients")[2]
    assert page.index("r</td><td>–") < page.index("p</td><td>30.0")
    ff.callbacks.stream(tmp_path / "told.jsonl")(SimpleNamespace(params={}), scored([[0.5, 0.7]], [[np.inf, NAN]]))
    assert json.loads((tmp_path / "told.jsonl").read_text())["accuracy"] is None


@pytest.mark.parametrize("everybody", [True, False])
def test_the_others_results_are_not_those_of_a_run_in_which_a_client_fails(everybody, tmp_path):
    metric = ff.Metric(None, for_everybody=everybody, name="score")
    run = scored([[0.1, 0.9], [NAN, 0.9], [NAN, 0.9]], [[1, 1], [NAN, 1], [NAN, 1]], metric=metric)
    state = SimpleNamespace(params={})
    ff.callbacks.stream(tmp_path / "told.jsonl")(state, run)
    rows = [json.loads(line) for line in (tmp_path / "told.jsonl").read_text().splitlines()]
    assert [row["variance"] for row in rows] == [pytest.approx(1600), None, None]
    assert [row["accuracy"] for row in rows] == [pytest.approx(50), None, None]
    assert ff.callbacks.early_stopping(2, "variance")(state, run)


def test_a_folder_of_failures_alone_has_a_page_without_curves(tmp_path):
    about = {"model": "m", "cohort": 2, "versions": {}, "command": "x"}
    write(tmp_path, files_of({"a": [DEAD], "b": [DEAD]}, about))
    write_plots(tmp_path, {"a": [DEAD]})
    assert not (tmp_path / "lorenz.png").exists()
    (tmp_path / "config.toml").write_text('dataset = "synthetic"\n')
    assert "Lorenz" not in report(tmp_path).read_text()


def test_equal_means_of_other_evaluations_are_a_tie():
    """.8 + 1 and .9 + .9 differ in float32."""
    one, other = (scored(np.array(values, np.float32)) for values in ([[0.8], [1.0]], [[0.9], [0.9]]))
    assert better_off([one], [other], last=2).tolist() == better_off([other], [one], last=2).tolist() == [50]

"""A results folder as one page: everything inside, nothing blank, nothing from elsewhere."""

import base64
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import fedjax_fair as ff
from fedjax_fair.cli.commands import main
from fedjax_fair.metrics.kind import ACCURACY
from fedjax_fair.results.report import table
from fedjax_fair.results.report_contribution import by_client
from fedjax_fair.results.report_figures import NAMES, ends
from fedjax_fair.results.report_table import html_table
from fedjax_fair.results.table import COLUMNS

RULES = ("fedavg", "fedmaba:alpha=0.8", "fedfv")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("results") / "out"
    flags = [
        "--rounds",
        "12",
        "--replicates",
        "2",
        "--clients",
        "8",
        "--cohort",
        "3",
        "--eval-every",
        "2",
        "--liars",
        ".2",
    ]
    main(["compare", *flags, "--out", str(place), "--algorithms", *RULES])
    return place


@pytest.fixture(scope="module")
def page(folder):
    main(["report", str(folder), "--figures", "pdf"])
    return (folder / "report.html").read_text()


class Reader(HTMLParser):
    """Which tags there are, and that every one is closed."""

    VOID = frozenset({"meta", "img", "br", "source", "wbr"})

    def __init__(self, page):
        super().__init__()
        self.open, self.seen, self.images = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        if tag == "img":
            self.images.append(dict(attributes))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_from_elsewhere(page):
    reader = Reader(page)
    assert reader.open == []
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    assert "url(" not in page
    assert "script" not in reader.seen
    assert "@import" not in page


def test_every_figure_is_there_and_not_blank(page):
    images = Reader(page).images
    captions = " ".join(image["alt"] for image in images)
    for word in ("Lorenz", "worst served", "by accuracy", "over the rounds", "Fairness", "took part"):
        assert word in captions
    assert sum("Coefficients" in image["alt"] for image in images) == 1  # all rules with one scale
    for image in images:
        kind, _, data = image["src"].partition(",")
        assert kind == "data:image/svg+xml;base64"
        drawing = base64.b64decode(data).decode()
        assert "<svg" in drawing
        assert not re.search(r'(xlink:)?href="https?:', drawing)
        inked = re.findall(r"<(?:path|use|image)", drawing)
        assert len(inked) > 20, image["alt"]
        colours = {c.lower() for c in re.findall(r"#[0-9a-fA-F]{6}", drawing)}
        one_line = "took part" in image["alt"]  # all rules draw the same clients here
        assert len(colours - {"#ffffff", "#000000"}) > (0 if one_line else 1) or "<image" in drawing, image["alt"]


def test_every_figure_of_the_page_is_a_file_for_a_paper_where_asked(page, folder):
    found = {path.stem: path.read_bytes() for path in (folder / "figures").iterdir()}
    names = {"paired", "lorenz", "sorted", "histogram", "over_rounds", "frontier", "selections", "coefficients"}
    assert found.keys() == names == {*NAMES} - {"contribution"}
    assert len(names) == len(Reader(page).images)
    assert len({*found.values()}) == len(names)  # none is drawn twice
    assert all(content.startswith(b"%PDF") for content in found.values())


def test_pages_of_other_names_have_figures_of_their_own(folder, tmp_path, capsys):
    (tmp_path / "mine-figures").write_text("a file in the way")
    with pytest.raises(SystemExit):
        main(["report", str(folder), "--out", str(tmp_path / "mine.html"), "--figures", "png"])
    assert f"figures {tmp_path / 'mine-figures'} cannot be written" in capsys.readouterr().err


def test_figures_of_another_kind_are_one_sentence(folder, capsys):
    with pytest.raises(SystemExit):
        main(["report", str(folder), "--figures", "gif"])
    assert "--figures must be one of pdf, svg, png, got 'gif'" in capsys.readouterr().err


def test_it_holds_the_table_the_configuration_and_the_command(page, folder):
    intro = "synthetic: 8 clients, 3 a round, 12 rounds, 2 replicates"
    judged = "Judged by the 6 honest clients; 2 do inflate_loss."
    over = "mean over the last 5 evaluations"
    for word in (*RULES, "worst 5%", intro, judged, over, "--cohort 3", "cohort = 3", "jax: "):
        assert word in page
    assert page.count("<tr>") == (1 + len(RULES)) + (1 + len(RULES) + 2) + len(RULES)  # also measures, differences
    assert "Minus fedavg, paired" in page


def test_warnings_and_paired_differences_come_first_and_the_configuration_is_folded(page):
    care, paired, measures, last = map(
        page.index,
        ("Read with care", "Minus fedavg, paired", "Comparison over 2 replicates", "After the last round"),
    )
    assert care < paired < measures < last
    assert "have fewer than 10 test examples" in page[care:paired]
    assert "Clients&#x27; test accuracy (%): mean±std" not in page[care:paired]  # a legend is no warning
    assert "<img" in page[paired:measures]
    assert "would be found in 80 % of repeats" in page[paired:measures]
    assert "Quote these results" in page[measures:last]
    assert "Worst 10 %: the mean of 1 of 6 clients." in page[measures:last]
    assert "A single evaluation" in page[last:]
    assert "clients (here 1 of 6), Gini" in page[last:]
    assert re.search(r"<details><summary>Configuration</summary><pre>[^<]*cohort = 3", page)


def test_old_folders_show_all_notes_as_warnings(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    kept = json.loads((folder / "summary.json").read_text())
    del kept["comparison"]["flags"]
    (tmp_path / "copy" / "summary.json").write_text(json.dumps(kept))
    main(["report", str(tmp_path / "copy")])
    page = (tmp_path / "copy" / "report.html").read_text()
    assert page.count("<li>") == len(kept["comparison"]["notes"])


def test_the_page_is_made_for_dark_screens_and_for_paper(page):
    style = page.partition("<style>")[2].partition("</style>")[0]
    assert style.count("{") == style.count("}")
    for medium in ("(prefers-color-scheme: dark)", "print", "screen and (max-width: 40rem)"):
        assert medium in style
    used = set(re.findall(r"var\((--\w+)\)", style)) - {"--figures"}  # how many a table has
    dark = style.partition("dark) {")[2].partition("figure")[0]
    assert used == set(re.findall(r"(--\w+):", dark))  # every colour has its dark form


def test_a_long_name_may_go_on_in_the_next_line_and_many_figures_are_announced():
    short, long = (html_table(["client", *"ab"[:n], *["c"] * more], [["x:y_z"]]) for n, more in ((1, 1), (2, 5)))
    assert "<td>x:<wbr>y_<wbr>z</td>" in short
    assert 'style="--figures:2"' in short
    assert "scroll sideways" not in short
    assert "7 columns: scroll sideways" in long


def test_the_summary_is_the_honest_clients(folder):
    kept = json.loads((folder / "summary.json").read_text())["rules"]
    with np.load(folder / "history.npz") as arrays:
        honest = arrays["honest"]
        for name in RULES:
            last = arrays[f"{name}/accuracy"][:, -1]
            assert kept[name]["accuracy"]["mean"] == pytest.approx(100 * last[:, honest].mean(), rel=1e-6)
            assert kept[name]["accuracy"]["mean"] != pytest.approx(100 * last.mean(), rel=1e-6)


def test_it_holds_what_selection_cost_where_the_terminal_does(page, tmp_path):
    accuracy, ids, coef = np.linspace(0.2, 0.9, 8)[None], np.tile(np.arange(3), (2, 1)), np.full((2, 3), 1 / 3)
    scores, nobody = {"test": ff.Evaluation(accuracy, 1 - accuracy)}, np.zeros(2, int)
    free = ff.History(np.array([2]), scores, ids, coef, coef > 0, None, nobody + 3, nobody)
    runs = {"fedavg": free, "fedavg@pow_d:d=4": free._replace(downloads=nobody + 4, evaluations=nobody + 40)}
    said = "models sent (to train, and to be asked for a loss)"
    assert said in " ".join(ff.table(runs).split())
    assert said not in " ".join(ff.table({"fedavg": free}).split())
    main(["report", str(ff.save(tmp_path / "out", runs))])
    costly = (tmp_path / "out" / "report.html").read_text()
    assert "<th>sent</th><th>asked</th>" in costly
    assert said in costly
    assert "<th>sent</th>" not in page


def test_what_a_rule_is_called_cannot_break_the_page(folder, tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("summary.json", "config.toml"):
        (copy / name).write_text((folder / name).read_text().replace('"fedfv"', '"<b>&fedfv"'))
    with np.load(folder / "history.npz") as arrays:
        np.savez(copy / "history.npz", **{name.replace("fedfv", "<b>&fedfv"): arrays[name] for name in arrays})
    main(["report", str(copy), "--out", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text()
    assert "<b>" not in page
    assert "&lt;b&gt;&amp;fedfv" in page
    assert not (copy / "report.html").exists()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda place: (place / "file").touch(), "folder must be a folder of results, got the file .*file"),
        (None, "report takes a folder of results, such as one under runs/, got nothing"),
        (lambda place: None, r"folder .* holds no results: no summary.json"),
        (
            lambda place: (place / "summary.json").write_text("{"),
            r"folder .* holds damaged results: JSONDecodeError",
        ),
        (lambda place: (place / "summary.json").write_text("{}"), r"folder .* holds no results: no history.npz"),
        (
            lambda place: (
                [(place / name).write_text("{}") for name in ("summary.json", "history.npz")]
                and (place / "history.npz").write_bytes(b"PK\x03\x04 and no more")
            ),
            r"folder .* holds damaged results: BadZipFile",
        ),
    ],
)
def test_a_folder_without_results_is_one_sentence(damage, sentence, tmp_path, capsys):
    words = [] if damage is None else [str(tmp_path)]
    if damage is not None:
        damage(tmp_path)
    if (tmp_path / "file").exists():
        words = [str(tmp_path / "file")]
    with pytest.raises(SystemExit) as stop:
        main(["report", *words])
    assert stop.value.code == 2
    assert re.match(f"fedjax-fair: {sentence}", capsys.readouterr().err)
    assert not Path("report.html").exists()


def test_the_pages_table_shows_a_spread_for_several_seeds_only():
    def row(*per_seed):
        std = float(np.std(per_seed, ddof=1)) if len(per_seed) > 1 else 0.0
        return {name: {"mean": float(np.mean(per_seed)), "std": std, "per_seed": [*per_seed]} for name in COLUMNS}

    assert "<td>7.0 <small>± 1.4</small></td>" in table({"a": row(6.0, 8.0)})
    assert "<td>7.0 <small>± 0.0</small></td>" in table({"a": row(7.0, 7.0)})  # as the terminal's table has it
    assert "<td>7.0</td>" in table({"a": row(7.0)})


def test_a_contribution_in_the_folder_is_a_table_by_client_and_a_figure(folder, tmp_path):
    place = tmp_path / "copy"
    shutil.copytree(folder, place)
    shares = {"accuracy": np.arange(8.0), "gini": np.linspace(0.01, -0.01, 8)}
    ends = dict.fromkeys(shares, 0.0)
    errors = {measure: np.full(8, 0.001) for measure in shares}
    found = ff.Contribution(shares, errors, ends, ends, "shapley", "test", 12, 5, 0, 99)
    found.save(place)
    assert found.save(tmp_path / "a" / "new").exists()
    main(["report", str(place)])
    page = (place / "report.html").read_text()
    section = page.partition("What each client contributes")[2].partition("</table>")[0]
    assert not any(rule in section for rule in RULES)  # client 7 is another one in each replicate
    summary = json.loads((place / "summary.json").read_text())
    summary["comparison"]["fixed"] = True
    (place / "summary.json").write_text(json.dumps(summary))
    main(["report", str(place)])
    page = (place / "report.html").read_text()
    section = page.partition("What each client contributes")[2].partition("</table>")[0]
    rows = re.findall("<tr><td>(.*?)</td></tr>", section)
    assert [row.partition("<")[0] for row in rows] == [*"76543210"]
    with np.load(folder / "history.npz") as arrays:
        served = [100 * arrays[f"{rule}/accuracy"][:, -1].mean(0)[7] for rule in RULES]
    cells = rows[0].split("</td><td>")
    assert cells[1:] == ["+7.00 [+7.00, +7.00]", "-0.0100 [-0.0128, -0.0072]", *(f"{x:.1f}" for x in served)]
    assert "mean over 5 permutations" in page
    assert any(
        "Every client&#x27;s share" in image or "Every client's share" in image
        for image in [image["alt"] for image in Reader(page).images]
    )
    again = tmp_path / "again"
    found.save(again)
    scores = {"test": ff.Evaluation(np.full((1, 8), 0.5), np.ones((1, 8)))}
    ids, one = np.arange(8)[None], np.ones((1, 8))
    runs = {"a": [ff.History(np.array([1]), scores, ids, one / 8, one > 0, None, np.array([8]), np.array([0]))]}
    ff.save(again, runs)
    assert (again / "contribution.json").exists()  # it came first
    (again / "figures").mkdir()
    for name in ("lorenz.pdf", "mine.pdf"):
        (again / "figures" / name).touch()
    ff.save(again, runs, overwrite=True)
    assert [path.name for path in (again / "figures").iterdir()] == ["mine.pdf"]  # so was what a report drew
    assert not (again / "contribution.json").exists()  # it was of the results that went
    shutil.rmtree(again / "figures")
    (again / "figures").write_text("a user's own")
    ff.save(again, runs, overwrite=True)
    assert (again / "figures").read_text() == "a user's own"
    found._replace(shares={"accuracy": np.zeros(3)}, errors={"accuracy": np.zeros(3)}).save(place)
    with pytest.raises(SystemExit):
        main(["report", str(place)])
    named = {
        "a/accuracy": np.full((2, 1, 8), 0.5),
        "a/loss": np.ones((2, 1, 8)),
        "clients": np.array([*"abcdefgh"]),
    }
    named["a/loss"][1, 0, 7], named["a/accuracy"][1, 0, 7] = np.nan, 0.1
    assert "<td>50.0</td>" in by_client(["a"], found._replace(clients=(*"abcdefgh",)), named, ACCURACY, True)
    assert "<td>30.0</td>" not in by_client(["a"], found._replace(clients=(*"abcdefgh",)), named, ACCURACY, True)
    with pytest.raises(ValueError, match="of other clients than the results, or of theirs in another order"):
        by_client(["a"], found._replace(clients=(*"hgfedcba",)), named, ACCURACY)
    (place / "contribution.json").write_text("[]")
    with pytest.raises(SystemExit):
        main(["report", str(place)])


def test_a_rule_whose_runs_all_failed_keeps_its_place_and_so_the_others_colours():
    arrays = [np.full((4, 3), value, np.float32) for value in (0.5, np.nan, 0.7)]
    none, fine = np.zeros((4, 2), int), np.ones((4, 3), np.float32)
    rest = (none, none, none == 0, None, none, none)
    runs = {
        rule: [ff.History(np.arange(4), {"test": ff.Evaluation(a, a * fine)}, *rest)]
        for rule, a in zip("abc", arrays)
    }
    assert next(iter(ends(runs, 2).values())).shape[1] == 2  # as a comparison of last=2 averages
    late = ends(runs, 1)
    assert [name[0] for name in late] == [*"abc"]
    assert [len(seeds) for seeds in late.values()] == [1, 0, 1]
    assert ends({"b": runs["b"]}, 1) == {}


def test_seeds_without_a_value_in_an_evaluation_are_named_where_they_are_left_out():
    """A metric may have no value for some clients, and so for all of them: no failure, and nothing to draw."""
    partial = ACCURACY._replace(name="AUROC", for_everybody=False)
    none, fine = np.zeros((2, 2), int), np.ones((2, 3), np.float32)
    rest = (none, none, none == 0, None, none, none, partial)
    silent = fine * np.array([[0.5], [np.nan]])
    histories = [ff.History(np.arange(2), {"test": ff.Evaluation(a, fine)}, *rest) for a in (fine, silent, fine)]
    (late,) = ends({"a": histories}, 1).items()
    assert (late[0], len(late[1])) == ("a (1 of 3 seeds without a value)", 2)

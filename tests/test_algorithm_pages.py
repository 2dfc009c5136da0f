"""Every rule, method and selector has a page on the site, with a picture, an example and its studies' verdicts."""

import importlib.util
import re
from pathlib import Path

import pytest

import fedjax_fair as ff
from benchmarks.papers.studies import RESULTS, STUDIES

DOCS = Path(__file__).parents[1] / "docs"
NAMES = [*ff.registry.AGGREGATORS, *ff.registry.SELECTORS]


@pytest.fixture(scope="module")
def write_pages():
    spec = importlib.util.spec_from_file_location("write_pages", DOCS / "write_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(write_pages):
    return dict(write_pages.algorithm_pages())


def test_everything_has_a_page_and_a_row_of_four_cells_in_the_index(pages):
    assert sorted(pages) == sorted([f"{name}.rst" for name in NAMES] + ["index.rst"])
    rows = re.findall(r"^   \* - :doc:`(\w+)`\n((?:     - .*\n)+)", pages["index.rst"], re.MULTILINE)
    assert [name for name, _ in rows] == NAMES
    assert {cells.count("     - ") for _, cells in rows} == {3}


@pytest.mark.parametrize("name", NAMES)
def test_a_page_says_all_that_the_docstring_says(pages, name):
    page = pages[f"{name}.rst"]
    factory = {**ff.registry.AGGREGATORS, **ff.registry.SELECTORS}[name]
    words = re.sub(r":func:`\w+`|^ +\w+:", "", factory.__doc__, flags=re.MULTILINE).split()
    assert [word for word in words if word not in page] == []
    for setting in ff.registry.settings_of(factory):
        assert f"\n``{setting}``, " in page
    for heading in ("What it computes", "What the studies say", "Source"):
        assert f"\n{heading}\n---" in page


@pytest.mark.parametrize("name", NAMES)
def test_its_picture_is_there_and_small(name):
    assert 3_000 < (DOCS / "figures" / f"{name}.png").stat().st_size < 80_000, f"docs/draw_coefficients.py {name}"


def code_of(page):
    return "\n".join(
        line.strip() for line in page.split(".. code-block:: python\n")[1].split("From a")[0].splitlines()
    )


@pytest.mark.parametrize("name", NAMES)
def test_its_example_builds_what_the_page_is_about(pages, name):
    (made,) = re.findall(rf"ff\.{name}\([^)]*\)", code_of(pages[f"{name}.rst"]))
    kinds = (ff.Selector,) if name in ff.registry.SELECTORS else (ff.Aggregator, ff.Method)
    assert isinstance(eval(made, {"ff": ff}), kinds)


@pytest.mark.parametrize("name", ["qfedavg", "uniform"])
def test_an_example_runs(pages, name):
    scope = {}
    exec(compile(code_of(pages[f"{name}.rst"]), name, "exec"), scope)
    assert scope["history"].accuracy.shape[1] == 10


def test_the_studies_of_the_pages_exist_and_their_verdicts_stand_in_one_place(write_pages):
    judged = write_pages.JUDGED_BY
    assert set(judged) <= set(NAMES)
    assert {study for studies in judged.values() for study in studies} <= set(STUDIES)
    for study in STUDIES:
        assert len(write_pages.verdict_of(study)) > 10
    with pytest.raises(ValueError, match="has no row for the study no-such"):
        write_pages.verdict_of("no-such")


def test_a_tuned_rule_has_its_own_row_of_the_study(write_pages):
    (row,) = write_pages.own_row("tuned-frontier", "qfedavg")
    table = (RESULTS / "tuned-frontier.md").read_text().split("minus fedavg")[1]
    (kept,) = [line for line in table.splitlines() if line.startswith(" qfedavg")]
    assert re.findall(r"[-+]\d+\.\d", row)[:3] == re.findall(r"[-+]\d+\.\d", kept)[:3]
    assert write_pages.own_row("tuned-frontier", "fedavg") == write_pages.own_row("fmnist3", "afl") == []


def test_the_links_of_the_study_pages_lead_to_pages_of_the_site_or_files_of_the_repository(write_pages):
    pages = dict(write_pages.study_pages())
    assert set(pages) == {"index.md", *(f"{study}.md" for study in STUDIES)}
    for page, text in pages.items():
        for link in re.findall(r"\]\(([^)#]+)\)", text):
            known = link in pages or (RESULTS / link).exists() or (DOCS / "papers" / link).resolve().exists()
            assert known, (page, link)

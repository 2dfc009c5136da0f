"""The site's pages name what there is, all of it; their code runs, their links lead somewhere."""

import importlib
import inspect
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

import fedjax_fair as ff
from fedjax_fair.cli.commands import main

DOCS = Path(__file__).parents[1] / "docs"


def test_every_public_function_is_on_the_site():
    page = (DOCS / "api.md").read_text()
    for name in ff.__all__:
        thing = getattr(ff, name)
        listed = f"fedjax_fair.{name}\n" in page or re.search(rf":members:.*\b{name}\b", page)
        assert listed or not callable(thing), name
        if not callable(thing) and name not in ("models", "objectives", "registry", "partition"):
            assert f"fedjax_fair.{name}" in page, name


def blocks(page, language, since="", until="\n$"):
    """The page's code of a language, between two pieces of text."""
    text = (DOCS / page).read_text().split(since, 1)[1] if since else (DOCS / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text.split(until, 1)[0], re.DOTALL)


METRICS = blocks("data.md", "python", "## Loss and metric\n", "### Loss and metric in a file")
"""The first is a recipe, on which the others build."""
RECIPES = [
    recipe
    for page in ("data", "losses", "pretrained")
    for recipe in re.findall(r"```python\n(import .*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)
    if recipe != METRICS[0]
]
LONGEST_RECIPE = 15


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: re.findall(r"ff\.([\w.]+)", recipe)[-1])
def test_a_recipe_runs_as_it_stands(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len([line for line in recipe.splitlines() if line]) <= LONGEST_RECIPE
    exec(compile(recipe, "recipe", "exec"), {})


def test_the_pages_metrics_fit_the_data_and_model_above_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len([line for line in METRICS[0].splitlines() if line]) <= LONGEST_RECIPE
    scope = {}
    for block in METRICS:
        exec(compile(block, "data.md", "exec"), scope)
    assert scope["sim"].metric.name == "worst error"


def test_the_pages_commands_fit_the_files_that_it_makes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for recipe in RECIPES:
        if any(name in recipe for name in ("writers", "patients.csv", "sensors", "photos")):
            exec(compile(recipe, "recipe", "exec"), {})
    shutil.copy("patients.csv", "held.csv")
    text = "".join(blocks("data.md", "sh", until="## Model")).replace("\\\n", " ") + (
        "fedjax-fair compare " + re.search(r"`(--data photos [^`]*)`", (DOCS / "data.md").read_text())[1]
    )
    commands = [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("fedjax-fair compare")]
    assert len(commands) >= 8
    for words in commands:
        if not any(".py:" in word for word in words):
            main([*words, "--replicates", "2", "--dry-run", "--quiet"])


def test_there_are_recipes_for_every_reader():
    for reader in ("leaf", "table", "npz", "images"):
        assert any(f"ff.data.{reader}(" in recipe for recipe in RECIPES)


def test_there_are_recipes_for_pretrained_models():
    for word in ("params=pretrained", 'freeze="', "ff.confusion(", "ff.export(", "ff.load_params("):
        assert any(word in recipe for recipe in RECIPES)


def test_every_page_is_reached_from_the_first():
    trees = re.findall(r"```\{toctree\}.*?\n\n(.*?)```", (DOCS / "index.md").read_text(), re.DOTALL)
    listed = [
        page for tree in trees for page in tree.split() if "/" not in page
    ]  # algorithms/ and papers/ are made
    assert sorted(listed) == sorted(page.stem for page in DOCS.glob("*.md") if page.stem != "index")


def resolve(dotted):
    """The object that a dotted name stands for; AttributeError where there is none."""
    thing = ff
    for part in dotted.split(".")[1:]:
        thing = getattr(thing, part)
    return thing


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_a_page_names_nothing_that_is_not_there(page):
    text = page.read_text()
    for name in re.findall(r"\bff(?:\.[A-Za-z_]\w*)+", text):
        assert resolve(name) is not None
    for directive, name in re.findall(r"\.\. auto(function|class|module):: (fedjax_fair[\w.]*)", text):
        thing = importlib.import_module(name) if directive == "module" else resolve(name)
        after = text.split(f":: {name}\n", 1)[1]
        members = re.match(r"   :members: ([^\n]+)", after)
        for member in members[1].split(", ") if members else ():
            assert hasattr(thing, member), f"{name}.{member}"


GUIDE = ("start", "compare", "large", "own_rule", "sweeps", "faults", "runs", "results")


@pytest.mark.parametrize("page", GUIDE)
def test_a_page_of_the_guide_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL):
        exec(compile(block, f"{page}.md", "exec"), scope)
    if page == "start":
        assert scope["history"].accuracy.shape == (10, 30)


LONGEST = 30
WRITTEN = {"api", "reference"}  # by programs
PLAIN = [
    DOCS.parent / "README.md",
    *sorted(DOCS.parent.glob("benchmarks/*/README.md")),
    *(page for page in sorted(DOCS.glob("*.md")) if page.stem not in WRITTEN),
]


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_sentences_are_short(page):
    """At most thirty words; code, tables and lists of links are none."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    text = re.sub(r"^(\||#|!).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    paragraphs = re.split(r"\n\s*\n|\n\* ", text)
    sentences = [part for paragraph in paragraphs for part in re.split(r"(?<=[.!?:;])\s+", paragraph)]
    assert [part for part in sentences if len(part.split()) > LONGEST] == []


PUBLIC = {name: getattr(ff, name) for name in ff.__all__ if callable(getattr(ff, name))} | {
    f"{place}.{name}": thing
    for place in (
        "availability",
        "callbacks",
        "data",
        "defences",
        "faults",
        "losses",
        "metrics",
        "models",
        "partition",
        "plot",
    )
    for name, thing in vars(getattr(ff, place)).items()
    if not name.startswith("_") and callable(thing) and getattr(thing, "__module__", "").startswith("fedjax_fair")
}


@pytest.mark.parametrize("name", PUBLIC)
def test_sentences_of_docstrings_are_short(name):
    """At most thirty words; formulas, code and sources are none."""
    text = inspect.getdoc(PUBLIC[name]) or ""
    text = re.sub(r"(\.\. (math|code-block)::|>>> |Source: ).*?(?=\n\n(?=\S)|\Z)", "", text, flags=re.DOTALL)
    parts = re.split(r"\n\s*\n|\n\s*(?:\d\.|\*) |\n +(?=\w+: )", text)
    sentences = [part for paragraph in parts for part in re.split(r"(?<=[.!?:;])\s+", " ".join(paragraph.split()))]
    assert [part for part in sentences if len(part.split()) > LONGEST] == []


ROOT = DOCS.parent
LINKED = [*ROOT.glob("*.md"), *DOCS.glob("*.md"), *ROOT.glob("benchmarks/**/*.md"), *ROOT.glob("notebooks/*.ipynb")]


def prose(path):
    """A page's Markdown; of a notebook that of its text cells."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(path):
    """The places that a link may name after #, by GitHub's rule, which is the site's."""
    headings = re.findall(r"^#+ (.*)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead(path):
    """The links of a page that lead to no file of the repository, or to no heading of it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        file, _, anchor = target.partition("#")
        place = path.parent / file if file else path
        if re.match(r"https?:|mailto:", target):
            continue
        if not place.exists() or (anchor and anchor not in anchors(place)):
            yield target


@pytest.mark.parametrize("page", sorted(LINKED), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(page):
    assert list(dead(page)) == []


def test_a_dead_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A: heading, `code`\n[a](#a-heading-code) [b](page.md) [c](none.md) [d](page.md#none)")
    assert list(dead(page)) == ["none.md", "page.md#none"]


@pytest.mark.parametrize("picture", sorted((DOCS / "figures").glob("guide_*.png")), ids=lambda path: path.stem)
def test_a_picture_of_the_guide_is_shown_on_its_page_and_small(picture):
    page = (DOCS / f"{picture.stem.removeprefix('guide_')}.md").read_text()
    assert f"](figures/{picture.name})" in page
    assert picture.stat().st_size < 80_000

"""The README's Python is that of a page which runs as it stands, and its tables name what there is."""

import ast
import re
from pathlib import Path

from fedjax_fair import registry
from fedjax_fair.cli.arguments import DEFAULT_RULES
from fedjax_fair.metrics.kind import ACCURACY
from fedjax_fair.results import comparison

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_its_python_is_that_of_the_guides_first_page():
    """But for comments. That page is run from top to bottom."""
    page = (Path(__file__).parent.parent / "docs" / "start.md").read_text()
    mine, first = (re.findall(r"```python\n(.*?)```", text, re.DOTALL) for text in (README, page))
    assert ast.dump(ast.parse("".join(mine))) == ast.dump(ast.parse("".join(first[:2])))


def test_it_is_read_in_five_minutes():
    assert README.count("\n") < 150


def test_the_first_commands_tables_are_shown_as_they_are_printed():
    """The headings in order, and below them a full row for each of the rules that are compared by default."""
    heads = [*comparison.columns(ACCURACY).values()]
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    (shown,) = [block for language, block in fenced if not language and "minus fedavg" in block]
    measured, differences = shown.split("minus fedavg")
    assert re.search(
        r"^ *rule +" + r" +".join(map(re.escape, [*heads, "better off"])) + "$", measured, re.MULTILINE
    )
    assert differences.splitlines()[0].split("  ")[-1].strip() == heads[-1]
    rows = {cells[0]: cells[1:] for line in measured.splitlines() if (cells := line.split())}
    for rule in (*DEFAULT_RULES, *comparison.NAMES.values()):
        assert len(rows[rule]) == len(heads) + 1
        assert all(cell.count("±") == 1 for cell in rows[rule])
    for rule in DEFAULT_RULES[1:]:
        assert re.search(rf"^ *{rule} +[+-].* \[[+-].*, [+-].*\]", differences, re.MULTILINE), rule


def test_every_name_of_the_registry_is_mentioned():
    tables = (registry.AGGREGATORS, registry.SELECTORS, registry.OBJECTIVES, registry.MODELS, registry.PARTITIONS)
    assert [name for table in tables for name in table if f"`{name}`" not in README] == []

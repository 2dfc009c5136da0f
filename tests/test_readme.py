"""The README's Python runs as it stands, and its tables name what there is."""

import re
from pathlib import Path

from fedjax_fair import registry
from fedjax_fair.cli.arguments import DEFAULT_RULES
from fedjax_fair.metrics.kind import ACCURACY
from fedjax_fair.results import comparison

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_python_blocks_run_in_order():
    scope = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(block, "README.md", "exec"), scope)
    assert scope["history"].accuracy.shape == (10, 30)


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

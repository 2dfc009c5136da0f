"""The README's Python runs as it stands, and its tables name what there is."""

import re
from pathlib import Path

import numpy as np

import fedjax_fair as ff
from fedjax_fair import registry
from fedjax_fair.cli.arguments import DEFAULT_RULES
from fedjax_fair.results import table as tables

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_python_blocks_run_in_order(capsys):
    scope = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(block, "README.md", "exec"), scope)
    assert scope["history"].accuracy.shape == (10, 30)
    assert "client" in capsys.readouterr().out


def test_the_first_commands_table_is_shown_as_it_is_printed():
    """The headings in order, and below them a full row for each of the rules that are compared by default."""
    headings = r"^ *rule +" + r" +".join(map(re.escape, tables.COLUMNS.values())) + "$"
    scores = {"test": ff.Evaluation(*[np.ones((1, 3))] * 2)}
    one = ff.History(np.ones(1), scores, *[np.ones((1, 3), bool)] * 4, np.full(1, 3), np.zeros(1))
    assert re.search(headings, tables.table({"fedavg": one}), re.MULTILINE)
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    blocks = [block for language, block in fenced if not language]
    shown = [block for block in blocks if re.search(headings, block, re.MULTILINE)]
    assert len(shown) == 1
    rows = {cells[0]: cells[1:] for line in shown[0].splitlines() if (cells := line.split())}
    for rule in DEFAULT_RULES:
        assert len(rows[rule]) == len(tables.COLUMNS)
        assert all(cell.count("±") == 1 for cell in rows[rule])


def test_every_name_of_the_registry_is_mentioned():
    tables = (registry.AGGREGATORS, registry.SELECTORS, registry.OBJECTIVES, registry.MODELS, registry.PARTITIONS)
    assert [name for table in tables for name in table if f"`{name}`" not in README] == []

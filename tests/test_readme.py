"""The README's Python runs as it stands, and its tables name what there is."""

import re
from pathlib import Path

from fedjax_fair import registry

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_python_blocks_run_in_order(capsys):
    scope = {}
    for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        exec(compile(block, "README.md", "exec"), scope)
    assert scope["history"].accuracy.shape == (10, 30)
    assert "client" in capsys.readouterr().out


def test_every_name_of_the_registry_is_mentioned():
    tables = (registry.AGGREGATORS, registry.SELECTORS, registry.MODELS, registry.PARTITIONS)
    assert [name for table in tables for name in table if f"`{name}`" not in README] == []

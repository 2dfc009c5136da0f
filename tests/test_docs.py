"""The examples in docstrings are true, and the site's pages name what there is."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import fedjax_fair as ff

DOCS = Path(__file__).parents[1] / "docs"
MODULES = sorted(module.name for module in pkgutil.walk_packages(ff.__path__, "fedjax_fair."))


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_the_examples_of_a_module(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples():
    for name in ("metrics", "data.partition", "reads", "registry"):
        assert doctest.testmod(importlib.import_module(f"fedjax_fair.{name}")).attempted


def test_every_public_function_is_on_the_site():
    page = (DOCS / "api.md").read_text()
    for name in ff.__all__:
        thing = getattr(ff, name)
        listed = f"fedjax_fair.{name}\n" in page or re.search(rf":members:.*\b{name}\b", page)
        assert listed or not callable(thing), name
        if not callable(thing) and name not in ("models", "objectives", "registry", "partition"):
            assert f"fedjax_fair.{name}" in page, name


def test_every_page_is_reached_from_the_first():
    listed = re.search(r"```\{toctree\}.*?\n\n(.*?)```", (DOCS / "index.md").read_text(), re.DOTALL)[1].split()
    assert sorted(listed) == sorted(page.stem for page in DOCS.glob("*.md") if page.stem != "index")

"""Sphinx: the site is these pages and the package's docstrings."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

sys.path.insert(0, str(Path(__file__).parent))
from write_pages import write

write()

project = "fedjax_fair"
author = copyright = "The fedjax_fair authors"
version = release = version_of("fedjax-fair")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "fedjax_fair"
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
exclude_patterns = ["_site", "figures"]
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True  # accuracy, not <function accuracy at 0x...>
autodoc_typehints = "none"  # every docstring says shapes and units, which types do not
napoleon_google_docstring = True


def formula(display: str) -> Any:
    """A renderer of formulas as MathML, which browsers draw by themselves: the pages need no network."""

    def render(self: Any, node: nodes.Element) -> None:
        drawn = convert(node.astext(), display=display)
        self.body.append(f'<div class="formula">{drawn}</div>' if display == "block" else drawn)
        raise nodes.SkipNode

    return render, None


def within_the_site(app: Any, page: str, source: list[str]) -> None:
    """Links to the papers' page in the repository lead to its copy here."""
    source[0] = source[0].replace("](../benchmarks/papers/README.md", "](papers/index.md")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", within_the_site)
    app.add_html_math_renderer("mathml", inline_renderers=formula("inline"), block_renderers=formula("block"))

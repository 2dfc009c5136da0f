"""Sphinx: the site is these pages and the package's docstrings."""

from importlib.metadata import version as version_of
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

project = "fedjax_fair"
author = "The fedjax_fair authors"
version = release = version_of("fedjax-fair")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "fedjax_fair"
html_show_sourcelink = False
html_math_renderer = "mathml"
exclude_patterns = ["_site"]
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True  # accuracy, not <function accuracy at 0x...>
autodoc_typehints = "none"  # every docstring says shapes and units, which types do not
napoleon_google_docstring = True


def formula(display: str) -> Any:
    """A renderer of formulas as MathML, which browsers draw by themselves: the pages need no network."""

    def render(self: Any, node: nodes.Element) -> None:
        self.body.append(convert(node.astext(), display=display))
        raise nodes.SkipNode

    return render, None


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", inline_renderers=formula("inline"), block_renderers=formula("block"))

"""Sphinx: the site is these pages and the package's docstrings."""

from importlib.metadata import version as version_of

project = "fedjax_fair"
author = "The fedjax_fair authors"
version = release = version_of("fedjax-fair")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "fedjax_fair"
html_show_sourcelink = False
exclude_patterns = ["_site"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # every docstring says shapes and units, which types do not
napoleon_google_docstring = True
nitpicky = False

"""Settings of the documentation: Sphinx, Markdown pages, an API reference from the docstrings."""

import sys
from pathlib import Path

import wengert

sys.path.insert(0, str(Path(__file__).parent))

project = "wengert"
author = "The wengert developers"
copyright = author
release = version = wengert.__version__

extensions = [
    "myst_parser",
    "operator_pages",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_numpy_docstring = False
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"wengert {release}"

"""Settings of the documentation: Sphinx, Markdown pages, an API reference from the docstrings."""

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

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
suppress_warnings = ["ref.python"]  # several classes have an attribute `shape`

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"wengert {release}"


def keep_mathematics(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Let ``a * b`` and ``|x|`` in a docstring be products and absolute values, not markup."""
    in_example = False
    for i, line in enumerate(lines):
        in_example = bool(line.strip()) and (in_example or line.lstrip().startswith(">>>"))
        if not in_example:
            bullet = re.match(r"\s*\* |", line)[0]
            pieces = re.split(r"(``.*?``)", line.removeprefix(bullet))
            pieces[::2] = [re.sub(r"(?<!\\)[*|]", r"\\\g<0>", piece) for piece in pieces[::2]]
            lines[i] = bullet + "".join(pieces)


def setup(app: Sphinx) -> None:
    """Read docstrings before napoleon does."""
    app.connect("autodoc-process-docstring", keep_mathematics, priority=400)

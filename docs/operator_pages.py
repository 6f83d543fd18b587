"""The directive ``operators``: a section for each family, with what the registry knows of every operator in it."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from wengert.cli.operators import describe
from wengert.core.registry import operators


class Operators(SphinxDirective):
    """Writes the same text as ``python -m wengert ops NAME``, for all operators."""

    def run(self) -> list[nodes.Node]:
        """Return one section per family."""
        known = operators()
        return [self._section(family, known) for family in sorted({op.family for op in known.values()})]

    def _section(self, family: str, known: dict[str, Any]) -> nodes.section:
        members = [op for op in known.values() if op.family == family]
        section = nodes.section(ids=[f"family-{nodes.make_id(family)}"])
        section += nodes.title(text=f"{family} ({len(members)})")
        for op in members:
            name = f"operator-{nodes.make_id(op.name)}"
            section += nodes.target(ids=[name])
            section += nodes.literal_block(text=describe(op), language="text")
        return section


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("operators", Operators)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The passes, in order: each takes a graph, which it may change, and returns one that means the same.

``WENGERT_DUMP=dir`` writes the graph after each stage to ``dir/NN-name.txt``.
"""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from wengert.graph.ir import Graph, Node
from wengert.passes.contractions import in_place, into_weights
from wengert.passes.copies import copies
from wengert.passes.fold import fold
from wengert.passes.formulas import fuse_formulas
from wengert.passes.fusible import fusible
from wengert.passes.order import order, part
from wengert.passes.pointwise import fuse_pointwise
from wengert.passes.products import fuse_products
from wengert.passes.prune import prune
from wengert.passes.rewriting import duplicate
from wengert.passes.share import share
from wengert.passes.simplify import simplify
from wengert.passes.spare import spare

__all__ = ["KINDS", "PIPELINE", "Options", "Stage", "optimise"]

KINDS: Final = frozenset({"pointwise", "reduction", "product", "formulas"})


class Options(NamedTuple):
    """What a pipeline may do.

    Attributes:
        kinds: the fused operations that there is a kernel for. fusible: whether a node can be computed element by element.
        source: the graph that was given.
    """

    kinds: frozenset[str]
    fusible: Callable[[Node], bool]
    source: Graph

    @property
    def reductions(self) -> bool:
        """Whether element-wise nodes may be fused into reductions."""
        return "reduction" in self.kinds


class Stage(NamedTuple):
    """A pass: its name, which kind of fusion it is for (empty: it always runs), and what it does."""

    name: str
    kind: str
    run: Callable[[Graph, Options], Graph]


PIPELINE: Final = (
    Stage("prune", "", lambda graph, options: prune(graph)),
    Stage("fold", "", lambda graph, options: fold(graph)),
    Stage("simplify", "", lambda graph, options: simplify(graph)),
    Stage("share", "", lambda graph, options: share(graph)),
    Stage("in_place", "", lambda graph, options: in_place(graph)),
    Stage("into_weights", "", lambda graph, options: into_weights(graph)),
    Stage("part", "", lambda graph, options: part(graph, options.source)),
    Stage("prune_again", "", lambda graph, options: prune(graph)),
    Stage("formulas", "formulas", lambda graph, options: fuse_formulas(graph)),
    Stage("products", "product", lambda graph, options: fuse_products(graph)),
    Stage("pointwise", "pointwise", lambda graph, options: fuse_pointwise(graph, options.fusible, options.reductions)),
    Stage("spare", "pointwise", lambda graph, options: spare(graph)),
    Stage("copies", "", lambda graph, options: copies(graph)),
    Stage("order", "", lambda graph, options: order(graph)),
    Stage("prune_last", "", lambda graph, options: prune(graph)),
)  # fmt: skip


def optimise(
    graph: Graph, *, kinds: frozenset[str] = KINDS, fusible: Callable[[Node], bool] = fusible, dump: str | None = None,
    verify: Callable[[Graph], object] | None = None,
) -> Graph:  # fmt: skip
    """Return a graph that means the same and costs less.

    Its inputs are the same objects; outputs and writes are in the same order. The graph given is not changed.

    Args:
        kinds: which fused operations may be made, of "pointwise", "reduction", "product" and "formulas". fusible: whether a
            node can be computed element by element; the default goes by operator and dtypes. dump: a folder for the text of
            the graph after each stage, by default what ``WENGERT_DUMP`` names. verify: called with the graph after each stage.

    Raises:
        ValueError: for a kind that there is not.

    Example:
        >>> from wengert.graph.ir import Graph
        >>> len(optimise(Graph()))
        0
    """
    if not kinds <= KINDS:
        raise ValueError(f"kinds must be of {', '.join(sorted(KINDS))}, got {', '.join(sorted(kinds - KINDS))}")
    folder = os.environ.get("WENGERT_DUMP", "") if dump is None else dump
    options = Options(kinds, fusible, graph)
    with _uncollected():
        found = duplicate(graph)
        for k, stage in enumerate(PIPELINE, 1):
            if stage.kind and stage.kind not in kinds:
                continue
            found = stage.run(found, options)
            if verify is not None:
                verify(found)
            if folder:
                Path(folder).mkdir(parents=True, exist_ok=True)
                (Path(folder) / f"{k:02}-{stage.name}.txt").write_text(f"{found}\n", encoding="utf-8")
    return found


@contextmanager
def _uncollected() -> Iterator[None]:
    """Hold the garbage collector off: a graph is many objects that refer to one another, and none of them is garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

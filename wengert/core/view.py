"""What a view knows of the tensor that it was taken from."""

from typing import Any

__all__ = ["View"]


class View:
    """How a tensor was taken from its base.

    Attributes:
        base: the tensor that owns the memory. chain: (operator, argument values) of each step from it.
        base_node: the base's node when this view's node was made; if the base has another one now, the view's is stale.
        problem: why an in-place write to this view is refused while recording, or None.
    """

    __slots__ = ("base", "base_node", "chain", "problem")

    def __init__(self, base: Any, chain: tuple[Any, ...], problem: str | None) -> None:
        self.base, self.chain, self.problem = base, chain, problem
        self.base_node = base._node

"""Whether anything about modules has changed: a counter that compiled programs look at before they look closer."""

__all__ = ["Structure", "structure"]


class Structure:
    """Attributes: changes: how often a registered member of a module, or its mode, was replaced, in this process."""

    __slots__ = ("changes",)

    def __init__(self) -> None:
        self.changes = 0


structure = Structure()

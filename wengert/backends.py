"""``wengert.backends``: says which of PyTorch's backends are there (none), so that scripts can ask and go on.

Example:
    >>> import wengert as wg
    >>> wg.backends.mps.is_available(), wg.backends.cudnn.is_available()
    (False, False)
"""

__all__ = ["cuda", "cudnn", "mps"]


class Backend:
    """A backend that this version does not have."""

    __slots__ = ()

    def is_available(self) -> bool:
        """Return False."""
        return False

    def is_built(self) -> bool:
        """Return False."""
        return False


class Cudnn(Backend):
    """cuDNN's switches. They may be set, as in PyTorch without a GPU, and change nothing there is."""

    __slots__ = ("benchmark", "deterministic", "enabled")

    def __init__(self) -> None:
        self.benchmark, self.deterministic, self.enabled = False, False, True


cuda, mps, cudnn = Backend(), Backend(), Cudnn()

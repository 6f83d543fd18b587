"""Every exception and warning of the package.

The classes derive from the built-in exception that PyTorch or NumPy raises in the same situation, so existing
``except RuntimeError`` code keeps working.
"""

__all__ = [
    "AnomalyError",
    "CaptureError",
    "DTypeError",
    "DeclarationError",
    "GradientLossWarning",
    "GraphError",
    "GraphFreedError",
    "InplaceError",
    "KernelError",
    "MissingRuleError",
    "OutOfMemoryError",
    "ShapeError",
    "SparseError",
    "TransformError",
    "VerifyError",
]


class ShapeError(RuntimeError, ValueError):
    """Shapes that do not fit an operator; the message names the operator and every shape."""


class DTypeError(RuntimeError, TypeError):
    """A dtype an operator does not accept; the message names the operator and the accepted kinds."""


class InplaceError(RuntimeError):
    """An in-place write that would make a gradient wrong; the message names both user lines."""


class GraphFreedError(RuntimeError):
    """A second backward through a graph whose saved tensors were freed by the first one."""


class MissingRuleError(NotImplementedError):
    """An operator was differentiated or batched that has no rule for it (a RuntimeError, as NotImplementedError is)."""


class SparseError(NotImplementedError, TypeError):
    """An operator that has no meaning for a sparse tensor; the message names both, and ``to_dense()``."""


class DeclarationError(TypeError):
    """An operator was declared wrongly; raised when the declaration is read, naming the operator."""


class AnomalyError(RuntimeError):
    """A derivative produced NaN in anomaly mode; the message names the forward operator and its user line."""


class KernelError(ValueError):
    """A kernel that breaks a rule of the loop IR, text that is not one, or a move that would change what a kernel computes."""


class VerifyError(KernelError):
    """A compiled function that does not do what the function does; the message names the first kernel or pass that differs."""


class GraphError(ValueError):
    """A graph that breaks a rule of the graph IR, text or a file that is none, or an edit that would break it."""


class OutOfMemoryError(RuntimeError, MemoryError):
    """Memory that was refused by the system or by the limit; the message names who holds the rest of it."""


class TransformError(RuntimeError):
    """Something a transform cannot do: read values that it batches, write batched values into a tensor from outside."""


class CaptureError(TransformError):
    """A program that cannot be captured: it needs values before they are computed, or does what no graph can say."""


class GradientLossWarning(UserWarning):
    """A tensor that is being differentiated was converted to a plain number or array."""

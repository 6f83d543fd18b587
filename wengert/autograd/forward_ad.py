"""Forward mode under PyTorch's names: dual tensors inside a :func:`dual_level`.

Example:
    >>> import wengert as wg
    >>> import wengert.autograd.forward_ad as fwAD
    >>> with fwAD.dual_level():
    ...     x = fwAD.make_dual(wg.tensor(3.0), wg.tensor(1.0))
    ...     fwAD.unpack_dual(x ** 2)
    UnpackedDualTensor(primal=tensor(9.), tangent=tensor(6.))
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from wengert.array.dtype import FLOAT
from wengert.core.interpret import entered
from wengert.core.state import thread
from wengert.core.tensor import Tensor, node_of
from wengert.errors import DTypeError, ShapeError
from wengert.transforms.dual import Dual, DualLevel, parts

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class UnpackedDualTensor(NamedTuple):
    """What a dual tensor consists of; ``tangent`` is None for a tensor without one."""

    primal: Any
    tangent: Any


def _level() -> DualLevel | None:
    """Return the innermost dual level entered by this module in this thread."""
    levels = (v for v in reversed(thread.state.levels) if isinstance(v, DualLevel) and v.transparent)
    return next(levels, None)


class _Entered(threading.local):
    """The blocks that enter_dual_level entered in this thread."""

    def __init__(self) -> None:
        self.blocks: list[Any] = []


_entered = _Entered()


@contextmanager
def dual_level() -> Iterator[int]:
    """Run a block in which tensors may have tangents; at its end they lose them. Levels do not nest.

    Raises:
        RuntimeError: if a level is running already.

    Example:
        >>> import wengert as wg
        >>> import wengert.autograd.forward_ad as fwAD
        >>> with fwAD.dual_level():
        ...     fwAD.unpack_dual(fwAD.make_dual(wg.tensor(0.0), wg.tensor(1.0)).sin()).tangent
        tensor(1.)
    """
    if _level() is not None:
        raise RuntimeError(
            "a dual level is running already and levels do not nest; for nested derivatives use func.jvp"
        )
    with entered(DualLevel(transparent=True)):
        yield 0


def enter_dual_level() -> int:
    """Enter a level, to be left by :func:`exit_dual_level`; prefer the block :func:`dual_level`."""
    block = dual_level()
    number = block.__enter__()
    _entered.blocks.append(block)
    return number


def exit_dual_level(*, level: int | None = None) -> None:
    """Leave the level of :func:`enter_dual_level`.

    Raises:
        RuntimeError: if none is running.

    Example:
        >>> import wengert as wg
        >>> import wengert.autograd.forward_ad as fwAD
        >>> _ = fwAD.enter_dual_level()
        >>> tangent = fwAD.unpack_dual(fwAD.make_dual(wg.tensor(2.0), wg.tensor(1.0)) * 5).tangent
        >>> fwAD.exit_dual_level()
        >>> tangent
        tensor(5.)
    """
    if not _entered.blocks:
        raise RuntimeError("exit_dual_level() without a running dual level")
    _entered.blocks.pop().__exit__(None, None, None)


def make_dual(tensor: Any, tangent: Any, *, level: int | None = None) -> Any:
    """Return a tensor with a tangent.

    Args:
        tensor, tangent: floating-point or complex tensors of one shape and dtype. level: the running level.

    The result is differentiable in reverse mode with respect to both.

    Raises:
        RuntimeError: outside a dual level. TypeError: if an argument is no float tensor.
        ShapeError, DTypeError: if the two differ in shape or dtype.

    Example:
        >>> import wengert as wg
        >>> import wengert.autograd.forward_ad as fwAD
        >>> with fwAD.dual_level():
        ...     fwAD.unpack_dual(fwAD.make_dual(wg.tensor(2.0), wg.tensor(1.0)) ** 3).tangent
        tensor(12.)
    """
    running = _level()
    if running is None:
        raise RuntimeError("make_dual() needs a running level: with forward_ad.dual_level(): ...")
    for name, value in (("tensor", tensor), ("tangent", tangent)):
        if not isinstance(value, Tensor):
            raise TypeError(f"make_dual(): {name} must be a tensor, got {type(value).__name__}")
        if value.dtype.category < FLOAT:
            raise DTypeError(f"make_dual(): {name} must be floating-point or complex, got {value.dtype}")
    if tuple(tensor.shape) != tuple(tangent.shape):
        raise ShapeError(
            f"make_dual(): the tangent has shape {tuple(tangent.shape)}, the tensor has shape {tuple(tensor.shape)}"
        )
    if tensor.dtype is not tangent.dtype:
        raise DTypeError(f"make_dual(): the tangent has dtype {tangent.dtype}, the tensor has {tensor.dtype}")
    if _is_dual(tensor, running) and parts(tensor)[1] is not None:
        raise RuntimeError("make_dual(): the tensor has a tangent already; unpack_dual() it first")
    primal = parts(tensor)[0] if _is_dual(tensor, running) else tensor
    direction = parts(tangent)[0] if _is_dual(tangent, running) else tangent
    out = running.wrap(primal, direction)
    out._node = node_of(tensor)
    return out


def unpack_dual(tensor: Any, *, level: int | None = None) -> UnpackedDualTensor:
    """Return (primal, tangent) of a tensor; the tangent is None where there is none, or outside a level.

    Raises:
        TypeError: if it is no tensor.

    Example:
        >>> import wengert as wg
        >>> import wengert.autograd.forward_ad as fwAD
        >>> fwAD.unpack_dual(wg.tensor(2.0))
        UnpackedDualTensor(primal=tensor(2.), tangent=None)
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"unpack_dual() takes a tensor, got {type(tensor).__name__}")
    running = _level()
    if running is None or not _is_dual(tensor, running):
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(*parts(tensor))


def _is_dual(tensor: Any, level: DualLevel) -> bool:
    return isinstance(tensor._payload, Dual) and tensor._payload.level is level

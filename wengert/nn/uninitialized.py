"""Parameters and buffers whose shape is not known yet: a lazy module finds it from its first input."""

from typing import Any, NoReturn

from wengert.array.dtype import DType, to_dtype
from wengert.core.interpret import Level, Payload
from wengert.core.operator import Op
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, from_array
from wengert.nn.parameter import Parameter

__all__ = ["UninitializedBuffer", "UninitializedParameter", "is_lazy"]

_HINT = "call the lazy module once with an input, which says what shapes its parameters have"


class _Nowhere(Level):
    """The level of what has no values: it runs nothing."""

    title = "a lazy module"

    def __init__(self) -> None:
        super().__init__()
        self.alive = True

    def run(self, op: Op, values: list[Any]) -> NoReturn:
        raise ValueError(f"{op.name}() got an uninitialized parameter or buffer; {_HINT}")

    def refusal(self, what: str) -> str:
        return f"{what} needs the values of an uninitialized parameter or buffer; {_HINT}"


class _Nothing(Payload):
    """What stands in place of the array."""

    __slots__ = ("device",)

    def __init__(self, dtype: Any, device: Any) -> None:
        self.level, self.shape, self.dtype, self.device = _NOWHERE, (0,), dtype, device

    @property
    def parts(self) -> tuple[Any, ...]:
        return ()

    def detached(self) -> Payload:
        return self


_NOWHERE = _Nowhere()


class _Uninitialized(Tensor):
    """A tensor without shape and values, but with a dtype and a device."""

    _becomes: type[Any]

    @property
    def shape(self) -> NoReturn:
        """Refused: it is not known."""
        raise RuntimeError(f"an uninitialized parameter or buffer has no shape yet; {_HINT}")

    def numel(self) -> NoReturn:
        """Refused: it is not known."""
        raise ValueError(f"an uninitialized parameter or buffer has no elements yet; {_HINT}")

    @property
    def device(self) -> Any:
        """Where it will be."""
        return self._payload.device

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become an ordinary tensor of a shape, with values still to be set."""
        made = ops.empty(shape, dtype=dtype or self.dtype, device=device or self.device)
        self.__class__ = self._becomes
        self.data = made

    def detach(self) -> Any:
        """Return itself: there is nothing to detach."""
        return self

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Return one of another dtype or device."""
        dtype, device = kwargs.get("dtype"), kwargs.get("device")
        for value in args:
            if isinstance(value, DType):
                dtype = value
            elif value is not None and not isinstance(value, bool):
                device = value
        return type(self)(self.requires_grad, device or self.device, to_dtype(dtype) if dtype else self.dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad, self.device, self.dtype)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


def _made(cls: type[Any], requires_grad: bool, device: Any, dtype: Any) -> Any:
    like = ops.empty(0, device=device, dtype=dtype)
    made = from_array(_Nothing(like.dtype.numpy, like.device), cls)
    made.requires_grad_(requires_grad)
    return made


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter whose shape is not known yet.

    Example:
        >>> import wengert as wg
        >>> p = wg.nn.UninitializedParameter()
        >>> p.materialize((2, 3))
        >>> type(p).__name__, p.shape
        ('Parameter', wengert.Size([2, 3]))
    """

    _becomes = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        """Say whether gradients are wanted, where it will be, and its dtype."""
        return _made(cls, requires_grad, device, dtype)


class UninitializedBuffer(_Uninitialized):
    """A buffer whose shape is not known yet.

    Example:
        >>> import wengert as wg
        >>> from wengert.nn.uninitialized import is_lazy
        >>> layer = wg.nn.LazyBatchNorm1d()
        >>> type(layer.running_mean).__name__, is_lazy(layer.running_mean)
        ('UninitializedBuffer', True)
    """

    _becomes = Tensor

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None) -> Any:
        """Say where it will be, and its dtype."""
        return _made(cls, requires_grad, device, dtype)


def is_lazy(param: Any) -> bool:
    """Say whether a parameter or buffer still waits for its shape."""
    return isinstance(param, _Uninitialized)

"""The tensor: a payload plus what the tape knows of it. Operators and methods are attached from the registry.

The payload says who executes an operator; for an ordinary tensor it is a NumPy array. Tensors that share memory share
one :class:`~wengert.core.node.Version`; a view also knows its base and how to make it again.
"""

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from wengert.array.device import arrived, made_there, on_host, same_device
from wengert.array.dtype import FLOAT, DType, dtype_of
from wengert.array.layout import channels_last, channels_last_3d, has_order, is_arranged, memory_order
from wengert.array.shape import Size, axis_of
from wengert.core.legacy import legacy_array
from wengert.core.methods import Absent, TensorMethods
from wengert.core.node import DataVersion, InferenceVersion, Leaf, Node, Output, Version, warn_unless_retained
from wengert.core.place import here
from wengert.core.printing import format_tensor
from wengert.core.registry import ops
from wengert.core.state import given_away, local, thread
from wengert.core.view import View
from wengert.errors import DTypeError, GradientLossWarning, ShapeError
from wengert.settings import settings

__all__ = ["Tensor", "View", "alias", "from_array", "keep_retaining", "node_of", "raw", "replay", "version_of", "wrote"]

INFERENCE = InferenceVersion()


def replay(chain: tuple[Any, ...], tensor: Any) -> Any:
    """Take a view, given as its chain of steps, of another tensor of the base's shape."""
    for op, values, number in chain:
        tensor = op.function.execute([tensor, *values[1:]])
        if number is not None:
            tensor = tensor[number]
    return tensor


class Tensor(TensorMethods):
    """A multi-dimensional array that records how it was computed.

    Made by :func:`wengert.tensor`, :func:`wengert.zeros` and their like, or by any operator. It shares memory with
    the NumPy array given to :func:`wengert.from_numpy` and with its views. Calling the class is PyTorch's legacy form:
    ``Tensor(2, 3)`` is an unset tensor of that shape, ``Tensor([2, 3])`` holds a copy of the data, both in the default
    dtype.

    Example:
        >>> import wengert as wg
        >>> x = wg.tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([2., 4.])
    """

    __slots__ = ("__dict__", "__weakref__", "_cell", "_grad", "_leaf", "_node", "_payload", "_view")

    _payload: Any
    _node: Node | None
    _cell: Any
    _view: View | None
    _grad: "Tensor | None"
    _leaf: Leaf  # set only while requires_grad is switched off again

    def __new__(cls, *data: Any, device: Any = None) -> Any:
        return from_array(made_there(legacy_array(data, settings.default_dtype.numpy), device), cls)

    # ---- what it is

    @property
    def shape(self) -> Size:
        """The sizes of its dimensions."""
        return Size(self._payload.shape)

    @property
    def dtype(self) -> DType:
        """The dtype of its elements."""
        return dtype_of(self._payload.dtype)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._payload.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self._payload.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self._payload.size * self._payload.dtype.itemsize)

    def size(self, dim: int | None = None) -> Any:
        """Return its shape, or the size of one dimension."""
        return self.shape if dim is None else self._payload.shape[axis_of(dim, self.ndim)]

    def dim(self) -> int:
        """Return the number of dimensions."""
        return len(self._payload.shape)

    ndimension = dim

    def numel(self) -> int:
        """Return the number of elements."""
        return int(self._payload.size)

    nelement = numel

    def element_size(self) -> int:
        """Return the bytes of one element."""
        return self.itemsize

    def is_floating_point(self) -> bool:
        """Return True for a real floating-point dtype."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Return True for a complex dtype."""
        return self.dtype.is_complex

    def is_signed(self) -> bool:
        """Return True if the dtype can hold negative numbers."""
        return self.dtype.is_signed

    def stride(self, dim: int | None = None) -> Any:
        """Return the strides in elements, or that of one dimension."""
        strides = tuple(s // self._payload.dtype.itemsize for s in self._payload.strides)
        return strides if dim is None else strides[axis_of(dim, self.ndim)]

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Return True if its elements lie in memory without gaps, in row-major order or in that of ``memory_format``."""
        if memory_format is None:
            return bool(self._payload.flags.c_contiguous)
        if memory_format in (channels_last, channels_last_3d) and not has_order(memory_format, self.ndim):
            return False
        order = memory_order("is_contiguous", memory_format, self.ndim)
        return is_arranged(raw(self, "is_contiguous()"), order)

    def data_ptr(self) -> int:
        """Return the address of its first element."""
        if thread.state.captures is not None:
            thread.state.captures.refuse("data_ptr(), the address of memory that each call makes anew,")
        return int(raw(self, "data_ptr()").ctypes.data)

    # ---- what the tape knows

    @property
    def requires_grad(self) -> bool:
        """Whether operators on it are recorded; settable on leaves."""
        return (self._node if self._view is None else refresh(self)) is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> "Tensor":
        """Mark a leaf as one whose gradient is wanted, or no longer wanted; return it.

        Raises:
            RuntimeError: for integer tensors, and when a computed tensor is to lose its history.
        """
        node = self._node if self._view is None else refresh(self)
        if not requires_grad:
            if node is not None and not isinstance(node, Leaf):
                raise RuntimeError(
                    "requires_grad can only be switched off on a leaf; use .detach() to get a tensor without history"
                )
            if node is not None:
                self._leaf, self._node = node, None
            return self
        if node is None:
            if self.dtype.category < FLOAT:
                raise DTypeError(
                    f"only floating-point and complex tensors can require gradients, this one is {self.dtype}"
                )
            if self._cell is INFERENCE and not thread.state.inference:
                raise RuntimeError(
                    "a tensor made in inference_mode() cannot require gradients outside it; clone it first"
                )
            levels = thread.state.levels
            if levels:
                levels[-1].enclose(self)
            self._node = self._former_leaf() or Leaf(self)
            if self._view is not None:
                self._view.base_node = self._view.base._node
        return self

    def _former_leaf(self) -> Leaf | None:
        """Return the leaf it was before requires_grad was switched off: its hooks, and graphs that lead to it, still hold."""
        leaf: Leaf | None = getattr(self, "_leaf", None)
        if leaf is not None:
            leaf.shape, leaf.dtype = self._payload.shape, self._payload.dtype
        return leaf

    @property
    def is_leaf(self) -> bool:
        """True if no recorded operator made it."""
        return isinstance(self._node if self._view is None else refresh(self), Leaf | None)

    @property
    def grad_fn(self) -> Any:
        """The record of the operator that made it, or None for a leaf."""
        node = self._node if self._view is None else refresh(self)
        return node.inputs[0] if isinstance(node, Output) else None if isinstance(node, Leaf) else node

    @property
    def grad(self) -> "Tensor | None":
        """The gradient accumulated by ``backward``, or None; a warning says so where none will ever be."""
        captures = thread.state.captures
        if captures is not None:
            captures.touched(self)
        if self._grad is None and not isinstance(self._node, Leaf | None):
            warn_unless_retained(self._node, self)
        return self._grad

    @grad.setter
    def grad(self, value: "Tensor | None") -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f"grad must be a tensor or None, got {type(value).__name__}")
            if value is self:
                raise RuntimeError("a tensor cannot be its own gradient")
            if value._payload.shape != self._payload.shape:
                raise ShapeError(f"grad has shape {tuple(value.shape)}, the tensor has shape {tuple(self.shape)}")
            if value.dtype is not self.dtype:
                raise DTypeError(f"grad has dtype {value.dtype}, the tensor has dtype {self.dtype}")
            if not same_device(value._payload, self._payload):
                raise RuntimeError(f"grad is on {value.device}, the tensor is on {self.device}")
        self._set_grad(value)

    @grad.deleter
    def grad(self) -> None:
        self._set_grad(None)

    def _set_grad(self, value: "Tensor | None") -> None:
        captures = thread.state.captures
        if captures is not None:
            captures.touched(self, read=False)
        self._grad = value

    @property
    def data(self) -> Any:
        """The same memory without history *and without version counting*; prefer :meth:`detach`.

        Writes through it are not noticed by the tape, as in PyTorch. Assigning replaces the memory.
        """
        return alias(self, Tensor, None if self._cell is INFERENCE else DataVersion(version_of(self)))

    @data.setter
    def data(self, value: "Tensor") -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"data must be a tensor, got {type(value).__name__}")
        if self._node is not None and value.dtype.category < FLOAT:
            raise DTypeError(
                f"the data of a tensor that requires grad must be floating-point or complex, got {value.dtype}"
            )
        if isinstance(self._node, Leaf):
            self._node.shape, self._node.dtype = value._payload.shape, value._payload.dtype
        self._payload = value._payload
        wrote(self, "data")

    @property
    def _version(self) -> int:
        """How often its memory was written in place."""
        return 0 if self._cell is None else int(self._cell.count)

    @property
    def _base(self) -> "Tensor | None":
        return None if self._view is None else self._view.base

    def is_inference(self) -> bool:
        """Return True if it was made in inference mode."""
        return self._cell is INFERENCE

    def is_set_to(self, other: "Tensor") -> bool:
        """Return True if both are the same view of the same memory."""
        return self.data_ptr() == other.data_ptr() and self.shape == other.shape and self.stride() == other.stride()

    # ---- reading it

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """Return its elements as a NumPy array that shares its memory.

        Raises:
            RuntimeError: if it requires a gradient and ``force`` is false: the array would lose it silently.
        """
        if self.requires_grad and not force:
            raise RuntimeError(
                "numpy() on a tensor that requires grad would lose its gradient; use tensor.detach().numpy()"
            )
        own = isinstance(self._payload, np.ndarray) or force
        array: np.ndarray[Any, Any] = on_host(raw(self, "numpy()") if own else self._payload.exported("numpy()"))
        given_away(self, "numpy()")
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"an array of {dtype} cannot share memory with a tensor of {self.dtype}")
            return array.astype(dtype)
        return array.copy() if copy else array

    def item(self) -> Any:
        """Return its only element as a Python number.

        Raises:
            RuntimeError: if it does not have exactly one element.
        """
        if self._payload.size != 1:
            raise RuntimeError(
                f"item() needs a tensor with exactly one element, this one has shape {tuple(self.shape)}"
            )
        array = raw(self, "item()")
        return float(array.reshape(())) if array.dtype.kind == "V" else array.item()

    def tolist(self) -> Any:
        """Return its elements as nested lists of Python numbers."""
        array = raw(self, "tolist()")
        return array.astype(np.float32).tolist() if array.dtype.kind == "V" else array.tolist()

    def _scalar(self, kind: str) -> Any:
        if self._node is not None and thread.state.grad:
            warnings.warn(
                f"{kind}() of a tensor that requires grad: the number carries no gradient. "
                f"Use .item() to read a value, or an operator of wengert to compute with it",
                GradientLossWarning, stacklevel=3,
            )  # fmt: skip
        return self.item()

    def __float__(self) -> float:
        return float(self._scalar("float"))

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self) -> int:
        if self.dtype.category >= FLOAT or self._payload.size != 1:
            raise TypeError(f"only integer tensors of one element can be used as an index, this is {self.dtype} "
                            f"of shape {tuple(self.shape)}")  # fmt: skip
        return int(self.item())

    def __bool__(self) -> bool:
        if self._payload.size != 1:
            raise RuntimeError(
                f"the truth value of a tensor of shape {tuple(self.shape)} is ambiguous; use .any() or .all()"
            )
        return bool(raw(self, "bool(), which an if, while, and, or, not calls,").reshape(()))

    def __len__(self) -> int:
        if not self._payload.shape:
            raise TypeError("len() of a 0-d tensor")
        return int(self._payload.shape[0])

    def __iter__(self) -> Iterator["Tensor"]:
        if not self._payload.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(ops.unbind(self, 0))

    def __contains__(self, element: Any) -> bool:
        found = self == element
        if not isinstance(found, Tensor):
            raise TypeError(f"a tensor holds numbers: 'in' takes a number or a tensor, got {type(element).__name__}")
        return bool(raw(found, "the operator in").any())

    __hash__ = object.__hash__  # by identity, without a call of Python's

    def __repr__(self) -> str:
        return format_tensor(self)

    def __format__(self, spec: str) -> str:
        return self.item().__format__(spec) if not self._payload.shape else object.__format__(self, spec)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self)} - {n for n, v in vars(TensorMethods).items() if isinstance(v, Absent)})

    # ---- copies and exchange

    def __deepcopy__(self, memo: dict[int, Any]) -> "Tensor":
        if not self.is_leaf:
            raise RuntimeError("only leaf tensors can be deep-copied; use .detach().clone() for a computed one")
        if id(self) in memo:
            return memo[id(self)]
        held = raw(self, "deepcopy()") if isinstance(self._payload, np.ndarray) else self._payload
        copied: Tensor = from_array(held.copy(), type(self))
        memo[id(self)] = copied
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        if self.requires_grad:
            copied.requires_grad_()
        if self._grad is not None:
            copied._grad = self._grad.__deepcopy__(memo) if self._grad.is_leaf else self._grad
        return copied

    def __reduce__(self) -> Any:
        if not self.is_leaf:
            raise RuntimeError("only leaf tensors can be pickled; use .detach() for a computed one")
        held = self._payload
        held = np.ascontiguousarray(held).reshape(held.shape) if isinstance(held, np.ndarray) else held.stored()
        return rebuild, (type(self), held, self.requires_grad, self.__dict__ or None)


_new: Callable[[type[Any]], Any] = object.__new__


def from_array(array: Any, cls: type[Any] = Tensor) -> Any:
    """Return a tensor (of class ``cls``) on the memory of a NumPy array whose dtype tensors can hold."""
    out = _new(cls)
    out._payload = array
    out._node = out._cell = out._view = out._grad = None
    try:
        state = local.state
    except AttributeError:
        state = thread.state
    if state.marked:
        if state.inference:
            out._cell = INFERENCE
        if state.captures is not None:
            state.captures.born(out)
    return out


def version_of(tensor: Any) -> Any:
    """Return the version cell of a tensor's memory, made on first use."""
    cell = tensor._cell
    if cell is None:
        cell = tensor._cell = Version()
    return cell


def alias(tensor: Any, cls: type[Any] = Tensor, version: Any = ...) -> Any:
    """Return a leaf of class ``cls`` on the same memory, sharing the version cell unless another is given."""
    out = _new(cls)
    captures = thread.state.captures
    out._payload = tensor._payload if captures is None else captures.payload_of(tensor)
    out._cell = version_of(tensor) if version is ... else version
    out._node = out._view = out._grad = None
    return out


def raw(tensor: Any, what: str = "this operation") -> np.ndarray[Any, Any]:
    """Return the tensor's own NumPy array, for code that computes outside the tape; call :func:`wrote` after writing.

    Raises:
        TransformError: beginning with ``what``, inside a transform in which the tensor has no values of its own.
    """
    payload, captures = tensor._payload, thread.state.captures
    if not isinstance(payload, np.ndarray):
        return payload.values(what)
    return payload if captures is None else captures.values(tensor, what)


def wrote(tensor: Any, name: str = "an in-place operation") -> None:
    """Note that the tensor's memory was written, so that a later backward can tell."""
    version_of(tensor).bump(name, here(1))


def node_of(tensor: Any) -> Node | None:
    """Return where the gradient of a tensor arrives, or None."""
    return tensor._node if tensor._view is None else refresh(tensor)


def refresh(tensor: Any) -> Node | None:
    """Return the node of a view, made again if its base has got another history since."""
    view = tensor._view
    while view.base._view is not None:  # the base got another shape in place: it is itself a view of its former self
        view.base = view.base._view.base
    origin = view.base._node
    if view.base_node is not origin:
        state = thread.state
        grad, state.grad = state.grad, True
        try:
            fresh = replay(view.chain, view.base)._node
        finally:
            state.grad = grad
        keep_retaining(tensor._node, fresh)
        tensor._node = fresh
        view.base_node = origin  # last, so that no other thread takes the old node for the new one
    return tensor._node


def keep_retaining(old: Node | None, new: Node | None) -> None:
    """Hand on the wish of a tensor with a new history that its gradient be retained."""
    if old is not None and new is not None and old.extra is not None and old.extra.retain is not None:
        new.more().retain, old.extra.retain = old.extra.retain, None


def rebuild(cls: type[Any], array: Any, requires_grad: bool, attributes: dict[str, Any] | None) -> Any:
    """Make a tensor again from its pickled parts."""
    out = from_array(arrived(array), cls)
    if attributes:
        out.__dict__.update(attributes)
    return out.requires_grad_() if requires_grad else out

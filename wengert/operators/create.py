"""New tensors of given shape: constants, ranges, indices. Nothing here is recorded; the results are leaves."""

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from wengert.array.device import devices
from wengert.array.dtype import INTEGER, DType, int64, scalar_dtype, to_dtype
from wengert.array.layout import arranged, memory_order, strided
from wengert.array.shape import as_int, size_of
from wengert.core.apply import as_tensor
from wengert.core.devices import device_of, made_on
from wengert.core.explain import named
from wengert.core.interpret import Layout, Payload, owned_like
from wengert.core.methods import attach
from wengert.core.registry import ops
from wengert.core.tensor import Tensor, from_array, wrote
from wengert.errors import DTypeError, ShapeError
from wengert.operators.writes import number_as
from wengert.settings import settings

__all__ = ["CREATION", "creation", "finished", "in_layout"]

CREATION: dict[str, Callable[..., Any]] = {}


def creation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Publish a function that makes tensors: ``wg.<name>`` and ``ops.<name>``."""
    public = named(function)
    CREATION[function.__name__] = public
    setattr(ops, function.__name__, public)
    return public


def finished(array: Any, device: Any = None, requires_grad: bool = False, out: Any = None) -> Any:
    """Return a new array as a tensor, or written into ``out``."""
    array = made_on(array, device)
    if out is None:
        result = from_array(array)
        return result.requires_grad_() if requires_grad else result
    if not isinstance(out, Tensor):
        raise TypeError(f"out must be a tensor, got {type(out).__name__}")
    if out.requires_grad or requires_grad:
        raise RuntimeError("out= does not support gradients")
    if out._payload.shape != array.shape:
        if out._payload.size:
            raise ShapeError(f"out has shape {tuple(out.shape)}, the result has {tuple(array.shape)}")
        out._payload = np.empty(array.shape, out._payload.dtype)
    np.copyto(out._payload, array, casting="unsafe")
    wrote(out, "out=")
    return out


def _size(size: Any) -> tuple[int, ...]:
    shape = size_of(size)
    if any(n < 0 for n in shape):
        raise ShapeError(f"sizes must not be negative, got {shape}")
    return shape


def _dtype(dtype: Any, out: Any = None) -> DType:
    """Return the dtype asked for, that of ``out``, or the default."""
    if dtype is None:
        return out.dtype if isinstance(out, Tensor) else settings.default_dtype
    return to_dtype(dtype)


# ---- constants


def _sized(size: tuple[Any, ...], named: Any) -> tuple[int, ...]:
    if named is not None:
        if size:
            raise TypeError("got the size both by position and by name")
        return _size(named)
    return _size(size)


def _formatted(name: str, array: Any, memory_format: Any) -> Any:
    """Return a new array with its dimensions in memory as ``memory_format`` says."""
    order = memory_order(name, memory_format, array.ndim)
    return array if order is None else arranged(array, order)


@creation
def zeros(
    *shape: Any, size: Any = None, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return a tensor of zeros, ``zeros(2, 3)`` or ``zeros((2, 3))``."""
    return finished(np.zeros(_sized(shape, size), _dtype(dtype, out).numpy), device, requires_grad, out)


@creation
def ones(
    *shape: Any, size: Any = None, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return a tensor of ones."""
    return finished(np.ones(_sized(shape, size), _dtype(dtype, out).numpy), device, requires_grad, out)


@creation
def empty(
    *shape: Any, size: Any = None, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:  # fmt: skip
    """Return a tensor whose elements are not set, row-major in memory unless ``memory_format`` says else."""
    array = _formatted("empty", np.empty(_sized(shape, size), _dtype(dtype, out).numpy), memory_format)
    return finished(array, device, requires_grad, out)


@creation
def full(
    size: Any, fill_value: Any, *, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return a tensor of one value, whose kind gives the dtype: bool, int64, the default float or its complex."""
    value = _number(fill_value, "fill_value")
    if dtype is None and out is None:
        dtype = fill_value.dtype if isinstance(fill_value, Tensor) else scalar_dtype(value, settings.default_dtype)
    filled = np.full(_size(size), number_as("full", value, _dtype(dtype, out).numpy))
    return finished(filled, device, requires_grad, out)


def _number(value: Any, name: str) -> Any:
    """Return a Python number; a tensor of one element gives its element."""
    if isinstance(value, Tensor | np.generic):
        return value.item()
    if not isinstance(value, bool | int | float | complex):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    return value


@creation
def empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:  # fmt: skip
    """Return a tensor whose elements are not set and lie ``stride`` elements apart in each dimension."""
    shape, steps = _size(size), size_of(stride, "stride")
    if len(shape) != len(steps) or any(s < 0 for s in steps):
        raise ShapeError(f"empty_strided(): size {shape} and stride {steps} must be equally long and not negative")
    kind = _dtype(dtype).numpy
    count = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
    memory = np.empty(count, kind)
    array = np.ndarray(shape, kind, memory.view(np.uint8), 0, tuple(s * kind.itemsize for s in steps))
    return finished(array, device, requires_grad)


@creation
def empty_permuted(
    size: Any, physical_layout: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """Return a tensor whose elements are not set, its dimensions in memory in the order ``physical_layout``."""
    shape, order = _size(size), size_of(physical_layout, "physical_layout")
    if sorted(order) != list(builtins.range(len(shape))):
        raise ShapeError(f"empty_permuted(): physical_layout {order} must name each dimension of size {shape} once")
    memory = np.empty([shape[d] for d in order], _dtype(dtype).numpy)
    return finished(memory.transpose(np.argsort(order)), device, requires_grad)


def like(
    name: str, input: Any, fill: Callable[..., Any], dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, memory_format: Any = None,
) -> Any:  # fmt: skip
    """Return a new tensor in the shape and dtype of another one, of the array that ``fill(shape, dtype)`` gives."""
    source = as_tensor(input)
    stored = in_layout(name, source, layout, memory_format)
    if stored is not None:
        made = stored.like(name, source, lambda part: like(name, part, fill, dtype, None, _beside(source, device)))
        return made.requires_grad_() if requires_grad else made
    kind = (source.dtype if dtype is None else to_dtype(dtype)).numpy
    array = _formatted(name, fill(tuple(source.shape), kind), memory_format)
    made = finished(array, _beside(source, device), requires_grad)
    return made if layout is strided else owned_like(made, source)


def in_layout(name: str, source: Any, layout: Any, memory_format: Any) -> Layout | None:
    """Return the level of a tensor that is not dense, if what is made like it is to be stored likewise.

    Raises:
        TypeError: if it is no tensor. NotImplementedError: for a layout that the result cannot have.
    """
    if not isinstance(source, Tensor):
        raise TypeError(f"{name}(): input must be a tensor, got {type(source).__name__}")
    held = source._payload
    stored = held.level if isinstance(held, Payload) and isinstance(held.level, Layout) else None
    if layout is strided or (stored is None and layout is None):
        return None
    if stored is None or layout not in (None, source.layout):
        own = strided if stored is None else source.layout
        raise NotImplementedError(f"{name}() of a tensor with layout {own} cannot have {layout}; convert the result")
    if memory_format is not None:
        raise NotImplementedError(
            f"{name}(): memory_format is for dense tensors, and this one has layout {source.layout}"
        )
    return stored


@creation
def zeros_like(
    input: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:  # fmt: skip
    """Return zeros in the shape, dtype and layout of ``input``: of a sparse tensor, one without entries."""
    return like("zeros_like", input, np.zeros, dtype, layout, device, requires_grad, memory_format)


@creation
def ones_like(
    input: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:  # fmt: skip
    """Return ones in the shape and dtype of ``input``; of a CSR tensor, ones where it has entries."""
    return like("ones_like", input, np.ones, dtype, layout, device, requires_grad, memory_format)


@creation
def empty_like(
    input: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:  # fmt: skip
    """Return a tensor in the shape, dtype and layout of ``input`` whose elements are not set."""
    return like("empty_like", input, np.empty, dtype, layout, device, requires_grad, memory_format)


@creation
def full_like(
    input: Any, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    memory_format: Any = None,
) -> Any:  # fmt: skip
    """Return a tensor of one value in the shape and dtype of ``input``; of a CSR tensor, where it has entries."""
    value = _number(fill_value, "fill_value")

    def filled(shape: tuple[int, ...], kind: Any) -> Any:
        return np.full(shape, number_as("full_like", value, kind))

    return like("full_like", input, filled, dtype, layout, device, requires_grad, memory_format)


@creation
def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Return a number as a 0-d tensor of the default dtype."""
    return full((), s, dtype=_dtype(dtype), device=device, requires_grad=requires_grad)


@creation
def eye(
    n: int, m: int | None = None, *, out: Any = None, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return a matrix with ones on the diagonal and zeros elsewhere."""
    rows, columns = _size((n, n if m is None else m))
    return finished(np.eye(rows, columns, dtype=_dtype(dtype, out).numpy), device, requires_grad, out)


# ---- ranges


def _cast_range(values: Any, dtype: DType) -> Any:
    """Cast a computed range; integer dtypes truncate towards zero, as PyTorch does."""
    if values.dtype.kind == "c" and not dtype.is_complex:
        raise DTypeError(f"a range between complex numbers cannot be of {dtype}; give dtype= a complex one")
    with np.errstate(all="ignore"):
        return values.astype(dtype.numpy)


def _range_dtype(dtype: Any, out: Any, *numbers: Any) -> DType:
    if dtype is None and out is None:
        whole = all(scalar_dtype(n, settings.default_dtype).category <= INTEGER for n in numbers)
        return int64 if whole else settings.default_dtype
    return _dtype(dtype, out)


@creation
def arange(
    *args: Any, start: Any = 0, end: Any = None, step: Any = 1, out: Any = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """Return the numbers from ``start`` (0) up to but not including ``end`` in steps of ``step`` (1).

    Called as ``arange(end)``, ``arange(start, end)`` or ``arange(start, end, step)``.
    """
    if len(args) > 3:
        raise TypeError(f"arange() takes at most 3 positional arguments, got {len(args)}")
    if len(args) == 1 and end is None:
        end = args[0]
    elif args:
        start, end, step = (*args, *(end, step)[len(args) - 1 :])[:3] if len(args) > 1 else (args[0], end, step)
    if end is None:
        raise TypeError("arange() misses argument end")
    start, end, step = (_number(v, name) for v, name in ((start, "start"), (end, "end"), (step, "step")))
    kind = _range_dtype(dtype, out, start, end, step)
    count = _range_length("arange", start, end, step)
    if all(isinstance(v, int) for v in (start, end, step)):
        values = start + step * np.arange(count, dtype=np.int64)
    else:
        values = start + step * np.arange(count, dtype=np.float64)
    return finished(_cast_range(values, kind), device, requires_grad, out)


def _range_length(name: str, start: Any, end: Any, step: Any) -> int:
    if step == 0:
        raise RuntimeError(f"{name}(): step must not be zero")
    if any(isinstance(v, complex) for v in (start, end, step)):
        raise DTypeError(f"{name}(): start, end and step must be real numbers")
    if (end - start) * step < 0:
        raise RuntimeError(f"{name}(): from {start} to {end} in steps of {step} leads the wrong way")
    if isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
        return int(-((start - end) // step))
    count: float = (end - start) / step
    if not math.isfinite(count):
        raise RuntimeError(f"{name}(): cannot count from {start} to {end} in steps of {step}")
    return math.ceil(count)


@creation
def range(
    start: Any = 0, end: Any = None, step: Any = 1, *, out: Any = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """Return the numbers from ``start`` to ``end``, both included; :func:`wengert.arange` leaves ``end`` out."""
    if end is None:
        raise TypeError("range() misses argument end")
    start, end, step = (_number(v, name) for v, name in ((start, "start"), (end, "end"), (step, "step")))
    _range_length("range", start, end, step)
    count = math.floor((end - start) / step) + 1
    values = start + step * np.arange(count, dtype=np.float64)
    return finished(_cast_range(values, _dtype(dtype, out)), device, requires_grad, out)


@creation
def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    out: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """Return ``steps`` equally spaced numbers from ``start`` to ``end``, both included."""
    start, end, kind = _ends(start, end, dtype, out)
    return finished(_cast_range(_spaced(start, end, _steps(steps, "linspace")), kind), device, requires_grad, out)


@creation
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, out: Any = None, dtype: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Any:  # fmt: skip
    """Return ``base`` to the powers of ``steps`` equally spaced numbers from ``start`` to ``end``, both included."""
    start, end, kind = _ends(start, end, dtype, out)
    base = _number(base, "base")
    with np.errstate(all="ignore"):
        values = np.power(base, _spaced(start, end, _steps(steps, "logspace")))
        return finished(_cast_range(values, kind), device, requires_grad, out)


def _ends(start: Any, end: Any, dtype: Any, out: Any) -> tuple[Any, Any, DType]:
    start, end = _number(start, "start"), _number(end, "end")
    if dtype is None and out is None and (isinstance(start, complex) or isinstance(end, complex)):
        return start, end, scalar_dtype(1j, settings.default_dtype)
    return start, end, _dtype(dtype, out)


def _steps(steps: Any, name: str) -> int:
    steps = as_int(steps, "steps")
    if steps < 0:
        raise RuntimeError(f"{name}(): steps must not be negative, got {steps}")
    return steps


def _spaced(start: Any, end: Any, steps: int) -> Any:
    """Equally spaced numbers, counted from the nearer end so that both ends are met exactly."""
    if steps < 2:
        return np.full(steps, start, np.result_type(start, np.float64))
    step = (end - start) / (steps - 1)
    index = np.arange(steps)
    with np.errstate(all="ignore"):
        return np.where(index < steps // 2, start + step * index, end - step * (steps - 1 - index))


# ---- indices and grids


@creation
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = int64, device: Any = None) -> Any:
    """Return the row and column indices of a matrix's lower triangle, as a (2, n) tensor."""
    rows, columns = _size((row, col))
    offset = as_int(offset, "offset")
    return finished(np.stack(np.tril_indices(rows, offset, columns)).astype(to_dtype(dtype).numpy), device)


@creation
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = int64, device: Any = None) -> Any:
    """Return the row and column indices of a matrix's upper triangle, as a (2, n) tensor."""
    rows, columns = _size((row, col))
    offset = as_int(offset, "offset")
    return finished(np.stack(np.triu_indices(rows, offset, columns)).astype(to_dtype(dtype).numpy), device)


# ---- methods of a tensor that make others like it


def _new(self: Any, dtype: Any) -> Any:
    return self.dtype if dtype is None else dtype


def _beside(tensor: Any, device: Any) -> Any:
    """Return the device asked for, or else that of a tensor."""
    return device_of(tensor) if device is None and devices.several else device


def new_zeros(self: Any, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Return zeros of the given size in this tensor's dtype."""
    return owned_like(
        zeros(*size, dtype=_new(self, dtype), device=_beside(self, device), requires_grad=requires_grad), self
    )


def new_ones(self: Any, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Return ones of the given size in this tensor's dtype."""
    return owned_like(
        ones(*size, dtype=_new(self, dtype), device=_beside(self, device), requires_grad=requires_grad), self
    )


def new_empty(self: Any, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    """Return a tensor of the given size in this tensor's dtype whose elements are not set."""
    return owned_like(
        empty(*size, dtype=_new(self, dtype), device=_beside(self, device), requires_grad=requires_grad), self
    )


def new_full(
    self: Any, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return a tensor of one value in this tensor's dtype."""
    return owned_like(
        full(size, fill_value, dtype=_new(self, dtype), device=_beside(self, device), requires_grad=requires_grad), self
    )


def new_empty_strided(
    self: Any, size: Any, stride: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Return a tensor in this tensor's dtype whose elements are not set and lie ``stride`` apart."""
    made = empty_strided(
        size, stride, dtype=_new(self, dtype), device=_beside(self, device), requires_grad=requires_grad
    )
    return owned_like(made, self)


for _method in (new_zeros, new_ones, new_empty, new_full, new_empty_strided):
    attach(_method.__name__, _method)
attach("device", property(device_of, doc="Where the tensor lives: a :class:`wengert.device`."))

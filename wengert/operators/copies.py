"""Views taken as copies: PyTorch's ``<view>_copy`` functions, whose results share no memory with their argument."""

from typing import Any

from wengert.core.families import composite
from wengert.core.registry import ops

__all__: list[str] = []


@composite(samples=lambda s: [s((2, 3)), s(())])
def alias_copy(input: Any) -> Any:
    """Return a copy of the tensor; gradients pass through it."""
    return ops.clone(input)


@composite(
    samples=lambda s: [
        s((2, 3), size=(2, 2), stride=(1, 2), layouts=False),
        s((4,), size=(2,), stride=(2,), storage_offset=1, layouts=False),
    ]
)
def as_strided_copy(input: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
    """Return a copy of :func:`wengert.as_strided`."""
    return ops.clone(ops.as_strided(input, size, stride, storage_offset))


@composite(samples=lambda s: [s((2, 3)), s((2, 3, 2), 1, -1, 1)])
def diagonal_copy(input: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Return a copy of :func:`wengert.diagonal`."""
    return ops.clone(ops.diagonal(input, offset, dim1, dim2))


@composite(samples=lambda s: [s((2, 1), size=(2, 3)), s((), size=(2,))])
def expand_copy(input: Any, size: Any, *, implicit: bool = False) -> Any:
    """Return the tensor repeated to ``size``, in memory of its own; ``implicit`` has no meaning here."""
    return ops.clone(ops.expand(input, size))


@composite(method=True, samples=lambda s: [s((2, 3), 1, 1, 2), s((3,), 0, -2, 1)])
def narrow_copy(input: Any, dim: int, start: Any, length: int) -> Any:
    """Return a copy of :func:`wengert.narrow`."""
    return ops.clone(ops.narrow(input, dim, start, length))


@composite(samples=lambda s: [s((2, 3, 1), dims=(2, 0, 1))])
def permute_copy(input: Any, dims: Any) -> Any:
    """Return a copy of :func:`wengert.permute`."""
    return ops.clone(ops.permute(input, dims))


@composite(samples=lambda s: [s((2, 3), 1, -1), s((2, 3), 0, 0)])
def select_copy(input: Any, dim: int, index: int) -> Any:
    """Return a copy of :func:`wengert.select`."""
    return ops.clone(ops.select(input, dim, index))


@composite(samples=lambda s: [s((5, 2), 2), s((2, 3), 2, 1)])
def split_copy(input: Any, split_size: Any, dim: int = 0) -> tuple[Any, ...]:
    """Return copies of the parts of :func:`wengert.split`."""
    return tuple(ops.clone(part) for part in ops.split(input, split_size, dim))


@composite(samples=lambda s: [s((3, 2), [1, 2]), s((2, 3), [3, 0], 1)])
def split_with_sizes_copy(input: Any, split_sizes: Any, dim: int = 0) -> tuple[Any, ...]:
    """Return copies of the parts of :func:`wengert.split_with_sizes`."""
    return tuple(ops.clone(part) for part in ops.split_with_sizes(input, split_sizes, dim))


@composite(samples=lambda s: [s((2, 1, 3, 1)), s((2, 1, 1), 1), s((2, 1, 1), dim=(1, 2))])
def squeeze_copy(input: Any, dim: Any = None) -> Any:
    """Return a copy of :func:`wengert.squeeze`."""
    return ops.clone(ops.squeeze(input) if dim is None else ops.squeeze(input, dim))


@composite(samples=lambda s: [s((2, 3)), s((2,)), s(())])
def t_copy(input: Any) -> Any:
    """Return a copy of :func:`wengert.t`."""
    return ops.clone(ops.t(input))


@composite(samples=lambda s: [s((2, 3), 0, 1), s((2, 3, 1), -1, 0)])
def transpose_copy(input: Any, dim0: int, dim1: int) -> Any:
    """Return a copy of :func:`wengert.transpose`."""
    return ops.clone(ops.transpose(input, dim0, dim1))


@composite(samples=lambda s: [s((2, 3)), s((2, 3), 1)])
def unbind_copy(input: Any, dim: int = 0) -> tuple[Any, ...]:
    """Return copies of the slices of :func:`wengert.unbind`."""
    return tuple(ops.clone(part) for part in ops.unbind(input, dim))


@composite(samples=lambda s: [s((5,), 0, 2, 1), s((2, 5), -1, 3, 2)])
def unfold_copy(input: Any, dimension: int, size: int, step: int) -> Any:
    """Return a copy of ``input.unfold(dimension, size, step)``."""
    return ops.clone(ops.sliding_windows(input, dimension, size, step))


@composite(samples=lambda s: [s((2, 3), 1), s((), 0)])
def unsqueeze_copy(input: Any, dim: int) -> Any:
    """Return a copy of :func:`wengert.unsqueeze`."""
    return ops.clone(ops.unsqueeze(input, dim))


@composite(samples=lambda s: [s((2, 3), size=(3, 2)), s((2, 3), size=(-1,)), s((2,), size=(2, 1))])
def view_copy(input: Any, size: Any) -> Any:
    """Return the elements in row-major order under another shape, in memory of their own."""
    return ops.clone(ops.reshape(input, size))

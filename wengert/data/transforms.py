"""Transforms of pictures, under torchvision's names: callables, to be put one after the other by :class:`Compose`.

A picture is a Pillow image, a NumPy array of shape (height, width) or (height, width, channels), or a tensor of shape
(..., height, width). Random transforms draw from a generator of wengert: the one given, or else that of the thread, which a
:class:`wengert.data.DataLoader` seeds for each batch, so that an epoch can be repeated and resumed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from wengert.array.dtype import DType, float32
from wengert.core.generator import Generator
from wengert.core.registry import ops
from wengert.core.tensor import Tensor
from wengert.extras import require

__all__ = ["Compose", "Normalize", "RandomCrop", "RandomHorizontalFlip", "Resize", "ToTensor"]

Size = int | Sequence[int]


class Compose:
    """Several transforms one after the other.

    Example:
        >>> import wengert as wg
        >>> from wengert.data.transforms import Compose, Normalize, ToTensor
        >>> prepare = Compose([ToTensor(), Normalize([0.5], [0.5])])
        >>> prepare(np.array([[0, 255]], dtype=np.uint8))
        tensor([[[-1.,  1.]]])
    """

    def __init__(self, transforms: Iterable[Callable[[Any], Any]]) -> None:
        self.transforms = list(transforms)
        for transform in self.transforms:
            if not callable(transform):
                raise TypeError(f"Compose takes functions of a picture, got {transform!r}")

    def __call__(self, picture: Any) -> Any:
        for transform in self.transforms:
            picture = transform(picture)
        return picture

    def __repr__(self) -> str:
        return f"Compose({', '.join(map(repr, self.transforms))})"


class ToTensor:
    """Makes a tensor of shape (channels, height, width) of a Pillow image or an array (height, width[, channels]).

    Bytes become float32 from 0 to 1, bools 0 or 1; other dtypes keep their values.

    Raises:
        TypeError: for anything else. ValueError: for an array of one dimension, or of more than three.

    Example:
        >>> import wengert as wg
        >>> wg.data.transforms.ToTensor()(np.full((2, 1, 3), 255, np.uint8)).shape
        wengert.Size([3, 2, 1])
    """

    def __init__(self, dtype: DType = float32) -> None:
        self.dtype = dtype

    def __call__(self, picture: Any) -> Tensor:
        if not isinstance(picture, np.ndarray) and not _is_image(picture):
            raise TypeError(f"ToTensor takes a Pillow image or a NumPy array, got {type(picture).__name__}")
        array = np.asarray(picture)
        if array.ndim not in (2, 3):
            raise ValueError(f"a picture has shape (height, width) or (height, width, channels), got {array.shape}")
        planes = np.ascontiguousarray(np.atleast_3d(array).transpose(2, 0, 1))
        if array.dtype == np.uint8:
            return ops.from_numpy(planes).to(self.dtype).div_(255)
        return ops.tensor(planes, dtype=self.dtype if array.dtype.kind in "bf" else None)

    def __repr__(self) -> str:
        return "ToTensor()"


class Normalize:
    """Subtracts a mean from each channel of a tensor (..., channels, height, width) and divides by a standard deviation.

    Raises:
        ValueError: for a standard deviation of 0, or a tensor with another number of channels. TypeError: for no tensor
            of floating-point numbers.

    Example:
        >>> import wengert as wg
        >>> wg.data.transforms.Normalize(mean=[1.0], std=[2.0])(wg.full((1, 1, 2), 5.0))
        tensor([[[2., 2.]]])
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean, self.std = [float(m) for m in mean], [float(s) for s in std]
        if len(self.mean) != len(self.std) or not self.mean:
            raise ValueError(f"mean and std must have a number for each channel, got {self.mean} and {self.std}")
        if 0.0 in self.std:
            raise ValueError(f"std must not be 0, got {self.std}")

    def __call__(self, picture: Any) -> Tensor:
        if not isinstance(picture, Tensor) or not picture.dtype.is_floating_point:
            got = f"dtype {picture.dtype!r}" if isinstance(picture, Tensor) else type(picture).__name__
            raise TypeError(f"Normalize takes a tensor of floating-point numbers, got {got}; put ToTensor() before it")
        if picture.ndim < 3 or picture.shape[-3] != len(self.mean):
            raise ValueError(
                f"Normalize has {len(self.mean)} channels, the picture has shape {tuple(picture.shape)} (…, channels, "
                "height, width)"
            )
        mean, std = (ops.tensor(v, dtype=picture.dtype).reshape(-1, 1, 1) for v in (self.mean, self.std))
        result: Tensor = (picture - mean) / std
        return result

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"


class Resize:
    """Changes the size of a Pillow image, with Pillow's filters, which smooth when they make smaller.

    Args:
        size: (height, width), or the length of the shorter side, which keeps the proportions.
        resample: "nearest", "bilinear", "bicubic" or "lanczos".

    Raises:
        ValueError: for a size or filter that is none. TypeError: for what is no Pillow image.

    Example:
        >>> import wengert as wg
        >>> from PIL import Image
        >>> wg.data.transforms.Resize(8)(Image.new("RGB", (20, 10))).size
        (16, 8)
    """

    def __init__(self, size: Size, resample: str = "bilinear") -> None:
        self.size = size if isinstance(size, int) else _pair(size)
        if isinstance(size, int) and size <= 0:
            raise ValueError(f"size must be positive, got {size}")
        if resample not in ("nearest", "bilinear", "bicubic", "lanczos"):
            raise ValueError(f"resample must be 'nearest', 'bilinear', 'bicubic' or 'lanczos', got {resample!r}")
        self.resample = resample

    def __call__(self, picture: Any) -> Any:
        if not _is_image(picture):
            raise TypeError(f"Resize takes a Pillow image, got {type(picture).__name__}; put it before ToTensor()")
        width, height = picture.size
        if isinstance(self.size, int):
            shorter = min(width, height)
            size = (max(1, width * self.size // shorter), max(1, height * self.size // shorter))
        else:
            size = (self.size[1], self.size[0])
        return picture.resize(size, getattr(require("PIL.Image", "data").Resampling, self.resample.upper()))

    def __repr__(self) -> str:
        return f"Resize({self.size})"


class RandomCrop:
    """Cuts out a part of a picture at a random place.

    Args:
        size: (height, width) of the part, or the length of both. padding: zeros put around the picture before.
        generator: where the random numbers come from (default: that of the thread).

    Raises:
        ValueError: for a size or padding that is none, or a picture that is smaller.

    Example:
        >>> import wengert as wg
        >>> crop = wg.data.transforms.RandomCrop(2, generator=wg.Generator().manual_seed(0))
        >>> crop(wg.zeros(3, 4, 5)).shape
        wengert.Size([3, 2, 2])
    """

    def __init__(self, size: Size, padding: int = 0, generator: Generator | None = None) -> None:
        self.size = _pair((size, size) if isinstance(size, int) else size)
        if not isinstance(padding, int) or padding < 0:
            raise ValueError(f"padding must be an int of 0 or more, got {padding!r}")
        self.padding, self.generator = padding, generator

    def __call__(self, picture: Any) -> Any:
        picture = _padded(picture, self.padding) if self.padding else picture
        (height, width), (rows, columns) = _size_of(picture), self.size
        if rows > height or columns > width:
            raise ValueError(f"RandomCrop of {rows}×{columns} from a picture of {height}×{width}, padding included")
        top = int(ops.randint(0, height - rows + 1, (), generator=self.generator).item())
        left = int(ops.randint(0, width - columns + 1, (), generator=self.generator).item())
        if isinstance(picture, Tensor):
            return picture[..., top : top + rows, left : left + columns]
        if isinstance(picture, np.ndarray):
            return picture[top : top + rows, left : left + columns]
        return picture.crop((left, top, left + columns, top + rows))

    def __repr__(self) -> str:
        return f"RandomCrop({self.size}, padding={self.padding})"


class RandomHorizontalFlip:
    """Mirrors a picture, left to right, with a probability.

    Raises:
        ValueError: for a probability outside [0, 1].

    Example:
        >>> import wengert as wg
        >>> wg.data.transforms.RandomHorizontalFlip(p=1.0)(wg.tensor([[1.0, 2.0]]))
        tensor([[2., 1.]])
    """

    def __init__(self, p: float = 0.5, generator: Generator | None = None) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"p must be a probability between 0 and 1, got {p}")
        self.p, self.generator = p, generator

    def __call__(self, picture: Any) -> Any:
        _size_of(picture)  # names what is no picture
        if ops.rand((), generator=self.generator).item() >= self.p:
            return picture
        if isinstance(picture, Tensor):
            return picture.flip(-1)
        if isinstance(picture, np.ndarray):
            return np.ascontiguousarray(picture[:, ::-1])
        return picture.transpose(require("PIL.Image", "data").Transpose.FLIP_LEFT_RIGHT)

    def __repr__(self) -> str:
        return f"RandomHorizontalFlip(p={self.p})"


# ---- the kinds of pictures -----------------------------------------------------------


def _is_image(picture: Any) -> bool:
    """Whether this is a Pillow image; Pillow is not imported for that."""
    return hasattr(picture, "getbands")


def _size_of(picture: Any) -> tuple[int, int]:
    """Height and width. TypeError, ValueError for what is no picture."""
    if _is_image(picture):
        width, height = picture.size
        return height, width
    if not isinstance(picture, Tensor | np.ndarray):
        raise TypeError(f"a picture is a Pillow image, a NumPy array or a tensor, got {type(picture).__name__}")
    if picture.ndim < 2:
        raise ValueError(f"a picture has a height and a width, got shape {tuple(picture.shape)}")
    height, width = picture.shape[-2:] if isinstance(picture, Tensor) else picture.shape[:2]
    return int(height), int(width)


def _padded(picture: Any, padding: int) -> Any:
    height, width = _size_of(picture)
    if isinstance(picture, Tensor):
        return ops.pad(picture, (padding,) * 4)
    if isinstance(picture, np.ndarray):
        return np.pad(picture, [(padding, padding)] * 2 + [(0, 0)] * (picture.ndim - 2))
    wider = require("PIL.Image", "data").new(picture.mode, (width + 2 * padding, height + 2 * padding))
    wider.paste(picture, (padding, padding))
    return wider


def _pair(size: Sequence[int]) -> tuple[int, int]:
    """Return (height, width)."""
    if len(size) != 2 or not all(isinstance(n, int) and n > 0 for n in size):
        raise ValueError(f"size must be a positive int or (height, width), got {size!r}")
    return size[0], size[1]

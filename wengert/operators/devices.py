"""Tensors moved between devices: the operator behind ``to("cpu:1")``."""

from typing import Any

import numpy as np

from wengert.array.device import index_of
from wengert.core.arguments import Anything
from wengert.core.families import linear
from wengert.core.operator import Spec
from wengert.core.registry import ops

__all__ = ["copy_to_device", "moved"]


def _spec(input: Spec, index: Any) -> Spec:
    return input


@linear(
    transpose=lambda g: g,  # the walk brings each gradient to the device of the tensor it belongs to
    spec=_spec,
    widen=False,
    batch="front",
    home=(),
    samples=lambda s: [s((2, 3), index=None), s((), index=None), s((0, 2), index=None)],
)
def copy_to_device(input: Anything, index: Any) -> Any:
    """Return a copy on the device with this number; None: one that is on no device."""
    return np.array(input, copy=True, order="K")


def moved(tensor: Any, index: int) -> Any:
    """Return a tensor on the device with this number: itself if it is there."""
    return tensor if (index_of(tensor._payload.dtype) or 0) == index else ops.copy_to_device(tensor, index)

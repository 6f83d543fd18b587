"""Which device a tensor is on, where there are several (:mod:`wengert.array.device`).

A tensor that a user makes is on a device, the first unless another is named; results are where their arguments are. What
an operator makes for its own use is on none, and goes with whatever it meets. Only :data:`MOVE` takes tensors elsewhere.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from wengert.array.device import CPU, device, devices, index_of, made_there, placed, to_device
from wengert.core.interpret import Payload
from wengert.core.tensor import Tensor

__all__ = ["MOVE", "common_device", "device_of", "made_on", "settle", "settle_beside"]

MOVE = "copy_to_device"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_INNER = tuple(
    os.path.join(_PACKAGE, room, "")
    for room in ("autograd", "core", "func", "kernels", "operators", "tape", "transforms")
)
_MAKERS = frozenset(
    os.path.join(_PACKAGE, *name.split("/"))
    for name in ("core/devices.py", "core/explain.py", "operators/create.py", "operators/from_data.py",
                 "operators/sampling.py", "operators/window_functions.py", "signal/windows.py")
)  # fmt: skip


def device_of(tensor: Any) -> device:
    """Return the device of a tensor; one that is on none counts as on the first."""
    if not devices.several:
        return CPU
    index = index_of(tensor._payload.dtype)
    return device("cpu", index) if index else CPU


def common_device(op: Any, values: list[Any]) -> int | None:
    """Return the number of the device on which an operator runs, and its results are: that of its tensors.

    A tensor without dimensions on the first device goes with the others, as in PyTorch.

    Raises:
        RuntimeError: if they are on several.
    """
    if op.name == MOVE:
        target: int | None = values[1]
        return target
    found = weak = None
    for i in op.signature.inputs:
        value = values[i]
        for tensor in value if isinstance(value, tuple) else (value,):
            index = index_of(tensor._payload.dtype) if isinstance(tensor, Tensor) else None
            if index is None or index == found:
                continue
            if index == 0 and not tensor._payload.shape:
                weak = 0
            elif found is None:
                found = index
            else:
                raise RuntimeError(
                    f"{op.name}(): Expected all tensors to be on the same device, but found at least two devices, cpu:{found} "
                    f"and cpu:{index} (argument '{op.signature.names[i]}'); move one of them with .to('cpu:{found}')"
                )
    return weak if found is None else found


def settle(results: list[Any], index: int | None) -> None:
    """Note on new tensors that they are on a device."""
    for tensor in results:
        tensor._payload = placed(tensor._payload, index)


def settle_beside(results: Any, arguments: list[Any]) -> None:
    """Note on new tensors that are on no device that they are on that of the first argument that is on one."""
    given = list(_tensors(arguments))
    found = (index_of(t._payload.dtype) for t in given)
    index = next((i for i in found if i is not None), None)
    if index is None:
        return
    for tensor in _tensors(results):
        held = tensor._payload
        if index_of(held.dtype) is None and not any(tensor is g for g in given):
            if isinstance(held, np.ndarray):
                tensor._payload = placed(held, index)
            elif held.level.takes_plain:  # a program that is being captured
                held.placed(index)


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for v in value:
            yield from _tensors(v)


def made_on(array: Any, where: Any) -> Any:
    """Return a new array as one on the device that its maker was asked for (None: not asked).

    Raises:
        RuntimeError: for a device that does not exist.
    """
    if devices.several and where is None and (index_of(array.dtype) is not None or _inside()):
        return array
    if isinstance(array, Payload) and devices.several:
        return array.placed(devices.default if where is None else to_device(where).index or 0)
    return made_there(array, where)


def _inside() -> bool:
    """Whether an operator or a derivative makes a tensor for its own use."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in _MAKERS:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_INNER)

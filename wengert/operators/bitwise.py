"""Bits of integers, and logic of bool tensors: ``&``, ``|``, ``^``, ``~``, ``<<``, ``>>``."""

from typing import Any

import numpy as np

from wengert.array.dtype import uint64
from wengert.array.shape import reduced
from wengert.core.arguments import Axes, Integral, IntegralOrScalar, Real
from wengert.core.families import nondifferentiable
from wengert.core.operator import Spec
from wengert.errors import DTypeError

__all__ = [
    "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "hash_tensor",
]  # fmt: skip


def _pairs(s: Any) -> list[Any]:
    """The samples of operators on two integer or bool tensors."""
    return [
        s((2, 3), (3,), kind="integer"), s((3,), 5, kind="integer"), s(6, (3,), kind="integer"),
        s((3,), (3,), kind="boolean"), s((3,), True, kind="boolean"), s((3,), (3,), kind="integer", of="int8"),
        s(s.tensor((3,), kind="boolean"), 3), s((0,), (1,), kind="integer"), s.error(TypeError, "integral", (2,), (2,)),
    ]  # fmt: skip


def _integers(name: str, *arrays: Any) -> None:
    for array in arrays:
        if array.dtype.kind not in "biu":
            raise DTypeError(f"{name}(): takes integer or bool operands, they meet in {array.dtype}")


@nondifferentiable(promote="same", result="same", inplace=True, samples=_pairs)
def bitwise_and(input: IntegralOrScalar, other: IntegralOrScalar) -> Any:
    """Return the bits set in both, element by element; logical and for bool tensors."""
    _integers("bitwise_and", input)
    return np.bitwise_and(input, other)


@nondifferentiable(promote="same", result="same", inplace=True, samples=_pairs)
def bitwise_or(input: IntegralOrScalar, other: IntegralOrScalar) -> Any:
    """Return the bits set in either, element by element; logical or for bool tensors."""
    _integers("bitwise_or", input)
    return np.bitwise_or(input, other)


@nondifferentiable(promote="same", result="same", inplace=True, samples=_pairs)
def bitwise_xor(input: IntegralOrScalar, other: IntegralOrScalar) -> Any:
    """Return the bits set in exactly one, element by element; logical exclusive or for bool tensors."""
    _integers("bitwise_xor", input)
    return np.bitwise_xor(input, other)


@nondifferentiable(
    promote="same",
    result="same",
    inplace=True,
    samples=lambda s: [
        s((2, 3), kind="integer"), s((3,), kind="boolean"), s((0,), kind="integer"),
        s.error(TypeError, "integral", (2,)),
    ],
)  # fmt: skip
def bitwise_not(input: Integral) -> Any:
    """Return every bit inverted, element by element; logical not for bool tensors."""
    return np.invert(input)


def _shifts(s: Any) -> list[Any]:
    return [
        s((2, 3), 2, kind="integer"), s(s.array([1, -1, 5]), s.array([0, 63, 64])),
        s(s.array([1, -8, 5]), s.array([-1, 1, 70])), s(1, s.array([0, 3])), s((3,), 1, kind="integer", of="int8"),
        s(s.array([3, 7]), 100), s.error(TypeError, "integral", (2,), 1),
    ]  # fmt: skip


def _within(name: str, input: Any, other: Any) -> Any:
    """Return where the number of places lies within the width of the dtype."""
    _integers(name, input)
    if input.dtype.kind == "b":
        raise DTypeError(f"{name}(): not defined for two bool operands; convert one of them with .to(wengert.int64)")
    return (other >= 0) & (other < input.dtype.itemsize * 8)


@nondifferentiable(promote="same", result="same", inplace=True, samples=_shifts)
def bitwise_left_shift(input: IntegralOrScalar, other: IntegralOrScalar) -> Any:
    """Return ``input << other``, element by element; 0 where ``other`` is negative or not below the dtype's width."""
    inside = _within("bitwise_left_shift", input, other)
    return np.where(inside, np.left_shift(input, np.where(inside, other, 0)), 0).astype(input.dtype)


@nondifferentiable(promote="same", result="same", inplace=True, samples=_shifts)
def bitwise_right_shift(input: IntegralOrScalar, other: IntegralOrScalar) -> Any:
    """Return ``input >> other``, element by element, filled with the sign; of too many places only the sign remains."""
    inside = _within("bitwise_right_shift", input, other)
    width = input.dtype.itemsize * 8
    places = np.where(inside, other, width - 1).astype(input.dtype)
    shifted = np.right_shift(input, places)
    return shifted if input.dtype.kind == "i" else np.where(inside, shifted, 0).astype(input.dtype)


def _is_xor(mode: Any) -> None:
    if mode != 0:
        raise ValueError(f"hash_tensor(): mode must be 0, the exclusive or, got {mode}")


def _hash_spec(input: Spec, dim: Any = None, *, keepdim: Any = False, mode: Any = 0) -> Spec:
    _is_xor(mode)
    return Spec(reduced(input.shape, dim, keepdim), uint64)


@nondifferentiable(
    batch="front",
    spec=_hash_spec,
    samples=lambda s: [
        s((2, 3)), s((2, 3), dim=1), s((2, 3), dim=(0, 1), keepdim=True), s((4,), kind="integer", of="int8"),
        s((3,), kind="boolean"), s(()), s((2, 0), dim=1), s((3,), of="float32"),
        s.error(ValueError, "mode", (2,), mode=1),
    ],
)  # fmt: skip
def hash_tensor(input: Real, dim: Axes = None, *, keepdim: bool = False, mode: int = 0) -> Any:
    """Return the exclusive or of the 64 bits of each element along ``dim``: integers as int64, floats as float64."""
    _is_xor(mode)
    wide = np.ascontiguousarray(input, np.float64 if input.dtype.kind == "f" else np.int64).reshape(input.shape)
    found: Any = np.bitwise_xor.reduce(wide.view(np.uint64), axis=dim)
    return found.reshape(reduced(input.shape, dim, keepdim))

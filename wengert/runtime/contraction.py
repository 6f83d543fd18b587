"""Matrix products of arrays on wengert's own kernels: all layouts, batches, and what follows a product fused into it.

The result does not depend on the number of threads, nor on how the operands lie in memory: every element is the sum of its
products in the order of k. A call whose shapes, strides and dtypes were seen before does no planning.
"""

import math
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wengert.codegen.epilogue import ACTIVATIONS, Epilogue
from wengert.runtime.calls import dtype_name
from wengert.runtime.launch import pointer
from wengert.runtime.pool import empty
from wengert.runtime.product import Call, Plan
from wengert.runtime.recording import active, ascontiguous, assign, current, is_lasting, is_steady
from wengert.runtime.threads import chosen

__all__ = ["again", "matmul"]

Array = NDArray[Any]

PLANS: Final = 1024  # that are kept
_TOTALS: Final[dict[str, np.dtype[Any]]] = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "bf16": np.dtype(np.float32),
    "i8": np.dtype(np.int32),
}

_plans: dict[Any, Plan] = {}  # by the shapes, strides and dtypes of a product in the form that is computed
_known: dict[Any, "_Known"] = {}  # by those of the arguments, where all are read as they are


class _Known(NamedTuple):
    """How a call is computed: by which plan, whether that is of the transposed product, and what its result is."""

    plan: Plan
    turned: bool
    shape: tuple[int, ...]
    dtype: Any


def remember(table: dict[Any, Any], key: Any, value: Any) -> Any:
    """Keep a plan; when there are too many, all are forgotten."""
    if len(table) >= PLANS:
        table.clear()
    table[key] = value
    return value


def matmul(
    a: Array,
    b: Array,
    out: Array | None = None,
    *,
    alpha: float = 1,
    beta: float | None = None,
    addend: Array | None = None,
    bias: Array | None = None,
    activation: str = "",
) -> Array:
    """Return ``activation(alpha * (a @ b) + beta * addend + bias)``, computed in one pass over the result.

    Args:
        a: shape (..., m, k). b: shape (..., k, n); leading dimensions broadcast. Any strides, of one dtype: float32, float64,
            bfloat16 (summed in float32) or int8 (summed and given in int32).
        out: where the result goes, shape (..., m, n); made if None.
        alpha, beta: numbers (integers for int8); ``beta`` is 1 if there is an addend. addend: broadcasts to the shape of the
            result, and has its dtype; if it is None and ``beta`` is not 0, it is ``out``, as in BLAS.
        bias: one number per column, shape (n,), or per row, shape (m, 1).
        activation: "" or one of relu, sigmoid, tanh, gelu, gelu_tanh, silu, softplus.

    Raises:
        ValueError: for shapes that do not fit. TypeError: for dtypes that are not multiplied here.

    Example:
        >>> import numpy as np
        >>> from wengert.runtime.contraction import matmul
        >>> a, b = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
        >>> matmul(a, b, bias=np.array([-5, 1], np.float32), activation="relu").tolist()
        [[0.0, 4.0], [0.0, 4.0]]
    """
    if beta is None:
        beta = 0 if addend is None else 1
    plain = out is None and (beta != 0) == (addend is not None) and current() is None
    if plain:
        key = (_form(a), _form(b), _form(addend), _form(bias), activation, chosen.number)
        known = _known.get(key)
        if known is not None:
            return _again(known, a, b, addend, bias, alpha, beta)
    if addend is None and beta != 0:
        if out is None:
            raise ValueError(f"matmul: beta is {beta}, which needs an addend, or an out that holds what is added")
        addend = out
    shape, dtype = _result(a, b, activation)
    given = out
    if out is None:
        out = empty(shape, dtype)
    elif out.shape != shape or out.dtype != dtype:
        raise ValueError(f"matmul: out must be {dtype} of shape {shape}, got {out.dtype} of shape {out.shape}")
    else:
        out = _separate(out, a, b)
    if out.size:
        call = Call(a, b, out, None, None, alpha, beta)
        call = call._replace(addend=_addend(call, addend if beta != 0 else None), bias=_bias(bias, a, shape))
        plan, done = _run(call, activation)
        if plain:
            _keep(key, Call(a, b, out, addend, bias, alpha, beta), plan, done)
    if given is not None and out is not given:
        assign(given, out)
        return given
    return out


def again(a: Array, b: Array) -> Array | None:
    """Return ``a @ b`` if such arrays were multiplied before, else None: the shortest way to a small product."""
    if current() is not None:
        return None
    known = _known.get((_form(a), _form(b), None, None, "", chosen.number))
    return None if known is None else _again(known, a, b, None, None, 1, 0)


def _again(known: _Known, a: Array, b: Array, addend: Any, bias: Any, alpha: float, beta: float) -> Array:
    plan = known.plan
    out: Array = (empty if active[0] else plan.empty)(known.shape, known.dtype)
    plan(Call(b, a, out, addend, bias, alpha, beta) if known.turned else Call(a, b, out, addend, bias, alpha, beta))
    return out


def _form(x: Array | None) -> tuple[Any, ...] | None:
    return None if x is None else (x.shape, x.strides, x.dtype)


def _keep(key: Any, call: Call, plan: Plan, done: Call) -> None:
    """Remember how a call was computed, unless a copy was made of one of its arguments."""
    turned = done.out.shape[-1] != call.out.shape[-1]
    operands = (call.b, call.a) if turned else (call.a, call.b)
    given, used = (*operands, call.addend, call.bias), (done.a, done.b, done.addend, done.bias)
    if all(
        x is y or (x is not None and y is not None and pointer(x) == pointer(y))
        for x, y in zip(given, used, strict=True)
    ):
        remember(_known, key, _Known(plan, turned, call.out.shape, call.out.dtype))


def _result(a: Array, b: Array, activation: str) -> tuple[tuple[int, ...], Any]:
    """Return the shape and dtype of a product; complain about operands that have none."""
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError(f"matmul: operands must be matrices or batches of them, got shapes {a.shape} and {b.shape}")
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"matmul: {a.shape} and {b.shape} do not fit: {a.shape[-1]} columns against {b.shape[-2]} rows"
        )
    name = dtype_name(a.dtype)
    if a.dtype != b.dtype or name not in _TOTALS:
        raise TypeError(
            f"matmul: operands must both be float32, float64, bfloat16 or int8, got {a.dtype} and {b.dtype}; cast them"
        )
    if activation and activation not in ACTIVATIONS:
        raise ValueError(f"matmul: activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    if activation and name == "i8" and activation != "relu":
        raise TypeError(f"matmul: {activation} of int32 is not an integer; multiply without activation and cast")
    try:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise ValueError(f"matmul: the leading dimensions of {a.shape} and {b.shape} do not broadcast") from None
    return (*batch, a.shape[-2], b.shape[-1]), a.dtype if name != "i8" else _TOTALS["i8"]


def _separate(out: Array, *operands: Array) -> Array:
    """Return ``out``, or an array in its place if rows of it are not contiguous, or it shares memory with an operand."""
    size, (row, column) = out.itemsize, out.strides[-2:]
    lies_well = column == size or out.shape[-1] == 1 or row == size or out.shape[-2] == 1
    if lies_well and not any(np.may_share_memory(out, x) for x in operands):
        return out
    return np.empty(out.shape, out.dtype)


def _addend(call: Call, addend: Array | None) -> Array | None:
    """Return the addend in the shape of the result, lying as the kernel reads it."""
    if addend is None:
        return None
    out = call.out
    try:
        whole = np.broadcast_to(addend, out.shape)
    except ValueError:
        raise ValueError(f"matmul: an addend of shape {addend.shape} does not broadcast to {out.shape}") from None
    same = whole.dtype == out.dtype and pointer(whole) == pointer(out) and whole.strides == out.strides
    if not same and (whole.dtype != out.dtype or np.may_share_memory(whole, out)):
        copy = empty(whole.shape, out.dtype)
        assign(copy, whole)
        return copy
    return whole


def _bias(bias: Array | None, a: Array, shape: tuple[int, ...]) -> Array | None:
    """Return the bias in the dtype of the sums: one dimension for one per column, two for one per row."""
    if bias is None:
        return None
    if bias.shape not in ((shape[-1],), (shape[-2], 1)):
        raise ValueError(
            f"matmul: a bias has one number per column, shape {(shape[-1],)}, or per row, shape {(shape[-2], 1)}; "
            f"got {bias.shape}"
        )
    return ascontiguous(bias, _TOTALS[dtype_name(a.dtype) or ""])


def _folded(call: Call) -> Call:
    """Return a batch of products with one B as one product, if the rows of all A are rows of one matrix.

    A batch of products of one A with vectors is the product of a matrix of these vectors with the transposed A.
    """
    a, b, out = call.a, call.b, call.out
    if out.ndim == 2 or call.addend is not None or (call.bias is not None and call.bias.ndim == 2):
        return call
    if b.shape[-1] == 1 and call.bias is None and b.shape[:-2] == out.shape[:-2] and a.size == math.prod(a.shape[-2:]):
        with suppress(ValueError):  # they do not lie as a matrix
            rows, results = (np.reshape(x, (-1, x.shape[-2]), copy=False) for x in (b, out))
            return call._replace(a=rows, b=a.reshape(a.shape[-2:]).T, out=results)
    if any(size > 1 for size in b.shape[:-2]) or a.shape[:-2] != out.shape[:-2] or not (_even(a) and _even(out)):
        return call
    rows = out.size // out.shape[-1]
    return call._replace(
        a=a.reshape(rows, a.shape[-1]),
        b=b.reshape(b.shape[-2:]) if b.ndim > 2 else b,
        out=out.reshape(rows, out.shape[-1]),
    )


def _even(x: Array) -> bool:
    """Whether the rows of all matrices of a batch are equally far apart."""
    return all(x.strides[d] == x.shape[d + 1] * x.strides[d + 1] for d in range(x.ndim - 2))


def _upright(call: Call) -> Call:
    """Return a product whose result has contiguous rows; the transposed one, if only its columns are, or it is one column."""
    a, b, out, addend, bias = call[:5]
    column = out.shape[-1] == 1 and out.shape[-2] > 1 and out.strides[-2] == out.itemsize
    if not column and (out.strides[-1] == out.itemsize or out.shape[-1] == 1):
        return call
    if addend is not None:
        addend = addend.swapaxes(-1, -2)
    if bias is not None:
        bias = bias.reshape(-1, 1) if bias.ndim == 1 else bias.reshape(-1)
    return Call(b.swapaxes(-1, -2), a.swapaxes(-1, -2), out.swapaxes(-1, -2), addend, bias, call.alpha, call.beta)


def _run(call: Call, activation: str) -> tuple[Plan, Call]:
    """Bring a product into the form that the kernel computes, and compute it; return how, and that form."""
    call = _upright(_folded(call))
    if call.out.shape[-2] == 1 and call.a.strides[-1] != call.a.itemsize:
        call = call._replace(a=ascontiguous(call.a))
    if call.addend is not None and call.addend.strides[-1] != call.out.itemsize and call.out.shape[-1] > 1:
        call = call._replace(addend=ascontiguous(call.addend))
    bias = "" if call.bias is None else "column" if call.bias.ndim == 1 else "row"
    name = dtype_name(call.out.dtype) or ""
    epilogue = Epilogue(name, call.addend is not None, bias, activation)
    arrays = (call.a, call.b, call.out, call.addend)
    lasting = is_lasting(call.a), is_lasting(call.b)
    steady = not any(lasting)
    if steady:
        lasting = is_steady(call.a), is_steady(call.b)
    key = (*(_form(x) for x in arrays), bias, activation, chosen.number, lasting)
    plan = _plans.get(key)
    if plan is None:
        plan = remember(_plans, key, Plan(call, epilogue, lasting))
    plan(call, steady)
    return plan, call

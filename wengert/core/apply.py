"""The general lane: any operator on any arguments.

A call is bound to the declared signature, its tensors are lifted and checked, the kernel runs on their arrays, and the
result is wrapped and, if a gradient is wanted, recorded. The fast lanes of :mod:`wengert.core.lanes` do the same for
the commonest calls in one function; they must agree with this room, which is what the operator checks hold them to.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wengert.array.device import devices, unplaced
from wengert.array.dtype import DTYPES, FLOAT, DType, bfloat16, can_cast, dtype_of, real_of, result_dtype, scalar_dtype
from wengert.array.shape import broadcast_shapes
from wengert.core.casting import uncast
from wengert.core.devices import common_device, settle
from wengert.core.explain import FAILURES, explained, specs
from wengert.core.interpret import intercepted
from wengert.core.native import native
from wengert.core.operator import Op, Spec
from wengert.core.record import record
from wengert.core.signature import Input
from wengert.core.state import local, thread
from wengert.core.tensor import INFERENCE, Tensor, View, from_array, version_of, wrote
from wengert.errors import DTypeError, ShapeError, TransformError
from wengert.settings import settings

__all__ = ["as_tensor", "call", "common_dtype", "execute", "specs"]

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
_CATEGORIES = {d.numpy: d.category for d in DTYPES if d is not bfloat16}


def call(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call an operator with the user's arguments."""
    out = kwargs.pop("out", None) if "out" not in op.signature.index else None
    values = bind(op, args, kwargs)
    return execute(op, values) if out is None else write_out(op, out, uncast(execute, op, values))


def bind(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the argument values in order: tensors lifted and checked, the rest normalised."""
    signature = op.signature
    values = signature.bind(args, kwargs)
    ndim = 0
    for i, mark, name, optional in signature.tensors:
        value = values[i]
        if isinstance(value, Tensor) and not mark.many:
            array = value._payload
            if mark.restricted and _CATEGORIES.get(array.dtype, -1) not in mark.categories:
                lift(op, name, mark, value)
            ndim = len(array.shape)
        elif value is None and optional:
            continue
        elif mark.many:
            value = values[i] = lift_many(op, name, mark, value)
            ndim = len(value[0]._payload.shape) if value else 0
        else:
            value = values[i] = lift(op, name, mark, value)
            ndim = len(value._payload.shape) if isinstance(value, Tensor) else ndim
    signature.normalise(values, ndim)
    return values


def lift(op: Op, name: str, mark: Input, value: Any) -> Any:
    """Return a tensor argument as a tensor (or, where a number may stand for it, as a Python number)."""
    if not isinstance(value, Tensor):
        if isinstance(value, np.ndarray):
            value = from_array(value)
        elif isinstance(value, bool | int | float | complex | np.generic):
            if isinstance(value, np.generic):
                value = value.item()
            if mark.scalar:
                return value
            raise TypeError(f"{op.name}(): argument '{name}' must be a tensor, got the number {value!r}; "
                            f"make it one with wengert.tensor({value!r})")  # fmt: skip
        else:
            raise TypeError(f"{op.name}(): argument '{name}' must be a tensor, got {type(value).__name__}; "
                            f"the signature is {op.signature}")  # fmt: skip
    dtype = dtype_of(value._payload.dtype)
    if dtype.category not in mark.categories:
        raise DTypeError(f"{op.name}(): argument '{name}' must be {_article(mark.kind)} tensor, got {dtype} "
                         f"of shape {tuple(value._payload.shape)}")  # fmt: skip
    return value


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def lift_many(op: Op, name: str, mark: Input, value: Any) -> tuple[Any, ...]:
    """Return a sequence-of-tensors argument as a tuple of tensors."""
    if isinstance(value, Tensor) or not isinstance(value, Sequence):
        if not isinstance(value, Tensor) or not value.ndim:
            raise TypeError(f"{op.name}(): argument '{name}' must be a sequence of tensors, got {type(value).__name__}")
        value = tuple(value)
    if not value:
        raise ValueError(f"{op.name}(): argument '{name}' must hold at least one tensor, got an empty sequence")
    return tuple(lift(op, f"{name}[{i}]", mark, v) for i, v in enumerate(value))


def as_tensor(value: Any) -> Any:
    """Return a tensor, array or number as a tensor; an array is shared, not copied."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ndarray):
        dtype_of(value.dtype)
        return from_array(value)
    return from_array(np.asarray(value, scalar_dtype(value, settings.default_dtype).numpy))


def common_dtype(op: Op, values: Sequence[Any]) -> DType:
    """Return the dtype that the tensor arguments are cast to when they meet, by PyTorch's promotion."""
    dims: list[DType] = []
    zeros: list[DType] = []
    scalars: list[Any] = []
    for i in op.signature.inputs:
        value = values[i]
        for v in value if isinstance(value, tuple) and not isinstance(value, Spec) else (value,):
            if isinstance(v, Spec):
                (dims if v.shape else zeros).append(v.dtype)
            elif isinstance(v, Tensor):
                (dims if v._payload.shape else zeros).append(dtype_of(v._payload.dtype))
            elif v is not None:
                scalars.append(v)
    if settings.standard_promotion:
        dims, zeros = [*dims, *zeros], []
    dtype = result_dtype(dims, zeros, scalars, settings.default_dtype)
    if op.promote == "float" and dtype.category < FLOAT:
        return settings.default_dtype
    return dtype


def execute(op: Op, values: list[Any]) -> Any:
    """Run an operator on bound values and record it."""
    if op.composite:
        return op.call_kernel(values)
    try:
        state = local.state
    except AttributeError:
        state = thread.state
    if state.slow and state.casting is not None:
        return state.casting.run(op, values, execute)
    if state.slow and (state.levels or state.watchers):
        found = intercepted(op, values, execute, state)
        if found is not NotImplemented:
            return found
    ready = _ready(op, values)
    if ready is None and (found := intercepted(op, values, execute, state)) is not NotImplemented:
        return found
    names = op.keywords
    several = devices.several
    place = common_device(op, values) if several else None
    try:
        arrays, target = ready or _arrays(op, values)
        if several:
            arrays = [unplaced(a) for a in arrays]
        result = native.run(op, arrays) if _large(op, arrays) else NotImplemented
        if result is not NotImplemented:
            pass
        elif names:
            at = op.signature.positional
            result = state.run(op.kernel, *arrays[:at], **dict(zip(names, arrays[at:], strict=True)))
        else:
            result = state.run(op.kernel, *arrays)
    except FAILURES as error:
        better = explained(op, values, error)
        if better is error:
            raise
        raise better from error
    single = op.single
    if single:
        wrapped = [from_array(result if target is None and type(result) is np.ndarray else _settle(op, result, target))]
    else:
        wrapped = [from_array(_settle(op, r, target)) for r in result]
    if op.view:
        _link_views(op, values, wrapped, "" if state.grad else "inference" if state.inference else "no_grad", single)
    if several:
        settle(wrapped, place)
    if state.grad and op.family != "nondifferentiable":
        record(op, values, wrapped)
    if single:
        return wrapped[0]
    return tuple(wrapped) if op.variable else op.result_type(*wrapped)


def _large(op: Op, arrays: list[Any]) -> bool:
    """Whether any array is large enough for native code."""
    smallest = native.smallest
    for i in op.signature.inputs:
        array = arrays[i]
        if array is None:
            continue
        if type(array) is list:
            if any(a.size >= smallest for a in array):
                return True
        elif array.size >= smallest:
            return True
    return False


def _ready(op: Op, values: list[Any]) -> tuple[list[Any], DType | None] | None:
    """Return the kernel's arguments where nothing has to be cast: arrays of one float dtype, or any that do not promote."""
    arrays = list(values)
    common = None
    for i in op.signature.inputs:
        value = values[i]
        if isinstance(value, Tensor):
            array = arrays[i] = value._payload
            dtype = array.dtype
            if op.promote is None:
                if type(array) is not np.ndarray or (dtype.itemsize == 2 and op.widen):
                    return None
            elif (dtype is not F32 and dtype is not F64) or (common is not None and dtype is not common):
                return None
            common = dtype
        elif value is not None:
            return None
    return arrays, None


def _arrays(op: Op, values: list[Any]) -> tuple[list[Any], DType | None]:
    """Return the kernel's arguments, and the dtype its result must be cast to (None: whatever it gives)."""
    arrays = list(values)
    dtype = None if op.promote is None else common_dtype(op, values)
    widened: DType | None = dtype if dtype is not None and dtype.is_half and op.widen else None
    numpy_dtype = None if dtype is None else np.dtype(np.float32) if widened is not None else dtype.numpy
    for i in op.signature.inputs:
        value = values[i]
        if isinstance(value, tuple):
            found = [_array(v, numpy_dtype, op.widen) for v in value]
            arrays[i] = [a for a, _ in found]
            widened = next((w for _, w in found if w is not None), widened)
        elif value is not None:
            arrays[i], half = _array(value, numpy_dtype, op.widen)
            widened = widened or half
    if widened is not None and op.promote is None and _is_mixed(op, values):
        op.infer(specs(values))  # a rule that wants one dtype says so; the kernel would see float32 only
    if op.result == "bool":
        return arrays, None
    target = widened or (dtype if op.result in ("same", "real") else None)
    return arrays, real_of(target) if op.result == "real" and target is not None else target


def _is_mixed(op: Op, values: list[Any]) -> bool:
    """Whether tensors of several floating-point dtypes are among the inputs."""
    given = [values[i] for i in op.signature.inputs]
    tensors = [t for value in given for t in (value if isinstance(value, tuple) else (value,)) if isinstance(t, Tensor)]
    return len({t._payload.dtype for t in tensors if t._payload.dtype.kind in "fV"}) > 1


def _array(value: Any, dtype: Any, widen: bool) -> tuple[Any, DType | None]:
    """Return one argument as an array of ``dtype`` (or, halves, widened to float32 with the half dtype beside)."""
    if not isinstance(value, Tensor):
        return np.asarray(value) if dtype is None else np.asarray(value, dtype), None
    array = value._payload
    if dtype is not None:
        return (array if array.dtype is dtype else array.astype(dtype)), None
    if widen and array.dtype.itemsize == 2 and array.dtype.kind in "fV":
        return array.astype(np.float32), dtype_of(array.dtype)
    return array, None


def _settle(op: Op, array: Any, target: DType | None) -> Any:
    """Return a kernel's result as an array of the declared dtype."""
    if type(array) is not np.ndarray:
        array = np.asarray(array)
    if target is None or array.dtype == target.numpy:
        return array
    if op.result == "kernel" and array.dtype != np.float32:
        return array  # indices and masks beside a widened value keep their dtype
    return thread.state.run(array.astype, target.numpy)


def _link_views(op: Op, values: list[Any], results: list[Any], mode: str, single: bool) -> None:
    """Link results that share the first argument's memory to their base; ``mode`` is the grad mode if nothing is recorded."""
    source = values[op.signature.inputs[0]]
    memory = source._payload
    for k, out in enumerate(results):
        if out._payload is memory or not out._payload.size or np.may_share_memory(out._payload, memory):
            problem = None
            if not single:
                problem = f"it is one of several views returned by {op.name}()"
            elif mode:
                problem = f"it was made in {mode} mode"
            origin = source._view
            step = (op, [None, *values[1:]], None if single else k)
            base = source if origin is None else origin.base
            chain = (step,) if origin is None else (*origin.chain, step)
            if origin is not None and origin.problem and problem is None:
                problem = origin.problem
            if base._cell is INFERENCE:
                out._cell = INFERENCE
            else:
                out._cell = version_of(base)
                out._view = View(base, chain, problem)


def write_out(op: Op, out: Any, result: Any) -> Any:
    """Write results into the tensors given as ``out`` and return them."""
    if isinstance(result, tuple):
        if not isinstance(out, Sequence) or len(out) != len(result):
            raise TypeError(f"{op.name}(): out must be a sequence of {len(result)} tensors")
        for o, r in zip(out, result, strict=True):
            write_out(op, o, r)
        return type(result)(*out) if hasattr(result, "_fields") else tuple(out)
    if not isinstance(out, Tensor):
        raise TypeError(f"{op.name}(): out must be a tensor, got {type(out).__name__}")
    if type(out._payload) is not np.ndarray or type(result._payload) is not np.ndarray:
        raise TransformError(
            f"{op.name}(): out= is not possible inside a transform; leave it out, and use what is returned"
        )
    if out.requires_grad or result.requires_grad:
        raise RuntimeError(f"{op.name}(): out= does not support gradients; leave it out, or use no_grad()")
    if not can_cast(result.dtype, out.dtype):
        raise DTypeError(f"{op.name}(): a result of {result.dtype} cannot be written to out of {out.dtype}")
    if out._payload.shape != result._payload.shape:
        if out._payload.size:
            raise ShapeError(f"{op.name}(): out has shape {tuple(out.shape)}, the result has {tuple(result.shape)}")
        out._payload = np.empty(result._payload.shape, out._payload.dtype)
    np.copyto(out._payload, result._payload, casting="unsafe")
    wrote(out, op.name)
    return out


def broadcast_spec(op: Op, values: Sequence[Any]) -> Spec:
    """The shape and dtype rule of element-wise operators: broadcast, promote."""
    found = [values[i] for i in op.signature.inputs if isinstance(values[i], Spec)]
    shape = broadcast_shapes(op.name, *(s.shape for s in found))
    return Spec(shape, settled_dtype(op, values))


def settled_dtype(op: Op, values: Sequence[Any]) -> DType:
    """Return the declared result dtype of a promoting operator.

    Raises:
        DTypeError: if a number among its arguments does not fit the dtype that the tensors are cast to.
    """
    dtype = common_dtype(op, values)
    if dtype.category < FLOAT and dtype.numpy.kind != "b":
        limits = np.iinfo(dtype.numpy)
        for i in op.signature.inputs:
            if type(values[i]) is int and not limits.min <= values[i] <= limits.max:
                raise DTypeError(f"{op.name}(): the number {values[i]} does not fit elements of {dtype}")
    if op.result == "bool":
        return dtype_of(np.dtype(np.bool_))
    return real_of(dtype) if op.result == "real" else dtype

"""From a node of a graph to the kernels that compute it: they are recorded, at the addresses where its values will lie."""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from wengert.core.apply import execute
from wengert.core.explain import FAILURES, explained
from wengert.core.operator import Op
from wengert.core.state import thread
from wengert.core.tensor import Tensor, from_array
from wengert.graph.evaluate import compute, noted
from wengert.graph.inferring import tried
from wengert.graph.ir import Graph, Node, Value, replaced
from wengert.graph.operations import Draw, Formula, Fused
from wengert.loops.symbolic import converted, trace_elements, trace_update
from wengert.loops.tracing import Untraceable, name_of, placeholder
from wengert.runtime import eager
from wengert.runtime.contraction import matmul
from wengert.runtime.drawing import draw
from wengert.runtime.launch import pointer
from wengert.runtime.moves import MOVES
from wengert.runtime.pointwise import expression
from wengert.runtime.recording import Check, Recording, ascontiguous, paused, reshaped
from wengert.tape.modes import no_grad

__all__ = ["REPLAYED", "copied", "lower"]

# Operators whose native kernels do nothing but launch machine code on the arrays they are given, so that what they launch can
# be launched again.
REPLAYED = frozenset({
    "matmul", "linear", "rows_product", "addmm", "baddbmm", "softmax", "log_softmax", "softmax_backward",
    "log_softmax_backward", "class_loss", "class_loss_backward", "sum", "mean", "amax", "amin", "sum_to_size", "conv",
    "conv_input", "conv_weight", "normalized", "normalized_backward", "fused_attention", "fused_attention_backward",
    "count_targets", "count_nonzero", "any", "all", "argmax", "argmin", "max_dim", "min_dim", "logsumexp", "max_pool",
    "avg_pool", "avg_pool_transpose", "pool_gather", "pool_scatter", "take_rows", "add_rows", "gather", "index_read",
    "bounded_index", "index_transpose", "scatter_add", "scatter_reduce", "scatter_write", "index_write", "place_along",
    "take", "cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "sort", "argsort", "topk", "kthvalue", "searchsorted",
    "linalg_vector_norm", "variance", "deviation", "adaptive_avg_pool", "adaptive_avg_pool_transpose", "adaptive_max_pool",
    "distinct_rows", "increase_rows", "put_rows",
})  # fmt: skip

Arrays = Callable[[Value], Any]


def lower(node: Node, arrays: Arrays, outs: Sequence[Any], recording: Recording) -> list[Any]:
    """Record what computes a node, native code or a step of Python, and return the arrays in which its results will be.

    Args:
        arrays: gives the memory of the arguments. outs: memory for the results. recording: takes the tasks.

    Returns:
        Usually ``outs``; for a view, arrays on the argument's memory.
    """
    before, why = recording.mark(), "its kernel cannot be recorded for arguments like these"
    recording.copy = lambda source, out: copied(source, out, recording)
    try:
        found = _native(node, arrays, outs, recording)
    except Untraceable as reason:
        found, why = None, f"no kernel for {reason}"
    except FAILURES:
        if not _is_refused(node):
            raise
        found, why = None, "it is refused when it is called"
    if found is None:
        recording.back(before)
        recording.streams.clear()  # whatever it draws comes between other draws
        recording.tasks.append(Step(node, [arrays(v) for v in node.inputs], outs, why))
        return list(outs)
    tasks = recording.tasks
    for k in range(before[0], len(tasks)):
        if isinstance(task := tasks[k], Check):
            tasks[k] = task._replace(complain=partial(_complain, node, task.complain))
    return found


def _complain(node: Node, complain: Callable[[], Any]) -> None:
    """Raise what a check complains of, as the operator raises it, with the line that called it."""
    try:
        complain()
    except FAILURES as error:
        op = node.op
        better = explained(op, list(replaced(node.arguments, _tensor)), error) if isinstance(op, Op) else error
        noted(better, node)
        if better is error:
            raise
        raise better from error


class Step:
    """A node that Python computes.

    Attributes:
        node: it. held: the memory of the values it reads, in order. outs: that of its results. why: no native code does it.
    """

    __slots__ = ("held", "node", "outs", "why")

    def __init__(self, node: Node, held: Sequence[Any], outs: Sequence[Any], why: str) -> None:
        self.node, self.held, self.outs = node, dict(zip(node.inputs, held, strict=True)), outs
        self.why = why

    def __call__(self) -> None:
        """Compute the node into its memory."""
        for out, found in zip(self.outs, compute(self.node, self.held.__getitem__), strict=True):
            np.copyto(out, found)


def _native(node: Node, arrays: Arrays, outs: Sequence[Any], recording: Recording) -> list[Any] | None:
    """Record the native code of a node; None if its kernel does not take these arguments.

    Raises:
        Untraceable: if there is none.
    """
    op = node.op
    if isinstance(op, Formula):
        return _formula(op, node, arrays, outs, recording)
    if isinstance(op, Fused):
        return _fused(op, node, arrays, outs, recording)
    if isinstance(op, Draw):
        draw(op, [_held(a, arrays) for a in node.arguments], outs[0], recording)
        return list(outs)
    if not isinstance(op, Op):
        raise Untraceable(f"a {type(op).__name__}")
    if op.view:
        return _view(op, node, arrays, outs, recording)
    if op.name in COPIES and node.inputs[0].shape == node.results[0].shape:
        copied(arrays(node.inputs[0]), outs[0], recording)
        return list(outs)
    if op.batch == "broadcast" and op.single:
        return _pointwise(op.name, _one(node), node.inputs, arrays, outs, recording)
    if op.name not in REPLAYED and op.name not in MOVES:
        raise Untraceable(f"{op.name} that can be recorded")
    found = _replayed(op, node, arrays, outs, recording) if op.name in REPLAYED else None
    return _moved(op, node, arrays, outs, recording) if found is None and op.name in MOVES else found


def _is_refused(node: Node) -> bool:
    """Whether the operator itself refuses arguments for which no native code could be recorded."""
    with paused():
        return isinstance(node.op, Op) and tried(node.op, replaced(node.arguments, _tensor)) is not None


def _tensor(value: Value) -> Any:
    return from_array(np.empty(value.shape, value.dtype.numpy))


def _one(node: Node) -> Graph:
    """Return a graph of a single node."""
    body = Graph()
    body.nodes = [node]
    body.inputs = list(dict.fromkeys(node.inputs))
    body.outputs = list(node.results)
    return body


# ---- element by element


def _pointwise(
    name: str, body: Graph, inputs: Sequence[Value], arrays: Arrays, outs: Sequence[Any], recording: Recording
) -> list[Any] | None:
    given = list(dict.fromkeys(inputs))
    held = [arrays(v) for v in given]
    if not outs[0].size:
        return list(outs)
    found = trace_elements(lambda tensors: _run(body, tensors), [a.dtype for a in held])
    if any(d != o.dtype for (_, d), o in zip(found, outs, strict=True)):
        raise Untraceable("the dtypes of results")
    shape = outs[0].shape
    if not held or np.broadcast_shapes(*[a.shape for a in held]) != shape:
        held = [*held, np.broadcast_to(outs[0], shape)] if not held else [np.broadcast_to(held[0], shape), *held[1:]]
    _launch(name, found, held, outs, recording)
    return list(outs)


def _launch(name: str, found: Any, held: Sequence[Any], outs: Sequence[Any], recording: Recording) -> None:
    """Record the loop that computes expressions of arrays.

    Raises:
        Untraceable: if there is no kernel for arrays that lie like these.
    """
    made = expression(name, tuple(found), tuple(a.dtype for a in held))
    plan = made.plan(held, outs)
    if plan is None or plan(held, outs) is NotImplemented:
        raise Untraceable("no kernel for this layout")
    recording.kept += [made, plan, *held, *outs]


def _run(body: Graph, tensors: list[Any]) -> list[Any]:
    """Run a graph of element-wise operators on tensors; shapes are nothing to it."""
    values: dict[Value, Any] = dict(zip(body.inputs, tensors, strict=True))
    for value, array in body.constants.items():
        if array.size != 1:
            raise Untraceable("an array among elements")
        values[value] = from_array(array.reshape(()))
    for node in body.nodes:
        if node.op.name in IDENTITIES:
            values[node.results[0]] = values[node.inputs[0]]
            continue
        if node.op.name == "cast":
            values[node.results[0]] = converted(values[node.inputs[0]], node.results[0].dtype.numpy)
            continue
        with no_grad():
            result = execute(node.op, list(replaced(node.arguments, values.__getitem__)))
        for value, tensor in zip(node.results, (result,) if isinstance(result, Tensor) else result, strict=True):
            declared = value.dtype.numpy  # which the result is cast to: a kernel may make floats of integers
            values[value] = tensor if tensor._payload.dtype == declared else converted(tensor, declared)
    return [values[v] for v in body.outputs]


IDENTITIES = frozenset({"expand", "clone", "contiguous", "copied"})  # of single elements
COPIES = IDENTITIES | {"cast", "copy_to_device"}


def copied(source: Any, out: Any, recording: Recording) -> None:
    """Record a copy, which casts and broadcasts.

    Raises:
        Untraceable: if there is no kernel for arrays of these dtypes, or that lie like these.
    """
    if not out.size:
        return
    held, into = (_words(source), _words(out)) if source.dtype == out.dtype else (source, out)
    held = np.broadcast_to(held, into.shape)
    element = placeholder(0, name_of(held.dtype))
    name_of(into.dtype)
    _launch("copy", [(element, into.dtype)], [held], [into], recording)


def _words(array: Any) -> Any:
    """Return an array of any dtype as one of integers, with one more dimension if an element is two of them."""
    size = array.dtype.itemsize
    if size <= 8:
        return array.view(f"u{size}")
    return np.lib.stride_tricks.as_strided(array.real, (*array.shape, 2), (*array.strides, 8)).view(np.uint64)


def _moved(op: Op, node: Node, arrays: Arrays, outs: Sequence[Any], recording: Recording) -> list[Any]:
    """Record the copies that an operator is."""
    (out,) = outs
    if not out.size:
        return [out]
    given = [_held(a, arrays) for a in node.arguments]
    at = op.signature.positional
    for source, part in MOVES[op.name](out, *given[:at], **dict(zip(op.keywords, given[at:], strict=True))):
        if not _is_there(source, part):
            recording.kept += source, part
            copied(source, part, recording)
    return [out]


def _is_there(source: Any, part: Any) -> bool:
    """Whether an array is that part of another which it would be copied to."""
    alike = (source.dtype, source.shape, source.strides) == (part.dtype, part.shape, part.strides)
    return alike and pointer(source) == pointer(part)


# ---- views


def _view(op: Op, node: Node, arrays: Arrays, outs: Sequence[Any], recording: Recording) -> list[Any] | None:
    held = [replaced((a,), arrays)[0] for a in node.arguments]
    source = held[0]
    found = thread.state.run(op.call_kernel, held)  # without warnings: what the arrays hold has not been computed yet
    results = [found] if op.single else list(found)
    if all(np.may_share_memory(r, source) or not r.size for r in results):
        return results
    if op.name not in ("reshape", "view", "flatten", "contiguous", "clone"):
        return None
    whole = recording.keep(source.shape, source.dtype)
    recording.kept.append(whole)
    copied(source, whole, recording)
    return [whole.reshape(outs[0].shape)]


# ---- operators with a kernel of their own


def _replayed(op: Op, node: Node, arrays: Arrays, outs: Sequence[Any], recording: Recording) -> list[Any] | None:
    arguments = [_held(a, arrays) for a in node.arguments]
    if not _castless(op, arguments):
        return None
    before = recording.mark()
    for given in (arguments, None):
        results = _attempt(op, [_dense(a) for a in arguments] if given is None else given, outs, recording)
        if results is not None and _crossed(results, outs):
            recording.back(before)
            results = _attempt(op, [_dense(a) for a in arguments] if given is None else given, (), recording)
        if results is not None:
            return [_settled(r, out, arguments, recording) for r, out in zip(results, outs, strict=True)]
        recording.back(before)
    return None


def _attempt(op: Op, given: Sequence[Any], outs: Sequence[Any], recording: Recording) -> list[Any] | None:
    """Record the native kernel of an operator; return its results, in ``outs`` where they fit, or None if it has none."""
    free = list(outs)

    def provide(shape: Any, dtype: Any) -> Any:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        for k, out in enumerate(free):
            if out is not None and out.dtype == dtype and out.size == np.prod(shape, dtype=np.int64):
                free[k] = None
                return out.reshape(shape)
        return None

    recording.provide = provide
    try:
        found = eager.run(op, given)
    except ValueError as error:  # NumPy was to write into memory that will be there only later
        if "read-only" not in str(error):
            raise
        return None
    finally:
        recording.provide = lambda shape, dtype: None
    if found is NotImplemented:
        return None
    results = [found] if op.single else list(found)
    recording.kept += [*given, *results]
    return results if all(_lies_in(r, recording) for r in results) else None


def _crossed(results: Sequence[Any], outs: Sequence[Any]) -> bool:
    """Whether a result lies in memory that is another result's."""
    pairs = itertools.product(enumerate(results), enumerate(outs))
    return any(k != n and np.may_share_memory(r, out) for (k, r), (n, out) in pairs)


def _castless(op: Op, arguments: Sequence[Any]) -> bool:
    """Whether an operator's kernel takes its arguments as they are: nothing is promoted, and no half widened."""
    common = None
    for i in op.signature.inputs:
        for array in arguments[i] if isinstance(arguments[i], list) else (arguments[i],):
            if not isinstance(array, np.ndarray):
                if array is not None and op.promote is not None:
                    return False
                continue
            if not array.flags.aligned or (op.widen and array.dtype.itemsize == 2 and array.dtype.kind in "fV"):
                return False
            if op.promote is not None and (array.dtype.kind != "f" or (common or array.dtype) != array.dtype):
                return False
            common = array.dtype
    return True


def _held(argument: Any, arrays: Arrays) -> Any:
    if isinstance(argument, Value):
        return arrays(argument)
    if isinstance(argument, tuple) and argument and isinstance(argument[0], Value):
        return [arrays(a) for a in argument]
    return argument


def _dense(argument: Any) -> Any:
    """Return an array as one block of memory; what copies it is recorded."""
    if not isinstance(argument, np.ndarray) or argument.flags.c_contiguous:
        return argument
    return ascontiguous(argument)


def _lies_in(result: Any, recording: Recording) -> bool:
    """Whether a result lies in memory that a recorded task writes: read-only, as :meth:`Recording.empty` gave it."""
    return isinstance(result, np.ndarray) and (not result.flags.writeable or not result.size)


def _settled(result: Any, out: Any, arguments: Sequence[Any], recording: Recording) -> Any:
    """Return a result where others may read it; what lies in scratch is copied. In place of an argument it is that."""
    if any(out is argument for argument in arguments) and pointer(result) == pointer(out):
        return out
    if np.may_share_memory(result, out) or not result.size:
        return result
    copied(result, out, recording)
    return out


# ---- optimisers and what passes fused


def _formula(op: Formula, node: Node, arrays: Arrays, outs: Sequence[Any], recording: Recording) -> list[Any] | None:
    held = [arrays(v) for v in node.inputs]
    count = 2 + op.moments
    if held[0].dtype.kind != "f" or any(a.dtype != held[0].dtype or a.shape != held[0].shape for a in held[:count]):
        return None

    def flat(*arguments: Any) -> None:
        op.function(arguments[0], arguments[1], arguments[2:count], *arguments[count:])

    kinds = [a.dtype for a in held]
    found = dict(trace_update(flat, held, kinds))
    results = [(found[i], kinds[i]) for i in op.written if i in found]
    if len(results) < len(op.written):
        return None
    _launch(op.name, results, held, outs, recording)
    return list(outs)


def _fused(op: Fused, node: Node, arrays: Arrays, outs: Sequence[Any], recording: Recording) -> list[Any] | None:
    given = {inner: arrays(outer) for inner, outer in zip(op.body.inputs, node.arguments, strict=True)}
    before = recording.mark()
    try:
        if op.kind == "pointwise":
            return _pointwise("fused", op.body, op.body.inputs, given.__getitem__, outs, recording)
        if op.kind == "product":
            return _product(op.body, given, outs, recording)
    except Untraceable:
        recording.back(before)
    return _one_by_one(op.body, given, outs, recording)


def _one_by_one(body: Graph, given: dict[Value, Any], outs: Sequence[Any], recording: Recording) -> list[Any]:
    """Record the nodes of a body apart."""
    held = given | body.constants
    final = dict(zip(body.outputs, outs, strict=True))
    last = {v: k for k, node in enumerate(body.nodes) for v in node.inputs}
    made = {v: k for k, node in enumerate(body.nodes) for v in node.results}
    places = {
        v: out for v, out in final.items()
        if not any(np.may_share_memory(out, x) and last.get(inner, -1) > made.get(v, -1) for inner, x in given.items())
    }  # fmt: skip
    for node in body.nodes:
        memory = [places[v] if v in places else recording.scratch(v.shape, v.dtype.numpy) for v in node.results]
        recording.kept += memory
        held.update(zip(node.results, lower(node, held.__getitem__, memory, recording), strict=True))
    for value, out in final.items():
        if held[value].__array_interface__ != out.__array_interface__:
            recording.copy(held[value], out)
    return list(outs)


def _product(body: Graph, given: dict[Value, Any], outs: Sequence[Any], recording: Recording) -> list[Any]:
    """Record a matrix product with what follows on its elements, in one kernel.

    Raises:
        Untraceable: if it is none that the kernel computes.
    """
    first, *rest = body.nodes
    a, b, bias = _factors(first, given)
    last, factor, summand, activation = first.results[0], 1.0, None, ""
    out = outs[0].reshape(*a.shape[:-1], b.shape[-1])
    for node in rest:
        name = node.op.name
        other = next((x for x in node.arguments[:2] if x is not last), None)
        if name == "add" and isinstance(other, Value):
            array = given[other]
            if bias is None and array.shape == out.shape[-1:]:
                bias = array
            else:
                summand = np.broadcast_to(array, outs[0].shape).reshape(out.shape)
                if not np.may_share_memory(summand, array):
                    raise Untraceable("a summand in another shape")
        elif name == "mul":
            factor = float(other)  # type: ignore[arg-type]
        else:
            activation = "gelu_tanh" if name == "gelu" and "tanh" in node.arguments[1:] else name
        last = node.results[0]
    recording.kept += [a, b, out, bias, summand]
    matmul(a, b, out, alpha=factor, addend=summand, beta=0 if summand is None else 1, bias=bias, activation=activation)
    return list(outs)


def _factors(node: Node, given: dict[Value, Any]) -> tuple[Any, Any, Any]:
    """Return the factors of a product as matrices, and its bias.

    Raises:
        Untraceable: for another operator, or arrays that do not lie as matrices.
    """
    found = [given[v] for v in node.inputs]
    if any(x.dtype not in (np.float32, np.float64) or not x.flags.aligned or not x.size for x in found):
        raise Untraceable("the dtypes of a product")
    if node.op.name == "linear" and found[0].ndim > 1:
        a = reshaped(found[0], -1, found[0].shape[-1])
        return a, found[1].T, found[2] if len(found) > 2 else None
    if node.op.name == "matmul" and found[0].ndim == found[1].ndim == 2:
        return found[0], found[1], None
    if node.op.name == "rows_product" and found[0].ndim > 1:
        a, b = (reshaped(x, -1, x.shape[-1]) for x in found)
        return a.T, b, None
    raise Untraceable(node.op.name)

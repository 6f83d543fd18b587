"""What every graph must be: each value made once and before it is read, and of the shape and dtype its operator gives."""

from collections.abc import Sequence
from typing import Any, NoReturn

from wengert.core.operator import Op, Spec
from wengert.core.place import describe
from wengert.core.signature import Slot
from wengert.errors import GraphError
from wengert.graph.ir import Graph, Node, Value, replaced, values_in
from wengert.graph.operations import Draw, Formula, Fused
from wengert.graph.text import show_node

__all__ = ["verify"]

_DEEP = 64  # levels of graphs in graphs


def verify(graph: Graph) -> None:
    """Check that a graph keeps the rules.

    Every value is made once, by an input, a constant or a node, has a name of its own and is made before it is read; each
    result has the shape and dtype that its operator infers; the body of a fused operation is a graph that keeps the rules, too;
    what an input is to hold afterwards is of its shape and dtype.

    Raises:
        GraphError: for the first rule that is broken; the message names the node, and its line of the program.

    Example:
        >>> from wengert.array.dtype import float32
        >>> from wengert.core.operator import Spec
        >>> from wengert.core.registry import operators
        >>> graph = Graph()
        >>> x = graph.input(Spec((2,), float32), (4,), "x")
        >>> node = graph.call(operators()["exp"], (x,), [(Spec((3,), float32), (4,))])
        >>> verify(graph)
        Traceback (most recent call last):
        ...
        wengert.errors.GraphError: %1: float32[3] = exp(%x): %1 is float32[3], but exp gives float32[2]
    """
    _verify(graph, 0)


def _verify(graph: Graph, depth: int) -> None:
    known: set[Value] = set()
    names: set[str] = set()
    for value in graph.inputs:
        _enter(value, known, names, f"the input {value!r}")
    for value, array in graph.constants.items():
        _enter(value, known, names, f"the constant {value!r}")
        if array.shape != value.shape or array.dtype != value.dtype.numpy:
            raise GraphError(f"the constant {value!r} holds {array.dtype}{list(array.shape)}")
    for value in known:
        if value.node is not None:
            raise GraphError(f"{value!r} is an input or a constant, and also a result of {show_node(value.node)}")
    for node in graph.nodes:
        _node(node, known, depth)
        for index, value in enumerate(node.results):
            if value.node is not node or value.index != index:
                _fail(node, f"%{value.name} does not say that it is result {index} of this node")
            _enter(value, known, names, f"{show_node(node)}: the result %{value.name}")
    _ends(graph, known)


def _enter(value: Value, known: set[Value], names: set[str], what: str) -> None:
    """Make a value known."""
    if value in known:
        raise GraphError(f"{what} is made twice")
    if value.name in names:
        raise GraphError(f"{what} has the name of another value")
    if len(value.strides) != len(value.shape):
        raise GraphError(f"{what} has {len(value.strides)} strides for {len(value.shape)} dimensions")
    known.add(value)
    names.add(value.name)


def _ends(graph: Graph, known: set[Value]) -> None:
    """Check the outputs, and what is written."""
    for value in graph.results:
        if value not in known:
            raise GraphError(f"{value!r} is returned or written, but nothing in the graph makes it")
    inputs, targets = set(graph.inputs), set()
    for target, value in graph.writes:
        if target not in inputs:
            raise GraphError(f"{target!r} is written, but is no input")
        if target in targets:
            raise GraphError(f"the input {target!r} is written twice")
        targets.add(target)
        if target.spec != value.spec:
            raise GraphError(f"the input {target!r} cannot hold {value!r}")


def _fail(node: Node, problem: str) -> NoReturn:
    where = "" if node.place is None else f"\n  from {describe(node.place)}"
    raise GraphError(f"{show_node(node)}: {problem}{where}") from None


def _node(node: Node, known: set[Value], depth: int) -> None:
    """Check a node's arguments, and the shapes and dtypes of its results."""
    for value in values_in(node.arguments):
        if value not in known:
            _fail(node, f"%{value.name} is read before it is made" if value.node else f"%{value.name} is unknown here")
    op = node.op
    if isinstance(op, Op):
        _results(node, _inferred(node, op))
    elif isinstance(op, Fused):
        _fused(node, op, depth)
    elif isinstance(op, Draw):
        if len(node.results) != 1 or node.results[0].shape != op.shape:
            _fail(node, f"it draws one tensor of shape {list(op.shape)}")
    elif isinstance(op, Formula):
        _formula(node, op)
    elif not callable(getattr(op, "compute", None)):
        _fail(node, f"{type(op).__name__} is no operation: it has no compute()")


def _results(node: Node, specs: Sequence[Spec]) -> None:
    """Check that the results have these shapes and dtypes."""
    if len(specs) != len(node.results):
        _fail(node, f"it has {len(node.results)} results, but {node.op.name} gives {len(specs)}")
    for value, spec in zip(node.results, specs, strict=True):
        if value.spec.shape != tuple(spec.shape) or value.spec.dtype is not spec.dtype:
            _fail(node, f"%{value.name} is {_spec(value.spec)}, but {node.op.name} gives {_spec(spec)}")


def _spec(spec: Spec) -> str:
    return f"{spec.dtype.name}{list(spec.shape)}"


def _inferred(node: Node, op: Op) -> Sequence[Spec]:
    """Return the shapes and dtypes that an operator gives for a node's arguments."""
    slots = op.signature.slots
    if op.composite:
        _fail(node, f"{op.name} is made of other operators; only those stand in a graph")
    if len(slots) != len(node.arguments):
        _fail(node, f"it has {len(node.arguments)} arguments; the signature is {op.signature}")
    for slot, argument in zip(slots, node.arguments, strict=True):
        _argument(node, slot, argument)
    try:
        found = op.infer(replaced(node.arguments, lambda v: v.spec))
    except Exception as error:  # whatever the rule of an operator says to arguments that it cannot take
        _fail(node, f"its arguments do not fit: {error}")
    return (found,) if isinstance(found, Spec) else tuple(found)


def _argument(node: Node, slot: Slot, argument: Any) -> None:
    """Check that tensors stand where tensors are meant."""
    mark = slot.input
    if mark is None:
        if any(_tensors(argument)):
            _fail(node, f"the argument '{slot.name}' is no tensor")
    elif mark.many:
        if type(argument) is not tuple or not argument or not all(isinstance(v, Value) for v in argument):
            _fail(node, f"the argument '{slot.name}' is a tuple of tensors")
    elif not isinstance(argument, Value):
        number = isinstance(argument, bool | int | float | complex) and mark.scalar
        if not number and not (argument is None and slot.default is None):
            _fail(node, f"the argument '{slot.name}' is a tensor, not {argument!r}")
    for value in values_in((argument,)):
        if mark is not None and value.dtype.category not in mark.categories:
            _fail(node, f"the argument '{slot.name}' must be of kind '{mark.kind}', not {value.dtype.name}")


def _tensors(argument: Any) -> list[Value]:
    """Return the values inside an argument, also those where no value may be."""
    if isinstance(argument, tuple | list):
        return [v for a in argument for v in _tensors(a)]
    return [argument] if isinstance(argument, Value) else []


def _fused(node: Node, op: Fused, depth: int) -> None:
    """Check the body of a fused operation, and that it is a function of the node's arguments to its results."""
    body = op.body
    if depth == _DEEP:
        _fail(node, f"it stands in {_DEEP} levels of fused operations")
    try:
        _verify(body, depth + 1)
    except GraphError as error:
        _fail(node, f"in its body: {error}")
    if body.writes:
        _fail(node, "its body writes into its inputs; what it computes must be a result")
    if len(node.arguments) != len(body.inputs) or not all(isinstance(v, Value) for v in node.arguments):
        _fail(node, f"it takes {len(body.inputs)} tensors")
    for argument, value in zip(node.arguments, body.inputs, strict=True):
        if argument.spec != value.spec:
            _fail(node, f"{argument!r} is given for its input {value!r}")
    _results(node, [v.spec for v in body.outputs])


def _formula(node: Node, op: Formula) -> None:
    """Check that a formula writes into what it is given."""
    tensors = node.arguments[: 2 + op.moments]
    if len(tensors) < 2 + op.moments or not all(isinstance(v, Value) for v in node.arguments):
        _fail(node, f"it takes a parameter, a gradient, {op.moments} moments and its numbers, all of them tensors")
    _results(node, [node.arguments[i].spec for i in op.written])
